// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors of the operator's actions.
var (
	// ErrUnknownNode says that the site file does not name the node.
	ErrUnknownNode = errors.New("node is not in the site file")
	// ErrNoLease says that the node never beat, so there is nothing to act on.
	ErrNoLease = errors.New("node never beat")
	// ErrState says that the action makes no sense in the node's state.
	ErrState = errors.New("not possible in this state")
)

// find returns the lease of a node.
func (c *core) find(id string) (*node, error) {
	if n := c.nodes[id]; n != nil {
		return n, nil
	}
	if _, ok := c.site.nodes[id]; !ok {
		return nil, fmt.Errorf("node %q: %w", id, ErrUnknownNode)
	}
	return nil, fmt.Errorf("node %q: %w", id, ErrNoLease)
}

// drain takes a node out of service until resumeNode; it outlives restarts of
// the node.
func (c *core) drain(id string, now time.Time, reason, actor string) error {
	c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	n.held = actor
	to := Draining
	if n.state == Left {
		to = Left
	}
	c.move(n, to, now, reason, actor)
	return nil
}

// leave says that a node leaves, or has left, for good. One that does not beat
// has left at once; a later beat joins anew.
func (c *core) leave(id string, now time.Time, reason, actor string) error {
	v := c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	n.held = ""
	switch {
	case n.state != Left && n.stream != 0 && v-n.last < int64(c.cfg.suspectAfter()):
		c.move(n, Draining, now, reason, actor)
	default:
		c.move(n, Left, now, reason, actor)
	}
	return nil
}

// maintenance puts a node into maintenance for d; it outlives restarts of the
// node and ends at its deadline or by resumeNode.
func (c *core) maintenance(id string, d time.Duration, now time.Time, reason, actor string) error {
	v := c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	if d <= 0 || d > maxOperatorMaintenance {
		return fmt.Errorf("maintenance of %s is not above 0 and up to %s", d, maxOperatorMaintenance)
	}
	if n.state == Left {
		return fmt.Errorf("node %q is %s: %w", id, n.state, ErrState)
	}
	n.held = actor
	c.maintain(n, v, now, d, reason, actor)
	return nil
}

// resumeNode ends a drain or a maintenance.
func (c *core) resumeNode(id string, now time.Time, reason, actor string) error {
	v := c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	silent := v-n.last >= int64(c.cfg.TTL)
	switch {
	case n.state == Left && n.held != "":
		n.held = ""
		c.move(n, Left, now, reason, actor)
	case n.state == Maint && silent:
		c.move(n, Expired, now, "maintenance was ended, and it does not beat", actor)
	case n.state == Maint:
		n.held = ""
		c.resume(n, v, now, reason, actor)
	case n.state == Draining:
		c.move(n, Joining, now, reason, actor)
	default:
		return fmt.Errorf("node %q is %s: %w", id, n.state, ErrState)
	}
	return nil
}

// clear lets a quarantined node join anew, with its losses forgotten.
func (c *core) clear(id string, now time.Time, reason, actor string) error {
	c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	if n.state != Quarantined {
		return fmt.Errorf("node %q is %s: %w", id, n.state, ErrState)
	}
	n.cycles = 0
	c.move(n, Joining, now, reason, actor)
	return nil
}

// acceptGPUs makes uuids, or those seen now when nil, the expected GPUs.
func (c *core) acceptGPUs(id string, uuids []string, now time.Time, reason, actor string) error {
	c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	if uuids == nil {
		if n.gpus == nil || !n.gpus.known {
			return fmt.Errorf("node %q has told no inventory: %w", id, ErrState)
		}
		uuids = n.gpus.seen
	}
	if err := checkList("gpu_uuids", uuids, maxUUIDs); err != nil {
		return err
	}
	c.expect(n, slices.Compact(slices.Sorted(slices.Values(uuids))), now, reason, actor)
	c.compare(n)
	g := n.gpus
	if g.diff == "" {
		// A human vouches for it: no cool-down.
		g.bad, g.cause, g.badRun = false, "", 0
		if n.faulty() {
			c.move(n, Ready, now, "its GPUs were accepted", actor)
		}
	}
	return nil
}
