// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool/hall"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestScenarios asks after each fault whose truth is known, and holds the cause
// that a person who knows the scenario would name.
func TestScenarios(t *testing.T) {
	type answer struct {
		ask   Request
		want  string // how the conclusion begins
		fault bool
	}
	for _, tc := range []struct {
		scenario string
		after    time.Duration
		spoil    func(hall.Page, time.Duration)
		answers  []answer
	}{
		{"cooling-loss", 7 * time.Minute, nil, []answer{
			{Request{Node: "gpu005"}, "cooling unit crah1", true},
			{Request{Rack: "r01"}, "cooling unit crah1", true},
			{Request{Alert: "RackInletHot"}, "cooling unit crah1", true},
		}},
		{"airflow-loss", 8 * time.Minute, nil, []answer{{Request{Rack: "r01"}, "air supply of rack r01", true}}},
		{"feed-loss", 6 * time.Minute, nil, []answer{
			{Request{Rack: "r02"}, "feed feed-a", true},
			{Request{Alert: "FeedLost"}, "feed feed-a", true},
		}},
		{"breaker-trip", 6 * time.Minute, nil, []answer{{Request{Rack: "r01"}, "supply of PDU r01-a", true}}},
		{"dead-pdu-management", 6 * time.Minute, nil, []answer{{Request{Rack: "r01"}, "management card or network of r01-a", true}}},
		{"load-only", 6 * time.Minute, nil, []answer{{Request{Rack: "r01"}, "no fault: more load on rack r01", false}}},
		{"gpu-lost", 4 * time.Minute, nil, []answer{{Request{Node: "gpu001"}, "GPU 0 of gpu001 (", true}}},
		{"port-flap", 5 * time.Minute, nil, []answer{{Request{Node: "gpu001"}, "link at port tor01/Ethernet1 (gpu001)", true}}},
		{"node-crash", 5 * time.Minute, nil, []answer{{Request{Node: "gpu001"}, "node gpu001 itself", true}}},
		{"partition", 4 * time.Minute, without("facility_device_up", "tor01", -time.Hour), []answer{{Request{Node: "gpu002"}, "rack r01: power, uplink or switch", true}}},
	} {
		t.Run(tc.scenario, func(t *testing.T) {
			t.Parallel()
			h := play(t, tc.scenario, tc.after, tc.spoil)
			for _, a := range tc.answers {
				r := h.ask(t, a.ask)
				if !r.Named || r.Fault != a.fault || !strings.HasPrefix(r.Conclusion, a.want) {
					var b strings.Builder
					_ = r.Text(&b)
					t.Errorf("named %v, fault %v, %q, want %q\n%s", r.Named, r.Fault, r.Conclusion, a.want, &b)
				}
				sound(t, r)
			}
			switch tc.scenario {
			case "cooling-loss":
				golden(t, h)
			case "gpu-lost":
				noFault(t, h)
			case "partition":
				silentSwitch(t, h)
			}
		})
	}
}

// sound holds what is true of every report.
func sound(t *testing.T, r *Report) {
	t.Helper()
	if len(r.Queries) > 20 {
		t.Errorf("%d queries", len(r.Queries))
	}
	for i, c := range r.Candidates {
		product := 1.0
		for _, f := range c.Factors {
			product *= f.Value
		}
		if product-c.Score > 1e-9 || c.Score-product > 1e-9 || c.Score < 0 || c.Score > 1 {
			t.Errorf("%s: score %v, its factors give %v", c.Cause, c.Score, product)
		}
		if c.Rank != i+1 || i > 0 && c.Score > r.Candidates[i-1].Score {
			t.Errorf("%s: rank %d of score %v at place %d", c.Cause, c.Rank, c.Score, i+1)
		}
	}
	if len(r.NextSteps) == 0 {
		t.Error("no next step")
	}
}

// golden compares the three forms of one report with the files that were read
// and found true by a person.
func golden(t *testing.T, h *played) {
	t.Helper()
	r := h.ask(t, Request{Node: "gpu005"})
	// What other correlations of the pack add is not held here.
	r.Queries = r.Queries[:1]
	r.Candidates = slices.DeleteFunc(r.Candidates, func(c Candidate) bool {
		return c.Correlation != "cooling-fault" && c.Correlation != "cooling-unit-down"
	})
	r.Alerts = slices.DeleteFunc(r.Alerts, func(a FiredAlert) bool {
		return !slices.Contains([]string{"CoolingFault", "CoolingUnitDown", "RackInletHot"}, a.Name)
	})
	for name, write := range map[string]func(*strings.Builder) error{
		"cooling-loss.txt":       func(b *strings.Builder) error { return r.Text(b) },
		"cooling-loss.md":        func(b *strings.Builder) error { return r.Markdown(b) },
		"cooling-loss.brief.txt": func(b *strings.Builder) error { return r.Brief(b) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		path := "testdata/" + name
		if *update {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s differs; go test -update writes it anew:\n%s", path, b.String())
		}
	}
}
