// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

var descLeaked = &collector.Desc{Name: "rackpulse_gpu_leaked_memory_bytes",
	Help:   "GPU memory in use while the GPU has neither load nor processes. Absent while it has either.",
	Labels: []string{"UUID", "gpu"}}

// listedFor is how long a list of processes holds.
const listedFor = 3 * processInterval

// listed takes a list of processes, nil for none. That a GPU has no process counts
// only where the agent would see all of them.
func (d *derived) listed(t *ProcessTable, hostPIDs bool) {
	if t == nil {
		return
	}
	for i := range t.GPUs {
		p := &t.GPUs[i]
		if g := d.gpus[p.UUID]; g != nil {
			g.listed = t.At
			g.bare = hostPIDs && p.Err == "" && p.Kinds&kindCompute != 0 && len(p.Processes) == 0
		}
	}
}

// leak appends the memory in use on a GPU without load and processes. Drivers that
// do not tell what they reserve for themselves count it as used: there only what is
// over the least seen so counts.
func (g *derivedGPU) leak(points []collector.Point, dev *Device, l *deviceLabels, at time.Time) []collector.Point {
	load, ok := dev.load()
	used := dev.value(fieldUsed)
	if !ok || load >= idleUtil || !g.bare || at.Sub(g.listed) > listedFor || !used.inGate() {
		return points
	}
	if !g.seen || used.V < g.least {
		g.least, g.seen = used.V, true
	}
	leaked := used.V
	if dev.value(fieldReserved) == nil {
		leaked -= g.least
	}
	return append(points, collector.Point{Desc: descLeaked, Values: l.gpu, Value: leaked * (1 << 20), At: used.At})
}
