// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/ledger"
)

const (
	// backSoon is how soon after it was given up a node must beat again, without a
	// boot between, for the eviction to count as a false one: Kubernetes' default
	// toleration of a lost node, by which its work would have outlived the silence.
	backSoon = 5 * time.Minute
	// defaultReport is the time that a report covers where none is given.
	defaultReport = 24 * time.Hour
	// maxEpisodes bounds the episodes of a report; the totals count all.
	maxEpisodes = 5000
)

// Depths of an episode: how far it went, or would have gone in mode hard.
const (
	DepthMark  = "mark"  // no new work
	DepthEvict = "evict" // its work is taken away
)

// Report says what was done about nodes within a time, and what would have been
// done in mode hard: by the same rules, breakers and witnesses, at the moment at
// which they were asked.
type Report struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Mode is the present one, Modes those of classes with one of their own.
	Mode   string            `json:"mode"`
	Modes  map[string]string `json:"modes,omitempty"`
	Totals ReportTotals      `json:"totals"`
	// Breakers are those that were open within the time, oldest first.
	Breakers []BreakerSpan `json:"breakers"`
	// Episodes are the troubles of nodes within the time, newest first; LeftOut is
	// how many older ones are not listed.
	Episodes []Episode `json:"episodes"`
	LeftOut  int       `json:"left_out,omitempty"`
}

// ReportTotals count episodes.
type ReportTotals struct {
	Episodes int `json:"episodes"`
	Nodes    int `json:"nodes"`
	// Marked and Evicted were done; WouldMark and WouldEvict were not done, and
	// would have been in mode hard.
	Marked     int `json:"marked"`
	Evicted    int `json:"evicted"`
	WouldMark  int `json:"would_mark"`
	WouldEvict int `json:"would_evict"`
	// Held are lost nodes whose work would have stayed, for something held the
	// eviction back until they beat again, or still does.
	Held int `json:"held"`
	// FalseEvictions are those of Evicted and WouldEvict that were back by themselves
	// within 5 min, and not booted; Rebooted came back after a boot, Back otherwise,
	// Gone are not back.
	FalseEvictions int `json:"false_evictions"`
	Back           int `json:"back"`
	Rebooted       int `json:"rebooted"`
	Gone           int `json:"gone"`
}

// Episode is one trouble of a node: from when it was not ready until it was again.
type Episode struct {
	Node  string `json:"node"`
	Rack  string `json:"rack_id,omitempty"`
	Class string `json:"class,omitempty"`
	// From is when it began, Until when the node was ready again or an operator took
	// over; zero: it goes on. Seconds is how long it lasted, so far.
	From    time.Time `json:"from"`
	Until   time.Time `json:"until,omitzero"`
	Seconds float64   `json:"seconds"`
	// State is the worst state that it reached, with the reason and the evidence.
	State    string            `json:"state"`
	Reason   string            `json:"reason"`
	Evidence map[string]string `json:"evidence,omitempty"`
	// Did is how far it was acted on, Would how far it would have been in mode hard
	// where that is further: "mark" or "evict", with when.
	Did     string    `json:"did,omitempty"`
	DidAt   time.Time `json:"did_at,omitzero"`
	Would   string    `json:"would,omitempty"`
	WouldAt time.Time `json:"would_at,omitzero"`
	// Mode is that of the class at the time, Witness what the second source said.
	Mode    string `json:"mode,omitempty"`
	Witness string `json:"witness,omitempty"`
	// HeldBy is what held it back, or would have, last.
	HeldBy string `json:"held_by,omitempty"`
	// BackAt is when a lost node beat again; Boot tells whether it was booted.
	BackAt time.Time `json:"back_at,omitzero"`
	Boot   string    `json:"boot,omitempty"`
	// False says that its eviction was, or would have been, a false one.
	False bool `json:"false_eviction,omitempty"`
}

// BreakerSpan is one time that a breaker was open.
type BreakerSpan struct {
	Scope  string    `json:"scope"`
	ID     string    `json:"id,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason"`
}

