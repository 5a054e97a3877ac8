// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// TestForeignScenarios runs the pack over a hall that has dcgm-exporter and
// snmp_exporter only and wants the causes that TestScenarios wants.
func TestForeignScenarios(t *testing.T) {
	hot := "GPUHot RackInletHot LoadHeat"
	// Nobody beats, and nobody samples currents fast or tells of the power brake;
	// that is said.
	mute := []string{"CorrelationCannotFire rack_leases", "CorrelationCannotFire pdu_spike", "CorrelationCannotFire rack_braked"}
	for _, tc := range []struct {
		scenario, page, may string
		within              time.Duration
	}{
		{"load-only", "", "LoadHeat GPUHot", 0},
		{"cooling-loss", "CoolingFault crah1", hot, 6 * time.Minute}, // no unit says that it stopped
		{"airflow-loss", "RackAirflowLost r01", hot, 6 * time.Minute},
		{"feed-loss", "FeedLost feed-a", "FacilityDeviceDown", 4 * time.Minute},
		{"gpu-lost", "GPULost r01 gpu001", "", 3 * time.Minute},
		{"node-crash", "", "", 0},
	} {
		if !playable(tc.scenario) {
			continue
		}
		t.Run(tc.scenario, func(t *testing.T) {
			t.Parallel()
			f := adapters(t, "dcgm-exporter", "snmp-apcups")
			first := playOn(t, f.store(), tc.scenario, nil, f.hall)
			for _, alert := range mute {
				if _, ok := first[alert]; !ok {
					t.Errorf("%s does not fire", alert)
				}
				delete(first, alert)
			}
			checkFirst(t, first, tc.page, tc.may, tc.within)
		})
	}
}

// TestForeignSilence: with node_exporter as the only sign of life a rack that
// goes silent as a whole is one cause, and single nodes are information; when
// nothing answers at all it is Prometheus that sees nothing.
func TestForeignSilence(t *testing.T) {
	silent := func(fill func(s *site.Site, state *sim.State, node string) bool) map[string]time.Duration {
		f := adapters(t, "node-exporter")
		return playOn(t, f.store(), "partition", nil, func(p page, s *site.Site, state *sim.State) {
			for _, n := range s.Nodes {
				text := ""
				if fill(s, state, n.ID) {
					text = "node_boot_time_seconds 1.7e+09\n"
				}
				f.scrape(p, text, map[string]string{"job": "node_exporter", "instance": n.ID, "site": s.ID, "node": n.ID})
			}
		})
	}
	first := silent(reachable)
	if at, ok := first["RackSilent r01"]; !ok || at < 0 || at > 2*time.Minute {
		t.Errorf("RackSilent r01 fires at %v (%v)", at, ok)
	}
	if at, ok := first["NodeSuspect r01 gpu001"]; !ok || at < 0 {
		t.Errorf("NodeSuspect r01 gpu001 fires at %v (%v)", at, ok)
	}
	all := silent(func(_ *site.Site, state *sim.State, _ string) bool { return state.Wall.Before(epoch.Add(onset)) })
	for _, alerts := range []map[string]time.Duration{first, all} {
		for alert := range alerts {
			if strings.HasPrefix(alert, "NodeLeaseLost") || strings.HasPrefix(alert, "RackSilent") && alert != "RackSilent r01" {
				t.Errorf("%s fires", alert)
			}
		}
	}
	if at, ok := all["RackSilent r01"]; ok {
		t.Errorf("nothing answers, and RackSilent r01 fires at %v", at)
	}
}
