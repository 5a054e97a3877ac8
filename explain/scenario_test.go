// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"
)

// TestScenarios asks after each fault whose truth is known, and holds the cause
// that a person who knows the scenario would name.
func TestScenarios(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		after    time.Duration
		ask      Request
		want     string // the conclusion
		fault    bool
	}{
		{"cooling-loss", 6 * time.Minute, Request{Node: "gpu005"}, "cooling unit crah1", true},
		{"cooling-loss", 7 * time.Minute, Request{Alert: "RackInletHot"}, "cooling unit crah1", true},
		{"airflow-loss", 8 * time.Minute, Request{Rack: "r01"}, "air supply of rack r01", true},
		{"feed-loss", 6 * time.Minute, Request{Rack: "r02"}, "feed feed-a", true},
		{"breaker-trip", 6 * time.Minute, Request{Rack: "r01"}, "supply of PDU r01-a", true},
		{"dead-pdu-management", 6 * time.Minute, Request{Rack: "r01"}, "management card or network of r01-a", true},
		{"load-only", 6 * time.Minute, Request{Rack: "r01"}, "no fault: more load on rack r01", false},
		{"gpu-lost", 4 * time.Minute, Request{Node: "gpu001"}, "GPU 0 of gpu001 (", true},
		{"port-flap", 5 * time.Minute, Request{Node: "gpu001"}, "link at port tor01/Ethernet1 (gpu001)", true},
		{"node-crash", 5 * time.Minute, Request{Node: "gpu001"}, "node gpu001 itself", true},
		{"partition", 5 * time.Minute, Request{Node: "gpu002"}, "rack r01: power, uplink or switch", true},
	} {
		name := tc.scenario + "/" + tc.ask.question()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := play(t, tc.scenario, tc.after, nil).ask(t, tc.ask)
			if !r.Named || r.Fault != tc.fault || !strings.HasPrefix(r.Conclusion, tc.want) {
				t.Errorf("named %v, fault %v, %q, want %q", r.Named, r.Fault, r.Conclusion, tc.want)
			}
			if t.Failed() || testing.Verbose() {
				var b strings.Builder
				_ = r.Text(&b)
				t.Log(b.String())
			}
		})
	}
}
