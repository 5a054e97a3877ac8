// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// beat is one heartbeat as the core sees it.
type beat struct {
	node   string
	stream uint64 // never 0
	epoch  uint64 // 0: the stream is the epoch
	seq    uint64 // 0: arrival is the order
	sent   int64  // the sender's clock, Unix nanoseconds; 0: not told
	hello  *Hello
	inv    beatInventory
	intent intentKind
	maint  time.Duration
	reason string // of the intent
}

type intentKind uint8

const (
	intentNone intentKind = iota
	intentLeave
	intentMaintenance
)

// refusal says why a beat was not accepted. Reason is its metric label; final
// says that the stream must end.
type refusal struct {
	reason string
	text   string
	final  bool
}

func (r *refusal) Error() string { return r.text }

// Reasons of refusals, label values of rackpulse_lease_beats_refused_total.
const (
	refusedUnknown    = "unknown_node"
	refusedOrder      = "order"
	refusedSuperseded = "superseded"
	refusedContended  = "contended"
	refusedAuth       = "unauthorized"
	refusedMalformed  = "malformed"
	refusedSize       = "size"
	refusedStreams    = "streams"
)

// joinBeats is how many gap-free beats make a node ready.
const joinBeats = 3

// accept takes one beat of a node. It returns the node's state, whether the
// full inventory is wanted, and why the beat was refused, if so.
func (c *core) accept(b *beat, now time.Time) (State, bool, *refusal) {
	v := c.clock(now)
	n := c.nodes[b.node]
	if n == nil {
		if _, ok := c.site.nodes[b.node]; !ok {
			return Unknown, false, c.refuse(refusedUnknown, true, "node %q is not in the site file", b.node)
		}
		n = &node{id: b.node, filed: unfiled}
		c.nodes[b.node] = n
	}
	epoch := b.epoch
	if epoch == 0 {
		epoch = b.stream
	}
	n.recall(b)
	if n.epoch != epoch {
		if ok, r := c.contend(n, epoch, b, v, now); !ok {
			return n.state, true, r
		}
	} else if n.dup != nil && n.dup.fresh {
		n.dup.fresh = false
		c.conflict(n, now)
	}
	if b.seq != 0 && b.seq <= n.seq {
		return n.state, false, c.refuse(refusedOrder, false, "beat %d of %s came after beat %d", b.seq, n.id, n.seq)
	}
	gapFree := n.lastWall != 0 && v-n.last <= int64(c.cfg.gap())
	n.seq, n.stream, n.eof = b.seq, b.stream, 0
	n.last, n.lastWall = v, now.UnixNano()
	n.skew = 0
	if b.sent != 0 {
		n.skew = b.sent - n.lastWall
	}
	if b.hello != nil {
		c.introduce(n, b.hello)
	}
	want := c.examine(n, &b.inv, v, now, gapFree)
	if n.state != Left || b.intent != intentLeave {
		c.step(n, v, now, gapFree)
		c.intend(n, b, v, now)
	}
	return n.state, want, nil
}

// contend decides about a beat of an epoch that does not hold the node: true
// when it holds it now. A new epoch takes a node whose holder is gone at once,
// and one whose holder still has a stream with its second beat.
func (c *core) contend(n *node, epoch uint64, b *beat, v int64, now time.Time) (bool, *refusal) {
	live := n.stream != 0 && v-n.last < int64(c.cfg.suspectAfter())
	if live {
		if won, r := c.challenge(n, epoch, now); !won {
			return false, r
		}
	} else if n.dup != nil {
		n.dup.challenger, n.dup.fresh, n.dup.retired = 0, false, 0
	}
	restarted := n.epoch != 0
	n.epoch, n.seq = epoch, 0
	if n.gpus != nil {
		n.gpus.forget()
	}
	if restarted && n.held == "" && b.intent == intentNone {
		c.returned(n, v, now)
	}
	return true, nil
}

// challenge counts the beats of an epoch that wants a node whose holder lives.
// It wins with the second; an epoch that lost the node does not get it back.
func (c *core) challenge(n *node, epoch uint64, now time.Time) (bool, *refusal) {
	if n.dup == nil {
		n.dup = &rivalry{}
	}
	d := n.dup
	if epoch == d.retired {
		c.conflict(n, now)
		return false, c.refuse(refusedSuperseded, true, "node %s is held by an agent that started later", n.id)
	}
	if d.challenger != epoch {
		d.challenger, d.fresh = epoch, true
		return false, c.refuse(refusedContended, false, "node %s is held by an agent that is live; the next beat takes it over", n.id)
	}
	d.challenger, d.fresh, d.retired = 0, false, n.epoch
	return true, nil
}

// returned ends a maintenance or a leave that an agent declared before it was
// started again.
func (c *core) returned(n *node, v int64, now time.Time) {
	switch n.state {
	case Maint:
		c.resume(n, v, now, "its agent is back from maintenance", actorAgent)
	case Draining:
		c.move(n, Joining, now, "its agent was started again", actorAgent)
	}
}

// conflict counts one beat by which two agents claim n, and notes the first.
func (c *core) conflict(n *node, now time.Time) {
	c.conflicts["node"]++
	n.dup.conflicts++
	if n.dup.conflicts == 1 {
		c.note(n, now, ledger.Event{Kind: ledger.KindConflict, Reason: "two live agents beat for this node", Actor: actorRegistry}, "")
	}
}

// refuse counts a refusal.
func (c *core) refuse(reason string, final bool, format string, args ...any) *refusal {
	c.refusals[reason]++
	return &refusal{reason: reason, text: fmt.Sprintf(format, args...), final: final}
}

