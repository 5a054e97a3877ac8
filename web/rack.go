// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"strings"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
)

// unknown stands where a value is missing.
const unknown = "–"

// heat gives temperatures their colour.
type heat struct {
	Hot      float64 // GPU, celsius
	InletHot float64 // rack inlet, celsius
}

func newHeat(l *site.Limits) heat {
	inlet, _ := l.Value("inlet.correlation_hot_celsius")
	return heat{Hot: l.GPU("").HotCelsius, InletHot: inlet}
}

// Band is one step of the GPU colour scale.
type Band struct {
	Class, Text string
}

// Bands are the steps, coolest first. The last begins at the hot limit; the
// others are 10, 20 and 35 below it, which is for the eye only.
func (h heat) Bands() []Band {
	return []Band{
		{"t0", fmt.Sprintf("below %.0f °C", h.Hot-35)}, {"t1", fmt.Sprintf("%.0f–%.0f °C", h.Hot-35, h.Hot-20)},
		{"t2", fmt.Sprintf("%.0f–%.0f °C", h.Hot-20, h.Hot-10)}, {"t3", fmt.Sprintf("%.0f–%.0f °C", h.Hot-10, h.Hot)},
		{"t4", fmt.Sprintf("%.0f °C and above: hot", h.Hot)},
	}
}

func (h heat) class(celsius float64) string {
	for i, below := range []float64{h.Hot - 35, h.Hot - 20, h.Hot - 10, h.Hot} {
		if celsius < below {
			return fmt.Sprintf("t%d", i)
		}
	}
	return "t4"
}

// stateMark is how a lease state looks: a class for the colour, a shape, a
// word, and its place in lists.
type stateMark struct {
	Class, Shape, Word string
	order              int
}

var marks = map[string]stateMark{
	"EXPIRED":     {"bad", "✕", "EXPIRED", 0},
	"QUARANTINED": {"bad", "✕", "QUARANTINED", 1},
	"ISOLATED":    {"bad", "▲", "ISOLATED", 2},
	"DEGRADED":    {"poor", "▲", "DEGRADED", 3},
	"LIMITED":     {"poor", "△", "LIMITED", 4},
	"SUSPECT":     {"poor", "◐", "SUSPECT", 5},
	"RECOVERING":  {"busy", "◔", "RECOVERING", 6},
	"DRAINING":    {"busy", "▽", "DRAINING", 7},
	"MAINT":       {"off", "■", "MAINT", 8},
	"RESTORED":    {"busy", "◔", "RESTORED", 9},
	"JOINING":     {"busy", "○", "JOINING", 10},
	"LEFT":        {"off", "□", "LEFT", 11},
	"":            {"off", "?", "never seen", 12},
	"READY":       {"good", "●", "READY", 14},
}

func markOf(state string) stateMark {
	if m, ok := marks[state]; ok {
		return m
	}
	return stateMark{"busy", "◇", state, 13}
}

// gpu is one GPU cell.
type gpu struct {
	Class, Text, Title string
	X, W               int
}

// Middle is where the cell's text is centred.
func (g gpu) Middle() int { return g.X + g.W/2 }

func newGPU(g registry.GPUView, h heat) gpu {
	cell := gpu{Class: "tu", Text: unknown}
	temperature := "temperature unknown"
	if g.TempC != nil && !math.IsNaN(*g.TempC) {
		cell.Class, cell.Text = h.class(*g.TempC), fmt.Sprintf("%.0f", *g.TempC)
		temperature = cell.Text + " °C"
	}
	parts := []string{temperature}
	if g.PowerWatts != nil {
		parts = append(parts, fmt.Sprintf("%.0f W", *g.PowerWatts))
	}
	if g.Utilisation != nil {
		parts = append(parts, fmt.Sprintf("%.0f %% busy", *g.Utilisation*100))
	}
	if g.Up != nil && !*g.Up {
		cell.Class, cell.Text = "td", "✕"
		parts = []string{"lost"}
	}
	cell.Title = "GPU " + orUnknown(g.Index) + ": " + strings.Join(parts, ", ")
	return cell
}

