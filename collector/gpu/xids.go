// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/xid"
)

const (
	// maxXIDCodes bounds the codes that are counted for one GPU or switch;
	// NVIDIA's catalogue has 172.
	maxXIDCodes = 256
	// xidsName is the snapshot of what is counted here; it does not grow old.
	xidsName = "gpu_xids"
)

// xidOrigin says who told of a driver error. The same error comes from several.
type xidOrigin uint8

const (
	fromDriver  xidOrigin = iota // DCGM or NVML
	fromLog                      // a line of the kernel log with an XID
	fromLogText                  // a line that means an XID but has none
	xidOrigins
)

// xidBook counts driver errors per GPU and code. It lives in the agent, so the
// counts survive the child process and a change of the source. The driver's
// events and those of the kernel log come from different goroutines.
type xidBook struct {
	mu      sync.Mutex
	counted []int                // codes that are there from the start
	gpus    map[string]*gpuXIDs  // by UUID, or by PCI address until that is known
	places  map[string]knownGPU  // by PCI address, also of GPUs that are lost
	skipped map[string]bool      // GPUs that the configuration leaves out, by UUID
	sxids   map[sxidKey]*sxidSum // of NVSwitches
	changed bool
}

type gpuXIDs struct {
	uuid, index string
	codes       map[int]*xidCount
	last        int // the latest code, 0: none
	recovery    string
	init        xidCount // failures to start the GPU
}

// xidCount counts one code of one GPU. Events within xid.EpisodeGap of each
// other are a burst, in which each origin tells of the same errors: as many as
// the origin that tells of most.
type xidCount struct {
	n     float64
	at    time.Time // of the latest
	burst [xidOrigins]int
	until time.Time // the latest event of the burst
}

// add takes one event and says whether it counts, and whether it begins a burst.
func (c *xidCount) add(origin xidOrigin, at time.Time) (counts, first bool) {
	if at.Sub(c.until).Abs() > xid.EpisodeGap {
		c.burst, c.until = [xidOrigins]int{}, at
	}
	most := slices.Max(c.burst[:])
	if at.After(c.until) {
		c.until = at
	}
	if at.After(c.at) {
		c.at = at
	}
	if origin == fromLogText && c.burst[origin] > 0 {
		return false, false // the driver repeats it at each attempt to use the GPU
	}
	c.burst[origin]++
	if c.burst[origin] <= most {
		return false, false
	}
	c.n++
	return true, most == 0
}

func newXIDBook() *xidBook {
	b := &xidBook{}
	b.reset()
	return b
}

// reset forgets everything: neither the simulator's GPUs nor the real ones are the other's.
func (b *xidBook) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gpus, b.places, b.sxids = make(map[string]*gpuXIDs), make(map[string]knownGPU), make(map[sxidKey]*sxidSum)
	b.changed = true
}

// begin sets the codes that are there from the start; those of GPUs that are
// known already stay.
func (b *xidBook) begin(codes []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counted = codes
	for _, g := range b.gpus {
		b.fill(g)
	}
	b.changed = true
}

func (b *xidBook) fill(g *gpuXIDs) {
	if g.uuid == "" {
		return
	}
	for _, code := range b.counted {
		if g.codes[code] == nil {
			g.codes[code] = &xidCount{}
		}
	}
}

// gpu returns the counters of a GPU; nil when there are too many.
func (b *xidBook) gpu(key, uuid, index string) *gpuXIDs {
	g := b.gpus[key]
	if g == nil {
		if len(b.gpus) >= maxGPUs {
			return nil
		}
		g = &gpuXIDs{uuid: uuid, index: index, codes: make(map[int]*xidCount, len(b.counted))}
		b.fill(g)
		b.gpus[key] = g
		b.changed = true
	}
	if index != "" && g.index != index { // renumbered after a reboot of a GPU
		g.index = index
		b.changed = true
	}
	return g
}

// place remembers where a GPU is plugged in. What the kernel log told of that
// place before the GPU was known moves to the GPU.
func (b *xidBook) place(uuid, index, pci string) {
	pci, ok := xid.NormalizePCI(pci)
	if !ok || uuid == "" || b.places[pci] == (knownGPU{UUID: uuid, Index: index}) || len(b.places) >= 2*maxGPUs {
		return
	}
	b.places[pci] = knownGPU{UUID: uuid, Index: index}
	before := b.gpus[pci]
	if before == nil {
		return
	}
	delete(b.gpus, pci)
	b.changed = true
	if b.skipped[uuid] {
		return
	}
	g := b.gpu(uuid, uuid, index)
	if g == nil {
		return
	}
	for code, c := range before.codes {
		if own := g.codes[code]; own != nil && own.n > 0 {
			own.n += c.n
			continue
		}
		g.codes[code] = c
	}
	if g.last == 0 {
		g.last = before.last
	}
	g.recovery, g.init = before.recovery, before.init
}

