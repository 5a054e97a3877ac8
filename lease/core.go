// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// core is the state machine of all leases. It is pure: it starts nothing, reads
// no clock and does no I/O; its owner serialises the calls and passes the time.
//
// Its own time is virtual: nanoseconds since it was made, on the receiver's
// monotonic clock, less the time that the registry itself stood still. So one
// subtraction shifts all deadlines when the process was stopped.
type core struct {
	cfg   Config
	nodes map[string]*node
	wheel wheel
	site  *siteIndex

	base   time.Time // virtual time zero, just before it was made
	seen   time.Time // the last sign of life of the registry
	paused int64     // nanoseconds that do not count
	// hold is the virtual time until which nothing is swept, so that the beats
	// that queued up while the registry stood still are read first.
	hold int64

	nextID uint64 // of events
	out    []change
	agents map[string]*facilityAgent
	owners map[string]string // facility device -> agent that polls it
	// agentsAt is the virtual time of the next look for agents that are gone.
	agentsAt int64

	breakers map[breakerKey]*breaker
	weighAt  int64     // virtual time of the next look at the breakers; 0: none is due
	closedAt time.Time // of the last breaker, or absence of the registry
	// awayAt is the virtual time at which the registry was last back from an absence
	// of its own (a start, a long pause), and graceUntil how long nothing is done to
	// nodes that it has not heard since.
	awayAt, graceUntil int64
	health             health
	intents            map[string]*ledger.Intent // the one open intent of a node

	moves     map[[2]State]uint64
	refusals  map[string]uint64
	conflicts map[string]uint64
	pauses    uint64
}

// node is one node's lease. Fields that few nodes need lie behind pointers: the
// bar is 300 bytes for a lease without an inventory.
type node struct {
	id         string
	prev, next *node // in the wheel
	filed      int64 // slot in the wheel

	last     int64 // virtual time of the last accepted beat
	lastWall int64 // the same on the wall clock, Unix nanoseconds; 0: never
	eof      int64 // virtual time at which its stream ended; 0: it did not
	until    int64 // virtual deadline of Maint and Restored
	mark     int64 // virtual start of the gap-free run in Recovering
	skew     int64 // sender's clock less ours, nanoseconds
	since    int64 // wall time of the last transition, Unix nanoseconds

	epoch  uint64 // the agent's present epoch
	seq    uint64
	stream uint64 // 0: none open
	gen    uint64 // transitions so far

	flaps  uint32
	run    uint8 // gap-free beats in Joining
	cycles uint8 // returns after a loss, within the hour that began with cycleAt
	state  State
	was    State // behind Maint and Restored
	marked bool  // an intent asked for something that is not undone yet
	boot   boot  // what is known of its boot when it comes back after a loss

	cycleAt int64 // wall time, Unix nanoseconds
	reason  string
	held    string // operator who put it into Draining or Maint
	dup     *rivalry
	gpus    *gpuSet
	info    *Hello
}

// rivalry is what is known of a second agent with the same node id.
type rivalry struct {
	challenger uint64 // epoch that wants the node: it beat once
	fresh      bool   // the holder has not beaten since
	retired    uint64 // epoch that lost it
	conflicts  uint32
}

// change is one entry for the ledger.
type change struct {
	record *ledger.NodeRecord // nil: the event is about no node
	event  ledger.Event
	intent *ledger.Intent
	// other is a record of another kind; then there is no event but the ID of the
	// last one before.
	other *ledger.Record
}

// subject tells what a change is about: of two about the same the newer counts.
func (ch *change) subject() string {
	if ch.other != nil {
		return ch.other.Kind + "/" + ch.other.ID
	}
	return ch.event.Node
}

// newCore makes a core at the given time. fence makes event ids unique over
// restarts.
func newCore(cfg Config, idx *siteIndex, fence uint64, now time.Time) *core {
	return &core{
		// It starts at one second, so that 0 can mean "never".
		cfg: cfg.WithDefaults(), site: idx, base: now.Add(-time.Second), seen: now, nextID: fence << 32,
		nodes: map[string]*node{}, agents: map[string]*facilityAgent{}, owners: map[string]string{},
		breakers: map[breakerKey]*breaker{}, intents: map[string]*ledger.Intent{},
		moves: map[[2]State]uint64{}, refusals: map[string]uint64{}, conflicts: map[string]uint64{},
	}
}

