// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// dcgmWatches are watches of fields that begin and end together.
type dcgmWatches struct {
	logger log.Logger
	list   []dcgmWatch
	seq    int // makes the names of groups
	// refused are the fields that DCGM does not watch.
	refused map[dcgm.GroupEntityPair][]dcgm.Short
}

// dcgmWatch is one field group on one group of entities.
type dcgmWatch struct {
	group  dcgm.GroupHandle
	fields dcgm.FieldHandle
}

// all watches any number of fields and returns how many it watches.
func (w *dcgmWatches) all(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) int {
	watched := 0
	for chunk := range slices.Chunk(ids, maxFieldGroup) {
		watched += w.chunk(what, pairs, chunk, interval)
	}
	return watched
}

// chunk watches fields together and returns how many it watches. If DCGM refuses
// that, it looks for the fields that it refuses for all entities, then for the rest of
// each entity alone, so that a few watches do in the end: DCGM has 64 groups in all.
func (w *dcgmWatches) chunk(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) int {
	if len(pairs) == 0 {
		return 0
	}
	err := w.add(what, pairs, ids, interval)
	if err == nil {
		return len(ids)
	}
	good := w.accepted(what, pairs, ids, interval)
	watched := w.addAll(what, pairs, good, interval)
	rest := without(ids, good)
	for len(pairs) > 0 && len(rest) > 0 {
		some := w.accepted(what, pairs[:1], rest, interval)
		like := 1 // neighbours are mostly of one kind
		for like < len(pairs) && len(some) > 0 && w.try(what, pairs[like:like+1], some, interval) {
			like++
		}
		watched += w.addAll(what, pairs[:like], some, interval)
		for _, p := range pairs[:like] {
			w.refuse(p, without(rest, some))
		}
		pairs = pairs[like:]
	}
	level.Info(w.logger).Log("msg", "some fields are not watched on all devices", "kind", what, "everywhere", len(good), "of", len(ids), "err", err)
	return watched
}

// addAll watches fields that were accepted and returns how many it watches.
func (w *dcgmWatches) addAll(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) int {
	if len(ids) == 0 {
		return 0
	}
	if err := w.add(what, pairs, ids, interval); err != nil {
		level.Warn(w.logger).Log("msg", "fields not watched", "kind", what, "fields", len(ids), "err", err)
		return 0
	}
	return len(ids)
}

// accepted returns those of some fields that DCGM would watch on some entities.
func (w *dcgmWatches) accepted(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) []dcgm.Short {
	if w.try(what, pairs, ids, interval) {
		return ids
	}
	if len(ids) == 1 {
		return nil
	}
	half := len(ids) / 2
	return slices.Concat(w.accepted(what, pairs, ids[:half], interval), w.accepted(what, pairs, ids[half:], interval))
}

// try begins a watch and ends it again.
func (w *dcgmWatches) try(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) bool {
	if w.add(what, pairs, ids, interval) != nil {
		return false
	}
	last := len(w.list) - 1
	(&dcgmWatches{list: w.list[last:]}).end()
	w.list = w.list[:last]
	return true
}

func (w *dcgmWatches) refuse(pair dcgm.GroupEntityPair, ids []dcgm.Short) {
	if w.refused == nil {
		w.refused = make(map[dcgm.GroupEntityPair][]dcgm.Short)
	}
	w.refused[pair] = append(w.refused[pair], ids...)
}

// without returns the ids that are not in some.
func without(ids, some []dcgm.Short) []dcgm.Short {
	return slices.DeleteFunc(slices.Clone(ids), func(id dcgm.Short) bool { return slices.Contains(some, id) })
}

// add watches up to maxFieldGroup fields of some entities. DCGM keeps samples for
// two intervals; dcgm-exporter's ten minutes are what makes it grow.
func (w *dcgmWatches) add(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) error {
	return w.keep(what, pairs, ids, interval, 2*interval, 2)
}

// keep is add with what DCGM keeps of each value: samples of some age, and how many.
func (w *dcgmWatches) keep(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval, age time.Duration, samples int32) error {
	w.seq++
	name := fmt.Sprintf("rackpulse-%s-%d", what, w.seq)
	group, err := dcgm.CreateGroup(name)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if err := dcgm.AddEntityToGroup(group, p.EntityGroupId, p.EntityId); err != nil {
			level.Warn(w.logger).Log("msg", "not watched", "entity", p.EntityGroupId, "id", p.EntityId, "err", err)
		}
	}
	fields, err := dcgm.FieldGroupCreate(name, ids)
	if err != nil {
		dcgm.DestroyGroup(group)
		return err
	}
	err = dcgm.WatchFieldsWithGroupEx(fields, group, interval.Microseconds(), age.Seconds(), samples)
	if err != nil {
		dcgm.FieldGroupDestroy(fields)
		dcgm.DestroyGroup(group)
		return fmt.Errorf("%s: %w", what, err)
	}
	w.list = append(w.list, dcgmWatch{group, fields})
	return nil
}

// begin starts a new list and returns the old one, for the caller to end.
func (w *dcgmWatches) begin() *dcgmWatches {
	before := &dcgmWatches{logger: w.logger, list: w.list}
	w.list, w.refused = nil, nil
	return before
}

// end ends all watches; errors do not matter, the host engine ends them with the
// connection.
func (w *dcgmWatches) end() {
	for _, x := range w.list {
		dcgm.UnwatchFields(x.fields, x.group)
		dcgm.FieldGroupDestroy(x.fields)
		dcgm.DestroyGroup(x.group)
	}
	w.list = nil
}
