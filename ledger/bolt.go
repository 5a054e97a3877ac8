// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// schema is the version of the file's layout. A file with a higher one is
// refused; a lower one is brought up when it is opened.
const schema = 1

// FileName is the name of the ledger's file in its folder.
const FileName = "ledger.db"

var (
	bucketMeta    = []byte("meta")
	bucketNodes   = []byte("nodes")
	bucketRecords = []byte("records") // kind/ID
	bucketEvents  = []byte("events")
	bucketIntents = []byte("intents")
	bucketOpen    = []byte("open") // node -> ID of its one open intent

	keySchema = []byte("schema")
	keyFence  = []byte("fence")
	keyEvents = []byte("events")  // number of events
	keyOutbox = []byte("intents") // number of intents
)

// BoltOptions bound the file. The zero value means the defaults.
type BoltOptions struct {
	// MaxEvents is how many events are kept; 0 means 100,000 (some 40 MB).
	MaxEvents int
	// MaxAge is how long events are kept; 0 means 90 days.
	MaxAge time.Duration
	// MaxIntents is how many intents are kept; 0 means 20,000.
	MaxIntents int
	// LockTimeout is how long to wait for another process to let go of the
	// file; 0 means 1 s.
	LockTimeout time.Duration
}

func (o BoltOptions) withDefaults() BoltOptions {
	if o.MaxEvents <= 0 {
		o.MaxEvents = defaultEvents
	}
	if o.MaxAge <= 0 {
		o.MaxAge = defaultAge
	}
	if o.MaxIntents <= 0 {
		o.MaxIntents = 20000
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	return o
}

// Bolt is a Store in one file, for a single registry process. The file lock is
// the election.
type Bolt struct {
	db     *bbolt.DB
	opts   BoltOptions
	closed chan struct{}

	mu        sync.Mutex
	committed chan struct{} // closed and replaced at each commit
	lost      chan struct{} // the present leadership's
	once      sync.Once
	closeErr  error
	watches   sync.WaitGroup
	idle      *time.Timer // gives memory back
}

// OpenBolt opens or makes the ledger in the folder dir. It fails when another
// process holds it, when it was written by a newer version, or when it is not a
// ledger.
func OpenBolt(dir string, opts BoltOptions) (*Bolt, error) {
	opts = opts.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make ledger folder: %w", err)
	}
	path := filepath.Join(dir, FileName)
	if err := checkSize(path); err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	db, err := openWhole(path, opts.LockTimeout)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("ledger %s is held by another process (its lock was not free within %s)", path, opts.LockTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("open ledger %s: %w", path, err)
	}
	b := &Bolt{db: db, opts: opts, closed: make(chan struct{}), committed: make(chan struct{})}
	if err := db.Update(b.init); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", path, err), db.Close())
	}
	b.idle = time.AfterFunc(idleAfter, b.giveBack)
	return b, nil
}

// init makes the buckets of a new file and checks the schema of an old one.
func (b *Bolt) init(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketMeta, bucketNodes, bucketRecords, bucketEvents, bucketIntents, bucketOpen} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	switch v := number(meta.Get(keySchema)); {
	case v > schema:
		return fmt.Errorf("has schema %d, this version knows %d: it was written by a newer rackpulse", v, schema)
	case v < schema:
		return meta.Put(keySchema, bytesOf(schema))
	}
	return nil
}

