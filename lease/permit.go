// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// Modes of what may be done to nodes.
const (
	ModeObserve = "observe" // record what would be done
	ModeSoft    = "soft"    // reversible marks only
	ModeHard    = "hard"    // take the work away, too
)

// Policy is what may be done to the nodes of a class.
type Policy struct {
	// Mode is one of the Mode constants; empty: observe.
	Mode string `yaml:"mode"`
	// Witness is "required", the default, or "none": whether a silent node's
	// work is taken away only when a second source says that it is dead, or
	// after unwitnessedAfter.
	Witness string `yaml:"witness"`
}

// unwitnessedAfter is how long after its expiry a node's work may be taken away
// although no witness is to be had; Kubernetes' toleration of a lost node.
const unwitnessedAfter = 300 * time.Second

// hold is a verdict that allows nothing.
func hold(format string, args ...any) ledger.Verdict {
	return ledger.Verdict{Reason: fmt.Sprintf(format, args...)}
}

// ask makes the intent that follows from an event of n.
func (c *core) ask(n *node, e *ledger.Event, action string) *ledger.Intent {
	in := &ledger.Intent{
		ID: e.ID, Action: action, Node: n.id, Epoch: n.gen, Created: e.Time, Reason: e.Reason, Actor: e.Actor,
		State: ledger.IntentPending, Simulated: n.info != nil && n.info.Simulated,
	}
	if in.Simulated {
		in.State, in.Note = ledger.IntentHeld, "its node is simulated"
	} else if c.policy(n).Mode == ModeObserve {
		in.State, in.Note = ledger.IntentHeld, "mode "+ModeObserve
	}
	c.intents[n.id] = in
	return in
}

// policy is that of n's class.
func (c *core) policy(n *node) Policy {
	p := c.cfg.Policy
	if class := c.site.nodes[n.id].class; class != nil {
		if q, ok := c.cfg.Classes[class.ID]; ok {
			p.Mode, p.Witness = cmp.Or(q.Mode, p.Mode), cmp.Or(q.Witness, p.Witness)
		}
	}
	return Policy{Mode: cmp.Or(p.Mode, ModeObserve), Witness: cmp.Or(p.Witness, "required")}
}

// permit says what may be done about a node's intent now. Only the present
// counts: who came back since is left alone.
func (c *core) permit(in *ledger.Intent, w ledger.Witness, now time.Time) ledger.Verdict {
	return c.verdict(in, w, now, "")
}

// rehearse is permit as it would be in mode hard, for a node of a class that is
// in another: mode says in which; empty: there is nothing to rehearse.
func (c *core) rehearse(in *ledger.Intent, w ledger.Witness, now time.Time) (out ledger.Verdict, mode string) {
	n := c.nodes[in.Node]
	if n == nil || in.Simulated || n.info != nil && n.info.Simulated {
		return out, ""
	}
	if mode = c.policy(n).Mode; mode == ModeHard {
		return out, ""
	}
	return c.verdict(in, w, now, ModeHard), mode
}

// verdict is permit in another mode than the node's; empty: in its own.
func (c *core) verdict(in *ledger.Intent, w ledger.Witness, now time.Time, mode string) ledger.Verdict {
	v := c.clock(now)
	if v < c.hold {
		// Time for the beats that wait, and to learn whether it still leads.
		return hold("the registry itself stood still a moment ago")
	}
	n, open := c.nodes[in.Node], c.intents[in.Node]
	if n == nil || open == nil || open.ID != in.ID {
		return ledger.Verdict{Over: true, Reason: "overtaken"}
	}
	p := c.policy(n)
	p.Mode = cmp.Or(mode, p.Mode)
	if out, ok := c.permitFirst(in, n, p); ok {
		return out
	}
	if n.last <= c.awayAt && v < c.graceUntil && !n.faulty() {
		// A node that was lost before may be back long since, and about to say so.
		return hold("the registry was away itself: it gives the nodes %s to come back", max(restoreGrace, c.cfg.TTL))
	}
	silence := v - n.last
	if score := min(c.health.now(v), 3); score > 0 && !n.faulty() && silence < int64(c.cfg.TTL)*int64(score+1) {
		return hold("the registry itself stood still lately: it waits for %s of silence", c.cfg.TTL*time.Duration(score+1))
	}
	if n.faulty() {
		return c.permitFaulty(n, p)
	}
	return c.permitSilent(n, p, w, now)
}

