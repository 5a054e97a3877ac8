// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// InventoryStatus says how far an inventory can be trusted.
type InventoryStatus uint8

// The statuses, in the order of the wire format.
const (
	Fresh       InventoryStatus = iota // enumerated just now
	Stale                              // the last known list
	Unavailable                        // not enumerable: not the same as no GPU
)

// String is the status in lower case.
func (s InventoryStatus) String() string {
	return [...]string{"fresh", "stale", "unavailable"}[min(s, Unavailable)]
}

// beatInventory is what one beat says of the GPUs. The slices belong to the
// beat: whoever keeps them copies them.
type beatInventory struct {
	uuids    []string
	full     bool // uuids is the whole list, not left out
	hash     uint64
	hashed   bool
	status   InventoryStatus
	age      time.Duration
	reason   string
	breaches []string
}

// gpuSet is what is known of a node's GPUs and of what is wrong with them.
type gpuSet struct {
	seen        []string // sorted; shares expected's memory while equal
	hash        uint64   // that came with seen
	known       bool     // seen was told by the agent's present epoch
	status      InventoryStatus
	freshAt     int64    // virtual time up to which seen was known to be true
	breaches    []string // told by the agent
	alerts      []string // told by alerts, see core.alert
	alertsUntil int64    // virtual time

	expected []string // sorted; nil: none accepted yet
	by, why  string
	at       time.Time

	missing, extra []string
	diff           string // what is wrong with seen and breaches; "": nothing
	grade          State  // that diff stands for
	cause          string // why bad
	level          State  // that cause stands for
	bad            bool
	badRun         uint8 // beats in a row with a diff
	goodSince      int64 // virtual time since when nothing is wrong; 0: something is
	notedAt        int64 // virtual time of the last change of the cause
	levelAt        int64 // virtual time at which the level was last called for
}

// wrongBeats is how many beats in a row must show a wrong set.
const wrongBeats = 2

// health returns n's gpuSet, made if need be.
func (n *node) health() *gpuSet {
	if n.gpus == nil {
		n.gpus = &gpuSet{}
	}
	return n.gpus
}

// bad says whether n is known to be unsound.
func (n *node) bad() bool { return n.gpus != nil && n.gpus.bad }

// rest is the state of n while it beats: Ready, or what is wrong with it.
func (n *node) rest() State {
	if n.bad() {
		return n.gpus.level
	}
	return Ready
}

// faulty says whether n beats but is unsound.
func (n *node) faulty() bool { return n.state == Degraded || n.state == Limited || n.state == Isolated }

// forget is called when another epoch takes the node: its first list counts.
func (g *gpuSet) forget() { g.known = false }

// evidence are the facts behind a degraded node.
func (g *gpuSet) evidence() map[string]string {
	e := map[string]string{}
	if len(g.missing) > 0 {
		e["missing"] = strings.Join(g.missing, ",")
	}
	if len(g.extra) > 0 {
		e["extra"] = strings.Join(g.extra, ",")
	}
	if all := g.allBreaches(); len(all) > 0 {
		e["breaches"] = strings.Join(all, ",")
	}
	if g.status != Fresh {
		e["inventory"] = g.status.String()
	}
	return e
}

// examine takes a beat's inventory in and judges it. It returns whether the
// full list is wanted.
func (c *core) examine(n *node, b *beatInventory, v int64, now time.Time, gapFree bool) bool {
	class := c.site.nodes[n.id].class
	gpus := class != nil && class.GPUs > 0
	if n.gpus == nil && !gpus && len(b.uuids) == 0 && len(b.breaches) == 0 {
		return false // no GPU expected, none there
	}
	g := n.health()
	if !gapFree {
		g.freshAt = v // the first beat, or the first after a silence: the age counts from here
	}
	want, changed := g.take(b, v)
	if !slices.Equal(g.breaches, b.breaches) {
		g.breaches, changed = slices.Clone(b.breaches), true
	}
	if len(g.alerts) > 0 && v >= g.alertsUntil {
		g.alerts, changed = nil, true
	}
	if g.known && g.expected == nil && c.trust(n, now) {
		changed = true
	}
	if changed {
		c.compare(n)
	}
	c.judge(n, b, v, now, gpus || g.expected != nil)
	return want
}

// take puts the beat's list into g. It returns whether the full list is wanted,
// and whether the list changed.
func (g *gpuSet) take(b *beatInventory, v int64) (want, changed bool) {
	g.status = b.status
	if b.status == Unavailable {
		return false, false
	}
	switch {
	case b.full:
		changed = !g.known
		if !slices.Equal(g.seen, b.uuids) {
			sorted := slices.Sorted(slices.Values(b.uuids))
			sorted = slices.Compact(sorted)
			if !slices.Equal(g.seen, sorted) {
				g.seen, changed = intern(sorted, g.expected), true
			}
		}
		g.hash, g.known = b.hash, true
	case !g.known || b.hash != g.hash:
		return true, false
	}
	if b.status == Fresh {
		g.freshAt = max(g.freshAt, v-int64(b.age))
	}
	return false, changed
}

// intern returns a list equal to list that owns its strings, known's if equal.
func intern(list, known []string) []string {
	if slices.Equal(list, known) && known != nil {
		return known
	}
	out := make([]string, len(list))
	for i := range list {
		out[i] = strings.Clone(list[i])
	}
	return out
}

// trust accepts the first full list of a node on its own word, when count and
// model are those of its class. It returns whether it did.
func (c *core) trust(n *node, now time.Time) bool {
	g := n.gpus
	class := c.site.nodes[n.id].class
	if g.status != Fresh || len(g.seen) == 0 {
		return false
	}
	if class != nil && (len(g.seen) != class.GPUs || wrongModel(n, class)) {
		return false
	}
	c.expect(n, g.seen, now, "first inventory, as its class says", actorRegistry)
	return true
}

