// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

// bench is the equipment behind the driver "scripted": what each address does.
type bench struct {
	mu      sync.Mutex
	open    map[string]error // what opening says
	read    map[string]readFunc
	journal []string
}

type readFunc func(ctx context.Context) ([]Reading, error)

// onOpen says what opening an address gives.
func (b *bench) onOpen(address string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[address] = err
}

// onRead says what reading an address gives; by default 1000 W.
func (b *bench) onRead(address string, f readFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read[address] = f
}

func fixed(list ...Reading) readFunc {
	return func(context.Context) ([]Reading, error) { return list, nil }
}

// benches finds the bench of a test by its name, which is the entry's profile.
var benches sync.Map

func init() {
	Register("scripted", "answers as a test says", func(fc FactoryConfig) (Plan, error) {
		v, _ := benches.Load(fc.Profile)
		b, ok := v.(*bench)
		if !ok {
			return Plan{}, errors.New("no bench")
		}
		var c struct {
			Exclusive string   `yaml:"exclusive"`
			Serves    []string `yaml:"serves"`
		}
		if err := fc.Decode(&c); err != nil {
			return Plan{}, err
		}
		return Plan{Exclusive: c.Exclusive, Serves: c.Serves, Open: func(context.Context) (Driver, error) {
			b.mu.Lock()
			err := b.open[fc.Address]
			b.mu.Unlock()
			if err != nil {
				b.note("fail " + fc.Address)
				return nil, err
			}
			b.note("open " + fc.Address)
			return &scripted{b, fc.Address}, nil
		}}, nil
	})
}

type scripted struct {
	bench   *bench
	address string
}

func (s *scripted) Read(ctx context.Context) ([]Reading, error) {
	s.bench.mu.Lock()
	f := s.bench.read[s.address]
	s.bench.mu.Unlock()
	if f == nil {
		f = fixed(Reading{Quantity: "power", Value: 1000})
	}
	return f(ctx)
}

func (s *scripted) Close() error { s.bench.note("close " + s.address); return nil }

func (b *bench) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal = append(b.journal, what)
}

// happened returns the journal since the last call.
func (b *bench) happened() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.journal = nil }()
	return strings.Join(b.journal, ", ")
}

func newBench(t *testing.T) *bench {
	b := &bench{open: map[string]error{}, read: map[string]readFunc{}}
	benches.Store(t.Name(), b)
	t.Cleanup(func() { benches.Delete(t.Name()) })
	return b
}

// scriptedEntries writes entries; each is "device address [exclusive]".
func scriptedEntries(t *testing.T, list ...string) []DeviceConfig {
	var b strings.Builder
	b.WriteString("facility:\n")
	for _, e := range list {
		f := strings.Fields(e)
		fmt.Fprintf(&b, "- {device: %s, driver: scripted, profile: %s, address: %s, deadline: 5s", f[0], t.Name(), f[1])
		if len(f) > 2 {
			fmt.Fprintf(&b, ", scripted: {exclusive: %s}", f[2])
		}
		b.WriteString("}\n")
	}
	return entries(t, b.String())
}

// running starts a Runner in a bubble; stop ends it and waits for all of it.
func runningRunner(t *testing.T, configs []DeviceConfig) (r *Runner, store *collector.Store, stop func()) {
	t.Helper()
	store = collector.NewStore()
	store.SetIdentity(hallIdentity())
	r, err := New(configs, Deps{Store: store, Logger: log.NewNopLogger(), Device: hallDevice})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	synctest.Wait()
	return r, store, func() { cancel(); <-done }
}

