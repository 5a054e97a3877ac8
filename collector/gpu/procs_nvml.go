// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// processStop is how long the end of a source waits for a reading of the
// processes under way; one that hangs ends with the child process.
const processStop = 500 * time.Millisecond

// maxMemory is more than any GPU has, in bytes: 256 TiB.
const maxMemory = 1 << 48

// processLists are NVML's lists of processes by kind. go-nvml calls the newest
// version of a function that the library has.
var processLists = []struct {
	kind    int
	symbol  string
	list    func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)
	require bool // a GPU without this list has none
}{
	{kindCompute, "nvmlDeviceGetComputeRunningProcesses", nvml.Device.GetComputeRunningProcesses, true},
	{kindGraphics, "nvmlDeviceGetGraphicsRunningProcesses", nvml.Device.GetGraphicsRunningProcesses, false},
	{kindMPS, "nvmlDeviceGetMPSComputeRunningProcesses", nvml.Device.GetMPSComputeRunningProcesses, false},
}

// processReader lists the processes on GPUs. It holds no handles.
type processReader struct {
	has  func(symbol string) bool
	last time.Time
}

// due tells whether the processes are to be listed again.
func (r *processReader) due(interval time.Duration, now time.Time) bool {
	if interval == 0 || now.Sub(r.last) < interval {
		return false
	}
	r.last = now
	return true
}

// hasList tells whether the library has any version of a list.
func (r *processReader) hasList(symbol string) bool {
	return r.has(symbol) || r.has(symbol+"_v2") || r.has(symbol+"_v3")
}

// read lists one GPU's processes.
func (r *processReader) read(d nvml.Device, uuid string) GPUProcesses {
	g := GPUProcesses{UUID: uuid, Used: -1}
	if r.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := d.GetMemoryInfo_v2(); ret == nvml.SUCCESS && m.Used <= maxMemory {
			g.Used = int64(m.Used)
		}
	}
	handles := r.instances(d, &g)
	err := r.lists(d, &g, "", "")
	if err != nil && len(handles) > 0 { // with MIG the whole GPU's list needs more rights
		g.Processes, g.Kinds, err = nil, 0, nil
		for i, h := range handles {
			err = cmp.Or(err, r.lists(h, &g, g.Instances[i].GI, g.Instances[i].CI))
		}
	}
	if err == nil && len(g.Processes) > maxProcesses {
		err = fmt.Errorf("more than %d processes", maxProcesses)
	}
	if err != nil {
		g.Err, g.Processes, g.Kinds = err.Error(), nil, 0
	}
	return g
}

// lists adds the processes of all lists of a device; gi and ci are those of the
// device where the lists do not tell.
func (r *processReader) lists(d nvml.Device, g *GPUProcesses, gi, ci string) error {
	for _, l := range processLists {
		ret := nvml.ERROR_FUNCTION_NOT_FOUND
		var infos []nvml.ProcessInfo
		if r.hasList(l.symbol) {
			infos, ret = l.list(d)
		}
		if ret != nvml.SUCCESS {
			if l.require {
				return fmt.Errorf("%s: %w", l.symbol, ret)
			}
			continue
		}
		g.Kinds |= l.kind
		for _, info := range infos {
			p := Process{PID: int(info.Pid), GI: gi, CI: ci, Kind: l.kind, Memory: -1}
			if info.UsedGpuMemory <= maxMemory { // else NVML_VALUE_NOT_AVAILABLE
				p.Memory = int64(info.UsedGpuMemory)
			}
			if info.GpuInstanceId != math.MaxUint32 {
				p.GI = strconv.FormatUint(uint64(info.GpuInstanceId), 10)
			}
			if info.ComputeInstanceId != math.MaxUint32 {
				p.CI = strconv.FormatUint(uint64(info.ComputeInstanceId), 10)
			}
			g.add(p)
		}
	}
	return nil
}

// add takes a process in. One that is in several lists has the same memory in
// each: all of its contexts.
func (g *GPUProcesses) add(p Process) {
	for i := range g.Processes {
		q := &g.Processes[i]
		if q.PID == p.PID && q.GI == p.GI && q.CI == p.CI {
			q.Kind |= p.Kind
			q.Memory = max(q.Memory, p.Memory)
			return
		}
	}
	if len(g.Processes) <= maxProcesses { // one more shows that there are too many
		g.Processes = append(g.Processes, p)
	}
}

