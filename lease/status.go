// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// NodeStatus is one node's lease at one instant. Pointers are nil and times zero
// for what is not known.
type NodeStatus struct {
	Node, Rack, Class string
	State             State
	Since             time.Time
	Reason            string
	// LeaseUp is the value of rackpulse_lease_up; nil where there is none
	// (JOINING, LEFT).
	LeaseUp *bool
	// Schedulable says whether the node may be given new work.
	Schedulable bool
	// Until is the end of a maintenance, or of the grace of RESTORED.
	Until time.Time
	// HeldBy is the operator who drained it or put it into maintenance.
	HeldBy string
	// Beating says that it has a stream open.
	Beating  bool
	LastBeat time.Time // the registry's clock
	// Skew is the node's clock less the registry's, the beat's way included.
	Skew *time.Duration
	// GPUs are the UUIDs it told last; Expected those that were accepted, nil
	// when none were; Missing and Extra the difference.
	GPUs, Expected, Missing, Extra []string
	AcceptedBy, AcceptedReason     string
	AcceptedAt                     time.Time
	// Inventory says how far GPUs can be trusted.
	Inventory InventoryStatus
	Breaches  []string
	// Flaps counts returns from SUSPECT; Conflicts the beats by which two
	// agents claimed the node.
	Flaps, Conflicts uint32
	// Agent is what its agent told of itself; nil for a client that tells
	// nothing.
	Agent *Hello
}

// Nodes returns the leases of all nodes that ever beat, sorted by node.
func (s *Server) Nodes() []NodeStatus {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil {
		return nil
	}
	out := make([]NodeStatus, 0, len(s.core.nodes))
	for _, n := range s.core.nodes {
		out = append(out, s.core.status(n, now))
	}
	slices.SortFunc(out, func(a, b NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// status is n's lease. The lists are those of the lease itself: they are
// replaced, never changed.
func (c *core) status(n *node, now time.Time) NodeStatus {
	in := c.site.nodes[n.id]
	st := NodeStatus{
		Node: n.id, Rack: in.rack, State: n.state, Since: time.Unix(0, n.since), Reason: n.reason,
		Schedulable: n.state.schedulable(n.was), HeldBy: n.held, Beating: n.stream != 0, Flaps: n.flaps, Agent: n.info,
	}
	if in.class != nil {
		st.Class = in.class.ID
	}
	if up, ok := n.state.up(n.was); ok {
		st.LeaseUp = &up
	}
	if n.state == Maint || n.state == Restored {
		st.Until = now.Add(time.Duration(n.until - c.virtual(now)))
	}
	if n.lastWall != 0 {
		st.LastBeat = time.Unix(0, n.lastWall)
	}
	if n.skew != 0 {
		skew := time.Duration(n.skew)
		st.Skew = &skew
	}
	if n.dup != nil {
		st.Conflicts = n.dup.conflicts
	}
	if g := n.gpus; g != nil {
		st.GPUs, st.Expected, st.Missing, st.Extra = g.seen, g.expected, g.missing, g.extra
		st.AcceptedBy, st.AcceptedAt, st.AcceptedReason = g.by, g.at, g.why
		st.Inventory, st.Breaches = g.status, g.breaches
	}
	return st
}

// Devices returns the facility devices that live agents poll, sorted by id.
func (s *Server) Devices() []Device {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil {
		return nil
	}
	return s.core.deviceList(now)
}

// Drain takes a node out of service until Resume, over its restarts. Like all
// operator's actions it returns when the ledger holds it, or with an error; when
// ctx ends first it stands nevertheless and will be written.
func (s *Server) Drain(ctx context.Context, node, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.drain(node, now, reason, actor) })
}

// Leave says that a node leaves or has left for good: no alert, no action. A
// later beat makes it join anew.
func (s *Server) Leave(ctx context.Context, node, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.leave(node, now, reason, actor) })
}

// Maintenance puts a node into maintenance for d, at most 24 h, over its
// restarts; Resume ends it early.
func (s *Server) Maintenance(ctx context.Context, node string, d time.Duration, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.maintenance(node, d, now, reason, actor) })
}

// Resume ends a drain or a maintenance.
func (s *Server) Resume(ctx context.Context, node, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.resumeNode(node, now, reason, actor) })
}

// Accept makes uuids the expected GPUs of a node; nil means those it shows now.
func (s *Server) Accept(ctx context.Context, node string, uuids []string, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.acceptGPUs(node, uuids, now, reason, actor) })
}

// operate runs an operator's action and waits until the ledger holds it.
func (s *Server) operate(ctx context.Context, do func(*core, time.Time) error) error {
	s.mu.Lock()
	if s.core == nil || s.stopping {
		s.mu.Unlock()
		return errNotLeading
	}
	err := do(s.core, time.Now())
	id := s.core.nextID
	s.signal()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.durable(ctx, id)
}
