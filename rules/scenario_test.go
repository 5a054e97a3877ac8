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
)

// mapped is what the registry says of the site.
func mapped(p page, s *site.Site) {
	set := func(format string, args ...any) { p[fmt.Sprintf(format, args...)] = 1 }
	for _, r := range s.Racks {
		set("rackpulse_rack_info{site=%q,rack_id=%q,row=%q}", s.ID, r.ID, r.Row)
	}
	for _, d := range s.PDUs {
		set("rackpulse_rack_feed_info{site=%q,rack_id=%q,pdu_id=%q,feed=%q}", s.ID, d.Rack, d.ID, d.Feed)
		p[fmt.Sprintf("rackpulse_pdu_rated_ampere{site=%q,rack_id=%q,pdu_id=%q,phases=\"%d\"}", s.ID, d.Rack, d.ID, d.Phases)] = d.RatedAmperes
		f, _ := s.Feed(d.Feed)
		p[fmt.Sprintf("rackpulse_pdu_usable_ampere{site=%q,rack_id=%q,pdu_id=%q}", s.ID, d.Rack, d.ID)] = d.RatedAmperes * f.Derate
	}
	for _, c := range s.CoolingUnits {
		for _, r := range c.Serves {
			set("rackpulse_rack_cooling_info{site=%q,rack_id=%q,cooling_unit=%q}", s.ID, r, c.ID)
		}
	}
	for _, n := range s.Nodes {
		if n.Rack == "" {
			set("rackpulse_node_info{site=%q,node=%q,class=%q,rackless=\"true\"}", s.ID, n.ID, n.Class)
		} else {
			set("rackpulse_node_info{site=%q,node=%q,class=%q,rack_id=%q}", s.ID, n.ID, n.Class, n.Rack)
		}
	}
}

// measured is what the agents and the lease server say of a state. silent holds
// when each node was last heard.
func measured(p page, s *site.Site, st *sim.State, heard map[string]time.Time, alive func(node string) bool) {
	for _, n := range s.Nodes {
		where := fmt.Sprintf("site=%q,node=%q", s.ID, n.ID)
		if n.Rack != "" {
			where += fmt.Sprintf(",rack_id=%q", n.Rack)
		}
		if alive(n.ID) {
			heard[n.ID] = st.Wall
		}
		lease(p, where, st.Wall.Sub(heard[n.ID]), heard[n.ID])
		if st.Nodes[n.ID].Up {
			gpus(p, where, st.Nodes[n.ID].GPUs)
		}
	}
	for _, sn := range s.Sensors {
		if c, ok := st.Sensors[sn.ID]; ok && sn.Measures == "inlet_temperature" {
			p[fmt.Sprintf("rack_inlet_temperature_celsius{site=%q,rack_id=%q,sensor=%q,position=%q}", s.ID, sn.Rack, sn.ID, sn.Position)] = c
		}
	}
	for id, c := range st.Cooling {
		p[fmt.Sprintf("facility_device_up{site=%q,device=%q,driver=\"sim\"}", s.ID, id)] = one01(c.Manageable)
		if c.Manageable {
			p[fmt.Sprintf("cooling_unit_up{site=%q,cooling_unit=%q}", s.ID, id)] = one01(c.Up)
		}
	}
	for _, d := range s.PDUs {
		now := st.PDUs[d.ID]
		p[fmt.Sprintf("facility_device_up{site=%q,device=%q,driver=\"sim\",pdu_id=%q,rack_id=%q}", s.ID, d.ID, d.ID, d.Rack)] = one01(now.Manageable)
		p[fmt.Sprintf("rackpulse_source_up{site=%q,instance=\"fac1\",source=%q}", s.ID, d.ID)] = one01(now.Manageable)
		top := 0.0
		for i, ph := range now.Phases {
			top = max(top, ph.Amperes)
			if now.Manageable {
				p[fmt.Sprintf("pdu_line_current_ampere{site=%q,pdu_id=%q,rack_id=%q,line=\"%d\"}", s.ID, d.ID, d.Rack, i+1)] = ph.Amperes
			}
		}
		if now.Manageable {
			p[fmt.Sprintf("pdu_current_ampere{site=%q,pdu_id=%q,rack_id=%q}", s.ID, d.ID, d.Rack)] = top
		}
	}
}

func one01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// lease writes a node's lease series after so much silence.
func lease(p page, where string, silence time.Duration, last time.Time) {
	state := "READY"
	switch {
	case silence >= 30*time.Second:
		state = "EXPIRED"
	case silence > 10*time.Second:
		state = "SUSPECT"
	}
	p[fmt.Sprintf("rackpulse_lease_state{%s,state=%q}", where, state)] = 1
	p["rackpulse_lease_up{"+where+"}"] = one01(state != "EXPIRED")
	p["rackpulse_lease_last_beat_timestamp_seconds{"+where+"}"] = float64(last.Unix())
}