// troubles ranks the states that are one.
var troubles = map[string]int{
	lease.Suspect.String(): 1, lease.Limited.String(): 2, lease.Degraded.String(): 3,
	lease.Isolated.String(): 4, lease.Expired.String(): 5, lease.Quarantined.String(): 6,
}

// reporter makes a report of the history, oldest event first.
type reporter struct {
	since time.Time
	node  string // empty: all
	open  map[string]*Episode
	last  map[string]*Episode // by node, closed or open
	done  []*Episode
	spans []*BreakerSpan
	fence uint64 // of the leadership that wrote the last event
}

func newReporter(since time.Time, node string) *reporter {
	return &reporter{since: since, node: node, open: map[string]*Episode{}, last: map[string]*Episode{}}
}

// add takes one event in. A registry that starts to lead knows of no breaker but
// an operator's hold.
func (r *reporter) add(e *ledger.Event) {
	if fence := e.ID >> 32; fence != r.fence {
		r.fence = fence
		r.close(e.Time, func(b *BreakerSpan) bool { return b.Scope != lease.ScopeManual })
	}
	switch {
	case e.Kind == ledger.KindBreaker:
		r.breaker(e)
	case r.node != "" && e.Node != r.node:
	case e.Kind == ledger.KindTransition:
		r.transition(e)
	case e.Kind == ledger.KindAction:
		r.action(e)
	}
}

func (r *reporter) transition(e *ledger.Event) {
	ep := r.open[e.Node]
	rank := troubles[e.To]
	if ep != nil && ep.State == lease.Expired.String() && ep.BackAt.IsZero() && (e.To == lease.Recovering.String() || e.To == lease.Quarantined.String()) {
		ep.BackAt, ep.Boot = e.Time, e.Evidence[lease.EvidenceBoot]
	}
	switch {
	case rank > 0 && ep == nil:
		ep = &Episode{Node: e.Node, From: e.Time}
		r.open[e.Node], r.last[e.Node] = ep, ep
		r.done = append(r.done, ep)
		fallthrough
	case rank > 0 && rank > troubles[ep.State]:
		ep.State, ep.Reason, ep.Evidence = e.To, e.Reason, e.Evidence
	case rank > 0 || ep == nil:
	case e.To == lease.Recovering.String() || e.To == lease.Restored.String(): // goes on
	default: // ready, or an operator's or its agent's own declaration
		ep.Until = e.Time
		delete(r.open, e.Node)
	}
}

// action takes in what was done about a node, or would have been.
func (r *reporter) action(e *ledger.Event) {
	ep := r.last[e.Node]
	if ep == nil || e.Evidence["action"] == ledger.ActionResume {
		return
	}
	ep.Mode = cmp.Or(e.Evidence["mode"], ep.Mode)
	ep.Witness = cmp.Or(e.Evidence["witness"], ep.Witness)
	depth := DepthMark
	if e.Evidence["hard"] == "true" {
		depth = DepthEvict
	}
	switch e.Evidence["result"] {
	case "done":
		deepen(&ep.Did, &ep.DidAt, depth, e.Time)
	case "would":
		deepen(&ep.Would, &ep.WouldAt, depth, e.Time)
	case "held", "would be held":
		ep.HeldBy = heldBy(e.Reason)
	}
}

// heldBy is what holds, of the text of an event.
func heldBy(reason string) string {
	_, why, _ := strings.Cut(reason, "held: ")
	return why
}

// deepen notes how far an episode went, and when it first did.
func deepen(depth *string, at *time.Time, to string, now time.Time) {
	if *depth == to || *depth == DepthEvict {
		return
	}
	*depth, *at = to, now
}

func (r *reporter) breaker(e *ledger.Event) {
	scope, id := e.Evidence["scope"], e.Evidence["id"]
	r.close(e.Time, func(b *BreakerSpan) bool { return b.Scope == scope && b.ID == id })
	if e.To == lease.BreakerOpen {
		r.spans = append(r.spans, &BreakerSpan{Scope: scope, ID: id, From: e.Time, Reason: e.Reason})
	}
}

// close ends the open spans that is says yes to.
func (r *reporter) close(at time.Time, is func(*BreakerSpan) bool) {
	for _, b := range r.spans {
		if b.Until.IsZero() && is(b) {
			b.Until = at
		}
	}
}

