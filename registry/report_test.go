// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/ledger"
)

// story writes events of a history, one leadership after the other.
type story struct {
	events []ledger.Event
	fence  uint64
}

func (s *story) add(e ledger.Event, seconds int) {
	e.ID = s.fence<<32 + uint64(len(s.events)) + 1
	e.Time = t0.Add(time.Duration(seconds) * time.Second)
	s.events = append(s.events, e)
}

func (s *story) move(seconds int, node, to, reason, boot string) {
	e := ledger.Event{Kind: ledger.KindTransition, Node: node, To: to, Reason: reason}
	if boot != "" {
		e.Evidence = map[string]string{lease.EvidenceBoot: boot}
	}
	s.add(e, seconds)
}

func (s *story) act(seconds int, node, action, result, hard, reason string) {
	s.add(ledger.Event{Kind: ledger.KindAction, Node: node, Reason: reason, Evidence: map[string]string{
		"action": action, "result": result, "hard": hard, "mode": "observe", "witness": "its outlets draw 0 W",
	}}, seconds)
}

// TestReport tells a day of eight nodes and holds each episode and all totals.
func TestReport(t *testing.T) {
	s := &story{fence: 1}
	lost := func(at int, node string) {
		s.move(at, node, "SUSPECT", "no beat for 17.5s", "")
		s.act(at+1, node, "suspend", "would", "false", "would give it no new work")
		s.move(at+13, node, "EXPIRED", "no beat for 30s", "")
	}
	back := func(at int, node, boot string) {
		s.move(at, node, "RECOVERING", "beats again", boot)
		s.move(at+60, node, "READY", "no gap for 1m0s", "")
		s.act(at+61, node, "resume", "done", "false", "marked")
	}
	lost(-7200, "early") // before the time of the report
	back(-7100, "early", "")
	s.move(0, "flap", "SUSPECT", "no beat for 17.5s", "")
	s.act(1, "flap", "suspend", "would", "false", "would give it no new work")
	s.move(5, "flap", "READY", "beats again", "")
	lost(100, "blip") // would be evicted at 420 s, back at 500 s
	s.act(420, "blip", "evict", "would", "true", "would take its work away")
	back(500, "blip", lease.BootSame)
	lost(100, "crash")
	s.act(420, "crash", "evict", "would", "true", "would take its work away")
	back(500, "crash", lease.BootAnother)
	lost(100, "late") // back more than 5 min after
	s.act(420, "late", "evict", "would", "true", "would take its work away")
	back(721, "late", lease.BootSame)
	lost(100, "dead")
	s.act(420, "dead", "evict", "would", "true", "would take its work away")
	s.add(ledger.Event{Kind: ledger.KindBreaker, To: lease.BreakerOpen, Reason: "4 of 8 nodes are silent", Evidence: map[string]string{"scope": "rack", "id": "r01"}}, 130)
	lost(120, "held")
	s.act(140, "held", "evict", "would be held", "", "would be held: breaker of rack r01: 4 of 8 nodes are silent")
	s.add(ledger.Event{Kind: ledger.KindBreaker, To: lease.BreakerOpen, Reason: "power work", Evidence: map[string]string{"scope": lease.ScopeManual, "id": ""}}, 150)
	s.fence = 2 // another registry leads: it knows of no breaker but the operator's hold
	s.move(900, "held", "RESTORED", "the registry was started", "")
	s.move(910, "held", "DRAINING", "fan", "") // an operator takes over
	s.move(1000, "hot", "ISOLATED", "xid_fatal", "")
	s.act(1001, "hot", "drain", "done", "true", "marked")
	s.act(1001, "hot", "drain", "would", "true", "would take its work away")

	rep := newReporter(t0.Add(-time.Second), "")
	for i := range s.events {
		rep.add(&s.events[i])
	}
	now := t0.Add(2000 * time.Second)
	got := rep.report(now)
	want := ReportTotals{
		Episodes: 7, Nodes: 7, Evicted: 1, WouldMark: 2, WouldEvict: 4, Held: 1, FalseEvictions: 1, Back: 1, Rebooted: 1, Gone: 1,
	}
	if got.Totals != want {
		t.Errorf("totals %+v\nwant   %+v", got.Totals, want)
	}
	span := BreakerSpan{Scope: "rack", ID: "r01", From: t0.Add(130 * time.Second), Until: t0.Add(900 * time.Second), Reason: "4 of 8 nodes are silent"}
	held := BreakerSpan{Scope: lease.ScopeManual, From: t0.Add(150 * time.Second), Reason: "power work"}
	if !reflect.DeepEqual(got.Breakers, []BreakerSpan{span, held}) {
		t.Errorf("breakers %+v", got.Breakers)
	}
	lines := map[string]string{}
	for _, e := range got.Episodes {
		lines[e.Node] = fmt.Sprintf("%s %.0fs did=%s would=%s back=%t false=%t held=%q", e.State, e.Seconds, e.Did, e.Would, !e.BackAt.IsZero(), e.False, e.HeldBy)
	}
	for node, line := range map[string]string{
		"flap":  `SUSPECT 5s did= would=mark back=false false=false held=""`,
		"blip":  `EXPIRED 460s did= would=evict back=true false=true held=""`,
		"crash": `EXPIRED 460s did= would=evict back=true false=false held=""`,
		"late":  `EXPIRED 681s did= would=evict back=true false=false held=""`,
		"dead":  `EXPIRED 1900s did= would=evict back=false false=false held=""`,
		"held":  `EXPIRED 790s did= would=mark back=false false=false held="breaker of rack r01: 4 of 8 nodes are silent"`,
		"hot":   `ISOLATED 1000s did=evict would= back=false false=false held=""`,
	} {
		if lines[node] != line {
			t.Errorf("%s: %s\nwant %s", node, lines[node], line)
		}
	}
	if e := got.Episodes[0]; e.Node != "hot" || !e.Until.IsZero() || e.Mode != "observe" || e.Witness != "its outlets draw 0 W" {
		t.Errorf("the newest: %+v", e)
	}
	one := newReporter(t0, "blip")
	for i := range s.events {
		one.add(&s.events[i])
	}
	if got := one.report(now); got.Totals.Episodes != 1 || len(got.Breakers) != 2 {
		t.Errorf("of one node: %+v", got)
	}
}

// TestReportOverAPI asks a registry that has little to tell, and asks wrongly.
func TestReportOverAPI(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Actions.Policy = lease.Policy{Mode: "observe"}
	cfg.Actions.Classes = map[string]lease.Policy{"h100": {Mode: "soft"}}
	cfg.Actions.Targets = make([]config.Part, 1)
	r := start(t, cfg, Deps{})
	got, err := r.client(t, "").Report(t.Context(), t0, "gpu001")
	if err != nil || got.Mode != "observe" || got.Modes["h100"] != "soft" || got.Totals != (ReportTotals{}) || !got.Since.Equal(t0) {
		t.Errorf("report %+v, %v", got, err)
	}
	for path, code := range map[string]int{
		"/api/v1/report": http.StatusOK, "/api/v1/report?since=1h": http.StatusOK,
		"/api/v1/report?since=soon": http.StatusBadRequest, "/api/v1/report?node=gpu999": http.StatusNotFound,
	} {
		if got, body := r.request(t, http.MethodGet, path, "", ""); got != code {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
}
