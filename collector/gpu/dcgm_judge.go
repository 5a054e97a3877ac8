// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// DCGM's status of single values (dcgm_structs.h, dcgmReturn_t).
const (
	dcgmNotSupported = -6
	dcgmNoData       = -14
	dcgmNotWatched   = -16
	dcgmNoPermission = -17
)

// Words of Rejection.Reason.
const (
	reasonBlank        = "blank"
	reasonNotFound     = "not_found"
	reasonNotSupported = "not_supported"
	reasonNoPermission = "no_permission"
	reasonNoData       = "no_data"
	reasonError        = "error"
	reasonNotNumber    = "not_a_number"
	reasonStale        = "stale"
	reasonRange        = "range" // as in the collector's store
)

// blankReasons are the four blanks that each type has, in DCGM's order.
var blankReasons = []string{reasonBlank, reasonNotFound, reasonNotSupported, reasonNoPermission}

// judge returns a value's number and the time it was measured, or why it is none.
// Status and value count both: for a lost GPU DCGM says that all is good, and
// elsewhere it has an old value beside a bad status.
func (s *dcgmSource) judge(v *dcgmValue) (number float64, at time.Time, reason string) {
	switch v.code {
	case 0:
	case dcgmNotSupported:
		return 0, at, reasonNotSupported
	case dcgmNoPermission:
		return 0, at, reasonNoPermission
	case dcgmNoData, dcgmNotWatched:
		return 0, at, reasonNoData
	default:
		return 0, at, reasonError
	}
	number, ok := fieldValue(v.typ, v.bits)
	if !ok {
		return 0, at, blankReason(v.typ, v.bits)
	}
	if v.ts <= 0 {
		return number, at, ""
	}
	if v.field == dcgmFieldXID { // as old as the error, which is no fault
		return number, time.UnixMicro(v.ts), ""
	}
	interval := s.cfg.Interval
	if isSlow(s.names[v.field][0]) {
		interval = max(s.cfg.SlowInterval, interval)
	}
	age := s.ages.of(ageKey{uint(v.pair.EntityGroupId), v.pair.EntityId, v.field}, v.ts)
	if age > staleAge(interval) {
		return 0, at, reasonStale
	}
	return number, s.ages.now.Add(-age), ""
}

// blankReason says which blank a value is that fieldValue does not take.
func blankReason(typ uint, bits uint64) string {
	var n int64
	switch typ {
	case dcgm.DCGM_FT_DOUBLE:
		f := math.Float64frombits(bits) - dcgm.DCGM_FT_FP64_BLANK
		if math.IsNaN(f) {
			return reasonNotNumber
		}
		if f >= float64(len(blankReasons)) { // larger than any blank
			return reasonRange
		}
		n = int64(f)
	case dcgm.DCGM_FT_INT64, dcgm.DCGM_FT_TIMESTAMP:
		n = int64(bits) - dcgm.DCGM_FT_INT64_BLANK
		if n < 0 {
			n = int64(bits) - dcgm.DCGM_FT_INT32_BLANK
		}
	default:
		return reasonNotNumber
	}
	if n < int64(len(blankReasons)) {
		return blankReasons[n]
	}
	return reasonBlank
}

// passRejects is what one pass left out of one GPU.
type passRejects struct {
	list   []fieldReason
	denied map[uint16]int // entities that have no such field
	stale  int
}

type fieldReason struct {
	field  uint16
	reason string
}

func (p *passRejects) clear() {
	p.list, p.stale = p.list[:0], 0
	clear(p.denied)
}

// reject notes a value that is none. Not counted are XIDs, which have no value before
// the first, and fields that are known to be refused.
func (g *dcgmGPU) reject(field uint16, reason string) {
	if field == dcgmFieldXID || g.refused[field] {
		return
	}
	p := &g.rejects
	p.list = append(p.list, fieldReason{field, reason})
	switch reason {
	case reasonStale:
		p.stale++
	case reasonNotSupported, reasonNoPermission:
		if p.denied == nil {
			p.denied = make(map[uint16]int)
		}
		p.denied[field]++
	}
}

// rejections sums up what the pass left out of the GPUs that answer: a lost one has
// nothing but blanks.
func (s *dcgmSource) rejections() []Rejection {
	var list []Rejection
	for _, g := range s.gpus {
		if g.lost {
			continue
		}
		for _, r := range g.rejects.list {
			name := s.names[r.field][0]
			i := slices.IndexFunc(list, func(x Rejection) bool { return x.Field == name && x.Reason == r.reason })
			if i < 0 {
				list = append(list, Rejection{Field: name, Reason: r.reason})
				i = len(list) - 1
			}
			list[i].Count++
		}
	}
	return list
}

// support sets the fields asked for that the GPU does not have on its devices, after a
// pass with all fields.
func (s *dcgmSource) support(devices []Device, g *dcgmGPU) {
	names := slices.Clone(s.unknown)
	for id := range g.refused {
		names = append(names, s.names[id]...)
	}
	for id, n := range g.rejects.denied {
		if n == len(g.pairs()) {
			names = append(names, s.names[id]...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range devices {
		devices[i].Unsupported = names
	}
}
