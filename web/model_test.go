// SPDX-License-Identifier: Apache-2.0

package web

import (
	"math"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
)

func TestSymptomsAreFolded(t *testing.T) {
	cause := registry.AlertView{Name: "Cause", Cause: "cooling unit crah1", Severity: "warning", Racks: []string{"r01", "r02"}}
	f := func(what, want string, a registry.AlertView) {
		t.Helper()
		a.Name = "A"
		split := sortAlerts([]registry.AlertView{a, cause})
		got := "shown"
		if len(split.Symptoms) == 1 && len(split.Others) == 0 {
			got = "folded"
		}
		if len(split.Notices) == 1 && len(split.Others) == 0 {
			got = "notice"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	f("less severe, in its racks", "folded", registry.AlertView{Severity: "info", Racks: []string{"r02"}})
	f("as severe, by its label", "folded", registry.AlertView{Severity: "warning", Labels: map[string]string{"rack_id": "r01"}})
	f("more severe than the cause", "shown", registry.AlertView{Severity: "critical", Racks: []string{"r01"}})
	f("also elsewhere", "shown", registry.AlertView{Severity: "info", Racks: []string{"r01", "r03"}})
	f("a symptom with a cause of its own", "folded", registry.AlertView{Correlation: "symptom", Cause: "unknown", Severity: "warning", Racks: []string{"r01"}})
	f("a symptom with the same cause", "folded", registry.AlertView{Correlation: "symptom", Cause: "cooling unit crah1", Severity: "warning"})
	f("a symptom with another cause", "shown", registry.AlertView{Correlation: "symptom", Cause: "cooling unit crah2", Severity: "warning"})
	f("the dead-man's switch", "notice", registry.AlertView{Correlation: "coverage", Cause: "none", Severity: "none"})
	f("a gap in coverage", "shown", registry.AlertView{Correlation: "coverage", Cause: "site file", Severity: "warning"})
	f("no rack", "shown", registry.AlertView{Severity: "info"})
	cause.Severity = "critical"
	f("critical is never folded", "shown", registry.AlertView{Severity: "critical", Racks: []string{"r01"}})
	f("unknown severity", "folded", registry.AlertView{Severity: "page", Racks: []string{"r01"}})
}

func TestAlertOrder(t *testing.T) {
	split := sortAlerts([]registry.AlertView{
		{Name: "d", Severity: "other thing"}, {Name: "c", Severity: "warning", Since: noon}, {Name: "b", Severity: "warning", Since: noon.Add(-time.Hour)},
		{Name: "a", Severity: "critical", Since: noon}, {Name: "z", Severity: "info", Cause: "x"}, {Name: "y", Severity: "critical", Cause: "x"}})
	got := ""
	for _, a := range append(split.Causes, split.Others...) {
		got += a.Name
	}
	if got != "yzabcd" {
		t.Errorf("got %s", got)
	}
}

func TestHeat(t *testing.T) {
	h := newHeat(site.DefaultLimits()) // hot: 85
	for celsius, want := range map[float64]string{-5: "t0", 49.9: "t0", 50: "t1", 65: "t2", 75: "t3", 84.9: "t3", 85: "t4", 120: "t4"} {
		if got := h.class(celsius); got != want {
			t.Errorf("%v: %s, want %s", celsius, got, want)
		}
	}
	if g := newGPU(registry.GPUView{TempC: new(math.NaN())}, h); g.Class != "tu" || g.Text != unknown {
		t.Errorf("NaN: %+v", g)
	}
}

// span is a length from a place on.
type span struct{ from, length int }

func wantInside(t *testing.T, what string, s, in span) {
	t.Helper()
	if s.length < 1 || s.from < in.from || s.from+s.length > in.from+in.length {
		t.Errorf("%s: %+v is not inside %+v", what, s, in)
	}
}

// TestGeometry: boxes stand at their units, inside the frame, cells inside
// their box, whatever the site file says.
func TestGeometry(t *testing.T) {
	h := newHeat(site.DefaultLimits())
	gpus := func(n int) []registry.GPUView { return make([]registry.GPUView, n) }
	r := registry.RackView{HeightU: 42, Nodes: []registry.NodeView{
		{ID: "top", U: 35, HeightU: 8, GPUs: gpus(8)}, {ID: "flat", U: 1, HeightU: 1, GPUs: gpus(1)}, {ID: "many", U: 2, HeightU: 2, GPUs: gpus(72)},
		{ID: "no-u", U: 0, HeightU: 8}, {ID: "above", U: 36, HeightU: 8}, {ID: "none", U: 10, HeightU: 4}}}
	e := newElevation(r, h)
	if len(e.Boxes) != 4 {
		t.Fatalf("%d boxes, want 4", len(e.Boxes))
	}
	if e.Boxes[0].Y != 1 || e.Boxes[1].Y != 41*unitHeight+1 {
		t.Errorf("top box at %d, bottom box at %d", e.Boxes[0].Y, e.Boxes[1].Y)
	}
	for _, b := range e.Boxes {
		wantInside(t, b.ID, span{b.X, b.W}, span{railWidth, innerWidth})
		wantInside(t, b.ID, span{b.Y, b.H}, span{0, e.Height})
		for i, c := range b.Cells {
			wantInside(t, b.ID+" cell", span{c.X, c.W}, span{b.X, b.W})
			wantInside(t, b.ID+" cell", span{b.CellY, b.CellH}, span{b.Y, b.H})
			if i > 0 && c.X < b.Cells[i-1].X+b.Cells[i-1].W {
				t.Errorf("%s: cell %d covers the one before", b.ID, i)
			}
		}
	}
	if !e.Boxes[0].Digits || e.Boxes[2].Digits {
		t.Error("digits belong into wide cells only")
	}
	if got := newRack(r, h, "", nil); len(got.Unplaced) != 2 || got.UsedU != 15 {
		t.Errorf("%d without a place, %d U used; want 2, 15", len(got.Unplaced), got.UsedU)
	}
	if e := newElevation(registry.RackView{Nodes: r.Nodes[:1]}, h); e.HeightU != 42 {
		t.Errorf("undeclared height: %d, want that of its nodes", e.HeightU)
	}
	if e := newElevation(registry.RackView{HeightU: 1 << 30}, h); e.HeightU != maxUnits {
		t.Errorf("height of a typo: %d", e.HeightU)
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "just now", 0: "0 s ago", 119 * time.Second: "119 s ago", 2 * time.Minute: "2 min ago",
		3 * time.Hour: "3 h ago", 49 * time.Hour: "2 days ago"} {
		if got := ago(noon, noon.Add(-d)); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := ago(noon, time.Time{}); got != "" {
		t.Errorf("unknown time: %q", got)
	}
}

func TestShorten(t *testing.T) {
	if got := shorten("größer als nötig", 8); got != "größer …" {
		t.Errorf("got %q", got)
	}
}
