// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// TestEvents: an event strikes its target, at its time, beside others, and is
// mended; a day later nothing out of the ordinary is left but counters.
func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		ev     Event
		entity site.Entity
		sign   string // that must show within ten minutes
	}{
		{Event{Scenario: "cooling-loss", Target: "crah2", Load: .9}, site.Entity{Kind: site.KindCooling, ID: "crah2"}, "stopped:crah2"},
		{Event{Scenario: "cooling-loss", Target: "crah2", Size: .1, Load: .9}, site.Entity{Kind: site.KindCooling, ID: "crah2"}, "inlet:r03"},
		{Event{Scenario: "airflow-loss", Target: "r03"}, site.Entity{Kind: site.KindRack, ID: "r03"}, "inlet:r03"},
		{Event{Scenario: "fan-failure", Target: "gpu007"}, site.Entity{Kind: site.KindNode, ID: "gpu007"}, "hot:gpu007"},
		{Event{Scenario: "feed-loss", Target: "feed-b"}, site.Entity{Kind: site.KindFeed, ID: "feed-b"}, "dark:r03-b"},
		{Event{Scenario: "dead-pdu-management", Target: "r03-b"}, site.Entity{Kind: site.KindPDU, ID: "r03-b"}, "mute:r03-b"},
		{Event{Scenario: "breaker-trip", Target: "r03-b"}, site.Entity{Kind: site.KindPDU, ID: "r03-b"}, "dark:r03-b"},
		{Event{Scenario: "phase-overload", Target: "r03-b", Size: 1.2}, site.Entity{Kind: site.KindPDU, ID: "r03-b"}, "over:r03-b"},
		{Event{Scenario: "sag", Target: "feed-b", Size: .8}, site.Entity{Kind: site.KindFeed, ID: "feed-b"}, "dip:r03-b"},
		{Event{Scenario: "port-flap", Target: "tor03/Ethernet2", Size: 20}, site.Entity{Kind: site.KindSwitch, ID: "tor03"}, "flap:tor03/Ethernet2"},
		{Event{Scenario: "gpu-lost", Target: "gpu010/5"}, site.Entity{Kind: site.KindNode, ID: "gpu010"}, "lost:gpu010"},
		{Event{Scenario: "ecc-escalation", Target: "gpu010/5", Size: 10}, site.Entity{Kind: site.KindNode, ID: "gpu010"}, "xid48:gpu010"},
		{Event{Scenario: "nvlink-errors", Target: "gpu010/5", Size: 500}, site.Entity{Kind: site.KindNode, ID: "gpu010"}, "crc:gpu010"},
		{Event{Scenario: "node-crash", Target: "gpu010"}, site.Entity{Kind: site.KindNode, ID: "gpu010"}, "down:gpu010"},
		{Event{Scenario: "stale-sensor", Target: "r03-in-mid", Size: 60}, site.Entity{Kind: site.KindSensor, ID: "r03-in-mid"}, "gone:r03-in-mid"},
		{Event{Scenario: "moved-node", Target: "gpu010/r01"}, site.Entity{Kind: site.KindNode, ID: "gpu010"}, "down:gpu010"},
	} {
		t.Run(tc.ev.Scenario, func(t *testing.T) {
			ev := tc.ev
			ev.Onset, ev.Until = onset*time.Second, (onset+660)*time.Second
			other := Event{Scenario: "clock-step", Target: "gpu001", Onset: (onset + 60) * time.Second, Size: 7}
			h := newHall(t, Spec{Seed: 4, Events: []Event{ev, other}})
			if f := after(h, onset-1).Faults; len(f) != 0 {
				t.Fatalf("before the onset: %+v", f)
			}
			first := watch(h, onset+600)
			if _, ok := first[tc.sign]; !ok || first[tc.sign] < onset {
				t.Errorf("%s not seen: %v", tc.sign, first)
			}
			f := after(h, onset+600).Faults
			if len(f) < 2 || f[0].Entity != tc.entity || f[0].Kind != strings.ReplaceAll(ev.Scenario, "-", "_") || f[len(f)-1].Value != 7 {
				t.Errorf("faults %+v", f)
			}
			s := after(h, onset+660+3600)
			if len(s.Faults) != 1 {
				t.Errorf("faults after it was mended: %+v", s.Faults)
			}
			for sign := range signs(h.site, s) {
				what, _, _ := strings.Cut(sign, ":")
				counter := slices.Contains([]string{"flap", "port-errors", "crc", "sbe", "remap", "xid48", "xid63", "xid94", "xid74", "xid79"}, what)
				if !counter && ev.Scenario != "moved-node" {
					t.Errorf("an hour after it was mended: %s", sign)
				}
			}
		})
	}
}

// TestEventErrors: what an event asks for must be there.
func TestEventErrors(t *testing.T) {
	for _, ev := range []Event{
		{Scenario: "cooling-loss", Target: "crah9"}, {Scenario: "airflow-loss", Target: "r99"},
		{Scenario: "fan-failure", Target: "ws01"}, {Scenario: "feed-loss", Target: "feed-z"},
		{Scenario: "breaker-trip", Target: "none"}, {Scenario: "gpu-lost", Target: "gpu001/x"}, {Scenario: "gpu-lost", Target: "gpu001/8"},
		{Scenario: "port-flap", Target: "tor01"}, {Scenario: "port-flap", Size: 5}, {Scenario: "stale-sensor", Target: "r01-out"},
		{Scenario: "moved-node", Target: "gpu001/r99"}, {Scenario: "sag", Onset: 5 * time.Second, Until: time.Second}, {Scenario: "storm"},
	} {
		if _, err := New(Spec{Site: newHall(t, Spec{}).site, Events: []Event{ev}}); err == nil {
			t.Errorf("%+v: no error", ev)
		}
	}
}