// wrongModel says whether n told another GPU model than its class has.
func wrongModel(n *node, class *site.NodeClass) bool {
	return class.GPUModel != "" && n.info != nil && n.info.Facts.GPUModel != "" && n.info.Facts.GPUModel != class.GPUModel
}

// expect makes list the expected GPUs of n and notes who says so.
func (c *core) expect(n *node, list []string, now time.Time, reason, actor string) {
	g := n.health()
	missing, extra := difference(g.expected, list), difference(list, g.expected)
	g.expected, g.by, g.why, g.at = list, actor, reason, now.UTC().Round(0)
	if slices.Equal(g.seen, list) {
		g.seen = list
	}
	e := map[string]string{}
	for key, uuids := range map[string][]string{"accepted": list, "added": extra, "dropped": missing} {
		if len(uuids) > 0 && (key != "accepted" || len(extra) < len(list)) { // all new: added says it
			e[key] = strings.Join(uuids, ",")
		}
	}
	c.note(n, now, ledger.Event{Kind: ledger.KindAccept, Reason: reason, Actor: actor, Evidence: e}, "")
}

// compare finds what is wrong with the list and the breaches as they are now.
func (c *core) compare(n *node) {
	g := n.gpus
	g.missing, g.extra, g.diff, g.grade = nil, nil, "", Ready
	var wrong []string
	class := c.site.nodes[n.id].class
	switch {
	case !g.known:
	case g.expected != nil:
		g.missing, g.extra = difference(g.expected, g.seen), difference(g.seen, g.expected)
		if len(g.missing) > 0 {
			wrong = append(wrong, "missing GPU "+strings.Join(g.missing, ", "))
		}
		if len(g.extra) > 0 {
			wrong = append(wrong, "extra GPU "+strings.Join(g.extra, ", "))
		}
	case class != nil && len(g.seen) != class.GPUs:
		wrong = append(wrong, fmt.Sprintf("%d GPUs, its class %s has %d", len(g.seen), class.ID, class.GPUs))
	case class != nil && len(g.seen) > 0 && wrongModel(n, class):
		wrong = append(wrong, fmt.Sprintf("GPU model %q, its class %s has %q", n.info.Facts.GPUModel, class.ID, class.GPUModel))
	}
	if strayed := c.strayed(n); strayed != "" {
		wrong = append(wrong, strayed)
	}
	if len(wrong) > 0 {
		g.grade = Degraded
	}
	if all := g.allBreaches(); len(all) > 0 {
		wrong = append(wrong, "breach of "+strings.Join(all, ", "))
		g.grade = c.cfg.gradeOf(all, g.grade)
	}
	g.diff = strings.Join(wrong, "; ")
}

// judge decides whether n is unsound: a wrong list, a breach or an old inventory
// must show in two beats in a row (the first beat of an agent that was stopped,
// or started again, tells what it knew before), and n must be sound for the
// cool-down before it is so again.
func (c *core) judge(n *node, b *beatInventory, v int64, now time.Time, gpus bool) {
	g := n.gpus
	old := gpus && n.state != Maint && max(v-g.freshAt, int64(b.age)) > int64(c.cfg.TTL)
	switch {
	case g.diff == "" && !old:
		g.badRun = 0
	case g.badRun < wrongBeats:
		g.badRun++
	}
	cause, level := "", g.grade
	if g.badRun >= wrongBeats {
		cause = g.diff
		if old {
			if level != Isolated {
				level = Degraded
			}
			why := fmt.Sprintf("inventory %s for more than %s", g.status, c.cfg.TTL)
			if b.reason != "" {
				why += ": " + b.reason
			}
			cause = strings.TrimPrefix(cause+"; "+why, "; ")
		}
	}
	if cause != "" {
		g.goodSince = 0
		c.blame(n, cause, level, v, now)
		return
	}
	if g.badRun > 0 {
		g.goodSince = 0
		return
	}
	if g.goodSince == 0 {
		g.goodSince = v
	}
	if g.bad && v-g.goodSince >= int64(c.cfg.Cooldown) {
		g.bad, g.cause = false, ""
	}
}

// blame makes n unsound for a cause, in the state that it stands for; a graver
// one counts at once, a milder one when the graver is gone for the cool-down.
// While n is in that state already, a new cause is noted, but not more often
// than once in a cool-down: breaches may flicker.
func (c *core) blame(n *node, cause string, level State, v int64, now time.Time) {
	g := n.gpus
	fresh := cause != g.cause
	g.cause = cause
	if !g.bad || gravity(level) >= gravity(g.level) {
		g.level, g.levelAt = level, v
	} else if v-g.levelAt >= int64(c.cfg.Cooldown) {
		g.level = level
	}
	g.bad = true
	if !fresh || n.state != g.level {
		return
	}
	n.reason = cause
	if g.notedAt == 0 || v-g.notedAt >= int64(c.cfg.Cooldown) {
		g.notedAt = v
		c.note(n, now, ledger.Event{Kind: ledger.KindTransition, From: n.state.String(), To: n.state.String(),
			Reason: cause, Actor: actorRegistry, Evidence: g.evidence()}, "")
	}
}

// difference returns what is in a and not in b; both are sorted.
func difference(a, b []string) []string {
	var out []string
	for _, s := range a {
		if _, found := slices.BinarySearch(b, s); !found {
			out = append(out, s)
		}
	}
	return out
}
