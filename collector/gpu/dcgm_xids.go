// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"encoding/binary"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// xidKeep is how long DCGM keeps driver errors for us: longer than any pass and the
// start of another child.
const xidKeep = 2 * time.Minute

// dcgmXIDs finds the driver errors in the samples that DCGM keeps of the XID field:
// one for each error, where the latest value is that of the last one alone. DCGM's
// policy, the other way to hear of them, says nothing for five seconds after each
// error of a GPU (DcgmPolicyManager::SetViolation in DCGM 4.6), and GPUs fail in
// bursts.
type dcgmXIDs struct {
	logger  log.Logger
	watches dcgmWatches
	owners  map[dcgm.GroupEntityPair]uint // the GPU of each entity that may have errors
	compute bool                          // there are compute instances, which passes do not read
	history bool                          // DCGM can tell the samples
	next    time.Time                     // the samples not told yet begin here, by DCGM's clock

	latest, asked int64 // latest value of the field, and that at which samples were asked for; microseconds
	started       time.Time
	found         []dcgmXID // without history: errors that passes have seen
}

type dcgmXID struct {
	entity dcgm.GroupEntityPair
	code   int
	at     int64 // microseconds
}

func newDCGMXIDs(logger log.Logger) dcgmXIDs {
	return dcgmXIDs{logger: logger, watches: dcgmWatches{logger: logger}, started: time.Now()}
}

// watch begins to watch the driver errors of all GPUs and their instances. Those of
// before the first time are not told.
func (x *dcgmXIDs) watch(gpus []*dcgmGPU) {
	before := x.watches.begin()
	defer before.end()
	x.owners, x.compute, x.asked = make(map[dcgm.GroupEntityPair]uint), false, 0
	var pairs []dcgm.GroupEntityPair
	add := func(g *dcgmGPU, e dcgm.GroupEntityPair) {
		x.owners[e] = g.id
		pairs = append(pairs, e)
	}
	for _, g := range gpus {
		add(g, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: g.id})
		for _, i := range g.instances {
			add(g, i.entity)
			for _, e := range i.compute {
				add(g, e)
				x.compute = true
			}
		}
	}
	if x.history = dcgmHas("dcgmGetValuesSince_v2"); !x.history {
		return
	}
	if err := x.watches.keep("xid", pairs, []dcgm.Short{dcgmFieldXID}, time.Second, xidKeep, maxPendingXIDs); err != nil {
		level.Warn(x.logger).Log("msg", "of several driver errors between two passes only the last is told", "err", err)
		x.history = false
		return
	}
	if x.next.IsZero() {
		x.samples()
	}
}

// see takes note of a value of the field that a pass has read.
func (x *dcgmXIDs) see(v *dcgmValue, code int) {
	if !x.history && v.ts > x.latest && v.ts > x.started.UnixMicro() {
		x.found = append(x.found, dcgmXID{v.pair, code, v.ts})
	}
	x.latest = max(x.latest, v.ts)
}

// take returns the driver errors since the last time.
func (x *dcgmXIDs) take(gpus []*dcgmGPU) []XID {
	found := x.found
	x.found = nil
	if x.history && (x.latest > x.asked || x.compute) {
		x.asked = x.latest
		found = x.samples()
	}
	var events []XID
	for _, e := range found {
		for _, g := range gpus {
			if owner, ok := x.owners[e.entity]; ok && owner == g.id && e.code > 0 {
				events = append(events, XID{UUID: g.device.UUID, Code: e.code, At: time.UnixMicro(e.at)})
			}
		}
	}
	return events
}

// samples asks DCGM for the samples since the last time.
func (x *dcgmXIDs) samples() []dcgmXID {
	if len(x.watches.list) == 0 {
		return nil
	}
	since := x.next
	if since.IsZero() {
		since = time.UnixMicro(0)
	}
	w := x.watches.list[0]
	values, next, err := dcgm.GetValuesSince(w.group, w.fields, since)
	if err != nil {
		x.asked = 0 // again in the next pass
		level.Debug(x.logger).Log("msg", "driver errors not read", "err", err)
		return nil
	}
	x.next = next
	var found []dcgmXID
	for i := range values {
		v := &values[i]
		n, ok := fieldValue(v.FieldType, binary.NativeEndian.Uint64(v.Value[:8]))
		if ok && v.Status == 0 {
			found = append(found, dcgmXID{dcgm.GroupEntityPair{EntityGroupId: v.EntityGroupId, EntityId: v.EntityID}, int(n), v.TS})
		}
	}
	return found
}
