// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

// TestE2EReport lets a node die in mode observe, without targets, and come back:
// the report says that it would have been marked and evicted, and that this would
// have been a false eviction.
func TestE2EReport(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 2s}\nactions: {witness: none}\n")
	nodes := []string{"gpu001", "gpu002", "pair1", "cpu001", "cpu002"}
	c := newCrew(s, nodes...)
	for _, n := range nodes {
		s.awaitState(n, "READY", 20*time.Second)
	}
	c.kill("pair1")
	report := func() *registry.Report {
		r, err := s.api().Report(t.Context(), time.Now().Add(-time.Hour), "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s.eventually(30*time.Second, "it would be evicted", func() error {
		if r := report(); r.Totals.WouldEvict != 1 || r.Totals.Gone != 1 {
			return fmt.Errorf("%+v", r.Totals)
		}
		return nil
	})
	c.start("pair1")
	s.awaitState("pair1", "READY", 20*time.Second)
	r := report()
	want := registry.ReportTotals{Episodes: 1, Nodes: 1, WouldEvict: 1, FalseEvictions: 1}
	if r.Totals != want || r.Mode != "observe" || len(r.Episodes) != 1 {
		t.Fatalf("report %+v", r)
	}
	if e := r.Episodes[0]; e.Node != "pair1" || e.Rack != "r01" || e.Class != "pair" || e.State != "EXPIRED" || e.Would != registry.DepthEvict || e.Did != "" || !e.False {
		t.Errorf("episode %+v", e)
	}
	out := s.cli("report", "--since=1h")
	for _, text := range []string{"mode observe now: 1 troubles, nodes in trouble: 1", "work taken away:        0, and 1 would have been", "within 5m: 1;", "evict after ", "FALSE"} {
		if !strings.Contains(out, text) {
			t.Errorf("the report does not say %q:\n%s", text, out)
		}
	}
	t.Logf("report:\n%s", out)
}
