// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// statePage is how many records are read at a time, at some 1 kB each.
	statePage = 1000
	// logPage is how many commits are read at first, maxLogPage at most.
	logPage    = 32
	maxLogPage = 512
	// watchRetry is the wait of a watch after an error.
	watchRetry = time.Second
)

// decode decodes one value; its errors name the key.
func decode[T any](kv *mvccpb.KeyValue) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(kv.Value, v); err != nil {
		return nil, fmt.Errorf("%s: %w", kv.Key, err)
	}
	return v, nil
}

// readHead returns the head and the revision that it was read at.
func (e *Etcd) readHead(ctx context.Context) (head, int64, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, e.headKey())
	if err != nil {
		return head{}, 0, err
	}
	h, err := decodeHead(resp.Kvs)
	return h, resp.Header.Revision, err
}

// list calls take with all values under a prefix as of a revision, in the order
// of their keys.
func list[T any](ctx context.Context, e *Etcd, prefix string, rev int64, take func(*T) error) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		callCtx, cancel := e.call(ctx)
		resp, err := e.client.Get(callCtx, from, clientv3.WithRange(end), clientv3.WithRev(rev), clientv3.WithLimit(statePage))
		cancel()
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			v, err := decode[T](kv)
			if err == nil {
				err = take(v)
			}
			if err != nil {
				return err
			}
			from = string(kv.Key) + "\x00"
		}
		if !resp.More {
			return nil
		}
	}
}

// readLog returns the events of each of the commits [from, to) as of a revision,
// 0: now. Those that are gone have none.
func (e *Etcd) readLog(ctx context.Context, from, to uint64, rev int64) ([][]Event, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, e.logKey(from), clientv3.WithRange(e.logKey(to)), clientv3.WithRev(rev))
	if err != nil {
		return nil, err
	}
	out := make([][]Event, to-from)
	for _, kv := range resp.Kvs {
		events, err := decode[[]Event](kv)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), e.logPrefix()), 16, 64)
		if err != nil || n < from || n >= to {
			return nil, fmt.Errorf("%s is no key of the log", kv.Key)
		}
		out[n-from] = *events
	}
	return out, nil
}

// Load implements Store.
func (e *Etcd) Load(ctx context.Context) (State, uint64, error) {
	var st State
	h, rev, err := e.readHead(ctx)
	if err == nil {
		err = e.state(ctx, rev, func(en Entry) error {
			switch {
			case en.Node != nil:
				st.Nodes = append(st.Nodes, *en.Node)
			case en.Record != nil:
				st.Records = append(st.Records, *en.Record)
			default:
				st.Intents = append(st.Intents, *en.Intent)
			}
			return nil
		})
	}
	if err != nil {
		return State{}, 0, e.wrap("load", err)
	}
	slices.SortFunc(st.Intents, func(a, b Intent) int { return cmp.Compare(a.ID, b.ID) })
	return st, h.LastEvent, nil
}

// state calls put with the node records, the records and the open intents as of a
// revision.
func (e *Etcd) state(ctx context.Context, rev int64, put func(Entry) error) error {
	err := list(ctx, e, e.nodePrefix(), rev, func(n *NodeRecord) error { return put(Entry{Node: n}) })
	if err == nil {
		err = list(ctx, e, e.recordPrefix(), rev, func(r *Record) error { return put(Entry{Record: r}) })
	}
	if err != nil {
		return err
	}
	return list(ctx, e, e.openPrefix(), rev, func(i *Intent) error { return put(Entry{Intent: i}) })
}

// Dump implements Store, as of one revision. It fails if etcd is compacted
// meanwhile.
func (e *Etcd) Dump(ctx context.Context, put func(Entry) error) error {
	h, rev, err := e.readHead(ctx)
	if err == nil {
		err = e.state(ctx, rev, put)
	}
	for from := h.First; err == nil && from < h.Next; from += logPage {
		var commits [][]Event
		commits, err = e.readLog(ctx, from, min(from+logPage, h.Next), rev)
		for _, events := range commits {
			for i := 0; i < len(events) && err == nil; i++ {
				err = put(Entry{Event: &events[i]})
			}
		}
	}
	if err != nil {
		return e.wrap("dump", err)
	}
	return nil
}

// Events implements Store.
func (e *Etcd) Events(ctx context.Context, q Query) ([]Event, error) {
	var out []Event
	h, _, err := e.readHead(ctx)
	if err == nil {
		err = e.backwards(ctx, h, func(ev *Event) bool {
			if q.matches(ev) {
				out = append(out, *ev)
			}
			return len(out) < q.limit()
		})
	}
	if err != nil {
		return nil, e.wrap("read events", err)
	}
	return out, nil
}

// backwards calls take with the events, newest first, until it returns false.
func (e *Etcd) backwards(ctx context.Context, h head, take func(*Event) bool) error {
	page := uint64(logPage)
	for to := h.Next; to > h.First; page = min(2*page, maxLogPage) {
		from := max(h.First, to-min(page, to))
		commits, err := e.readLog(ctx, from, to, 0)
		if err != nil {
			return err
		}
		for _, events := range slices.Backward(commits) {
			for i := range slices.Backward(events) {
				if !take(&events[i]) {
					return nil
				}
			}
		}
		to = from
	}
	return nil
}

// Watch implements Store. It waits through failures of etcd.
func (e *Etcd) Watch(ctx context.Context, rev uint64) <-chan Event {
	out := make(chan Event)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		close(out)
		return out
	}
	e.work.Go(func() {
		defer close(out)
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(e.ctx, stop)()
		for ctx.Err() == nil {
			events, at, err := e.after(ctx, rev)
			rev, _ = deliver(ctx, nil, out, events, rev)
			if err == nil && len(events) == 0 {
				err = e.awaitHead(ctx, at)
			}
			if err != nil {
				select {
				case <-time.After(watchRetry):
				case <-ctx.Done():
				}
			}
		}
	})
	return out
}

// after returns the events after an ID, oldest first, and the revision of etcd
// at which these were all.
func (e *Etcd) after(ctx context.Context, id uint64) ([]Event, int64, error) {
	h, at, err := e.readHead(ctx)
	if err != nil || h.LastEvent <= id {
		return nil, at, err
	}
	var out []Event
	err = e.backwards(ctx, h, func(ev *Event) bool {
		if ev.ID > id {
			out = append(out, *ev)
		}
		return ev.ID > id
	})
	if err != nil {
		return nil, at, err
	}
	slices.Reverse(out)
	return out, at, nil
}

// awaitHead waits until the head changes after a revision.
func (e *Etcd) awaitHead(ctx context.Context, rev int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for resp := range e.client.Watch(ctx, e.headKey(), clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	return ctx.Err()
}