// devices begins the counters of new GPUs, and learns where they are and which
// of them are left out.
func (b *xidBook) devices(devices []Device) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped = make(map[string]bool)
	for i := range devices {
		if d := &devices[i]; d.Skipped {
			b.skipped[d.UUID] = true
		}
	}
	for i := range devices {
		if d := &devices[i]; !d.Skipped { // one of a GPU's instances is enough
			delete(b.skipped, d.UUID)
		}
	}
	for i := range devices {
		d := &devices[i]
		if d.UUID == "" {
			continue
		}
		if !b.skipped[d.UUID] {
			b.gpu(d.UUID, d.UUID, d.Index)
		}
		b.place(d.UUID, d.Index, d.PCIBusID)
	}
}

// remember learns where GPUs were in an earlier run of the agent.
func (b *xidBook) remember(known *knownGPUs) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range known.gpus {
		b.place(g.UUID, g.Index, g.PCIBusID)
	}
}

// at returns the GPU in a PCI place, which may not be known (yet); nil where the
// configuration leaves it out.
func (b *xidBook) at(pci string) *gpuXIDs {
	if known, ok := b.places[pci]; ok {
		if b.skipped[known.UUID] {
			return nil
		}
		return b.gpu(known.UUID, known.UUID, known.Index)
	}
	return b.gpu(pci, "", pci)
}

// driver counts an event of DCGM or NVML.
func (b *xidBook) driver(e XID, now time.Time) (first bool) {
	if e.UUID == "" {
		return false
	}
	if e.At.IsZero() {
		e.At = now
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count(b.gpu(e.UUID, e.UUID, ""), e.Code, fromDriver, e.At)
}

// logged counts an XID of the kernel log. A line that does not name the GPU is
// about one that another line has named, if any did within the minute.
func (b *xidBook) logged(pci string, code int, origin xidOrigin, at time.Time) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pci == "" {
		for _, g := range b.gpus {
			if c := g.codes[code]; c != nil && c.n > 0 && at.Sub(c.until).Abs() <= xid.EpisodeGap {
				return false
			}
		}
	}
	return b.count(b.at(pci), code, origin, at)
}

func (b *xidBook) count(g *gpuXIDs, code int, origin xidOrigin, at time.Time) (first bool) {
	if g == nil || code <= 0 {
		return false
	}
	c := g.codes[code]
	if c == nil {
		if len(g.codes) >= maxXIDCodes {
			return false
		}
		c = &xidCount{}
		g.codes[code] = c
	}
	_, first = c.add(origin, at)
	g.last = code
	b.changed = true
	return first
}

// last returns the code of the GPU's latest event since the agent started.
func (b *xidBook) last(uuid string) (code int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gpus[uuid]
	if g == nil || g.last == 0 {
		return 0, false
	}
	return g.last, true
}

// counts returns the counts of a GPU by code.
func (b *xidBook) counts(uuid string) map[int]xidSum {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gpus[uuid]
	if g == nil {
		return nil
	}
	counts := make(map[int]xidSum, len(g.codes))
	for code, c := range g.codes {
		counts[code] = xidSum{c.n, c.at}
	}
	return counts
}

// publish shows all counters if they changed.
func (b *xidBook) publish(store Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.changed {
		return
	}
	b.changed = false
	store.Put(collector.Snapshot{Source: xidsName, At: time.Now(), Interval: neverOld, Points: b.points()})
}

// points returns all counters, ordered.
func (b *xidBook) points() []collector.Point {
	var points []collector.Point
	for _, key := range slices.Sorted(maps.Keys(b.gpus)) {
		g := b.gpus[key]
		for _, code := range slices.Sorted(maps.Keys(g.codes)) {
			c := g.codes[code]
			values := []string{g.uuid, g.index, strconv.Itoa(code)}
			points = append(points, collector.Point{Desc: descXID, Values: values, Value: c.n})
			if !c.at.IsZero() {
				points = append(points, collector.Point{Desc: descXIDLast, Values: values, Value: unixSeconds(c.at)})
			}
		}
		points = g.logPoints(points)
	}
	return b.switchPoints(points)
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