// TestRunner: values carry the labels of their device, and one device that
// fails leaves the others alone.
func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.onOpen("dead", errors.New("no route to host"))
		b.onRead("tor", fixed(Reading{Quantity: "port_up", Part: "Ethernet1", Value: 1}))
		r, store, stop := runningRunner(t, scriptedEntries(t, "r01-a good", "crah1 dead", "tor1 tor"))
		if got := fmt.Sprint(r.Devices()); got != "[r01-a crah1 tor1]" {
			t.Errorf("devices %s", got)
		}
		time.Sleep(time.Millisecond)
		start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		wantLines(t, store,
			`pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`,
			`switch_port_up{port="Ethernet1",switch="tor1",rack_id="r01"} 1`,
			`facility_device_up{device="r01-a",driver="scripted",pdu_id="r01-a",rack_id="r01"} 1`,
			`facility_device_up{device="crah1",driver="scripted",cooling_unit="crah1"} 0`,
			`rackpulse_source_info{source="crah1",reason="open: no route to host"} 1`,
			fmt.Sprintf(`facility_last_sample_timestamp_seconds{device="r01-a",pdu_id="r01-a",rack_id="r01"} %g`, float64(start)),
		)
		noLines(t, store, `facility_last_sample_timestamp_seconds{device="crah1"`, "rackpulse_simulated")

		// The device comes to life; the back-off is at most a minute.
		b.onOpen("dead", nil)
		b.onRead("dead", fixed(Reading{Quantity: "supply_temperature", Value: 18}))
		time.Sleep(61 * time.Second)
		wantLines(t, store,
			`facility_device_up{device="crah1",driver="scripted",cooling_unit="crah1"} 1`,
			`cooling_unit_supply_temperature_celsius{cooling_unit="crah1"} 18`)
		stop()
		ended := b.happened()
		for _, want := range []string{"close good", "close dead", "close tor"} {
			if !strings.Contains(ended, want) {
				t.Errorf("no %q at the end: %s", want, ended)
			}
		}
	})
}

// TestDeviceDies: the values vanish at three intervals, what is said about the
// device stays for as long as it takes.
func TestDeviceDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, store, stop := runningRunner(t, scriptedEntries(t, "r01-a x"))
		defer stop()
		time.Sleep(time.Millisecond)
		b.onRead("x", func(context.Context) ([]Reading, error) { return nil, errors.New("timeout") })
		time.Sleep(40 * time.Second)
		up := `facility_device_up{device="r01-a",driver="scripted",pdu_id="r01-a",rack_id="r01"} `
		wantLines(t, store, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`, up+"0")
		for range 30 {
			time.Sleep(17 * time.Second)
			noLines(t, store, "pdu_power_watt")
			wantLines(t, store, up+"0", `rackpulse_source_info{source="r01-a",reason="timeout"} 1`)
		}
		if got := b.happened(); got != "open x" {
			t.Errorf("a failed read alone does not close the device, but: %s", got)
		}
	})
}

// TestDeviceGone: ErrGone closes the device and opens it again.
func TestDeviceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		reads := 0
		b.onRead("x", func(context.Context) ([]Reading, error) {
			if reads++; reads == 2 {
				return nil, fmt.Errorf("%w: unplugged", ErrGone)
			}
			return []Reading{{Quantity: "power", Value: float64(reads)}}, nil
		})
		_, store, stop := runningRunner(t, scriptedEntries(t, "r01-a x"))
		defer stop()
		time.Sleep(20 * time.Second)
		if got := b.happened(); got != "open x, close x, open x" {
			t.Errorf("journal %s", got)
		}
		wantLines(t, store, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 3`)
	})
}

// TestHangingDevice: a read that ignores its deadline holds up neither the other
// devices nor the end, and the device is closed when the read returns.
func TestHangingDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		release := make(chan struct{})
		b.onRead("stuck", func(context.Context) ([]Reading, error) { <-release; return nil, nil })
		_, store, stop := runningRunner(t, scriptedEntries(t, "r01-a good", "crah1 stuck"))
		time.Sleep(2 * time.Minute)
		wantLines(t, store,
			`pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`,
			`facility_device_up{device="crah1",driver="scripted",cooling_unit="crah1"} 0`,
			`rackpulse_source_info{source="crah1",reason="no answer within 5s"} 1`)
		start := time.Now()
		stop()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the end took %s", took)
		}
		if strings.Contains(b.happened(), "close stuck") {
			t.Error("closed while it was read")
		}
		close(release)
		synctest.Wait()
		if b.happened() != "close stuck" {
			t.Error("not closed after the read came back")
		}
	})
}

