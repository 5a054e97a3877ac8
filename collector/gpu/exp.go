// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	_ "embed" // names of errors
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

// The metrics that dcgm-exporter computes itself, under its names.
const (
	expXIDs   = "DCGM_EXP_XID_ERRORS_COUNT"
	expClocks = "DCGM_EXP_CLOCK_EVENTS_COUNT"
	expHealth = "DCGM_EXP_GPU_HEALTH_STATUS"
	expP2P    = "DCGM_EXP_P2P_STATUS"
)

// expLabels are the labels of these metrics besides those of all GPU series, in
// dcgm-exporter's order.
var expLabels = map[string][]string{
	expXIDs:   {"window_size_in_ms", "xid"},
	expClocks: {"clock_event", "window_size_in_ms"},
	expHealth: {"health_error_code", "health_watch"},
	expP2P:    {"link_status", "peer_gpu"},
}

// clockEvents are dcgm-exporter's names of throttleReasons that differ from ours.
var clockEvents = map[string]string{
	"sw_power_cap":  "power_cap",
	"display_clock": "display_clocks",
}

// maxRecent bounds the remembered events of one GPU and kind.
const maxRecent = 1000

// recent are the ends of events, oldest first.
type recent []time.Time

func (r recent) add(at time.Time) recent {
	if len(r) >= maxRecent {
		r = r[1:]
	}
	return append(r, at)
}

// since drops what is older and returns how many are left.
func (r *recent) since(begin time.Time) int {
	*r = slices.DeleteFunc(*r, func(at time.Time) bool { return at.Before(begin) })
	return len(*r)
}

// expCounts counts driver errors and clock events of a window of time, as
// DCGM_EXP_XID_ERRORS_COUNT and DCGM_EXP_CLOCK_EVENTS_COUNT do.
type expCounts struct {
	window time.Duration
	text   string // window in milliseconds
	gpus   map[string]*expGPU
}

// xidSum is how often a driver error happened, and when last.
type xidSum struct {
	n  float64
	at time.Time
}

type expGPU struct {
	told   map[int]float64 // count of an XID when last looked at
	xids   map[int]recent
	mask   uint64 // clock events now
	clocks map[uint64]recent
}

func newExpCounts(window time.Duration) *expCounts {
	return &expCounts{window: window, text: strconv.FormatInt(window.Milliseconds(), 10), gpus: make(map[string]*expGPU)}
}

// look takes in a GPU's XID counts and clock events of a pass, once for each GPU.
func (e *expCounts) look(d *Device, counts map[int]xidSum, now time.Time) {
	g := e.gpus[d.UUID]
	if g == nil {
		if len(e.gpus) >= maxGPUs {
			return
		}
		g = &expGPU{told: make(map[int]float64), xids: make(map[int]recent), clocks: make(map[uint64]recent)}
		e.gpus[d.UUID] = g
	}
	for code, sum := range counts {
		for range min(int(sum.n-g.told[code]), maxRecent) {
			g.xids[code] = g.xids[code].add(sum.at)
		}
		g.told[code] = sum.n
	}
	v := d.value(fieldThrottle)
	if v == nil || v.V < 0 || v.V >= 1<<53 {
		return
	}
	mask := uint64(v.V)
	for _, r := range throttleReasons {
		if g.mask&r.bit != 0 && mask&r.bit == 0 { // an event ends
			g.clocks[r.bit] = g.clocks[r.bit].add(now)
		}
	}
	g.mask = mask
}

// points appends the counts of a device; those of a GPU instance are its GPU's. As in
// dcgm-exporter, a GPU without any event has one series, 0, without xid or clock_event.
func (e *expCounts) points(points []collector.Point, d *Device, l *deviceLabels, layout *layout, now time.Time) []collector.Point {
	g := e.gpus[d.UUID]
	if g == nil {
		return points
	}
	begin := now.Add(-e.window)
	add := func(desc *collector.Desc, count int, extra ...string) {
		points = append(points, collector.Point{Desc: desc, Values: slices.Concat(l.series, extra), Value: float64(count)})
	}
	if desc := layout.exp[expXIDs]; desc != nil {
		some := false
		for _, code := range slices.Sorted(maps.Keys(g.xids)) {
			events := g.xids[code]
			if n := events.since(begin); n > 0 {
				some = true
				add(desc, n, e.text, strconv.Itoa(code))
			}
			g.xids[code] = events
		}
		if !some {
			add(desc, 0, e.text, "")
		}
	}
	if desc := layout.exp[expClocks]; desc != nil && !d.Lost {
		some := false
		for _, r := range throttleReasons {
			events := g.clocks[r.bit]
			n := events.since(begin)
			g.clocks[r.bit] = events
			if g.mask&r.bit != 0 {
				n++
			}
			if n > 0 {
				some = true
				add(desc, n, clockEvent(r.reason), e.text)
			}
		}
		if !some {
			add(desc, 0, "", e.text)
		}
	}
	return points
}

