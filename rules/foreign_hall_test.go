// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestForeignScenarios runs the pack over a hall that has dcgm-exporter and
// snmp_exporter only and wants the causes that TestScenarios wants.
func TestForeignScenarios(t *testing.T) {
	hot := "GPUHot RackInletHot LoadHeat"
	const mute = "CorrelationCannotFire rack_leases" // nobody beats, and that is said
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
		t.Run(tc.scenario, func(t *testing.T) {
			t.Parallel()
			f := adapters(t, "dcgm-exporter", "snmp-apcups")
			first := playOn(t, f.store(), tc.scenario, f.hall)
			if _, ok := first[mute]; !ok {
				t.Errorf("%s does not fire", mute)
			}
			delete(first, mute)
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