// permitFirst decides what no look at the fleet changes: what never acts, what
// always may, and what holds everything. ok is false where it does not.
func (c *core) permitFirst(in *ledger.Intent, n *node, p Policy) (out ledger.Verdict, ok bool) {
	switch {
	case in.Simulated || n.info != nil && n.info.Simulated:
		return hold("its node is simulated"), true
	case p.Mode == ModeObserve:
		return hold("mode %s", ModeObserve), true
	case in.Action == ledger.ActionResume || n.held != "" || n.state == Draining || n.state == Maint || n.state == Left:
		return ledger.Verdict{Soft: true, Hard: p.Mode == ModeHard, Reason: "mode " + p.Mode}, true
	case n.state == Restored:
		return hold("the registry was away itself: it waits for the node"), true
	}
	if b := c.breakers[breakerKey{ScopeManual, ""}]; b != nil {
		return hold("held by %s: %s", b.heldBy, b.reason), true
	}
	if b := c.breakers[breakerKey{ScopeFull, ""}]; b != nil {
		return hold("breaker: %s: it may be the registry that is cut off", b.reason), true
	}
	return out, false
}

// permitSilent is permit for a node that does not beat as it should.
func (c *core) permitSilent(n *node, p Policy, w ledger.Witness, now time.Time) ledger.Verdict {
	in := c.site.nodes[n.id]
	for _, k := range []breakerKey{{ScopeRack, in.rack}, {ScopeFeed, in.feed}} {
		if b := c.breakers[k]; b != nil && k.id != "" && w != ledger.WitnessDead {
			return ledger.Verdict{Ask: w == ledger.WitnessSilent, Reason: fmt.Sprintf("breaker of %s %s: %s, and no witness says that they are dead", k.scope, k.id, b.reason)}
		}
	}
	partial := c.breakers[breakerKey{ScopePartial, ""}]
	if partial != nil && partial.of <= smallSite && w != ledger.WitnessDead {
		return ledger.Verdict{Ask: w == ledger.WitnessSilent, Reason: "breaker: " + partial.reason}
	}
	out := ledger.Verdict{Soft: true, Slow: partial != nil && w != ledger.WitnessDead}
	if n.state == Expired {
		c.permitHard(n, p, w, now, &out)
	}
	return out
}

// permitHard says whether the work of an expired node may be taken away.
func (c *core) permitHard(n *node, p Policy, w ledger.Witness, now time.Time, out *ledger.Verdict) {
	partial := c.breakers[breakerKey{ScopePartial, ""}]
	switch {
	case p.Mode != ModeHard:
		out.Reason = "mode " + p.Mode
	case w == ledger.WitnessAlive:
		out.Reason = "a witness says that it lives"
	case w == ledger.WitnessDead:
		out.Hard = true
	case partial != nil:
		out.Reason, out.Ask = "breaker: "+partial.reason, true
	case p.Witness == "none":
		out.Hard = true
	case c.aloneFor(n, now) >= unwitnessedAfter:
		out.Hard, out.Ask = true, true // one that sees it live still wins
	default:
		out.Ask = true
		out.Reason = fmt.Sprintf("no witness says that it is dead; its work is taken away %s after the expiry", unwitnessedAfter)
	}
}

// permitFaulty is permit for a node that beats: not many at once, for then it is
// the limit, the driver or the agent that is wrong.
func (c *core) permitFaulty(n *node, p Policy) ledger.Verdict {
	b := c.breakers[breakerKey{ScopeFault, ""}]
	if b == nil {
		return ledger.Verdict{Soft: true, Hard: n.state == Isolated && p.Mode == ModeHard, Reason: "mode " + p.Mode}
	}
	if b.of <= smallSite || float64(b.silent) >= fullShare*float64(b.of) {
		return hold("breaker: %s", b.reason)
	}
	return ledger.Verdict{Soft: true, Slow: true, Reason: "breaker: " + b.reason}
}

// aloneFor is how long n has been expired with no breaker, and no absence of the
// registry, in between.
func (c *core) aloneFor(n *node, now time.Time) time.Duration {
	since := time.Unix(0, n.since)
	if c.closedAt.After(since) {
		since = c.closedAt
	}
	return now.Sub(since)
}

// report takes over what was done about an intent. One that was overtaken
// meanwhile stays so, but what was done is noted.
func (c *core) report(in ledger.Intent, e ledger.Event, now time.Time) {
	c.clock(now)
	e.Kind, e.Node = ledger.KindAction, in.Node
	ch := c.noteEvent(now, e)
	open := c.intents[in.Node]
	if open == nil || open.ID != in.ID {
		return
	}
	kept := in
	ch.intent = &kept
	if in.State == ledger.IntentDone {
		delete(c.intents, in.Node)
		return
	}
	c.intents[in.Node] = &kept
}
