// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

func askingFor(v *registry.View, ask func(context.Context, registry.AlertView) (*Evidence, error)) http.Handler {
	return NewHandler(Config{View: func(context.Context) (*registry.View, error) { return v, nil }, Explain: true, Evidence: ask})
}

func TestIncidents(t *testing.T) {
	v := coolingFault()
	v.Alerts[3].Runbook = "https://docs.example/cooling-fault.md"
	code, body := get(t, askingFor(v, func(_ context.Context, a registry.AlertView) (*Evidence, error) {
		return &Evidence{For: []string{"for " + a.Name}, Against: []string{"against"}, Missing: []string{"humidity"}, Next: []string{"look at it"}}, nil
	}), "/incidents")
	if code != 200 {
		t.Fatal(code)
	}
	wants(t, body,
		`<b>Incidents</b> 1</p>`,
		// Racks r01 and r02, 4 nodes each, 8 GPUs each.
		`<b>Affected</b> 2 racks, 8 nodes, 64 GPUs</p>`,
		`<b>Muted</b> 2 symptoms</p>`,
		`<dd class="cause">cooling unit crah1</dd>`,
		`<dt>Muted</dt><dd>GPUHot (2)</dd>`,
		`2 racks, 8 nodes, 64 GPUs: <a href="rack/r01">r01</a> <a href="rack/r02">r02</a>`,
		`<h4>For it</h4><ul><li>for RackCoolingFault</li></ul>`, `<h4>Against it</h4><ul><li>against</li></ul>`,
		`<h4>Not known</h4><ul><li>humidity</li></ul>`, `<h4>What to do</h4><ul><li>look at it</li></ul>`,
		`<a href="https://docs.example/cooling-fault.md">Runbook</a>`, `api/v1/explain?alert=RackCoolingFault&amp;format=text`,
		`<li>GPU 2 of gpu001 at 88 °C <span class="dim">(3 min ago)</span></li>`,
		`Alerts that no incident explains`, `PDU r04-b does not answer`, `SIMULATED DATA`,
		`<a href="./">Hall</a> <a href="incidents">Incidents</a>`,
	)
}

// TestIncidentOfOne: an alert of a node or GPU reaches that one only.
func TestIncidentOfOne(t *testing.T) {
	for _, tc := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"rack_id": "r03", "node": "gpu009"}, "1 rack, 1 node, 8 GPUs"},
		{map[string]string{"rack_id": "r03", "node": "gpu009", "UUID": "GPU-3-1-2"}, "1 rack, 1 node, 1 GPU"},
		{map[string]string{"node": "ws01"}, "1 node, 1 GPU"},
		{map[string]string{"device": "x"}, "nothing of the site file"},
	} {
		v := coolingFault()
		v.Alerts = []registry.AlertView{{Name: "A", Correlation: "c", Cause: "it", Severity: "critical", Labels: tc.labels}}
		_, body := get(t, askingFor(v, nil), "/incidents")
		wants(t, body, `<b>Affected</b> `+tc.want+`</p>`, "nothing fires that it explains")
	}
}

func TestNoIncident(t *testing.T) {
	_, body := get(t, serving(hallView(2, 2, 8)), "/incidents")
	wants(t, body, `<span aria-hidden="true">●</span> none</span>`, `<b>Affected</b> nothing</p>`)
	h := NewHandler(Config{View: func(context.Context) (*registry.View, error) { return nil, errors.New("store away") }})
	if code, body := get(t, h, "/incidents"); code != http.StatusServiceUnavailable || !strings.Contains(body, "store away") {
		t.Errorf("without a view: %d", code)
	}
}

// TestEvidenceIsRemembered: what costs as much as a dashboard is not asked for at
// every page, failures are not remembered, and only the worst incidents have any.
func TestEvidenceIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := coolingFault()
		v.Alerts = nil
		for i := range 7 {
			v.Alerts = append(v.Alerts, registry.AlertView{Name: fmt.Sprintf("A%d", i), Correlation: "c", Cause: "it", Severity: "warning", Since: noon.Add(time.Duration(i) * time.Second)})
		}
		asked := make(chan string, 100)
		h := askingFor(v, func(_ context.Context, a registry.AlertView) (*Evidence, error) {
			asked <- a.Name
			if a.Name == "A1" {
				return nil, errors.New("too much is asked")
			}
			return &Evidence{For: []string{"fact of " + a.Name}}, nil
		})
		for _, tc := range []struct {
			wait time.Duration
			want int
		}{{0, 5}, {20 * time.Second, 1}, {11 * time.Second, 5}} {
			time.Sleep(tc.wait)
			_, body := get(t, h, "/incidents")
			wants(t, body, "fact of A0", "fact of A4", "No evidence: too much is asked")
			if strings.Contains(body, "fact of A5") {
				t.Error("a sixth incident has evidence")
			}
			if n := len(asked); n != tc.want {
				t.Errorf("%s later: asked %d times, want %d", tc.wait, n, tc.want)
			}
			for len(asked) > 0 {
				<-asked
			}
		}
	})
}

func TestIncidentsOfHostileNames(t *testing.T) {
	evil := `"><script>alert(1)</script>`
	v := coolingFault()
	v.Alerts[3].Summary, v.Alerts[3].Cause, v.Alerts[3].Runbook, v.Alerts[3].Name = evil, evil, "javascript:alert(1)", evil
	_, body := get(t, askingFor(v, func(context.Context, registry.AlertView) (*Evidence, error) {
		return &Evidence{For: []string{evil}}, errors.New(evil)
	}), "/incidents")
	if strings.Count(body, "<script") != 1 || strings.Contains(body, "javascript:") {
		t.Error("names are not escaped")
	}
}

// TestReadyNeedsNoReason: why a node is ready is not worth the place; and a
// dead-man's switch is not counted as an alert.
func TestReadyNeedsNoReason(t *testing.T) {
	v := coolingFault()
	v.Racks[2].Nodes[1].Reason = "3 beats without a gap"
	v.Alerts = append(v.Alerts, registry.AlertView{Name: "Watchdog", Correlation: "coverage", Severity: "none"})
	_, body := get(t, serving(v), "/")
	wants(t, body, "fan tray swap", "1 notice: Watchdog (1)")
	if strings.Contains(body, "without a gap") || strings.Contains(body, "1 other") {
		t.Error("the page tells what nobody needs to know")
	}
}

// TestRackPageHasTable: the page of one rack shows its nodes as a table beside it.
func TestRackPageHasTable(t *testing.T) {
	_, body := get(t, serving(coolingFault()), "/rack/r01")
	wants(t, body, `<section class="rack critical single"`, `<div class="beside"><table>`, `<a href="../incidents">Incidents</a>`)
	if strings.Contains(body, "As text") {
		t.Error("the table is there twice")
	}
}
