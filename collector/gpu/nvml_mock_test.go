// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/go-kit/log"
)

// mockNode is go-nvml's own model of a node, with readings and events.
type mockNode struct {
	*server.Server
	gpus []*server.Device

	mu     sync.Mutex
	events []nvml.EventData
	waits  nvml.Return // what a wait without an event returns
	freed  int
}

func newMockNode(n int) *mockNode {
	m := &mockNode{Server: dgxh100.New(), waits: nvml.ERROR_TIMEOUT}
	m.Devices = m.Devices[:n]
	for i, d := range m.Devices {
		g := d.(*server.Device)
		g.UUID = "GPU-" + string(rune('a'+i))
		g.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return uint32(40 + i), nvml.SUCCESS }
		g.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 250500, nvml.SUCCESS }
		g.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
		g.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
		m.gpus = append(m.gpus, g)
	}
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: m.wait, FreeFunc: func() nvml.Return {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.freed++
			return nvml.SUCCESS
		}}, nvml.SUCCESS
	}
	return m
}

// wait is EventSet.Wait on the test's clock.
func (m *mockNode) wait(timeout uint32) (nvml.EventData, nvml.Return) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 {
		e := m.events[0]
		m.events = m.events[1:]
		return e, nvml.SUCCESS
	}
	if m.waits != nvml.ERROR_TIMEOUT {
		return nvml.EventData{}, m.waits
	}
	m.mu.Unlock()
	time.Sleep(time.Duration(timeout) * time.Millisecond)
	m.mu.Lock()
	return nvml.EventData{}, m.waits
}

func (m *mockNode) fire(d nvml.Device, kind, code uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, nvml.EventData{Device: d, EventType: kind, EventData: code})
}

// open opens the source over the node.
func (m *mockNode) open(t *testing.T, fields ...string) *nvmlSource {
	t.Helper()
	s, err := newNVML(m, SourceConfig{Fields: fields}, log.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	s.procDir = t.TempDir()
	s.proc = ""
	return s
}

func read(t *testing.T, s *nvmlSource) *Sample {
	t.Helper()
	sample, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sample
}

// valueOf returns a device's value of a field, NaN for none.
func valueOf(d Device, field string) float64 {
	for _, v := range d.Values {
		if v.Field == field {
			return v.V
		}
	}
	return math.NaN()
}

const fieldPower = "DCGM_FI_DEV_POWER_USAGE"

func TestNVMLMockNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(8)
		s := m.open(t, fieldTemp, fieldPower)
		sample := read(t, s)
		if sample.Driver != "550.54.15" || len(sample.Devices) != 8 {
			t.Fatalf("driver %q, %d GPUs", sample.Driver, len(sample.Devices))
		}
		d := sample.Devices[7]
		if d.Index != "7" || d.UUID != "GPU-h" || d.Name != "nvidia7" || d.Model != "NVIDIA H100 80GB HBM3" || d.PCIBusID != "00000000:00:00.0" {
			t.Errorf("GPU 7: %+v", d)
		}
		if valueOf(d, fieldTemp) != 47 || valueOf(d, fieldPower) != 250.5 || len(d.Values) != 2 {
			t.Errorf("values: %+v", d.Values)
		}
		if err := s.Close(); err != nil || m.freed != 1 {
			t.Errorf("close: %v, %d event sets freed", err, m.freed)
		}
		if n := len(m.ShutdownCalls()); n != 1 {
			t.Errorf("%d shutdowns", n)
		}
	})
}