// report is what was found, as of now.
func (r *reporter) report(now time.Time) *Report {
	out := &Report{Since: r.since, Until: now, Breakers: []BreakerSpan{}, Episodes: []Episode{}}
	for _, b := range r.spans {
		if b.Until.IsZero() || !b.Until.Before(r.since) {
			out.Breakers = append(out.Breakers, *b)
		}
	}
	nodes := map[string]bool{}
	for _, ep := range slices.Backward(r.done) {
		if !ep.Until.IsZero() && ep.Until.Before(r.since) {
			continue
		}
		ep.finish(now)
		out.Totals.count(ep)
		nodes[ep.Node] = true
		if len(out.Episodes) == maxEpisodes {
			out.LeftOut++
			continue
		}
		out.Episodes = append(out.Episodes, *ep)
	}
	out.Totals.Nodes = len(nodes)
	return out
}

// finish fills in what follows from the rest.
func (ep *Episode) finish(now time.Time) {
	end := ep.Until
	if end.IsZero() {
		end = now
	}
	ep.Seconds = end.Sub(ep.From).Seconds()
	if ep.Would == ep.Did || ep.Did == DepthEvict {
		ep.Would, ep.WouldAt = "", time.Time{}
	}
	if at, ok := ep.givenUp(); ok && !ep.BackAt.IsZero() && ep.Boot != lease.BootAnother {
		ep.False = ep.BackAt.Sub(at) <= backSoon
	}
}

// givenUp is when its work was taken away, or would have been, as that of a lost
// node.
func (ep *Episode) givenUp() (time.Time, bool) {
	switch {
	case troubles[ep.State] < troubles[lease.Expired.String()]:
	case ep.Did == DepthEvict:
		return ep.DidAt, true
	case ep.Would == DepthEvict:
		return ep.WouldAt, true
	}
	return time.Time{}, false
}

// count adds one episode.
func (t *ReportTotals) count(ep *Episode) {
	t.Episodes++
	for depth, n := range map[string][2]*int{DepthMark: {&t.Marked, &t.WouldMark}, DepthEvict: {&t.Evicted, &t.WouldEvict}} {
		if ep.Did == depth {
			*n[0]++
		}
		if ep.Would == depth {
			*n[1]++
		}
	}
	_, given := ep.givenUp()
	switch {
	case !given:
		if troubles[ep.State] >= troubles[lease.Expired.String()] {
			t.Held++
		}
	case ep.False:
		t.FalseEvictions++
	case ep.BackAt.IsZero():
		t.Gone++
	case ep.Boot == lease.BootAnother:
		t.Rebooted++
	default:
		t.Back++
	}
}

// serveReport answers with the report of the last hours.
func (r *Registry) serveReport(w http.ResponseWriter, req *http.Request) {
	now := time.Now().UTC()
	since, err := parseSince(req.FormValue("since"), now)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	if since.IsZero() {
		since = now.Add(-defaultReport)
	}
	node := req.FormValue("node")
	if _, ok := r.site.Load().Node(node); node != "" && !ok {
		writeError(w, http.StatusNotFound, errors.New("no such node: "+node))
		return
	}
	rep := newReporter(since.UTC(), node)
	err = r.store.Dump(req.Context(), func(e ledger.Entry) error {
		if e.Event != nil {
			rep.add(e.Event)
		}
		return nil
	})
	if err != nil {
		r.fail(w, req, err)
		return
	}
	writeJSON(w, http.StatusOK, r.placed(rep.report(now)))
}

// placed adds where the nodes are and what may be done to them now.
func (r *Registry) placed(out *Report) *Report {
	s := r.site.Load()
	for i := range out.Episodes {
		if n, ok := s.Node(out.Episodes[i].Node); ok {
			out.Episodes[i].Rack, out.Episodes[i].Class = n.Rack, n.Class
		}
	}
	out.Mode = r.cfg.Actions.Mode
	for class, p := range r.cfg.Actions.Classes {
		if p.Mode != "" && p.Mode != out.Mode {
			if out.Modes == nil {
				out.Modes = map[string]string{}
			}
			out.Modes[class] = p.Mode
		}
	}
	return out
}