// instances adds the MIG compute instances of a GPU and returns their handles.
func (r *processReader) instances(d nvml.Device, g *GPUProcesses) []nvml.Device {
	for _, symbol := range append([]string{"nvmlDeviceGetComputeInstanceId"}, migSymbols...) {
		if !r.has(symbol) {
			return nil
		}
	}
	if mode, _, ret := d.GetMigMode(); ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	count, ret := d.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var handles []nvml.Device
	for i := range min(count, 64) { // there are 7 at most today
		h, ret := d.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // not in use
		}
		uuid, ret := h.GetUUID()
		gi, ret2 := h.GetGpuInstanceId()
		ci, ret3 := h.GetComputeInstanceId()
		if ret != nvml.SUCCESS || ret2 != nvml.SUCCESS || ret3 != nvml.SUCCESS {
			continue
		}
		g.Instances = append(g.Instances, MIGInstance{UUID: uuid, GI: strconv.Itoa(gi), CI: strconv.Itoa(ci), Placement: r.placement(d, gi)})
		handles = append(handles, h)
	}
	return handles
}

// placement words where a GPU instance lies, "" where NVML does not say.
func (r *processReader) placement(d nvml.Device, gi int) string {
	if !r.has("nvmlDeviceGetGpuInstanceById") || !r.has("nvmlGpuInstanceGetInfo") {
		return ""
	}
	instance, ret := d.GetGpuInstanceById(gi)
	if ret != nvml.SUCCESS {
		return ""
	}
	info, ret := instance.GetInfo()
	if ret != nvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", info.ProfileId, info.Placement.Start, info.Placement.Size)
}

// processes lists the processes of all GPUs that answer, when it is time to; else nil.
func (s *nvmlSource) processes(now time.Time) *ProcessTable {
	if !s.procs.due(s.cfg.ProcessInterval, now) {
		return nil
	}
	s.procs.has = s.has
	table := &ProcessTable{At: now}
	for _, g := range s.gpus {
		if g.handle != nil && g.lost == "" {
			table.GPUs = append(table.GPUs, s.procs.read(g.handle, g.device.UUID))
		}
	}
	return table
}

// processLoop lists the processes through NVML for a source that has no list
// itself. It is a goroutine of its own: NVML may hang where DCGM does not.
type processLoop struct {
	lib     nvml.Interface
	procDir string
	reader  processReader
	latest  atomic.Pointer[ProcessTable]
	cancel  context.CancelFunc
	done    chan struct{}

	ready bool
	proc  string // what procDir had when NVML was started
}

// startProcessLoop begins to list; interval 0: never, and nil.
func startProcessLoop(interval time.Duration) *processLoop {
	if interval == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &processLoop{lib: nvml.New(), procDir: nvmlProcDir, cancel: cancel, done: make(chan struct{})}
	l.reader.has = func(symbol string) bool { return l.lib.Extensions().LookupSymbol(symbol) == nil }
	go l.run(ctx, interval)
	return l
}

func (l *processLoop) run(ctx context.Context, interval time.Duration) {
	defer close(l.done)
	defer l.disconnect()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		table, err := l.read(time.Now())
		if err != nil {
			table = &ProcessTable{At: time.Now(), Err: err.Error()}
		}
		l.latest.Store(table)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// read lists the processes of all GPUs. NVML is started anew when the kernel
// driver's list of GPUs changed, as its own is that of its start.
func (l *processLoop) read(now time.Time) (*ProcessTable, error) {
	if proc := procGPUs(l.procDir); l.ready && proc != l.proc {
		l.disconnect()
	}
	if !l.ready {
		l.proc = procGPUs(l.procDir)
		if ret := l.lib.Init(); ret != nvml.SUCCESS {
			return nil, fmt.Errorf("nvml: %w", initError(ret))
		}
		l.ready = true
		if i := slices.IndexFunc(nvmlRequired, func(symbol string) bool { return !l.reader.has(symbol) }); i >= 0 {
			l.disconnect()
			return nil, fmt.Errorf("%s lacks the function %s", nvmlLibrary, nvmlRequired[i])
		}
	}
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		l.disconnect()
		return nil, fmt.Errorf("nvmlDeviceGetCount: %w", ret)
	}
	table := &ProcessTable{At: now}
	for i := range min(count, maxGPUs) {
		d, ret := l.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // lost, or not this container's
		}
		if uuid, ret := d.GetUUID(); ret == nvml.SUCCESS {
			table.GPUs = append(table.GPUs, l.reader.read(d, uuid))
		}
	}
	if len(table.GPUs) == 0 {
		return nil, errors.New("NVML shows no GPU")
	}
	return table, nil
}

func (l *processLoop) disconnect() {
	if l.ready {
		l.ready = false
		l.lib.Shutdown()
	}
}

// take returns a list that has not been taken yet, or nil.
func (l *processLoop) take() *ProcessTable {
	if l == nil {
		return nil
	}
	return l.latest.Swap(nil)
}

// stop ends the loop and waits a moment for it.
func (l *processLoop) stop() {
	if l == nil {
		return
	}
	l.cancel()
	select {
	case <-l.done:
	case <-time.After(processStop):
	}
}