// TestNVMLTrouble: one call that fails costs its field, all of them the GPU.
func TestNVMLTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(2)
		s := m.open(t, fieldTemp, fieldPower)
		defer s.Close()
		read(t, s)
		g := m.gpus[0]
		g.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		d := read(t, s).Devices[0]
		if d.Lost || !math.IsNaN(valueOf(d, fieldPower)) || valueOf(d, fieldTemp) != 40 {
			t.Errorf("one call fails: %+v", d)
		}
		g.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_RESET_REQUIRED }
		sample := read(t, s)
		if d := sample.Devices[0]; !d.Lost || d.UUID != "GPU-a" || d.Reason == "" || len(d.Values) != 0 {
			t.Errorf("all fail: %+v", d)
		}
		if d := sample.Devices[1]; d.Lost || valueOf(d, fieldTemp) != 41 {
			t.Errorf("the other: %+v", d)
		}
		// A bad handle is replaced.
		fresh := dgxh100.NewDevice(0)
		fresh.UUID = "GPU-a"
		fresh.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 33, nvml.SUCCESS }
		fresh.GetPowerUsageFunc = g.GetPowerUsageFunc
		fresh.RegisterEventsFunc = g.RegisterEventsFunc
		fresh.GetNvLinkStateFunc = g.GetNvLinkStateFunc
		m.Devices[0] = fresh
		time.Sleep(checkInterval)
		if d := read(t, s).Devices[0]; d.Lost || valueOf(d, fieldTemp) != 33 {
			t.Errorf("new handle: %+v", d)
		}
	})
}

// TestNVMLHandleFails keeps the identity of a GPU whose handle is not to be had.
func TestNVMLHandleFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(3)
		s := m.open(t, fieldTemp)
		defer s.Close()
		read(t, s)
		good := m.DeviceGetHandleByIndexFunc
		m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == 1 {
				return nil, nvml.ERROR_GPU_IS_LOST
			}
			return good(i)
		}
		m.gpus[1].GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
		read(t, s)
		time.Sleep(checkInterval)
		devices := read(t, s).Devices
		if d := devices[1]; len(devices) != 3 || !d.Lost || d.UUID != "GPU-b" || d.Reason != "ERROR_GPU_IS_LOST" {
			t.Errorf("devices: %+v", devices)
		}
		// A source that starts now has only its place.
		again := m.open(t, fieldTemp)
		defer again.Close()
		devices = read(t, again).Devices
		if d := devices[1]; len(devices) != 3 || !d.Lost || d.UUID != "" || d.Index != "1" {
			t.Errorf("from the start: %+v", devices)
		}
		// One that belongs to another container is not lost, it is not ours.
		m.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i == 1 {
				return nil, nvml.ERROR_NO_PERMISSION
			}
			return good(i)
		}
		third := m.open(t, fieldTemp)
		defer third.Close()
		if devices := read(t, third).Devices; len(devices) != 2 || devices[1].UUID != "GPU-c" {
			t.Errorf("without permission: %+v", devices)
		}
	})
}

// TestNVMLUnsupportedRetried asks again after a while: ECC may have been switched on.
func TestNVMLUnsupportedRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(1)
		calls, ret := 0, nvml.ERROR_NOT_SUPPORTED
		m.gpus[0].GetPowerUsageFunc = func() (uint32, nvml.Return) { calls++; return 100000, ret }
		s := m.open(t, fieldTemp, fieldPower)
		defer s.Close()
		for range 10 {
			if d := read(t, s).Devices[0]; d.Lost || !math.IsNaN(valueOf(d, fieldPower)) {
				t.Errorf("not supported: %+v", d)
			}
			time.Sleep(time.Second)
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		ret = nvml.SUCCESS
		time.Sleep(unsupportedFor)
		if d := read(t, s).Devices[0]; valueOf(d, fieldPower) != 100 {
			t.Errorf("supported now: %+v", d)
		}
	})
}

func TestNVMLMockXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(2)
		s := m.open(t, fieldTemp)
		m.fire(m.gpus[1], nvml.EventTypeXidCriticalError, 79)
		m.fire(m.gpus[1], 1, 5) // of another kind
		m.fire(m.gpus[0], nvml.EventTypeXidCriticalError, 94)
		stranger := dgxh100.NewDevice(0) // another handle of the same GPU
		stranger.UUID = "GPU-b"
		m.fire(stranger, nvml.EventTypeXidCriticalError, 31)
		time.Sleep(time.Second)
		got := read(t, s).XIDs
		if len(got) != 3 || got[0].UUID != "GPU-b" || got[0].Code != 79 || got[1].UUID != "GPU-a" || got[1].Code != 94 || got[2].UUID != "GPU-b" || got[2].Code != 31 {
			t.Errorf("XIDs: %+v", got)
		}
		if again := read(t, s).XIDs; len(again) != 0 {
			t.Errorf("told twice: %+v", again)
		}
		// A wait that fails is tried again after a pause, not in a loop.
		m.mu.Lock()
		m.waits = nvml.ERROR_UNKNOWN
		m.mu.Unlock()
		time.Sleep(10 * time.Second)
		m.mu.Lock()
		m.waits = nvml.ERROR_TIMEOUT
		m.mu.Unlock()
		m.fire(m.gpus[0], nvml.EventTypeXidCriticalError, 48)
		time.Sleep(2 * time.Second)
		if got := read(t, s).XIDs; len(got) != 1 || got[0].Code != 48 {
			t.Errorf("after failures: %+v", got)
		}
		s.Close()
		if m.freed != 1 {
			t.Errorf("%d event sets freed", m.freed)
		}
	})
}

// TestNVMLLastXID: the error that takes the only GPU away is told, although the
// waiting ends with it.
func TestNVMLLastXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(1)
		s := m.open(t, fieldTemp)
		defer s.Close()
		g := m.gpus[0]
		g.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
		g.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
		if d := read(t, s).Devices[0]; !d.Lost || d.UUID != "GPU-a" {
			t.Errorf("not lost: %+v", d)
		}
		m.fire(g, nvml.EventTypeXidCriticalError, 79)
		time.Sleep(checkInterval)
		if got := read(t, s).XIDs; len(got) != 1 || got[0].UUID != "GPU-a" || got[0].Code != 79 {
			t.Errorf("XIDs: %+v", got)
		}
		if m.freed != 1 {
			t.Errorf("%d event sets freed", m.freed)
		}
	})
}

// TestNVMLWithoutEvents: XIDs are missing, nothing else.
func TestNVMLWithoutEvents(t *testing.T) {
	m := newMockNode(2)
	m.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_UNKNOWN }
	s := m.open(t, fieldTemp)
	defer s.Close()
	if sample := read(t, s); len(sample.Devices) != 2 || valueOf(sample.Devices[1], fieldTemp) != 41 {
		t.Errorf("sample: %+v", sample)
	}
}

// TestNVMLStartsAnew: NVML learns of other GPUs only from a new start.
func TestNVMLStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(2)
		s := m.open(t, fieldTemp)
		defer s.Close()
		read(t, s)
		if err := os.Mkdir(filepath.Join(s.procDir, "0000:1a:00.0"), 0o755); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkInterval)
		read(t, s)
		if inits, ends := len(m.InitCalls()), len(m.ShutdownCalls()); inits != 2 || ends != 1 {
			t.Errorf("%d starts, %d ends", inits, ends)
		}
		// The driver goes away and comes back.
		count := m.DeviceGetCountFunc
		m.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
		m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
		time.Sleep(checkInterval)
		if _, err := s.Read(t.Context()); !errors.Is(err, nvml.ERROR_UNINITIALIZED) {
			t.Errorf("without NVML: %v", err)
		}
		if _, err := s.Read(t.Context()); err == nil || err.Error() != "the NVIDIA driver is not loaded" {
			t.Errorf("without the driver: %v", err)
		}
		m.DeviceGetCountFunc = count
		m.InitFunc = func() nvml.Return { return nvml.SUCCESS }
		if sample := read(t, s); len(sample.Devices) != 2 || sample.Devices[0].Lost {
			t.Errorf("back: %+v", sample)
		}
	})
}
