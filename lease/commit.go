// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/ledger"
)

const (
	// commitSize is the most changes of one transaction.
	commitSize = 512
	// maxPending is how many changes wait for a ledger that does not take them
	// before the oldest events are given up: some 60 MB.
	maxPending = 100000
	// commitTimeout bounds one transaction.
	commitTimeout = 10 * time.Second
	retryMin      = 100 * time.Millisecond
	retryMax      = 5 * time.Second
)

// ledgerStats are the committer's metrics.
type ledgerStats struct {
	pending  atomic.Int64
	failures atomic.Uint64
	shed     atomic.Uint64
	todo     []change // the committer's own
	size     int      // of the next transaction, changes; the committer's own
}

// commitLoop writes the changes to the ledger, in order, until ctx ends. A
// transaction that fails is repeated: nothing is lost, and no beat waits for it.
// It returns an error only when another registry took over.
func (s *Server) commitLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		delay := retryMin
		for {
			err := s.flush(ctx)
			if err == nil {
				break
			}
			if errors.Is(err, ledger.ErrFenced) {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(delay):
			}
			delay = min(2*delay, retryMax)
		}
	}
}

// flush writes all changes there are. Only one goroutine at a time may call it.
func (s *Server) flush(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.core != nil {
			s.ledger.todo = append(s.ledger.todo, s.core.take()...)
		}
		token := s.token
		s.mu.Unlock()
		s.shed()
		s.ledger.pending.Store(int64(len(s.ledger.todo)))
		if len(s.ledger.todo) == 0 {
			if cap(s.ledger.todo) > commitSize {
				s.ledger.todo = nil // room for a storm is not kept
			}
			return nil
		}
		if s.ledger.size == 0 {
			s.ledger.size = commitSize
		}
		part := s.ledger.todo[:min(s.ledger.size, len(s.ledger.todo))]
		commitCtx, cancel := context.WithTimeout(ctx, commitTimeout)
		err := s.deps.Store.Commit(commitCtx, token, batchOf(part))
		cancel()
		if errors.Is(err, ledger.ErrTooLarge) && len(part) > 1 {
			s.ledger.size = len(part) / 2
			continue
		}
		if err != nil {
			s.ledger.failures.Add(1)
			level.Error(s.deps.Logger).Log("msg", "ledger did not take changes, they are kept and tried again",
				"pending", len(s.ledger.todo), "err", err)
			return fmt.Errorf("%d changes not in the ledger: %w", len(s.ledger.todo), err)
		}
		s.ledger.size = min(2*s.ledger.size, commitSize)
		last := part[len(part)-1].event.ID
		s.ledger.todo = slices.Delete(s.ledger.todo, 0, len(part))
		s.advance(last)
	}
}

// advance tells those who wait that the ledger holds all events up to id.
func (s *Server) advance(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = id
	close(s.flushed)
	s.flushed = make(chan struct{})
}

// batchOf makes one transaction of changes; of each node the last record counts.
func batchOf(part []change) ledger.Batch {
	var b ledger.Batch
	last := map[string]int{}
	for i := range part {
		if part[i].other != nil {
			b.Records = append(b.Records, *part[i].other)
			continue
		}
		b.Events = append(b.Events, part[i].event)
		if part[i].intent != nil {
			b.Intents = append(b.Intents, *part[i].intent)
		}
		if part[i].record != nil {
			last[part[i].record.Node] = i
		}
	}
	for i := range part {
		if r := part[i].record; r != nil && last[r.Node] == i {
			b.Nodes = append(b.Nodes, *r)
		}
	}
	return b
}

// shed gives up the oldest events over the bound, but never the newest change
// of a node, or of another record: what must survive a restart is kept whatever happens.
func (s *Server) shed() {
	over := len(s.ledger.todo) - maxPending
	if over <= 0 {
		return
	}
	seen := map[string]bool{}
	keep := make([]bool, len(s.ledger.todo))
	for i := len(s.ledger.todo) - 1; i >= 0; i-- {
		about := s.ledger.todo[i].subject()
		keep[i] = i >= over || !seen[about]
		seen[about] = true
	}
	i := -1
	before := len(s.ledger.todo)
	s.ledger.todo = slices.DeleteFunc(s.ledger.todo, func(change) bool { i++; return !keep[i] })
	s.ledger.shed.Add(uint64(before - len(s.ledger.todo)))
}

// durable waits until the event is in the ledger.
func (s *Server) durable(ctx context.Context, id uint64) error {
	for {
		s.mu.Lock()
		done, flushed := s.committed >= id, s.flushed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return fmt.Errorf("done, but not yet in the ledger: %w", ctx.Err())
		}
	}
}
