// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

// Thresholds of what is derived. docs/gpu.md explains them to operators.
const (
	// idleUtil is the utilisation in % below which a GPU is idle, and loadUtil the
	// one from which it is under load. Ours: a monitor's own queries cost below 1 %.
	idleUtil, loadUtil = 5, 10
	// idleMemory is the part of the memory that may be in use on an idle GPU: what
	// the driver itself takes is below 2 %, one context of CUDA is 300 MiB and more.
	idleMemory = 0.02
	// maxRemappedRows is the total of uncorrectable remapped rows at which NVIDIA
	// sets the failure flag (A100 GPU memory error management).
	maxRemappedRows = 512
	// maxRetiredPages is how many pages can be retired (Dynamic page retirement).
	maxRetiredPages = 64
	// trainTime is what a PCIe link may take to come up from its idle speed.
	trainTime = time.Second
	// minGap is the shortest time without samples that no throttling is counted for.
	minGap = 30 * time.Second
)

// heldReasons are the throttle reasons whose time counts: what keeps a GPU that has
// work below the clocks it could have. Idling and the operator's own settings do not.
var heldReasons = []string{"sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"}

// recoveryActions are the values of DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION (nvml.h,
// nvmlDeviceGpuRecoveryAction_t).
var recoveryActions = []string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot"}

// The derived families.
var (
	descHeld = &collector.Desc{Name: "rackpulse_gpu_throttle_seconds_total", Type: collector.Counter,
		Help:   "Time for which the GPU's clocks were held back for this reason, since the agent started.",
		Labels: []string{"UUID", "gpu", "reason"}}
	descIdleSince = &collector.Desc{Name: "rackpulse_gpu_idle_since_timestamp_seconds",
		Help:   "Since when the GPU has been idle, without load and without memory in use, Unix time. Absent while it is busy.",
		Labels: []string{"UUID", "gpu"}}
	descPCIe = &collector.Desc{Name: "rackpulse_gpu_pcie_degraded",
		Help:   "Whether the PCIe link of a GPU under load is below its maximum, 0 or 1. Absent while it is idle, when links slow down.",
		Labels: []string{"UUID", "gpu", "what"}}
	descRMA = &collector.Desc{Name: "rackpulse_gpu_rma_flag",
		Help:   "Whether the GPU's memory shows this reason to have it replaced, 0 or 1.",
		Labels: []string{"UUID", "gpu", "cause"}}
	descRepair = &collector.Desc{Name: "rackpulse_gpu_memory_repair_pending",
		Help:   "Whether a row remap or page retirement waits for a reset of the GPU, 0 or 1.",
		Labels: []string{"UUID", "gpu"}}
	descRecovery = &collector.Desc{Name: "rackpulse_gpu_recovery_action",
		Help:   "What the driver asks for to recover the GPU; the present action only, always 1.",
		Labels: []string{"UUID", "gpu", "action"}}
	descFlaps = &collector.Desc{Name: "rackpulse_nvlink_flaps_total", Type: collector.Counter,
		Help:   "How often the NVLink was seen to go down, since the agent started.",
		Labels: descLinkUp.Labels}
	descInstanceMemory = &collector.Desc{Name: fieldInstanceMemory,
		Help:   "Memory that the MIG instance has.",
		Labels: []string{"UUID", "gpu", "GPU_I_PROFILE", "GPU_I_ID"}}
	descInstanceSMs = &collector.Desc{Name: fieldInstanceSMs,
		Help:   "Streaming multiprocessors that the MIG instance has.",
		Labels: []string{"UUID", "gpu", "GPU_I_PROFILE", "GPU_I_ID"}}
)

// derived makes families of consecutive samples, whatever source they come from.
// It outlives the source and the settings.
type derived struct {
	gap   time.Duration // longer ones between samples are no time of anything
	gpus  map[string]*derivedGPU
	links map[linkKey]*linkState
}

func newDerived() *derived {
	return &derived{gap: minGap, gpus: make(map[string]*derivedGPU), links: make(map[linkKey]*linkState)}
}

// use takes the interval of the samples.
func (d *derived) use(interval time.Duration) { d.gap = max(minGap, 3*interval) }

// derivedGPU is what is known of one GPU from its earlier samples.
type derivedGPU struct {
	gpu  string
	at   time.Time // of the last sample
	mask uint64    // throttle reasons
	told bool      // mask is known
	held []float64 // seconds, in heldReasons' order

	busy, idle time.Time // under load, or idle, since; zero: it is not

	listed time.Time // the latest list of processes
	bare   bool      // it is empty
	least  float64   // MiB in use without load and processes, once seen
	seen   bool

	heldLabels, rmaLabels, pcieLabels [][]string
	actionLabels                      []string
	action                            int
}

// of returns a GPU's state, made anew when it is new or has another index.
func (d *derived) of(dev *Device) *derivedGPU {
	g := d.gpus[dev.UUID]
	if g != nil && g.gpu == dev.Index {
		return g
	}
	if g == nil {
		if len(d.gpus) >= maxGPUs {
			clear(d.gpus) // devices that come and go
		}
		g = &derivedGPU{held: make([]float64, len(heldReasons))}
		d.gpus[dev.UUID] = g
	}
	g.gpu, g.action, g.heldLabels, g.rmaLabels, g.pcieLabels = dev.Index, -1, nil, nil, nil
	with := func(list *[][]string, values ...string) {
		for _, v := range values {
			*list = append(*list, []string{dev.UUID, dev.Index, v})
		}
	}
	with(&g.heldLabels, heldReasons...)
	with(&g.rmaLabels, rmaCauses...)
	with(&g.pcieLabels, "width", "generation")
	return g
}