// clock returns the virtual time. Every entry to the core goes through it, so
// that whoever comes first after a pause of the registry notices: a gap of more
// than a second in its own signs of life moves all deadlines by that gap, one of
// more than half the TTL gives everybody the grace of a fresh start.
func (c *core) clock(now time.Time) int64 {
	gap := now.Sub(c.seen)
	c.seen = now
	if gap > pauseGap {
		c.paused += int64(gap)
		c.pauses++
	}
	v := int64(now.Sub(c.base)) - c.paused
	if gap > pauseGap {
		c.health.hurt(v)
	}
	if gap > pauseGap {
		c.hold = v + int64(min(pauseGap, c.cfg.BeatInterval))
		if gap > c.cfg.TTL/2 {
			c.restoreAll(v, now, fmt.Sprintf("the registry stood still for %s", gap.Round(time.Millisecond)))
		}
	}
	return v
}

// sweep lets everything happen that is due. Its owner calls it every 100 ms.
func (c *core) sweep(now time.Time) {
	v := c.clock(now)
	if v < c.hold {
		return
	}
	c.wheel.sweep(v, func(n *node) {
		if at := c.deadline(n); at != 0 && at <= v {
			c.fire(n, v, now)
		}
		c.wheel.file(n, c.deadline(n))
	})
	if c.weighAt != 0 && v >= c.weighAt {
		c.weigh(v, now)
	}
	c.sweepAgents(v)
}

// deadline is the virtual time at which silence changes n's state; 0: never.
func (c *core) deadline(n *node) int64 {
	switch n.state {
	case Ready, Degraded, Limited, Isolated, Draining:
		at := n.last + int64(c.cfg.suspectAfter())
		if n.eof != 0 {
			at = min(at, n.eof+int64(c.cfg.eofGrace()))
		}
		return at
	case Recovering:
		// Ready is due when the cool-down ends, not with the beat after it, unless the
		// node is held off.
		if c.outside(n) != "" {
			return n.last + int64(c.cfg.TTL)
		}
		return min(n.last+int64(c.cfg.TTL), n.mark+int64(c.cooldown(n)))
	case Joining, Suspect:
		return n.last + int64(c.cfg.TTL)
	case Maint, Restored:
		return n.until
	}
	return 0
}

// fire makes the transition that n's deadline stands for.
func (c *core) fire(n *node, v int64, now time.Time) {
	silent := time.Duration(v - n.last).Round(10 * time.Millisecond)
	switch n.state {
	case Recovering:
		switch {
		case v-n.last >= int64(c.cfg.TTL):
			c.move(n, Expired, now, fmt.Sprintf("no beat for %s", silent), actorRegistry)
		case v-n.last > int64(c.cfg.gap()):
			n.mark = v // a gap: the next beat starts the run anew
		default:
			c.admit(n, now, fmt.Sprintf("no gap for %s", c.cooldown(n)))
		}
	case Ready, Degraded, Limited, Isolated:
		reason := fmt.Sprintf("no beat for %s", silent)
		if n.eof != 0 {
			reason += fmt.Sprintf(", its stream ended %s ago", time.Duration(v-n.eof).Round(10*time.Millisecond))
		}
		c.move(n, Suspect, now, reason, actorRegistry)
	case Draining:
		c.move(n, Left, now, "silent after it was drained", actorRegistry)
	case Joining, Suspect:
		c.move(n, Expired, now, fmt.Sprintf("no beat for %s", silent), actorRegistry)
	case Restored:
		if n.was == Draining {
			c.move(n, Left, now, "silent after it was drained", actorRegistry)
			return
		}
		c.move(n, Expired, now, "did not come back within the grace after the registry's own absence", actorRegistry)
	case Maint:
		if v-n.last >= int64(c.cfg.TTL) {
			c.move(n, Expired, now, fmt.Sprintf("maintenance is over and there was no beat for %s", silent), actorRegistry)
			return
		}
		c.resume(n, v, now, "maintenance is over", actorRegistry)
	}
}