func newGPUs(n registry.NodeView, h heat) []gpu {
	cells := make([]gpu, len(n.GPUs))
	for i, g := range n.GPUs {
		cells[i] = newGPU(g, h)
	}
	return cells
}

// nodeRow is one node in a table.
type nodeRow struct {
	registry.NodeView
	Mark  stateMark
	Cells []gpu
}

func newNodeRow(n registry.NodeView, h heat) nodeRow {
	if !noteworthy(n) {
		n.Reason = ""
	}
	return nodeRow{NodeView: n, Mark: markOf(n.State), Cells: newGPUs(n, h)}
}

// pdu is one PDU of a rack's head.
type pdu struct {
	ID, Feed, State, Class string
	Amperes                string
	Kilowatts              string // "" if not known
}

func newPDU(p registry.PDUView) pdu {
	out := pdu{ID: p.ID, Feed: orUnknown(p.Feed), Amperes: number(p.Amperes, 1, "%.1f A")}
	if p.PowerWatts != nil {
		out.Kilowatts = number(p.PowerWatts, 1000, "%.1f kW")
	}
	switch {
	case p.Up == nil:
		out.State, out.Class = "never polled", "off"
	case !*p.Up:
		out.State, out.Class = "no answer", "poor"
	}
	return out
}

// coolingUnit is a cooling unit that serves a rack; Blamed if an alert names it
// as its cause.
type coolingUnit struct {
	ID     string
	Blamed bool
}

// rack is one rack's head and elevation.
type rack struct {
	registry.RackView
	Severity         string // of the worst alert about it, or ""
	Inlet            string
	InletHot         bool
	Power, Limit     string
	Share            string // of the limit
	Bar              int    // 0..100
	Over             bool
	PDUs             []pdu
	Cooling          []coolingUnit
	UsedU            int
	Elevation        elevation
	Rows             []nodeRow
	Unplaced         []nodeRow
	Ready, NodeCount int
}

func newRack(r registry.RackView, h heat, severity string, blamed map[string]bool) rack {
	out := rack{RackView: r, Severity: severity, Inlet: number(r.InletC, 1, "%.1f °C"), Power: number(r.PowerWatts, 1000, "%.1f kW"),
		NodeCount: len(r.Nodes)}
	out.InletHot = r.InletC != nil && *r.InletC > h.InletHot
	if r.PowerLimitWatts > 0 {
		out.Limit = fmt.Sprintf("%.1f kW", r.PowerLimitWatts/1000)
		if r.PowerWatts != nil {
			share := 100 * *r.PowerWatts / r.PowerLimitWatts
			out.Share, out.Over = fmt.Sprintf("%.0f %%", share), share > 100
			out.Bar = int(math.Round(min(max(share, 0), 100)))
		}
	}
	for _, p := range r.PDUs {
		out.PDUs = append(out.PDUs, newPDU(p))
	}
	for _, id := range r.CoolingUnits {
		out.Cooling = append(out.Cooling, coolingUnit{id, blamed[id]})
	}
	out.Elevation = newElevation(r, h)
	for _, n := range r.Nodes {
		nodeRow := newNodeRow(n, h)
		out.Rows = append(out.Rows, nodeRow)
		if n.State == "READY" {
			out.Ready++
		}
		if placed(n, out.Elevation.HeightU) {
			out.UsedU += max(n.HeightU, 1)
		} else {
			out.Unplaced = append(out.Unplaced, nodeRow)
		}
	}
	return out
}

// number is v/scale in a format, or the mark of the unknown.
func number(v *float64, scale float64, format string) string {
	if v == nil || math.IsNaN(*v) {
		return unknown
	}
	return fmt.Sprintf(format, *v/scale)
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
