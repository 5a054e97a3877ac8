// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// restore makes the leases from what the ledger knows. Who had a live lease gets
// the grace of a fresh start; who was lost or had left stays so.
func (c *core) restore(st ledger.State, now time.Time) {
	v := c.clock(now)
	records := st.Nodes
	for i := range records {
		r := &records[i]
		if _, ok := c.site.nodes[r.Node]; !ok {
			continue
		}
		n := &node{
			id: r.Node, filed: unfiled, last: v, state: parseState(r.State), was: parseState(r.Was), since: r.Since.UnixNano(),
			epoch: r.AgentEpoch, gen: r.Epoch, flaps: r.Flaps, marked: r.Marked, reason: r.Reason, held: r.Held,
			cycles: r.Cycles, cycleAt: r.CycleAt.UnixNano(),
		}
		if n.state == Unknown {
			continue
		}
		if !r.LastBeat.IsZero() {
			n.lastWall = r.LastBeat.UnixNano()
		}
		if r.Accepted != nil {
			n.gpus = &gpuSet{expected: slices.Sorted(slices.Values(r.Accepted)), by: r.AcceptedBy, at: r.AcceptedAt, why: r.AcceptedReason}
		}
		if n.state == Maint {
			// The wall clock may have been stepped since: bounded both ways.
			left := min(max(r.Until.Sub(now), 0), maxOperatorMaintenance)
			n.until, n.mark = v+int64(left), v
		}
		c.nodes[n.id] = n
	}
	for i := range st.Intents {
		if in := &st.Intents[i]; c.nodes[in.Node] != nil {
			c.intents[in.Node] = in
		}
	}
	c.restoreHold(st.Records, now)
	c.restoreAll(v, now, "the registry was started")
	for _, n := range c.nodes {
		c.wheel.file(n, c.deadline(n))
	}
}

// restoreAll gives every live lease the grace of a fresh start.
func (c *core) restoreAll(v int64, now time.Time, reason string) {
	until := v + int64(max(restoreGrace, c.cfg.TTL))
	c.awayAt, c.graceUntil, c.closedAt = v, until, now
	for _, n := range c.nodes {
		switch n.state {
		case Maint, Restored:
			n.until = max(n.until, until)
		case Expired, Left, Quarantined, Unknown:
		default:
			n.was, n.until, n.eof = n.state, until, 0
			c.move(n, Restored, now, reason, actorRegistry)
		}
	}
}
