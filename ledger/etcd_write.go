// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/go-kit/log/level"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxOps is the most operations of one transaction: etcd's default of
	// --max-txn-ops.
	maxOps = 128
	// maxBytes bounds the keys and values of one transaction, under etcd's
	// default of --max-request-bytes, 1.5 MiB, with room for its own framing.
	maxBytes = 1280 << 10
	// pruneStep is the most commits that are taken out of the log at a time: more
	// than come in.
	pruneStep = 16
)

// head bounds the log.
type head struct {
	// First is the number of the oldest commit in the log, Next that of the next.
	First uint64 `json:"first"`
	Next  uint64 `json:"next"`
	// Events counts those in the log, LastEvent is the newest one's ID.
	Events    uint64 `json:"events"`
	LastEvent uint64 `json:"last_event"`
}

// decodeHead decodes the answer to a read of the head; none: an empty log.
func decodeHead(kvs []*mvccpb.KeyValue) (head, error) {
	h := head{First: 1, Next: 1}
	if len(kvs) == 0 {
		return h, nil
	}
	if err := json.Unmarshal(kvs[0].Value, &h); err != nil {
		return h, fmt.Errorf("%s: %w", kvs[0].Key, err)
	}
	return h, nil
}

// Commit implements Store. The condition of its transaction is that the leader's
// key was not lost since it was won.
func (e *Etcd) Commit(ctx context.Context, token Token, batch Batch) error {
	e.mu.Lock()
	lead, closed := e.lead, e.closed
	e.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case lead == nil || lead.token != token:
		return e.wrap("commit", ErrFenced)
	case len(batch.Nodes)+len(batch.Records)+len(batch.Intents)+2 > maxOps:
		return e.wrap("commit", fmt.Errorf("%w: %d nodes, %d records and %d intents", ErrTooLarge, len(batch.Nodes), len(batch.Records), len(batch.Intents)))
	}
	ctx, cancel := e.call(ctx)
	defer cancel()
	h, open, err := e.before(ctx, batch.Intents)
	if err != nil {
		return e.wrap("commit", err)
	}
	w := &writer{}
	e.putEvents(w, &h, batch.Events)
	nodes := map[string]*NodeRecord{} // etcd takes a key once
	for i := range batch.Nodes {
		nodes[batch.Nodes[i].Node] = &batch.Nodes[i]
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		w.put(e.nodePrefix()+id, nodes[id])
	}
	e.putRecords(w, batch.Records)
	e.putIntents(w, open, batch.Intents)
	if err := e.write(ctx, lead, w); err != nil {
		return e.wrap("commit", err)
	}
	if err := e.prune(ctx, lead, h, batch.Events); err != nil {
		level.Warn(e.opts.Logger).Log("msg", "old events not taken out of the ledger, it is tried again", "err", e.wrap("prune", err))
	}
	return nil
}

// before reads what a commit builds on. Nobody changes it before the commit: its
// condition sees to that.
func (e *Etcd) before(ctx context.Context, intents []Intent) (head, map[string]*Intent, error) {
	ops := []clientv3.Op{clientv3.OpGet(e.headKey())}
	open := map[string]*Intent{}
	for i := range intents {
		if node := intents[i].Node; open[node] == nil {
			open[node] = &Intent{}
			ops = append(ops, clientv3.OpGet(e.openPrefix()+node))
		}
	}
	resp, err := e.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return head{}, nil, err
	}
	for _, r := range resp.Responses[1:] {
		for _, kv := range r.GetResponseRange().Kvs {
			i, err := decode[Intent](kv)
			if err != nil {
				return head{}, nil, err
			}
			open[i.Node] = i
		}
	}
	h, err := decodeHead(resp.Responses[0].GetResponseRange().Kvs)
	return h, open, err
}

// putEvents adds the events that the log does not hold yet.
func (e *Etcd) putEvents(w *writer, h *head, events []Event) {
	fresh := slices.DeleteFunc(slices.Clone(events), func(ev Event) bool { return ev.ID <= h.LastEvent })
	if len(fresh) == 0 {
		return
	}
	w.put(e.logKey(h.Next), fresh)
	h.Next++
	h.Events += uint64(len(fresh))
	h.LastEvent = fresh[len(fresh)-1].ID
	w.put(e.headKey(), h)
}

// putRecords puts the last of each key, or removes it.
func (e *Etcd) putRecords(w *writer, records []Record) {
	last := map[string]*Record{}
	for i := range records {
		last[records[i].key()] = &records[i]
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if last[key].Data == nil {
			w.drop(e.recordPrefix() + key)
			continue
		}
		w.put(e.recordPrefix()+key, last[key])
	}
}

// putIntents makes the newest intent of each node its open one, or none when
// that is done.
func (e *Etcd) putIntents(w *writer, open map[string]*Intent, intents []Intent) {
	changed := map[string]bool{}
	for _, i := range intents {
		if i, present := overtake(open[i.Node].ID, i); present {
			open[i.Node], changed[i.Node] = &i, true
		}
	}
	for _, node := range slices.Sorted(maps.Keys(changed)) {
		if open[node].State == IntentDone {
			w.drop(e.openPrefix() + node)
			continue
		}
		w.put(e.openPrefix()+node, open[node])
	}
}

// prune takes the oldest commits out of the log that are over the bounds. The
// newest event is "now", as in Bolt.
func (e *Etcd) prune(ctx context.Context, lead *leadership, h head, added []Event) error {
	if len(added) == 0 {
		return nil
	}
	oldest := added[len(added)-1].Time.Add(-e.opts.MaxAge)
	over := func(events []Event) bool {
		return len(events) == 0 || h.Events > uint64(e.opts.MaxEvents) || events[len(events)-1].Time.Before(oldest)
	}
	w := &writer{}
	for page := 1; h.First < h.Next-1 && len(w.ops) < pruneStep; page = pruneStep {
		commits, err := e.readLog(ctx, h.First, min(h.First+uint64(page), h.Next-1), 0)
		if err != nil {
			return err
		}
		if !over(commits[0]) {
			break
		}
		for _, events := range commits {
			if !over(events) || len(w.ops) >= pruneStep {
				break
			}
			w.drop(e.logKey(h.First))
			h.First++
			h.Events -= min(h.Events, uint64(len(events)))
		}
	}
	if len(w.ops) == 0 {
		return nil
	}
	w.put(e.headKey(), &h)
	return e.write(ctx, lead, w)
}

// writer collects the operations of one transaction.
type writer struct {
	ops  []clientv3.Op
	size int
	err  error
}

func (w *writer) put(key string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		w.err = fmt.Errorf("%s: %w", key, err)
	}
	w.ops = append(w.ops, clientv3.OpPut(key, string(data)))
	w.size += len(key) + len(data)
}

func (w *writer) drop(key string) {
	w.ops = append(w.ops, clientv3.OpDelete(key))
	w.size += len(key)
}

// write carries the operations out if this registry still leads.
func (e *Etcd) write(ctx context.Context, lead *leadership, w *writer) error {
	switch {
	case w.err != nil:
		return w.err
	case w.size > maxBytes:
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, w.size)
	}
	resp, err := e.client.Txn(ctx).If(lead.holds()).Then(w.ops...).Commit()
	if err == nil && !resp.Succeeded {
		err = ErrFenced
	}
	return err
}
