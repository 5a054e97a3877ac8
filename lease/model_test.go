// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// refNode is the reference: plain times, every rule looked at in every tick, no
// wheel, no virtual clock.
type refNode struct {
	state, was      State
	last, eof, till time.Duration
	mark            time.Duration // start of Recovering's run, or of Maint
	run             int
	cycles          int // returns after a loss since cycleAt
	cycleAt         time.Duration
	ever, open      bool

	id            string
	stream, epoch uint64
	next          time.Duration // of its next beat
}

const (
	refSuspect = 17500 * time.Millisecond
	refEOF     = 10 * time.Second
	refTTL     = 30 * time.Second
	refCool    = 60 * time.Second
	refGap     = 7500 * time.Millisecond
	refMaint   = 10 * time.Minute
	refGrace   = 60 * time.Second
)

// tick applies the rules of silence at the time now.
func (r *refNode) tick(now time.Duration) {
	silent := now - r.last
	quiet := silent >= refSuspect || r.eof > 0 && now-r.eof >= refEOF
	switch r.state {
	case Ready:
		if quiet {
			r.state = Suspect
		}
	case Joining, Suspect, Recovering:
		switch {
		case silent >= refTTL:
			r.state = Expired
		case r.state == Recovering && silent <= refGap && now-r.mark >= r.cool():
			r.state = Ready
		}
	case Draining:
		if quiet {
			r.state = Left
		}
	case Restored, Maint:
		if now >= r.till {
			r.over(now)
		}
	}
}

// over ends Maint or Restored at its deadline.
func (r *refNode) over(now time.Duration) {
	switch {
	case r.state == Restored && r.was == Draining:
		r.state = Left
	case r.state == Restored || now-r.last >= refTTL:
		r.state = Expired
	default:
		r.back(now)
	}
}

// back returns from Maint or Restored.
func (r *refNode) back(now time.Duration) {
	switch r.was {
	case Joining:
		r.state, r.run = Joining, 1
	case Recovering, Expired:
		r.state, r.mark = Recovering, now
	case Draining, Quarantined:
		r.state = r.was
	default:
		r.state = Ready
	}
}

// beat applies an accepted beat. again says that it is of a new epoch.
func (r *refNode) beat(now time.Duration, intent intentKind, maint time.Duration, again bool) {
	if again && intent == intentNone {
		if r.state == Maint {
			r.back(now)
		} else if r.state == Draining {
			r.state, r.run = Joining, 0
		}
	}
	gapFree := r.ever && now-r.last <= refGap
	r.last, r.eof, r.ever = now, 0, true
	if r.state == Left && intent == intentLeave {
		return
	}
	r.step(now, gapFree)
	switch {
	case r.state == Quarantined:
	case intent == intentLeave:
		r.state = Draining
	case intent == intentMaintenance && r.state == Maint:
		r.till = max(r.till, min(now+maint, r.mark+refMaint))
	case intent == intentMaintenance && r.state != Draining:
		r.was, r.state, r.till, r.mark = r.state, Maint, now+min(maint, refMaint), now
	}
}

// step applies what a beat without an intent means.
func (r *refNode) step(now time.Duration, gapFree bool) {
	switch r.state {
	case Unknown, Left:
		r.state, r.run = Joining, 1
	case Joining:
		if r.run++; !gapFree {
			r.run = 1
		}
		if r.run >= 3 {
			r.state = Ready
		}
	case Suspect:
		r.state = Ready
	case Expired:
		if r.cycles == 0 || now-r.cycleAt > time.Hour {
			r.cycles, r.cycleAt = 0, now
		}
		r.cycles++
		r.state, r.mark = Recovering, now
		if r.cycles > 3 {
			r.state = Quarantined
		}
	case Recovering:
		if !gapFree {
			r.mark = now
		}
		if now-r.mark >= r.cool() {
			r.state = Ready
		}
	case Restored:
		r.back(now)
	}
}

// cool is the cool-down: 60, 120, 240 s with the losses of an hour.
func (r *refNode) cool() time.Duration {
	cool := refCool
	for i := 1; i < r.cycles && i < 5; i++ {
		cool *= 2
	}
	return cool
}

// pause shifts everything by the time that the registry stood still.
func (r *refNode) pause(now, gap time.Duration) {
	r.last, r.till, r.mark = r.last+gap, r.till+gap, r.mark+gap
	if r.eof > 0 {
		r.eof += gap
	}
	if gap <= refTTL/2 {
		return
	}
	switch r.state {
	case Unknown, Expired, Left, Quarantined:
	case Maint, Restored:
		r.till = max(r.till, now+refGrace)
	default:
		r.was, r.state, r.till, r.eof = r.state, Restored, now+refGrace, 0
	}
}