// Campaign implements Store. It never waits: whoever opened the file leads. A
// second Campaign ends the first one's leadership.
func (b *Bolt) Campaign(ctx context.Context) (Token, <-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return Token{}, nil, err
	}
	var token Token
	err := b.db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		last, _ := tx.Bucket(bucketEvents).Cursor().Last()
		token.Fence = nextFence(number(meta.Get(keyFence)), number(last))
		return meta.Put(keyFence, bytesOf(token.Fence))
	})
	if err != nil {
		return Token{}, nil, b.wrap("campaign", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost != nil {
		close(b.lost)
	}
	b.lost = make(chan struct{})
	return token, b.lost, nil
}

// Load implements Store.
func (b *Bolt) Load(ctx context.Context) (State, uint64, error) {
	var st State
	var rev uint64
	err := b.db.View(func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket(bucketEvents).Cursor().Last()
		rev = number(key)
		err := tx.Bucket(bucketNodes).ForEach(func(k, v []byte) error {
			var n NodeRecord
			if err := json.Unmarshal(v, &n); err != nil {
				return fmt.Errorf("node %q: %w", k, err)
			}
			st.Nodes = append(st.Nodes, n)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		err = eachRecord(tx, func(r *Record) error {
			st.Records = append(st.Records, *r)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		st.Intents, err = openIntents(ctx, tx)
		return err
	})
	if err != nil {
		return State{}, 0, b.wrap("load", err)
	}
	return st, rev, nil
}

// Commit implements Store: one bbolt transaction, synced to disk.
func (b *Bolt) Commit(ctx context.Context, token Token, batch Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := b.db.Update(func(tx *bbolt.Tx) error {
		if number(tx.Bucket(bucketMeta).Get(keyFence)) != token.Fence {
			return ErrFenced
		}
		return b.write(tx, batch)
	})
	if err != nil {
		return b.wrap("commit", err)
	}
	b.mu.Lock()
	close(b.committed)
	b.committed = make(chan struct{})
	b.mu.Unlock()
	b.idle.Reset(idleAfter)
	return nil
}

// appendFill is how full the pages of the history are made: its keys only grow, so
// nothing is put in between later.
const appendFill = 0.95

// write puts the batch into the transaction and prunes what is over the bounds.
func (b *Bolt) write(tx *bbolt.Tx, batch Batch) error {
	nodes := tx.Bucket(bucketNodes)
	for i := range batch.Nodes {
		if err := putJSON(nodes, []byte(batch.Nodes[i].Node), &batch.Nodes[i]); err != nil {
			return err
		}
	}
	if err := writeRecords(tx, batch.Records); err != nil {
		return err
	}
	meta, events := tx.Bucket(bucketMeta), tx.Bucket(bucketEvents)
	events.FillPercent = appendFill
	count := number(meta.Get(keyEvents))
	for i := range batch.Events {
		key := bytesOf(batch.Events[i].ID)
		if events.Get(key) == nil {
			count++
		}
		if err := putJSON(events, key, &batch.Events[i]); err != nil {
			return err
		}
	}
	count, err := b.pruneEvents(events, count, batch.Events)
	if err != nil {
		return err
	}
	if err := meta.Put(keyEvents, bytesOf(count)); err != nil {
		return err
	}
	return b.writeIntents(tx, batch.Intents)
}

// pruneEvents removes the oldest events over the bounds. The newest event of
// the batch is "now", so that the bound holds for a ledger that is replayed.
func (b *Bolt) pruneEvents(events *bbolt.Bucket, count uint64, added []Event) (uint64, error) {
	if len(added) == 0 {
		return count, nil
	}
	oldest := added[len(added)-1].Time.Add(-b.opts.MaxAge)
	cur := events.Cursor()
	for k, v := cur.First(); k != nil && count > 0; k, v = cur.First() {
		if count <= uint64(b.opts.MaxEvents) {
			var e struct{ Time time.Time }
			if json.Unmarshal(v, &e) == nil && !e.Time.Before(oldest) {
				break
			}
		}
		if err := cur.Delete(); err != nil {
			return count, err
		}
		count--
	}
	return count, nil
}

// Close implements Store.
func (b *Bolt) Close() error {
	b.once.Do(func() {
		b.mu.Lock()
		close(b.closed)
		b.mu.Unlock()
		b.watches.Wait()
		b.idle.Stop()
		b.mu.Lock()
		if b.lost != nil {
			close(b.lost)
			b.lost = nil
		}
		b.mu.Unlock()
		b.closeErr = b.db.Close()
	})
	return b.closeErr
}

// wrap names the file and what was done to it.
func (b *Bolt) wrap(what string, err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return fmt.Errorf("ledger %s: %s: %w", b.db.Path(), what, err)
}

func putJSON(bucket *bbolt.Bucket, key []byte, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return bucket.Put(key, data)
}

// bytesOf is the big-endian key of n, so that keys sort as numbers do.
func bytesOf(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// number is the inverse of bytesOf; 0 for a missing key.
func number(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}
