// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

// maxXIDCodes bounds the codes that are counted for one GPU; NVIDIA's catalogue
// has 172.
const maxXIDCodes = 256

// xidCounters counts driver errors per GPU and code. They live in the agent, so
// the counts survive the child process and a change of the source.
type xidCounters struct {
	gpus map[string]*gpuXIDs // by UUID
}

type gpuXIDs struct {
	index string
	codes map[int]*xidCount
	last  int // the latest code, 0: none
}

type xidCount struct {
	n      float64
	at     time.Time
	values []string // of descXID and descXIDLast
}

func newXIDCounters() *xidCounters { return &xidCounters{gpus: make(map[string]*gpuXIDs)} }

// gpu returns a GPU's counters; the critical codes are there from the start.
func (x *xidCounters) gpu(uuid, index string) *gpuXIDs {
	g := x.gpus[uuid]
	if g == nil {
		g = &gpuXIDs{index: index, codes: make(map[int]*xidCount, len(criticalXIDs()))}
		x.gpus[uuid] = g
		for _, code := range criticalXIDs() {
			g.codes[code] = &xidCount{values: []string{uuid, index, strconv.Itoa(code)}}
		}
	}
	if index != "" && g.index != index { // renumbered after a reboot of a GPU
		g.index = index
		for code, c := range g.codes {
			c.values = []string{uuid, index, strconv.Itoa(code)}
		}
	}
	return g
}

// add counts one event.
func (x *xidCounters) add(e XID, now time.Time) {
	if e.UUID == "" || e.Code <= 0 || len(x.gpus) >= maxGPUs && x.gpus[e.UUID] == nil {
		return
	}
	g := x.gpu(e.UUID, "")
	c := g.codes[e.Code]
	if c == nil {
		if len(g.codes) >= maxXIDCodes {
			return
		}
		c = &xidCount{values: []string{e.UUID, g.index, strconv.Itoa(e.Code)}}
		g.codes[e.Code] = c
	}
	c.n++
	c.at = e.At
	if c.at.IsZero() {
		c.at = now
	}
	g.last = e.Code
}

// last returns the code of the GPU's latest event since the agent started.
func (x *xidCounters) last(uuid string) (code int, ok bool) {
	g := x.gpus[uuid]
	if g == nil || g.last == 0 {
		return 0, false
	}
	return g.last, true
}

// counts returns the counts of a GPU by code.
func (x *xidCounters) counts(uuid string) map[int]xidSum {
	g := x.gpus[uuid]
	if g == nil {
		return nil
	}
	counts := make(map[int]xidSum, len(g.codes))
	for code, c := range g.codes {
		counts[code] = xidSum{c.n, c.at}
	}
	return counts
}

// points appends all counters, ordered.
func (x *xidCounters) points(points []collector.Point) []collector.Point {
	for _, uuid := range slices.Sorted(maps.Keys(x.gpus)) {
		g := x.gpus[uuid]
		for _, code := range slices.Sorted(maps.Keys(g.codes)) {
			c := g.codes[code]
			points = append(points, collector.Point{Desc: descXID, Values: c.values, Value: c.n})
			if !c.at.IsZero() {
				points = append(points, collector.Point{Desc: descXIDLast, Values: c.values,
					Value: float64(c.at.UnixMilli()) / 1e3})
			}
		}
	}
	return points
}
