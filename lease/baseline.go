// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// The gate of admission: a node that joins, or comes back after a loss or a boot, is
// ready only when the facts that its agent told meet the baseline of its class. One
// that was admitted is degraded by facts that are told and differ; what an agent that
// was started again does not know yet is no fault of its node.

// untold is what is wrong with a node whose agent tells no facts at all.
const untold = "its agent tells no facts"

// introduce takes what an agent tells of itself. Facts that it does not know yet are
// those that were told before, unless the node was booted since.
func (c *core) introduce(n *node, h *Hello) {
	if old := n.info; old != nil {
		if old.BootID == h.BootID {
			h.Facts = h.Facts.Or(old.Facts)
			h.rebooted = old.rebooted
		} else {
			h.rebooted = true
		}
	}
	n.info = h
	c.remeasure(n)
	c.wheel.file(n, c.deadline(n)) // it may be due earlier now
}

// remeasure holds the facts of n against the baseline again.
func (c *core) remeasure(n *node) {
	if old := n.info; old != nil {
		h := *old // readers of a status may hold the old one
		h.outside, h.changed = "", ""
		if class := c.baseline(n); class != nil {
			h.outside, h.changed = differences(class, h.Facts)
		}
		h.rebooted = h.rebooted && h.outside != ""
		n.info = &h
	}
	if n.gpus != nil || c.strayed(n) != "" {
		n.health()
		c.compare(n)
	}
}

// baseline is the class of n if it has a baseline, else nil.
func (c *core) baseline(n *node) *site.NodeClass {
	if class := c.site.nodes[n.id].class; class != nil && !class.Baseline.Empty() {
		return class
	}
	return nil
}

// differences says how facts differ from a class' baseline, and which of them are
// told and differ; both are empty when they do not.
func differences(class *site.NodeClass, f site.Facts) (all, told string) {
	var outside, changed []string
	for _, d := range class.Baseline.Check(f) {
		outside = append(outside, d.String())
		if d.Got != "" {
			changed = append(changed, d.String())
		}
	}
	say := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return outsideOf(class) + strings.Join(list, "; ")
	}
	return say(outside), say(changed)
}

func outsideOf(class *site.NodeClass) string {
	return "outside the baseline of class " + class.ID + ": "
}

// outside says why n is not to be admitted; "": it may be.
func (c *core) outside(n *node) string {
	class := c.baseline(n)
	switch {
	case class == nil:
		return ""
	case n.info == nil:
		return outsideOf(class) + untold
	}
	return n.info.outside
}

// strayed says how a node that was admitted differs from the baseline; "": it does
// not, or was not admitted.
func (c *core) strayed(n *node) string {
	state := n.state
	if state == Maint || state == Restored {
		state = n.was
	}
	if n.info == nil || state != Suspect && gravity(state) < 0 {
		return ""
	}
	return n.info.changed
}

// admit lets a node into service that beats as it should, unless it is outside the
// baseline: then one that joins or recovers stays where it is, and one that was booted
// joins anew.
func (c *core) admit(n *node, now time.Time, reason string) {
	why := c.outside(n)
	switch {
	case why == "":
		c.settle(n, now, reason)
	case n.state == Joining || n.state == Recovering:
		c.holdOff(n, now, why)
	case n.info != nil && n.info.rebooted:
		c.move(n, Joining, now, why, actorRegistry)
	default:
		c.settle(n, now, reason)
	}
}

// holdOff tells why a node is not admitted. What changes about it is noted, but not
// more often than once in a cool-down.
func (c *core) holdOff(n *node, now time.Time, why string) {
	if n.reason == why {
		return
	}
	n.reason = why
	g, v := n.health(), c.virtual(now)
	if g.notedAt == 0 || v-g.notedAt >= int64(c.cfg.Cooldown) {
		g.notedAt = v
		c.note(n, now, ledger.Event{Kind: ledger.KindTransition, From: n.state.String(), To: n.state.String(), Reason: why, Actor: actorRegistry}, "")
	}
}
