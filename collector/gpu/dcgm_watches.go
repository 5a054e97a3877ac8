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

// chunk watches fields together or, if DCGM refuses that, one by one, and returns
// how many it watches.
func (w *dcgmWatches) chunk(what string, pairs []dcgm.GroupEntityPair, ids []dcgm.Short, interval time.Duration) int {
	err := w.add(what, pairs, ids, interval)
	if err == nil {
		return len(ids)
	}
	watched := 0
	for _, id := range ids {
		if w.add(what, pairs, []dcgm.Short{id}, interval) == nil {
			watched++
		}
	}
	level.Info(w.logger).Log("msg", "some fields are not watched", "kind", what, "watched", watched, "of", len(ids), "err", err)
	return watched
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
	w.list = nil
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
