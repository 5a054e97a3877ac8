// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"sync"

	"github.com/rackpulse/rackpulse/ledger"
)

// maxQueued bounds the events that wait for a ledger that takes none.
const maxQueued = 10000

// errQueueFull says that events were given up.
var errQueueFull = errors.New("the ledger has not taken events for too long, these are lost")

// journal is the ledger as the lease server sees it. The lease server numbers
// its events without knowing of others; the journal puts the registry's own
// between them and moves the numbers of those behind, so that all of them are in
// one order, that of their writing.
type journal struct {
	ledger.Store

	mu     sync.Mutex // held over a commit: numbers grow in the order of writing
	token  ledger.Token
	leads  bool
	loaded bool
	last   uint64 // id of the last event written
	shift  uint64 // how many events of our own were written
	queue  []ledger.Event
}

// Campaign implements ledger.Store and remembers the token.
func (j *journal) Campaign(ctx context.Context) (ledger.Token, <-chan struct{}, error) {
	token, lost, err := j.Store.Campaign(ctx)
	if err != nil {
		return token, lost, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.token, j.leads = token, true
	j.last, j.shift = token.Fence<<32, 0
	return token, lost, nil
}

// Load implements ledger.Store. The lease server calls it once it leads, to
// restore the leases.
func (j *journal) Load(ctx context.Context) (ledger.State, uint64, error) {
	st, rev, err := j.Store.Load(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.loaded = j.loaded || err == nil && j.leads
	return st, rev, err
}

// Commit implements ledger.Store: the batch of the lease server, behind the
// events of our own that still wait.
func (j *journal) Commit(ctx context.Context, token ledger.Token, batch ledger.Batch) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commit(ctx, token, batch)
}

// commit numbers and writes. mu is held. When it fails nothing has changed, so
// a repetition is numbered anew.
func (j *journal) commit(ctx context.Context, token ledger.Token, batch ledger.Batch) error {
	shift := j.shift + uint64(len(j.queue))
	out := ledger.Batch{Nodes: batch.Nodes, Events: make([]ledger.Event, 0, len(j.queue)+len(batch.Events))}
	last := j.last
	for _, e := range j.queue {
		last++
		e.ID = last
		out.Events = append(out.Events, e)
	}
	for _, e := range batch.Events {
		e.ID += shift
		last = max(last, e.ID)
		out.Events = append(out.Events, e)
	}
	for _, i := range batch.Intents {
		i.ID += shift
		out.Intents = append(out.Intents, i)
	}
	if err := j.Store.Commit(ctx, token, out); err != nil {
		return err
	}
	j.last, j.shift, j.queue = last, shift, nil
	return nil
}

// note writes events of our own. If the ledger does not take them now, or this
// registry does not lead yet, they wait for the next commit.
func (j *journal) note(ctx context.Context, events []ledger.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue)+len(events) > maxQueued {
		return errQueueFull
	}
	j.queue = append(j.queue, events...)
	if !j.leads || len(j.queue) == 0 {
		return nil
	}
	return j.commit(ctx, j.token, ledger.Batch{})
}

// ready says whether this registry leads and has restored the leases.
func (j *journal) ready() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.loaded
}

// retire ends the leadership.
func (j *journal) retire() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leads, j.loaded = false, false
}
