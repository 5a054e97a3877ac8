// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log/level"
)

const (
	// The fields of DCGM's profiling module that its metric groups name (dcgm_fields.h,
	// DCGM_FI_PROF_FIRST_ID and on). Later ones are only tried.
	firstProfiling, lastProfiling = 1001, 1099

	dcgmModuleNotLoaded       = -33
	dcgmProfilingNotSupported = -36
)

// isProfiling tells whether a field belongs to the profiling module. Many cards have
// none of them, some have a few, and DCGM refuses a watch of any that one lacks.
func isProfiling(name string) bool { return strings.HasPrefix(name, "DCGM_FI_PROF_") }

// profilingOf returns those of some profiling fields that a GPU has, or all of them
// where DCGM does not tell. Nodes may have cards of different kinds: dcgm-exporter,
// which asks for GPU 0 only, then has too few fields or none.
func profilingOf(g *dcgmGPU, ids []dcgm.Short) []dcgm.Short {
	if !dcgmHas("dcgmProfGetSupportedMetricGroups") {
		return ids
	}
	groups, err := dcgm.GetSupportedMetricGroups(g.id)
	switch code(err) {
	case dcgmProfilingNotSupported, dcgmModuleNotLoaded, dcgmNotSupported:
		return nil
	}
	if err != nil {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id dcgm.Short) bool {
		if id < firstProfiling || id > lastProfiling {
			return false
		}
		return !slices.ContainsFunc(groups, func(m dcgm.MetricGroup) bool { return slices.Contains(m.FieldIds, uint(id)) })
	})
}

// watchProfiling watches profiling fields, together on the GPUs that have the same
// ones, and returns how many it watches.
func (s *dcgmSource) watchProfiling(ids []dcgm.Short) int {
	type set struct {
		ids   []dcgm.Short
		pairs []dcgm.GroupEntityPair
	}
	var sets []*set
	slices.Sort(ids)
	for _, g := range s.gpus {
		if g.skipped {
			continue
		}
		some := profilingOf(g, ids)
		if len(some) < len(ids) {
			level.Info(s.logger).Log("msg", "GPU lacks profiling fields", "gpu", g.id, "model", g.device.Model,
				"has", fmt.Sprintf("%d of %d", len(some), len(ids)))
		}
		for _, id := range ids {
			if !slices.Contains(some, id) {
				g.refuse(uint16(id))
			}
		}
		i := slices.IndexFunc(sets, func(x *set) bool { return slices.Equal(x.ids, some) })
		if i < 0 {
			sets = append(sets, &set{ids: some})
			i = len(sets) - 1
		}
		sets[i].pairs = append(sets[i].pairs, g.pairs()...)
	}
	watched := 0
	for _, x := range sets {
		watched += s.watches.all("profiling", x.pairs, x.ids, s.cfg.Interval)
	}
	return watched
}

// refuse notes that a GPU does not have a field.
func (g *dcgmGPU) refuse(id uint16) {
	if g.refused == nil {
		g.refused = make(map[uint16]bool)
	}
	g.refused[id] = true
}

// takeRefused notes the fields that DCGM would not watch on any entity of a GPU.
func (s *dcgmSource) takeRefused() {
	for _, g := range s.gpus {
		pairs := g.pairs()
		if len(pairs) == 0 {
			continue
		}
		for _, id := range s.watches.refused[pairs[0]] {
			if !slices.ContainsFunc(pairs, func(p dcgm.GroupEntityPair) bool { return !slices.Contains(s.watches.refused[p], id) }) {
				g.refuse(uint16(id))
			}
		}
	}
}
