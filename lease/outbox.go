// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// Intents returns the open intents that the ledger holds, oldest first.
func (s *Server) Intents() []ledger.Intent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping {
		return nil
	}
	out := make([]ledger.Intent, 0, len(s.core.intents))
	for _, in := range s.core.intents {
		if in.ID <= s.committed {
			out = append(out, *in)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Intent) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Permit says what may be done about an intent at this moment, given what a
// witness says. It must be asked right before each action.
func (s *Server) Permit(in ledger.Intent, w ledger.Witness) ledger.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping {
		return hold("this registry does not lead")
	}
	select {
	case <-s.lost:
		return hold("this registry does not lead any more")
	default:
	}
	return s.core.permit(&in, w, time.Now())
}

// Rehearse says what Permit would if the node's class were in mode hard, and in
// which mode it is; an empty mode says that there is nothing to rehearse: the
// mode is hard, or the node simulated. Nothing may be done on its word.
func (s *Server) Rehearse(in ledger.Intent, w ledger.Witness) (v ledger.Verdict, mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping {
		return v, ""
	}
	return s.core.rehearse(&in, w, time.Now())
}

// Report records what was done about an intent, with its new steps and state;
// it returns when the ledger holds it.
func (s *Server) Report(ctx context.Context, in ledger.Intent, e ledger.Event) error {
	return s.operate(ctx, func(c *core, now time.Time) error {
		c.report(in, e, now)
		return nil
	})
}

// Keep writes records of others into the ledger, in order with its own changes, as
// soon as the ledger takes them. It does nothing while this registry does not lead.
func (s *Server) Keep(records []ledger.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping {
		return
	}
	for _, r := range records {
		s.core.keep(r)
	}
	s.signal()
}

// Alert makes breaches told by alerts those of a node, until they are told to be
// over by an empty list, or for the time life. They count like the agent's own.
func (s *Server) Alert(ctx context.Context, node string, breaches []string, life time.Duration) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.alert(node, breaches, life, now) })
}

// Clear lets a quarantined node back; it joins anew.
func (s *Server) Clear(ctx context.Context, node, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.clear(node, now, reason, actor) })
}

// HoldBreaker stops all actions but those that give nodes back.
func (s *Server) HoldBreaker(ctx context.Context, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error {
		c.holdBreaker(now, reason, actor)
		return nil
	})
}

// ResetBreaker closes an open breaker; it opens again if there is a reason.
func (s *Server) ResetBreaker(ctx context.Context, scope, id, reason, actor string) error {
	return s.operate(ctx, func(c *core, now time.Time) error { return c.resetBreaker(scope, id, now, reason, actor) })
}

// Breakers returns the open breakers.
func (s *Server) Breakers() []BreakerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil {
		return nil
	}
	return s.core.breakerList()
}