func clockEvent(reason string) string {
	if name, ok := clockEvents[reason]; ok {
		return name
	}
	return reason
}

// healthWatches are DCGM's health watches (dcgm_structs.h, DCGM_HEALTH_WATCH_*) with
// dcgm-exporter's names. Those of the second part are shown only with an incident.
var healthWatches = []struct {
	bits  uint32
	name  string
	quiet bool
}{
	{0x1, "PCIE", false}, {0x2, "NVLINK", false}, {0x4, "PMU", false}, {0x8, "MCU", false}, {0x10, "MEM", false},
	{0x20, "SM", false}, {0x40, "INFOROM", false}, {0x80, "THERMAL", false}, {0x100, "POWER", false},
	{0x200, "DRIVER", false}, {0xffffffff, "ALL", false}, // ALL: faults of the whole GPU, such as XID 79
	{0x400, "NVSWITCH_NONFATAL", true}, {0x800, "NVSWITCH_FATAL", true}, {0x1000, "CONNECTX", true}, {0x2000, "IMEX", true},
}

// healthPoints returns the latest check of each GPU.
func (c *converter) healthPoints(devices []Device, checks map[string]HealthCheck) []collector.Point {
	var points []collector.Point
	told := make(map[string]bool, len(devices))
	for i := range devices {
		d := devices[i]
		check, ok := checks[d.UUID]
		if !ok || told[d.UUID] || d.Lost {
			continue
		}
		told[d.UUID] = true
		d.MIGProfile, d.MIGID = "", "" // a check is the whole GPU's
		series := c.layout.values(&d, c.driver, c.host)
		points = append(points, collector.Point{Desc: descHealthTime, Values: []string{d.UUID, d.Index}, At: check.At,
			Value: float64(check.At.UnixMilli()) / 1e3})
		for _, w := range healthWatches {
			result, code, found := check.worst(w.bits)
			if desc := c.layout.exp[expHealth]; desc != nil && (found || !w.quiet) {
				points = append(points, collector.Point{Desc: desc, Values: slices.Concat(series, []string{healthCode(code), w.name}),
					Value: float64(result), At: check.At})
			}
		}
	}
	return points
}

// worst returns the worst incident of a system; 0, 0: none.
func (h *HealthCheck) worst(system uint32) (result, code int, found bool) {
	for _, i := range h.Incidents {
		if i.System == system && (!found || i.Result > result) {
			result, code, found = i.Result, i.Code, true
		}
	}
	return result, code, found
}

// healthcodes.txt has the errors of dcgm_errors.h in their order, under the names
// that dcgm-exporter shows.
//
//go:embed healthcodes.txt
var healthCodesText string

var healthCodes = sync.OnceValue(func() []string { return strings.Fields(healthCodesText) })

// healthCode returns the name of an error of dcgm_errors.h.
func healthCode(code int) string {
	if code >= 0 && code < len(healthCodes()) {
		return healthCodes()[code]
	}
	return fmt.Sprintf("DCGM_FR_UNKNOWN(%d)", code)
}

// p2pStates are DCGM's states of the way between two GPUs (dcgm_structs.h,
// dcgmNvLinkGpuP2PStatus_t) under dcgm-exporter's names.
var p2pStates = []string{"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported",
	"DisabledByRegKey", "NotSupported", "Unknown"}

// p2pPoints returns the ways between GPUs.
func (c *converter) p2pPoints(devices []Device, p *P2PPass) []collector.Point {
	desc := c.layout.exp[expP2P]
	if desc == nil {
		return nil
	}
	points := make([]collector.Point, 0, len(p.Pairs))
	for _, pair := range p.Pairs {
		i := slices.IndexFunc(devices, func(d Device) bool { return d.Index == pair.GPU })
		if i < 0 || devices[i].Lost {
			continue
		}
		d := devices[i]
		d.MIGProfile, d.MIGID = "", ""
		state := p2pStates[len(p2pStates)-1]
		if pair.Status >= 0 && pair.Status < len(p2pStates) {
			state = p2pStates[pair.Status]
		}
		points = append(points, collector.Point{Desc: desc, Value: float64(pair.Status),
			Values: slices.Concat(c.layout.values(&d, c.driver, c.host), []string{state, pair.Peer})})
	}
	return points
}