// points appends what follows from a device's values, that of slow fields apart.
// whole says that the device stands for the GPU; l has its labels.
func (d *derived) points(points, slow []collector.Point, dev *Device, l *deviceLabels, at time.Time, whole bool) (_, _ []collector.Point) {
	slow = instancePoints(slow, dev)
	if !whole || dev.UUID == "" {
		return points, slow
	}
	g := d.of(dev)
	known := !g.at.IsZero() && at.After(g.at) && at.Sub(g.at) <= d.gap
	if !known && !at.Equal(g.at) {
		g.busy, g.idle, g.told = time.Time{}, time.Time{}, false
	}
	points = g.throttled(points, dev, at, known)
	if dev.MIGID == "" {
		points = g.loaded(points, dev, l, at)
		points = g.leak(points, dev, l, at)
		slow = g.pcie(slow, dev, at)
	}
	g.at = at
	slow = g.memoryFlags(slow, dev, l)
	return points, g.recovery(slow, dev)
}

// throttled adds the time since the last sample to the reasons that held then.
func (g *derivedGPU) throttled(points []collector.Point, dev *Device, at time.Time, known bool) []collector.Point {
	if g.told && known {
		for i, reason := range heldReasons {
			if g.mask&throttleBits[reason] != 0 {
				g.held[i] += at.Sub(g.at).Seconds()
			}
		}
	}
	v := dev.value(fieldThrottle)
	if g.told = v != nil && v.V >= 0 && v.V < 1<<53; !g.told {
		return points
	}
	g.mask = uint64(v.V)
	for i := range heldReasons {
		points = append(points, collector.Point{Desc: descHeld, Values: g.heldLabels[i], Value: g.held[i]})
	}
	return points
}

// throttleBits are the bits of throttleReasons by reason.
var throttleBits = func() map[string]uint64 {
	bits := make(map[string]uint64, len(throttleReasons))
	for _, r := range throttleReasons {
		bits[r.reason] = r.bit
	}
	return bits
}()

// load is the GPU's utilisation in %, false where neither kind is known.
func (dev *Device) load() (float64, bool) {
	if v := dev.value(fieldUtil); v.inGate() {
		return v.V, true
	}
	if v := dev.value(fieldEngine); v.inGate() {
		return 100 * v.V, true
	}
	return 0, false
}

// memory is the part of the memory that is in use.
func (dev *Device) memory() (part float64, ok bool) {
	used, free := dev.value(fieldUsed), dev.value(fieldFree)
	if !used.inGate() || !free.inGate() || used.V+free.V <= 0 {
		return 0, false
	}
	return used.V / (used.V + free.V), true
}

// loaded follows load and memory.
func (g *derivedGPU) loaded(points []collector.Point, dev *Device, l *deviceLabels, at time.Time) []collector.Point {
	load, ok := dev.load()
	part, known := dev.memory()
	if !ok || load < loadUtil {
		g.busy = time.Time{}
	} else if g.busy.IsZero() {
		g.busy = at
	}
	if !ok || !known || load >= idleUtil || part > idleMemory {
		g.idle = time.Time{}
	} else if g.idle.IsZero() {
		g.idle = at
	}
	if !g.idle.IsZero() {
		points = append(points, collector.Point{Desc: descIdleSince, Values: l.gpu, Value: float64(g.idle.UnixMilli()) / 1e3})
	}
	return points
}

// pcie compares the link with what it can, when it was read well into a load.
func (g *derivedGPU) pcie(slow []collector.Point, dev *Device, at time.Time) []collector.Point {
	if g.busy.IsZero() {
		return slow
	}
	for i, fields := range [][2]string{{fieldWidth, fieldMaxWidth}, {fieldGen, fieldMaxGen}} {
		now, most := dev.value(fields[0]), dev.value(fields[1])
		if !now.inGate() || most == nil || most.V <= 0 {
			continue
		}
		read := now.At
		if read.IsZero() {
			read = at
		}
		if read.Sub(g.busy) >= trainTime {
			slow = append(slow, collector.Point{Desc: descPCIe, Values: g.pcieLabels[i], Value: oneIf(now.V < most.V), At: now.At})
		}
	}
	return slow
}

// recovery says what the driver asks for.
func (g *derivedGPU) recovery(slow []collector.Point, dev *Device) []collector.Point {
	v := dev.value(fieldRecovery)
	if v == nil || v.V < 0 || v.V > 1000 {
		return slow
	}
	if action := int(v.V); g.action != action {
		name := "other"
		if action < len(recoveryActions) {
			name = recoveryActions[action]
		}
		g.action, g.actionLabels = action, []string{dev.UUID, dev.Index, name}
	}
	return append(slow, collector.Point{Desc: descRecovery, Values: g.actionLabels, Value: 1, At: v.At})
}
