// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// The breakers keep a fault of the registry, of a network or of a limit from
// taking many sound nodes out at once. They never change a state: an expired
// lease is a fact. They decide what may be done about it (see permit.go), and
// never hold back what gives a node back or what an operator ordered.

// Scopes of breakers.
const (
	// ScopeFull is open while so many nodes are silent that it is most likely
	// the registry, or its network, that is ill: nothing is done.
	ScopeFull = "full"
	// ScopePartial is open after many nodes fell within a minute.
	ScopePartial = "partial"
	// ScopeRack is open while most of a rack is silent; ScopeFeed the same for
	// the nodes that hang on one feed alone.
	ScopeRack = "rack"
	ScopeFeed = "feed"
	// ScopeFault is open while many nodes that beat are at fault: the limit may
	// be what is wrong. It concerns those nodes only.
	ScopeFault = "fault"
	// ScopeManual is held by an operator.
	ScopeManual = "manual"
)

// Numbers of the breakers; where they come from: Kubernetes' node lifecycle
// controller (0.55 of a zone; partial disruption from 3 nodes on), NVSentinel's
// absolute bound beside the share, and 3 nodes and half of a rack of our own.
const (
	fullShare    = 0.55
	partialShare = 0.10
	groupShare   = 0.50
	leastNodes   = 3
	smallSite    = 50 // nodes up to which partialMost is smaller and nothing soft is done
	partialMost  = 20
	partialSmall = 5
	// fallWindow is within how long the falls of ScopePartial are counted.
	fallWindow = 60 * time.Second
	// calmTime is how long a breaker must stay below half of what opened it.
	calmTime = 120 * time.Second
	// weighInterval is how often the breakers are looked at while something is
	// amiss; a fall makes it at once.
	weighInterval = time.Second
	// forgetAfter is how long after its loss a node still counts.
	forgetAfter = 24 * time.Hour
)

type breakerKey struct{ scope, id string }

// breaker is one that is open, or held.
type breaker struct {
	since      time.Time
	silent, of int
	calm       int64 // virtual time since when it is below half; 0: it is not
	heldBy     string
	reason     string
}

// count is how many nodes of a group there are, and how many of them are silent
// (or at fault, as the scope says).
type count struct{ of, silent int }

func (g *count) add(silent bool) {
	g.of++
	if silent {
		g.silent++
	}
}

// BreakerStatus is one open breaker.
type BreakerStatus struct {
	// Scope is one of the Scope constants, ID the rack or feed of a group.
	Scope, ID string
	Since     time.Time
	// Silent of Of nodes count against it now.
	Silent, Of int
	Reason     string
	// HeldBy is the operator who holds it.
	HeldBy string
}

// acts says whether n counts: nodes that left, join or are being serviced are
// nobody's loss, and one that is long lost tells nothing of now.
func (n *node) acts(now time.Time) bool {
	switch n.state {
	case Unknown, Joining, Draining, Left, Maint, Quarantined:
		return false
	case Expired:
		return now.UnixNano()-n.since < int64(forgetAfter)
	}
	return true
}

// quiet says whether n is silent, from the first missed beat on: when the first
// of many is suspect, the others must be seen, too.
func (n *node) quiet(v int64, cfg *Config) bool {
	switch n.state {
	case Suspect, Expired:
		return true
	case Restored, Recovering:
		return false
	}
	return v-n.last > int64(cfg.gap()) || n.eof != 0
}

// weigh opens and closes the breakers.
func (c *core) weigh(v int64, now time.Time) {
	var full, partial, fault count
	groups := map[breakerKey]*count{}
	add := func(scope, id string, silent bool) {
		if id == "" {
			return
		}
		g := groups[breakerKey{scope, id}]
		if g == nil {
			g = &count{}
			groups[breakerKey{scope, id}] = g
		}
		g.add(silent)
	}
	for _, n := range c.nodes {
		if !n.acts(now) {
			continue
		}
		silent := n.quiet(v, &c.cfg)
		full.add(silent)
		partial.add(silent && v-n.last < int64(c.cfg.TTL+fallWindow))
		fault.add(n.faulty())
		in := c.site.nodes[n.id]
		add(ScopeRack, in.rack, silent)
		add(ScopeFeed, in.feed, silent)
	}
	groups[breakerKey{ScopeFull, ""}], groups[breakerKey{ScopePartial, ""}], groups[breakerKey{ScopeFault, ""}] = &full, &partial, &fault
	for k, g := range groups {
		c.turn(k, g, v, now)
	}
	for k := range c.breakers {
		if groups[k] == nil && k.scope != ScopeManual {
			c.shut(k, now, "none of its nodes counts any more", actorRegistry)
		}
	}
	c.weighAt = 0
	if full.silent+fault.silent+len(c.breakers) > 0 {
		c.weighAt = v + int64(weighInterval)
	}
}

