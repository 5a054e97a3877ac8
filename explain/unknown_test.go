// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool/hall"
)

// without takes all samples of a metric with a label value away, from a time
// relative to the onset on.
func without(metric, value string, since time.Duration) func(hall.Page, time.Duration) {
	return func(p hall.Page, at time.Duration) {
		if at >= since {
			p.Without(metric, value)
		}
	}
}

// TestDeadSensor: the rack's air fails, and its inlet sensors die with it. The
// heat alone must not be called an air fault, nor load: it is unknown, and the
// missing sensor is named.
func TestDeadSensor(t *testing.T) {
	t.Parallel()
	h := play(t, "airflow-loss", 7*time.Minute, without("rack_inlet_temperature_celsius", "r01", 0))
	r := h.ask(t, Request{Rack: "r01"})
	if r.Named || !strings.HasPrefix(r.Conclusion, "unknown") {
		t.Errorf("named %v: %q", r.Named, r.Conclusion)
	}
	if got := strings.Join(r.Missing, "\n"); !strings.Contains(got, "inlet for rack r01") {
		t.Errorf("missing %q", got)
	}
}

// noFault asks about a node that the fault does not touch, and about the time
// before it.
func noFault(t *testing.T, h *played) {
	t.Helper()
	if r := h.ask(t, Request{Node: "gpu009"}); r.Fault {
		t.Errorf("a node far from the fault: %q", r.Conclusion)
	}
	if r := h.ask(t, Request{Node: "gpu001", To: epoch.Add(onsetAfter - time.Minute)}); r.Fault {
		t.Errorf("before the fault: %q", r.Conclusion)
	}
}

// silentSwitch: no rule speaks of the switch and nothing polls it, but every
// node behind it falls silent: it heads the shared parents.
func silentSwitch(t *testing.T, h *played) {
	t.Helper()
	r := h.ask(t, Request{Node: "gpu003"})
	if len(r.Common) == 0 {
		t.Fatal("no common cause")
	}
	top := r.Common[0]
	if top.Entity != (Entity{"switch", "tor01"}) || top.Telemetry || top.Coverage != 1 || top.Specificity != 1 || top.Failing != 4 || top.Of != 4 {
		t.Errorf("top %+v, want switch tor01 with 4 of 4 and no telemetry", top)
	}
	if last := r.Common[len(r.Common)-1]; last.Score >= top.Score {
		t.Errorf("the alternatives are not worse: %+v", last)
	}
}

// TestErrors: what cannot be answered is an error, never an empty report.
func TestErrors(t *testing.T) {
	t.Parallel()
	h := play(t, "steady", -onsetAfter+2*time.Minute, nil)
	if r := h.ask(t, Request{Rack: "r03"}); r.Fault || strings.HasPrefix(r.Conclusion, "unknown") {
		t.Errorf("a quiet hall: %q", r.Conclusion)
	}
	// Long before the data.
	if r := h.ask(t, Request{Node: "gpu001", To: epoch.Add(-2 * time.Hour)}); r.Named || !strings.Contains(r.Conclusion, "no signals of node gpu001") {
		t.Errorf("without data: %q", r.Conclusion)
	}
	f := func(req Request, want string) {
		t.Helper()
		if req.To.IsZero() {
			req.To = h.end
		}
		_, err := Explain(t.Context(), Deps{Querier: h.engine, Site: h.site, Pack: h.pack}, req)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", req, err, want)
		}
	}
	f(Request{}, "give one of")
	f(Request{Node: "gpu001", Rack: "r01"}, "give one of")
	f(Request{Node: "gpu099"}, `no node "gpu099"`)
	f(Request{Rack: "r99"}, `no rack "r99"`)
	f(Request{GPU: "GPU-none"}, "no series of GPU GPU-none")
	f(Request{Alert: "FeedLost"}, "FeedLost did not fire")
	f(Request{Rack: "r01", From: h.end, To: h.end}, "window")
	f(Request{Rack: "r01", From: h.end.Add(-48 * time.Hour)}, "at most 24h")
	if _, err := Explain(t.Context(), Deps{}, Request{}); err == nil {
		t.Error("no deps: no error")
	}
}