func gpus(p page, where string, list []sim.GPU) {
	for _, g := range list {
		id := fmt.Sprintf("{%s,gpu=\"%d\",UUID=%q", where, g.Index, g.UUID)
		p["rackpulse_gpu_up"+id+"}"] = one01(g.Present)
		p["rackpulse_gpu_xid_errors_total"+id+`,xid="79"}`] = float64(g.XIDs[79])
		if !g.Present {
			continue
		}
		id += fmt.Sprintf(",modelName=%q}", g.Model)
		p["DCGM_FI_DEV_GPU_TEMP"+id] = float64(int(g.TempC + .5))
		p["DCGM_FI_DEV_POWER_USAGE"+id] = g.PowerWatts
		p["DCGM_FI_DEV_GPU_UTIL"+id] = float64(int(g.Util * 100))
	}
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
		{"fan-failure", "LoadHeat r01 gpu001", hot, 5 * time.Minute},
		{"feed-loss", "FeedLost feed-a", "FacilityDeviceDown", 4 * time.Minute},
		{"dead-pdu-management", "FacilityDeviceDown r01 r01-a", "", 5 * time.Minute},
		{"breaker-trip", "PDULost feed-a r01 r01-a", "FacilityDeviceDown", 5 * time.Minute},
		{"gpu-lost", "GPULost r01 gpu001", "", 3 * time.Minute},
		{"node-crash", "NodeLeaseLost r01 gpu001", "", 4 * time.Minute},
		{"partition", "RackSilent r01", "NodeLeaseLost", 2 * time.Minute},
		{"stale-sensor", "", "LoadHeat GPUHot", 0},
		{"sag", "", "LoadHeat GPUHot", 0},
		{"phase-overload", "PhaseOverload r01 r01-a", "LoadHeat GPUHot PhaseOverloadAfterFailover", 90 * time.Second},
	} {
		t.Run(tc.scenario, func(t *testing.T) {
			first := play(t, tc.scenario)
			paged := tc.page == ""
			for _, alert := range slices.Sorted(maps.Keys(first)) {
				t.Logf("%-40s %s after the onset", alert, first[alert])
				name, _, _ := strings.Cut(alert, " ")
				switch {
				case first[alert] < 0:
					t.Errorf("%s fires before the onset", alert)
				case tc.page != "" && strings.HasPrefix(alert, tc.page):
					paged = paged || first[alert] <= tc.within
				case !slices.Contains(strings.Fields(tc.may), name):
					t.Errorf("%s fires, it is no part of %s", alert, tc.scenario)
				}
			}
			if !paged {
				t.Errorf("%s does not fire within %s", tc.page, tc.within)
			}
		})
	}
}

const onset = 11 * time.Minute

// play runs a scenario for 24 minutes of scrapes and evaluations every 15 s and
// returns when each alert fired first, from the onset.
func play(t *testing.T, scenario string) map[string]time.Duration {
	t.Helper()
	heard := map[string]time.Time{}
	return playOn(t, newStore(t, epoch), scenario, func(p page, s *site.Site, state *sim.State) {
		measured(p, s, state, heard, func(node string) bool { return reachable(s, state, node) })
	})
}

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// playOn is play on a store, with fill for what is scraped beside the registry.
func playOn(t *testing.T, st *store, scenario string, fill func(p page, s *site.Site, state *sim.State)) map[string]time.Duration {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	hall, err := sim.New(sim.Spec{Site: s, Scenario: scenario, Seed: 1, Epoch: epoch, Onset: onset})
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]time.Duration{}
	for at := time.Duration(0); at <= 24*time.Minute; at += 15 * time.Second {
		st.now = epoch.Add(at)
		p := page{}
		mapped(p, s)
		fill(p, s, hall.At(st.now))
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

// reachable says whether a node's beats arrive: it is up, and no partition of
// its rack is the truth.
func reachable(s *site.Site, st *sim.State, node string) bool {
	for _, f := range st.Faults {
		if f.Kind == "partition" {
			i := slices.IndexFunc(s.Nodes, func(n site.Node) bool { return n.ID == node })
			if f.Entity.Kind == site.KindNode && f.Entity.ID == node || f.Entity.Kind == site.KindRack && f.Entity.ID == s.Nodes[i].Rack {
				return false
			}
		}
	}
	return st.Nodes[node].Up
}