// opensAt is how many nodes of a group open its breaker.
func opensAt(scope string, of int) float64 {
	n := float64(of)
	if of <= leastNodes {
		return 2
	}
	switch scope {
	case ScopeFull:
		return n * fullShare
	case ScopePartial, ScopeFault:
		most := float64(partialMost)
		if of <= smallSite {
			most = partialSmall
		}
		return min(max(leastNodes, n*partialShare), most+1)
	}
	return max(leastNodes, n*groupShare)
}

// turn opens or closes one breaker.
func (c *core) turn(k breakerKey, g *count, v int64, now time.Time) {
	b, at := c.breakers[k], opensAt(k.scope, g.of)
	over := float64(g.silent) >= at
	switch {
	case b == nil && !over:
	case b == nil:
		b = &breaker{since: now, silent: g.silent, of: g.of, reason: k.what(g)}
		c.breakers[k] = b
		c.noteBreaker(k, BreakerClosed, BreakerOpen, b.reason, actorRegistry, now)
	case b.heldBy != "":
		b.silent, b.of = g.silent, g.of
	case over || float64(g.silent) >= at/2:
		b.silent, b.of, b.calm = g.silent, g.of, 0
	case b.calm == 0:
		b.silent, b.of, b.calm = g.silent, g.of, v
	case v-b.calm >= int64(calmTime):
		c.shut(k, now, fmt.Sprintf("%d of %d nodes for %s", g.silent, g.of, calmTime), actorRegistry)
	}
}

// what says what a breaker's nodes are.
func (k breakerKey) what(g *count) string {
	word := "silent"
	if k.scope == ScopeFault {
		word = "at fault"
	}
	return fmt.Sprintf("%d of %d nodes are %s", g.silent, g.of, word)
}

// shut closes a breaker. After the full one, what is still suspect gets a whole
// TTL anew.
func (c *core) shut(k breakerKey, now time.Time, reason, actor string) {
	delete(c.breakers, k)
	c.closedAt = now
	if k.scope == ScopeManual {
		c.keepHold(nil)
	}
	c.noteBreaker(k, BreakerOpen, BreakerClosed, reason, actor, now)
	if k.scope != ScopeFull {
		return
	}
	v := c.virtual(now)
	for _, n := range c.nodes {
		if n.state == Suspect {
			n.was, n.until, n.eof = Ready, v+int64(c.cfg.TTL), 0
			c.move(n, Restored, now, "the breaker closed", actorRegistry)
		}
	}
}

// From and To of a breaker's events.
const (
	BreakerOpen   = "open"
	BreakerClosed = "closed"
)

func (c *core) noteBreaker(k breakerKey, from, to, reason, actor string, now time.Time) {
	c.noteEvent(now, ledger.Event{Kind: ledger.KindBreaker, From: from, To: to, Reason: reason, Actor: actor,
		Evidence: map[string]string{"scope": k.scope, "id": k.id}})
}

// holdBreaker stops all actions but those that give nodes back, until reset.
func (c *core) holdBreaker(now time.Time, reason, actor string) {
	k := breakerKey{ScopeManual, ""}
	c.breakers[k] = &breaker{since: now, heldBy: actor, reason: reason}
	c.keepHold(c.breakers[k])
	c.noteBreaker(k, BreakerClosed, BreakerOpen, reason, actor, now)
}

// ErrNoBreaker answers the reset of a breaker that is not open.
var ErrNoBreaker = errors.New("no such breaker is open")

// resetBreaker closes a breaker; it opens again if there still is a reason.
func (c *core) resetBreaker(scope, id string, now time.Time, reason, actor string) error {
	k := breakerKey{scope, id}
	if c.breakers[k] == nil {
		return fmt.Errorf("breaker %s %s: %w", scope, id, ErrNoBreaker)
	}
	c.shut(k, now, reason, actor)
	return nil
}

// breakerList is the open breakers, sorted by scope and id.
func (c *core) breakerList() []BreakerStatus {
	out := make([]BreakerStatus, 0, len(c.breakers))
	for k, b := range maps.All(c.breakers) {
		out = append(out, BreakerStatus{Scope: k.scope, ID: k.id, Since: b.since, Silent: b.silent, Of: b.of, Reason: b.reason, HeldBy: b.heldBy})
	}
	slices.SortFunc(out, func(a, b BreakerStatus) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// health is how far the registry trusts itself: each pause of its own adds to
// the score, each half minute without one takes away (as Lifeguard's local
// health does for SWIM; the numbers are ours).
type health struct {
	score int
	at    int64 // virtual time of the last change
}

const (
	maxScore  = 7
	scoreStep = 30 * time.Second
)

func (h *health) hurt(v int64) {
	h.score = min(h.now(v)+1, maxScore)
	h.at = v
}

// now is the score at a time.
func (h *health) now(v int64) int {
	return max(h.score-int((v-h.at)/int64(scoreStep)), 0)
}
