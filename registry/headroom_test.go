// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"maps"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/query"
)

// TestHeadroom: a rack of 44 kW that draws 36.9 kW at an inlet of 24.4 C.
func TestHeadroom(t *testing.T) {
	for _, tc := range []struct {
		name      string
		mode      string
		simulated float64
		want      map[string]string
	}{
		{"observe", lease.ModeObserve, 0, nil},
		{"soft", lease.ModeSoft, 0, map[string]string{"health": "ready", "rack": "r01", "power-headroom-kw": "7", "thermal-headroom-celsius": "2"}},
		{"simulated", lease.ModeSoft, 1, map[string]string{"health": "ready", "rack": "r01"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			cfg.Actions.Targets = make([]config.Part, 1)
			cfg.Actions.Classes = map[string]lease.Policy{"h100": {Mode: tc.mode}}
			q := &answers{samples: map[string][]query.Sample{
				"rack_inlet_temperature_celsius": {{Labels: map[string]string{"rack_id": "r01"}, Value: 24.4}},
				"pdu_power_watt":                 {{Labels: map[string]string{"pdu_id": "r01-a"}, Value: 20000}, {Labels: map[string]string{"pdu_id": "r01-b"}, Value: 16900}},
				"rackpulse_simulated":            {{Labels: map[string]string{"layer": "facility"}, Value: tc.simulated}},
			}}
			r := start(t, cfg, Deps{Querier: q})
			gpuNode(t, r, "gpu001", "10.0.0.1:9400").mustBeat(t, leasepb.State_READY)
			got, err := r.Headroom(t.Context())
			if err != nil || !maps.Equal(got["gpu001"], tc.want) || len(got) > 1 {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// TestUnknownClass: a policy for a class that the site does not have is refused,
// at the start and when a reload takes the class away.
func TestUnknownClass(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Actions.Classes = map[string]lease.Policy{"h10O": {Mode: lease.ModeObserve}}
	const want = "actions.classes.h10O: the site file has no such node class"
	if _, err := New(cfg, Deps{Site: example(t)}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	cfg.Actions.Classes = map[string]lease.Policy{"h100": {Mode: lease.ModeObserve}}
	r := start(t, cfg, Deps{Site: example(t)})
	next := example(t)
	next.NodeClasses = nil
	if err := r.ApplySite(next); err == nil || !strings.Contains(err.Error(), "actions.classes.h100") {
		t.Errorf("after a reload: %v", err)
	}
}