// Names of those who act without being an operator.
const (
	actorRegistry = "registry"
	actorAgent    = "agent"
)

// move puts n into a state and notes it for the ledger.
func (c *core) move(n *node, to State, now time.Time, reason, actor string) {
	from := n.state
	n.state, n.reason, n.since = to, reason, now.UnixNano()
	n.gen++
	n.run, n.mark = 0, 0
	c.moves[[2]State{from, to}]++
	if to != Draining && to != Maint && to != Restored && to != Left {
		n.held = ""
	}
	if to == Suspect || to == Expired || to == Isolated || to == Degraded || to == Limited {
		c.weighAt = c.virtual(now)
	}
	if to != Maint && to != Restored {
		n.was = Unknown
	}
	e := ledger.Event{Kind: ledger.KindTransition, From: from.String(), To: to.String(), Reason: reason, Actor: actor, Evidence: n.evidence(from)}
	n.boot = bootUnknown
	c.note(n, now, e, c.action(n, from))
	c.wheel.file(n, c.deadline(n))
}

// evidence are the facts behind n's transition from a state.
func (n *node) evidence(from State) map[string]string {
	switch {
	case n.faulty() && n.gpus != nil:
		return n.gpus.evidence()
	case from == Expired && n.boot != bootUnknown:
		return map[string]string{EvidenceBoot: n.boot.String()}
	}
	return nil
}

// action is the action that the transition from one state to n's state asks for.
func (c *core) action(n *node, from State) string {
	switch n.state {
	case Suspect, Degraded, Limited, Maint:
		n.marked = true
		return ledger.ActionSuspend
	case Draining, Isolated:
		n.marked = true
		return ledger.ActionDrain
	case Expired:
		n.marked = true
		return ledger.ActionEvict
	case Ready:
		if n.marked && from != Ready {
			n.marked = false
			return ledger.ActionResume
		}
	}
	return ""
}

// note hands an event, with n as it is now, to the ledger.
func (c *core) note(n *node, now time.Time, e ledger.Event, action string) {
	e.Node = n.id
	ch := c.noteEvent(now, e)
	record := n.record(now, c)
	ch.record = &record
	if action != "" {
		ch.intent = c.ask(n, &ch.event, action)
	}
}

// noteEvent hands an event to the ledger.
func (c *core) noteEvent(now time.Time, e ledger.Event) *change {
	c.nextID++
	e.ID, e.Time = c.nextID, now.UTC().Round(0)
	c.out = append(c.out, change{event: e})
	return &c.out[len(c.out)-1]
}

// keep hands a record of another kind to the ledger.
func (c *core) keep(r ledger.Record) {
	c.out = append(c.out, change{event: ledger.Event{ID: c.nextID}, other: &r})
}

// record is what the ledger keeps of n.
func (n *node) record(now time.Time, c *core) ledger.NodeRecord {
	r := ledger.NodeRecord{
		Node: n.id, State: n.state.String(), Reason: n.reason, Since: time.Unix(0, n.since).UTC(),
		Was: n.was.String(), Held: n.held, Epoch: n.gen, AgentEpoch: n.epoch, Flaps: n.flaps, Marked: n.marked,
		Cycles: n.cycles,
	}
	if n.cycles > 0 {
		r.CycleAt = time.Unix(0, n.cycleAt).UTC()
	}
	if n.state == Maint {
		r.Until = now.Add(time.Duration(n.until - c.virtual(now))).UTC().Round(0)
	}
	if n.lastWall != 0 {
		r.LastBeat = time.Unix(0, n.lastWall).UTC()
	}
	if g := n.gpus; g != nil {
		r.Accepted, r.AcceptedBy, r.AcceptedAt, r.AcceptedReason = g.expected, g.by, g.at, g.why
	}
	return r
}

// virtual is the virtual time without a sign of life.
func (c *core) virtual(now time.Time) int64 { return int64(now.Sub(c.base)) - c.paused }

// take hands over the changes since the last call.
func (c *core) take() []change {
	out := c.out
	c.out = nil
	return out
}
