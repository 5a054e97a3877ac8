// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

func init() {
	register(registration{name: "nvml", priority: 20, child: true, open: openNVML})
}

const (
	nvmlLibrary = "libnvidia-ml.so.1"
	// nvmlProcDir has one folder for each GPU that the kernel driver holds.
	nvmlProcDir = "/proc/driver/nvidia/gpus"
	// unsupportedFor is how long a call is not tried again on a GPU that does
	// not support it. ECC and MIG may be switched on while the agent runs.
	unsupportedFor = 5 * time.Minute
)

// nvmlRequired are the functions that this source cannot do without. Calling one
// that the library lacks ends the process, so all others are looked up as well.
var nvmlRequired = []string{
	"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo",
}

// nvmlSource reads the GPUs through go-nvml. Its methods are called by one
// goroutine; only the one of the events runs beside it.
type nvmlSource struct {
	lib     nvml.Interface
	cfg     SourceConfig
	logger  log.Logger
	procDir string

	ready    bool
	calls    []nvmlCall // what Read calls for each GPU
	gpus     []*nvmlGPU
	count    int    // of NVML's list
	proc     string // what procDir had when NVML was started
	driver   string
	checked  time.Time
	checkMIG time.Time
	slowAt   time.Time // the slow fields were read at; zero: to be read at once

	events    *nvmlEvents
	listening []nvml.Device // what the events are of, or could not be had of
	xids      []XID         // not told yet, of events that ended

	procs processReader
}

// nvmlGPU is one physical GPU.
type nvmlGPU struct {
	handle    nvml.Device // nil: none to be had
	index     int
	device    Device // static attributes
	static    bool   // they are complete
	hadValues bool
	lost      string      // why, "": it is not
	off       []time.Time // for each call: not before this time

	mig       bool // MIG mode is on
	instances []nvmlInstance

	rates map[string]*rate           // of NVLink traffic in KiB, by field
	links map[string]map[int]float64 // counts by field and link

	noLinks time.Time // no NVLinks to be asked for before this time
	linked  bool      // one was up since the start
}

// nvmlInstance is one MIG GPU instance.
type nvmlInstance struct {
	handle       nvml.Device
	profile, gid string
	off          []time.Time
}

// openNVML loads the library and finds the GPUs. It fails where there is no
// driver, or no GPU.
func openNVML(_ context.Context, cfg SourceConfig, logger log.Logger) (Source, error) {
	return newNVML(nvml.New(), cfg, logger)
}

func newNVML(lib nvml.Interface, cfg SourceConfig, logger log.Logger) (*nvmlSource, error) {
	s := &nvmlSource{lib: lib, cfg: cfg, logger: logger, procDir: nvmlProcDir}
	if err := s.connect(); err != nil {
		return nil, err
	}
	if len(s.gpus) == 0 {
		s.disconnect()
		return nil, errors.New("NVML shows no GPU")
	}
	return s, nil
}

// connect starts NVML. The list of GPUs that NVML has is that of this moment.
func (s *nvmlSource) connect() error {
	s.proc = procGPUs(s.procDir)
	if ret := s.lib.Init(); ret != nvml.SUCCESS {
		return initError(ret)
	}
	s.ready = true
	for _, symbol := range nvmlRequired {
		if !s.has(symbol) {
			s.disconnect()
			return fmt.Errorf("%s lacks the function %s", nvmlLibrary, symbol)
		}
	}
	s.calls = s.wanted()
	s.slowAt = time.Time{}
	if s.has("nvmlSystemGetDriverVersion") {
		if version, ret := s.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
			s.driver = version
		}
	}
	if err := s.enumerate(time.Now()); err != nil {
		s.disconnect()
		return err
	}
	return nil
}

// initError says what NVML's refusal to start means to an operator.
func initError(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		// go-nvml keeps the linker's message to itself.
		err := dl.New(nvmlLibrary, dl.RTLD_LAZY).Open()
		switch {
		case err == nil:
			return errors.New("NVML does not start: a library of the driver is missing")
		case strings.Contains(err.Error(), "No such file"):
			return errors.New(nvmlLibrary + " not found (no NVIDIA driver)")
		}
		return err
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("the NVIDIA driver is not loaded")
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("driver/library version mismatch: the loaded kernel module and %s are of different versions, reboot or reload the module", nvmlLibrary)
	case nvml.ERROR_NO_PERMISSION:
		return errors.New("no permission to talk to the NVIDIA driver (/dev/nvidiactl)")
	}
	return fmt.Errorf("NVML does not start: %w", ret)
}

// has tells whether the loaded library has a function.
func (s *nvmlSource) has(symbol string) bool {
	return s.lib.Extensions().LookupSymbol(symbol) == nil
}

// disconnect gives everything back.
func (s *nvmlSource) disconnect() {
	if !s.ready {
		return
	}
	s.ready = false
	s.stopEvents()
	if ret := s.lib.Shutdown(); ret != nvml.SUCCESS {
		level.Info(s.logger).Log("msg", "NVML does not end well", "err", ret)
	}
}