// fullShut tells whether the breaker of most nodes closed in this tick; when it does
// so is not this model's to say.
func fullShut(c *core) bool {
	return slices.ContainsFunc(c.out, func(ch change) bool {
		return ch.event.Kind == ledger.KindBreaker && ch.event.From == "open" && ch.event.Evidence["scope"] == ScopeFull
	})
}

// relent gives a suspect a whole TTL anew, after the breaker of most nodes.
func (r *refNode) relent(now time.Duration) {
	if r.state == Suspect {
		r.state, r.was, r.till, r.eof = Restored, Ready, now+refTTL, 0
	}
}

// TestModel drives, four times, 16 nodes through 70,000 ticks of 100 ms, more than a million
// steps, with random beats, ends of streams, restarts, leaves, maintenances,
// operators and pauses of the registry, and compares every state with the
// reference after every tick.
func TestModel(t *testing.T) {
	for i := range uint64(4) {
		model(t, uint64(time.Now().UnixNano())+i)
	}
}

func model(t *testing.T, seed uint64) {
	const nodes, ticks = 16, 70000
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &site.Site{}
	ref := make([]refNode, nodes)
	for i := range ref {
		ref[i] = refNode{id: fmt.Sprint("n", i), stream: 1, epoch: 1}
		s.Nodes = append(s.Nodes, site.Node{ID: ref[i].id})
	}
	base := time.Now()
	c := newCore(Config{}, indexSite(s), 1, base)
	seen := map[State]int{}
	now, held := time.Duration(0), time.Duration(0)
	for step := range ticks {
		gap := sweepInterval
		if rng.IntN(1000) == 0 {
			gap = time.Duration(11+rng.IntN(290)) * sweepInterval
			for i := range ref {
				ref[i].pause(now+gap, gap)
			}
			held = now + gap + time.Second
		}
		now += gap
		c.sweep(base.Add(now))
		for i := range ref {
			if now >= held {
				ref[i].tick(now)
			}
		}
		if fullShut(c) {
			for i := range ref {
				ref[i].relent(now)
			}
		}
		for i := range ref {
			r := &ref[i]
			r.drive(rng, c, now, base)
			var got State
			if n := c.nodes[r.id]; n != nil {
				got = n.state
			}
			if got != r.state {
				t.Fatalf("seed %d, step %d, %s at %s: %s, the reference says %s", seed, step, r.id, now, got, r.state)
			}
			seen[got]++
		}
		c.take()
	}
	for _, st := range []State{Joining, Ready, Suspect, Expired, Recovering, Draining, Left, Maint, Restored, Quarantined} {
		if seen[st] == 0 {
			t.Errorf("seed %d: no node was ever %s", seed, st)
		}
	}
}

// drive lets the node do what is due, or something random.
func (r *refNode) drive(rng *rand.Rand, c *core, now time.Duration, base time.Time) {
	if rng.IntN(1500) == 0 {
		r.end(c, now, base)
	}
	if r.state == Quarantined && rng.IntN(3000) == 0 {
		if err := c.clear(r.id, base.Add(now), "looked at", "alice"); err != nil {
			panic(err)
		}
		r.state, r.run, r.cycles = Joining, 0, 0
	}
	if now < r.next {
		return
	}
	r.next = now + 4500*time.Millisecond + time.Duration(rng.IntN(11))*sweepInterval
	switch rng.IntN(60) {
	case 0: // silent for up to 50 s
		r.next = now + time.Duration(rng.IntN(500))*sweepInterval
		return
	case 1: // the agent is started again
		r.end(c, now, base)
		r.epoch++
	}
	b := beat{node: r.id, epoch: r.epoch}
	switch rng.IntN(120) {
	case 0:
		b.intent = intentLeave
	case 1:
		b.intent, b.maint = intentMaintenance, time.Duration(1+rng.IntN(900))*time.Second
	}
	n := c.nodes[r.id]
	again := n != nil && n.epoch != 0 && n.epoch != r.epoch
	r.stream++
	b.stream = r.stream
	if _, _, refused := c.accept(&b, base.Add(now)); refused != nil {
		panic(refused)
	}
	r.open = true
	r.beat(now, b.intent, b.maint, again)
}

// end ends the node's stream, if it has one.
func (r *refNode) end(c *core, now time.Duration, base time.Time) {
	if !r.open {
		return
	}
	c.streamEnded(r.id, r.stream, base.Add(now))
	if r.open, r.eof = false, now; r.state == Draining {
		r.state = Left
	}
}
