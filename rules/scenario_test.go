// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool/hall"
)

// rendered writes a page of the hall as the scrape of a site would store it.
func rendered(p hall.Page, siteID string) page {
	out := page{}
	for name, family := range p {
		for _, m := range family.Metric {
			var b strings.Builder
			fmt.Fprintf(&b, "%s{site=%q", name, siteID)
			for _, l := range m.Label {
				fmt.Fprintf(&b, ",%s=%q", l.GetName(), l.GetValue())
			}
			out[b.String()+"}"] = m.Gauge.GetValue()
		}
	}
	return out
}

// mapped is what the registry says of the site.
func mapped(p page, s *site.Site) {
	edges := hall.Page{}
	hall.New(s).Edges(edges)
	maps.Copy(p, rendered(edges, s.ID))
}

// reachable says whether a node's beats arrive.
func reachable(s *site.Site, st *sim.State, node string) bool {
	n, ok := s.Node(node)
	return ok && st.Nodes[node].Up && !hall.Cut(st, n)
}

func one01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// TestScenarios runs the rules over the simulated hall and holds, for each fault
// whose truth is known, that its cause is named, in time, and nothing else of
// weight but its symptoms. "page" must fire within the given time of the onset,
// "may" are the symptoms that may come with it.
func TestScenarios(t *testing.T) {
	hot := "GPUHot RackInletHot LoadHeat CoolingUnitDown"
	for _, tc := range []struct {
		scenario, page, may string
		within              time.Duration
	}{
		{"steady", "", "LoadHeat GPUHot", 0},
		{"load-only", "", "LoadHeat GPUHot", 0},
		{"cooling-loss", "CoolingFault crah1", hot, 4 * time.Minute},
		{"airflow-loss", "RackAirflowLost r01", hot, 6 * time.Minute},
		{"fan-failure", "NodeAirflowLost r01 gpu001", "GPUHot LoadHeat", 5 * time.Minute},
		{"feed-loss", "FeedLost feed-a", "FacilityDeviceDown", 4 * time.Minute},
		{"dead-pdu-management", "FacilityDeviceDown r01 r01-a", "", 5 * time.Minute},
		{"breaker-trip", "PDULost feed-a r01 r01-a", "FacilityDeviceDown", 5 * time.Minute},
		{"gpu-lost", "GPULost r01 gpu001", "", 3 * time.Minute},
		{"node-crash", "NodeLeaseLost r01 gpu001", "", 4 * time.Minute},
		{"partition", "RackSilent r01", "NodeLeaseLost", 2 * time.Minute},
		{"stale-sensor", "FacilityDeviceDown r01 r01-in-top", "", 9 * time.Minute},
		{"sag", "FeedSag feed-a", "", 2 * time.Minute},
		{"port-flap", "SwitchPortFlapping r01", "", 4 * time.Minute},
		{"ecc-escalation", "GPUMemoryFailing r01 gpu001 0", "", 2 * time.Minute},
		{"nvlink-errors", "NVLinkFailing r01 gpu001 1", "", 2 * time.Minute},
		{"phase-overload", "PhaseOverload r01 r01-a", "LoadHeat GPUHot PhaseOverloadAfterFailover", 90 * time.Second},
	} {
		if !playable(tc.scenario) {
			continue
		}
		t.Run(tc.scenario, func(t *testing.T) {
			first := play(t, tc.scenario)
			checkFirst(t, first, tc.page, tc.may, tc.within)
		})
	}
}

// checkFirst holds when alerts fired first, from the onset: page within its time
// (empty: none), and nothing else but those that may.
func checkFirst(t *testing.T, first map[string]time.Duration, page, may string, within time.Duration) {
	t.Helper()
	paged := page == ""
	for _, alert := range slices.Sorted(maps.Keys(first)) {
		t.Logf("%-40s %s after the onset", alert, first[alert])
		name, _, _ := strings.Cut(alert, " ")
		switch {
		case first[alert] < 0:
			t.Errorf("%s fires before the onset", alert)
		case page != "" && strings.HasPrefix(alert, page):
			paged = paged || first[alert] <= within
		case !slices.Contains(strings.Fields(may), name):
			t.Errorf("%s fires, it is no part of the scenario", alert)
		}
	}
	if !paged {
		t.Errorf("%s does not fire within %s", page, within)
	}
}

const onset = 11 * time.Minute

// play runs a scenario for 24 minutes of scrapes and evaluations every 15 s and
// returns when each alert fired first, from the onset.
func play(t *testing.T, scenario string) map[string]time.Duration {
	t.Helper()
	var view *hall.View
	beat := func(s *site.Site, state *sim.State) {
		if view == nil {
			view = hall.New(s)
		}
		view.Beat(state)
	}
	return playOn(t, newStore(t, epoch), scenario, beat, func(p page, s *site.Site, state *sim.State) {
		maps.Copy(p, shown(view, state))
	})
}

// shown is what agents and registry show of a state.
func shown(view *hall.View, state *sim.State) page {
	all := hall.Page{}
	view.Registry(all, state)
	view.Facility(all, state)
	for i := range view.Site.Nodes {
		if n := &view.Site.Nodes[i]; state.Nodes[n.ID].Up {
			view.Node(all, n, state)
		}
	}
	return rendered(all, view.Site.ID)
}

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// playOn is play on a store, with fill for what is scraped beside the registry,
// and beat, if any, for what goes on each second.
func playOn(t *testing.T, st *store, scenario string, beat func(*site.Site, *sim.State), fill func(p page, s *site.Site, state *sim.State)) map[string]time.Duration {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	world, err := sim.New(sim.Spec{Site: s, Scenario: scenario, Seed: 1, Epoch: epoch, Onset: onset})
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]time.Duration{}
	for at := time.Duration(0); at <= 24*time.Minute; at += time.Second {
		st.now = epoch.Add(at)
		if beat != nil {
			beat(s, world.At(st.now))
		}
		if at%(15*time.Second) != 0 {
			continue
		}
		p := page{}
		mapped(p, s)
		fill(p, s, world.At(st.now))
		st.scrape(p)
		st.eval()
		for _, alert := range st.firing() {
			if _, ok := first[alert]; !ok {
				first[alert] = at - onset
			}
		}
	}
	st.check()
	return first
}