// Close implements Source.
func (s *nvmlSource) Close() error {
	s.disconnect()
	return nil
}

// Read implements Source.
func (s *nvmlSource) Read(context.Context) (*Sample, error) {
	now := time.Now()
	if !s.ready {
		if err := s.connect(); err != nil {
			return nil, err
		}
		level.Info(s.logger).Log("msg", "NVML started again")
	}
	if now.Sub(s.checked) >= checkInterval {
		if err := s.check(now); err != nil {
			return nil, err
		}
	}
	sample := &Sample{At: now, Driver: s.driver, Devices: make([]Device, 0, len(s.gpus))}
	sample.FastOnly = !s.cfg.slowDue(s.slowAt, now)
	if !sample.FastOnly {
		s.slowAt = now
	}
	for _, g := range s.gpus {
		was, first := g.lost, len(sample.Devices)
		sample.Devices = s.devices(sample.Devices, g, now, !sample.FastOnly)
		if !sample.FastOnly {
			s.support(sample.Devices[first:], g, now)
		}
		if was != "" && g.lost == "" && sample.FastOnly {
			s.slowAt = time.Time{} // it is back: do not let its slow values wait
		}
	}
	if !sample.FastOnly {
		sample.Aside.Entities = s.linkPass(now)
	}
	sample.XIDs = s.takeXIDs()
	sample.Processes = s.processes(now)
	return sample, nil
}

// check looks for GPUs that came, went or answer again. NVML itself learns of
// another GPU only when it is started anew.
func (s *nvmlSource) check(now time.Time) error {
	s.checked = now
	if procGPUs(s.procDir) != s.proc {
		level.Info(s.logger).Log("msg", "GPUs of the kernel driver changed, starting NVML anew")
		s.disconnect()
		return s.connect()
	}
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		if ret == nvml.ERROR_UNINITIALIZED {
			s.disconnect()
		}
		return fmt.Errorf("nvmlDeviceGetCount: %w", ret)
	}
	lost := slices.ContainsFunc(s.gpus, func(g *nvmlGPU) bool { return g.lost != "" })
	if count != s.count || lost {
		return s.enumerate(now)
	}
	if now.Sub(s.checkMIG) >= migInterval {
		s.findInstances(now)
	}
	s.listen() // a GPU that answers again is to be listened to
	return nil
}

// procGPUs is the kernel driver's list of GPUs, "" where it is not to be seen.
func procGPUs(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var names strings.Builder
	for _, e := range entries {
		names.WriteString(e.Name() + " ")
	}
	return names.String()
}

// devices appends a GPU, or its instances. They have the values of the whole
// GPU, as with DCGM, but for the memory, which is their own.
func (s *nvmlSource) devices(list []Device, g *nvmlGPU, now time.Time, slow bool) []Device {
	var values []Value
	if g.handle != nil {
		values, g.lost = s.readGPU(g, now, slow)
	}
	d := g.device
	if g.lost != "" {
		d.Lost, d.Reason = true, g.lost
		return append(list, d)
	}
	if len(g.instances) == 0 {
		d.Values = values
		return append(list, d)
	}
	for i := range g.instances {
		instance := &g.instances[i]
		d.MIGProfile, d.MIGID = instance.profile, instance.gid
		d.Values = s.readInstance(g, instance, slices.Clone(values), now)
		list = append(list, d)
	}
	return list
}

// readGPU calls everything that is wanted of a GPU, the slow calls if they are due.
// What it does not support is absent. lost says why the GPU does not answer at all,
// "": it does; that is judged by the calls of every pass.
func (s *nvmlSource) readGPU(g *nvmlGPU, now time.Time, slow bool) (values []Value, lost string) {
	values = make([]Value, 0, 2*len(s.calls))
	failure, good, answers := nvml.SUCCESS, false, false
	for i := range s.calls {
		c := &s.calls[i]
		if c.slow && !slow || c.instead && good || !c.scope.covers(g) {
			continue
		}
		var ret nvml.Return
		values, ret = c.call(g, g.handle, &g.off[i], values, now)
		good = ret == nvml.SUCCESS
		switch {
		case ret == nvml.ERROR_GPU_IS_LOST:
			return nil, ret.Error()
		case c.slow:
		case good:
			answers = true
		case !unsupported(ret):
			failure = ret
		}
	}
	if answers {
		g.hadValues = true
		return values, ""
	}
	if failure != nvml.SUCCESS {
		return nil, failure.Error()
	}
	if g.hadValues {
		return nil, "no values"
	}
	return values, "" // a card that tells hardly more than its name
}

// readInstance appends what is the instance's own.
func (s *nvmlSource) readInstance(g *nvmlGPU, instance *nvmlInstance, values []Value, now time.Time) []Value {
	good := false
	for i := range s.calls {
		c := &s.calls[i]
		if c.scope != ofInstance && c.scope != onlyInstance || c.instead && good {
			continue
		}
		var ret nvml.Return
		values, ret = c.call(g, instance.handle, &instance.off[i], values, now)
		good = ret == nvml.SUCCESS
	}
	return values
}