// TestRefusedReadings: what does not fit the table is left out, counted and
// named; the rest is shown.
func TestRefusedReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.onRead("x", func(context.Context) ([]Reading, error) {
			return []Reading{
				{Quantity: "leak", Value: 1},
				{Quantity: "heat", Value: 1},
				{Quantity: "phase_current", Value: 1},
				{Quantity: "phase_current", Part: "L1", Value: 11},
				{Quantity: "phase_current", Part: "1", Value: 12},
				{Quantity: "current", Value: 7467},
				{Device: "r99-x", Quantity: "inlet_temperature", Value: 20},
				{Device: "row-a-leak", Quantity: "leak", Value: 1},
				{Device: "r01-in-top", Quantity: "inlet_temperature", Value: 20, At: time.Now().Add(time.Hour)},
			}, errors.New("branch table: timeout")
		})
		_, store, stop := runningRunner(t, scriptedEntries(t, "r01-a x"))
		defer stop()
		time.Sleep(time.Millisecond)
		wantLines(t, store,
			`pdu_phase_current_ampere{phase="1",pdu_id="r01-a",rack_id="r01"} 11`,
			`facility_leak_detected{sensor="row-a-leak"} 1`,
			`rack_inlet_temperature_celsius{position="top",sensor="r01-in-top",rack_id="r01"} 20`,
			`facility_device_up{device="r01-a",driver="scripted",pdu_id="r01-a",rack_id="r01"} 1`,
			`facility_device_up{device="row-a-leak",driver="scripted",sensor="row-a-leak"} 1`,
			// A device whose clock is ahead measured now, not in an hour.
			`facility_last_sample_timestamp_seconds{device="r01-in-top",position="top",sensor="r01-in-top",rack_id="r01"} 9.466848e+08`,
			`rackpulse_facility_refused_readings_total{device="r01-a",reason="kind",pdu_id="r01-a",rack_id="r01"} 1`,
			`rackpulse_facility_refused_readings_total{device="r01-a",reason="unknown_quantity",pdu_id="r01-a",rack_id="r01"} 1`,
			`rackpulse_facility_refused_readings_total{device="r01-a",reason="part",pdu_id="r01-a",rack_id="r01"} 1`,
			`rackpulse_facility_refused_readings_total{device="r01-a",reason="duplicate",pdu_id="r01-a",rack_id="r01"} 1`,
			`rackpulse_rejected_samples_total{field="pdu_current_ampere",reason="range"} 1`,
			`rackpulse_rejected_samples_total{field="rack_inlet_temperature_celsius",reason="unknown_device"} 1`,
			`rackpulse_source_info{source="r01-a",reason="branch table: timeout device r01-a: quantity leak belongs to a sensor or cooling_unit, not to a pdu"} 1`,
		)
	})
}

// TestTooManyReadings: a device that floods does not fill the memory.
func TestTooManyReadings(t *testing.T) {
	d := newDevice(DeviceConfig{Device: "tor1"}, Plan{}, hallKind, collector.NewStore(), log.NewNopLogger())
	list := make([]Reading, maxReadings+5)
	for i := range list {
		list[i] = Reading{Quantity: "port_up", Part: fmt.Sprint(i), Value: 1}
	}
	snap, err := d.snapshot(list, time.Now())
	wantErr(t, err, "more than 10000 readings")
	if len(snap.Points) != maxReadings {
		t.Errorf("%d points", len(snap.Points))
	}
}

// TestKindArrivesLate: before the registry has told what a device is, its
// values wait; after that they are checked.
func TestKindArrivesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.onRead("x", fixed(Reading{Quantity: "leak", Value: 1}, Reading{Quantity: "power", Value: 5}))
		var known atomic.Bool
		store := collector.NewStore()
		r, err := New(scriptedEntries(t, "r01-a x"), Deps{Store: store, Logger: log.NewNopLogger(), Device: func(id string) (site.Device, bool) {
			if !known.Load() {
				return site.Device{}, false
			}
			return hallDevice(id)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		time.Sleep(time.Second)
		wantLines(t, store, `facility_device_up{device="r01-a",driver="scripted"} 1`)
		noLines(t, store, "pdu_power_watt", "facility_leak_detected")
		known.Store(true)
		store.SetIdentity(hallIdentity())
		wantLines(t, store, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 5`)
		time.Sleep(20 * time.Second)
		noLines(t, store, "facility_leak_detected")
		cancel()
		<-done
	})
}
