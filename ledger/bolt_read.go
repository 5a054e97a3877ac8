// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// watchBatch is how many events a watch reads at a time.
const watchBatch = 256

// writeIntents puts the intents, ends the ones they overtake and prunes the
// oldest over the bound.
func (b *Bolt) writeIntents(tx *bbolt.Tx, added []Intent) error {
	meta, all, open := tx.Bucket(bucketMeta), tx.Bucket(bucketIntents), tx.Bucket(bucketOpen)
	count := number(meta.Get(keyOutbox))
	for _, i := range added {
		key, node := bytesOf(i.ID), []byte(i.Node)
		before := number(open.Get(node))
		if all.Get(key) == nil {
			count++
		}
		i, present := overtake(before, i)
		if err := putJSON(all, key, &i); err != nil {
			return err
		}
		if !present {
			continue
		}
		if err := b.reopen(all, open, before, &i); err != nil {
			return err
		}
	}
	cur := all.Cursor()
	for k, v := cur.First(); k != nil && count > uint64(b.opts.MaxIntents); k, v = cur.First() {
		var i Intent
		if json.Unmarshal(v, &i) == nil && number(open.Get([]byte(i.Node))) == i.ID {
			if err := open.Delete([]byte(i.Node)); err != nil {
				return err
			}
		}
		if err := cur.Delete(); err != nil {
			return err
		}
		count--
	}
	return meta.Put(keyOutbox, bytesOf(count))
}

// reopen makes i the node's one open intent, or none when i is done, and ends
// the one before it.
func (b *Bolt) reopen(all, open *bbolt.Bucket, before uint64, i *Intent) error {
	if old := all.Get(bytesOf(before)); before != i.ID && old != nil {
		var o Intent
		if err := json.Unmarshal(old, &o); err != nil {
			return fmt.Errorf("intent %d: %w", before, err)
		}
		o.State, o.Note = IntentDone, overtaken(i.ID)
		if err := putJSON(all, bytesOf(before), &o); err != nil {
			return err
		}
	}
	if i.State == IntentDone {
		return open.Delete([]byte(i.Node))
	}
	return open.Put([]byte(i.Node), bytesOf(i.ID))
}

// writeRecords puts the records, or removes them.
func writeRecords(tx *bbolt.Tx, added []Record) error {
	records := tx.Bucket(bucketRecords)
	for i := range added {
		key, err := []byte(added[i].key()), error(nil)
		if added[i].Data == nil {
			err = records.Delete(key)
		} else {
			err = putJSON(records, key, &added[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachRecord calls take with all records.
func eachRecord(tx *bbolt.Tx, take func(*Record) error) error {
	return tx.Bucket(bucketRecords).ForEach(func(k, v []byte) error {
		r := &Record{}
		if err := json.Unmarshal(v, r); err != nil {
			return fmt.Errorf("record %q: %w", k, err)
		}
		return take(r)
	})
}

// openIntents reads the intents that are not done, oldest first.
func openIntents(ctx context.Context, tx *bbolt.Tx) ([]Intent, error) {
	var out []Intent
	all := tx.Bucket(bucketIntents)
	err := tx.Bucket(bucketOpen).ForEach(func(node, id []byte) error {
		var i Intent
		if err := json.Unmarshal(all.Get(id), &i); err != nil {
			return fmt.Errorf("intent %d of %s: %w", number(id), node, err)
		}
		out = append(out, i)
		return ctx.Err()
	})
	slices.SortFunc(out, func(a, b Intent) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// Events implements Store.
func (b *Bolt) Events(ctx context.Context, q Query) ([]Event, error) {
	var out []Event
	err := b.db.View(func(tx *bbolt.Tx) error {
		cur := tx.Bucket(bucketEvents).Cursor()
		for k, v := cur.Last(); k != nil && len(out) < q.limit(); k, v = cur.Prev() {
			var e Event
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("event %d: %w", number(k), err)
			}
			if q.matches(&e) {
				out = append(out, e)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, b.wrap("read events", err)
	}
	return out, nil
}

// Dump implements Store, within one read transaction.
func (b *Bolt) Dump(ctx context.Context, put func(Entry) error) error {
	err := b.db.View(func(tx *bbolt.Tx) error {
		err := tx.Bucket(bucketNodes).ForEach(func(k, v []byte) error {
			n := &NodeRecord{}
			if err := json.Unmarshal(v, n); err != nil {
				return fmt.Errorf("node %q: %w", k, err)
			}
			return put(Entry{Node: n})
		})
		if err == nil {
			err = eachRecord(tx, func(r *Record) error { return put(Entry{Record: r}) })
		}
		if err != nil {
			return err
		}
		intents, err := openIntents(ctx, tx)
		for i := 0; i < len(intents) && err == nil; i++ {
			err = put(Entry{Intent: &intents[i]})
		}
		if err != nil {
			return err
		}
		return tx.Bucket(bucketEvents).ForEach(func(k, v []byte) error {
			e := &Event{}
			if err := json.Unmarshal(v, e); err != nil {
				return fmt.Errorf("event %d: %w", number(k), err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return put(Entry{Event: e})
		})
	})
	if err != nil {
		return b.wrap("dump", err)
	}
	return nil
}

// Watch implements Store. A slow reader delays nobody: its goroutine reads on
// from the file.
func (b *Bolt) Watch(ctx context.Context, rev uint64) <-chan Event {
	out := make(chan Event)
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		close(out)
		return out
	default:
	}
	b.watches.Add(1)
	go func() {
		defer b.watches.Done()
		defer close(out)
		b.watch(ctx, rev, out)
	}()
	return out
}

// watch feeds out until ctx ends or the store closes.
func (b *Bolt) watch(ctx context.Context, rev uint64, out chan<- Event) {
	for {
		b.mu.Lock()
		committed := b.committed
		b.mu.Unlock()
		events, err := b.after(rev)
		if err != nil {
			return
		}
		ok := false
		if rev, ok = deliver(ctx, b.closed, out, events, rev); !ok {
			return
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return
		case <-b.closed:
			return
		}
	}
}

// after returns the first events after the revision, oldest first.
func (b *Bolt) after(rev uint64) ([]Event, error) {
	var out []Event
	err := b.db.View(func(tx *bbolt.Tx) error {
		cur := tx.Bucket(bucketEvents).Cursor()
		for k, v := cur.Seek(bytesOf(rev + 1)); k != nil && len(out) < watchBatch; k, v = cur.Next() {
			var e Event
			if err := json.Unmarshal(v, &e); err != nil {
				return fmt.Errorf("event %d: %w", number(k), err)
			}
			out = append(out, e)
		}
		return nil
	})
	return out, err
}