// step makes the transitions that an accepted beat stands for.
func (c *core) step(n *node, v int64, now time.Time, gapFree bool) {
	switch n.state {
	case Unknown, Left:
		if n.held != "" {
			c.move(n, Draining, now, "beats again, but was drained by "+n.held, actorRegistry)
			return
		}
		c.move(n, Joining, now, "first beat", actorAgent)
		n.run = 1
	case Expired:
		c.recover(n, v, now)
	case Joining, Recovering:
		c.prove(n, v, now, gapFree)
	case Suspect:
		n.flaps++
		c.admit(n, now, "beats again")
	case Restored:
		c.resume(n, v, now, "beats again after the registry's own absence", actorAgent)
	case Ready, Degraded, Limited, Isolated:
		if n.state != n.rest() {
			c.settle(n, now, "nothing is wrong with it any more")
		}
	}
}

// prove counts a beat of a node that has to beat without a gap to be ready.
func (c *core) prove(n *node, v int64, now time.Time, gapFree bool) {
	if !gapFree {
		n.run, n.mark = 0, v
	}
	n.run = min(n.run+1, joinBeats)
	switch {
	case n.state == Joining && n.run >= joinBeats:
		c.admit(n, now, fmt.Sprintf("%d beats without a gap", joinBeats))
	case n.state == Recovering && v-n.mark >= int64(c.cooldown(n)):
		c.admit(n, now, fmt.Sprintf("no gap for %s", c.cooldown(n)))
	}
}

// Bounds of coming back after a loss: evidence of a node that comes and goes.
const (
	// cycleWindow is how long a return is remembered.
	cycleWindow = time.Hour
	// maxCycles is how often a node may return within the window; one more and
	// only an operator lets it back.
	maxCycles = 3
	// maxDoublings bounds the growth of the cool-down: 16 times the first.
	maxDoublings = 4
)

// recover takes a node back that beats again after it was lost.
func (c *core) recover(n *node, v int64, now time.Time) {
	if n.cycles == 0 || now.UnixNano()-n.cycleAt > int64(cycleWindow) {
		n.cycles, n.cycleAt = 0, now.UnixNano()
	}
	if n.cycles++; n.cycles > maxCycles {
		c.move(n, Quarantined, now, fmt.Sprintf("lost %d times within %s: an operator has to clear it", n.cycles, cycleWindow), actorRegistry)
		return
	}
	c.move(n, Recovering, now, fmt.Sprintf("beats again after it was lost, ready after %s without a gap", c.cooldown(n)), actorAgent)
	n.mark = v
}

// cooldown is how long n must beat without a gap after a loss: it doubles with
// each loss within an hour.
func (c *core) cooldown(n *node) time.Duration {
	return c.cfg.Cooldown << min(max(int(n.cycles)-1, 0), maxDoublings)
}

// settle puts a node that beats as it should into Ready, or into the state that
// stands for what is wrong with it.
func (c *core) settle(n *node, now time.Time, reason string) {
	if n.bad() {
		reason = n.gpus.cause
	}
	c.move(n, n.rest(), now, reason, actorRegistry)
}

// resume takes n out of Maint or Restored, back to where it was.
func (c *core) resume(n *node, v int64, now time.Time, reason, actor string) {
	n.until = 0
	switch n.was {
	case Joining, Unknown:
		c.move(n, Joining, now, reason, actor)
		n.run = 1
	case Recovering, Expired:
		c.move(n, Recovering, now, reason, actor)
		n.mark = v
	case Draining, Quarantined:
		c.move(n, n.was, now, reason, actor)
	case Degraded, Limited, Isolated:
		g := n.health()
		g.bad, g.level = true, n.was
		c.move(n, n.was, now, orElse(g.cause, reason), actor)
	default:
		c.admit(n, now, reason)
	}
}

// intend carries out the intent of a beat.
func (c *core) intend(n *node, b *beat, v int64, now time.Time) {
	if n.state == Quarantined {
		return // its agent does not talk it out of that
	}
	switch b.intent {
	case intentLeave:
		if n.state != Draining {
			n.held = ""
			c.move(n, Draining, now, orElse(b.reason, "its agent leaves"), actorAgent)
		}
	case intentMaintenance:
		if n.state == Draining || n.state == Maint && n.held != "" {
			return // what an operator declared, or a leave, stands
		}
		if b.maint <= 0 {
			if n.state == Maint {
				c.resume(n, v, now, orElse(b.reason, "its agent ended its maintenance"), actorAgent)
			}
			return
		}
		d := min(b.maint, c.cfg.MaxMaintenance)
		c.maintain(n, v, now, d, orElse(b.reason, "its agent declared maintenance"), actorAgent)
	}
}

// maintain puts n into maintenance for d, or moves the end of the present one.
func (c *core) maintain(n *node, v int64, now time.Time, d time.Duration, reason, actor string) {
	until := v + int64(d)
	if n.state == Maint && actor == actorAgent {
		// A repetition: it moves the end, but never over the bound.
		n.until = max(n.until, min(until, n.mark+int64(c.cfg.MaxMaintenance)))
		return
	}
	if n.state != Maint && n.state != Restored {
		n.was = n.state
	}
	n.until = until
	c.move(n, Maint, now, fmt.Sprintf("%s, for %s", reason, d), actor)
	n.mark = v
}

// streamEnded notes that a stream is gone. A node that is leaving has left.
func (c *core) streamEnded(id string, stream uint64, now time.Time) {
	v := c.clock(now)
	if a := c.agents[id]; a != nil && a.stream == stream {
		a.stream, a.eof = 0, v
	}
	n := c.nodes[id]
	if n == nil || n.stream != stream {
		return
	}
	n.stream, n.eof = 0, v
	if n.state == Draining {
		c.move(n, Left, now, "its stream ended after it was drained", actorAgent)
		return
	}
	c.wheel.file(n, c.deadline(n))
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
