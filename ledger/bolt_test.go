// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string, opts BoltOptions) *Bolt {
	t.Helper()
	b, err := OpenBolt(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func campaign(t *testing.T, b *Bolt) (Token, <-chan struct{}) {
	t.Helper()
	token, lost, err := b.Campaign(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return token, lost
}

func event(id uint64, node string, at time.Time) Event {
	return Event{ID: id, Time: at, Kind: KindTransition, Node: node, From: "READY", To: "SUSPECT", Actor: "registry"}
}

func TestSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, BoltOptions{})
	token, lost := campaign(t, b)
	batch := Batch{
		Nodes: []NodeRecord{{Node: "gpu001", State: "SUSPECT", Since: t0, Epoch: 7, Accepted: []string{"GPU-a", "GPU-b"}, AcceptedBy: "eve"}},
		Events: []Event{event(11, "gpu001", t0), {ID: 12, Time: t0.Add(time.Second), Kind: KindAccept, Node: "gpu001", Reason: "board swapped",
			Actor: "eve", Evidence: map[string]string{"added": "GPU-b"}}},
		Intents: []Intent{{ID: 11, Action: ActionSuspend, Node: "gpu001", Epoch: 7, State: IntentHeld, Created: t0}},
	}
	for range 2 { // repeating a commit must be harmless
		if err := b.Commit(context.Background(), token, batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	default:
		t.Error("leadership did not end with Close")
	}

	b = open(t, dir, BoltOptions{})
	if next, _ := campaign(t, b); next.Fence <= token.Fence {
		t.Errorf("fence %d is not above the former %d", next.Fence, token.Fence)
	}
	st, rev, err := b.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if rev != 12 || !reflect.DeepEqual(st.Nodes, batch.Nodes) || !reflect.DeepEqual(st.Intents, batch.Intents) {
		t.Errorf("loaded rev %d, %+v", rev, st)
	}
	events, err := b.Events(context.Background(), Query{Node: "gpu001"})
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || !reflect.DeepEqual(events[0], batch.Events[1]) || !reflect.DeepEqual(events[1], batch.Events[0]) {
		t.Errorf("events %+v", events)
	}
}

func TestQuery(t *testing.T) {
	b := open(t, t.TempDir(), BoltOptions{})
	token, _ := campaign(t, b)
	var batch Batch
	for i := range 300 {
		node := "a"
		if i%3 == 0 {
			node = "b"
		}
		batch.Events = append(batch.Events, event(uint64(i+1), node, t0.Add(time.Duration(i)*time.Second)))
	}
	if err := b.Commit(context.Background(), token, batch); err != nil {
		t.Fatal(err)
	}
	check := func(q Query, count int, first uint64) {
		t.Helper()
		events, err := b.Events(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != count || events[0].ID != first {
			t.Errorf("%+v: %d events, first %+v", q, len(events), events[0])
		}
	}
	check(Query{}, 100, 300)
	check(Query{Limit: 1000}, 300, 300)
	check(Query{Node: "b", Limit: 1000}, 100, 298)
	check(Query{Since: t0.Add(290 * time.Second), Limit: 1000}, 10, 300)
	check(Query{Node: "a", Since: t0.Add(298 * time.Second)}, 2, 300)
}

func TestFencing(t *testing.T) {
	b := open(t, t.TempDir(), BoltOptions{})
	old, lost := campaign(t, b)
	campaign(t, b)
	select {
	case <-lost:
	default:
		t.Error("the first leadership did not end")
	}
	err := b.Commit(context.Background(), old, Batch{Events: []Event{event(1, "a", t0)}})
	if !errors.Is(err, ErrFenced) {
		t.Errorf("commit with the old token: %v", err)
	}
	if events, _ := b.Events(context.Background(), Query{}); len(events) != 0 {
		t.Errorf("a fenced commit wrote %+v", events)
	}
}

func TestLockedByAnother(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, BoltOptions{})
	_, err := OpenBolt(dir, BoltOptions{LockTimeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, FileName)+" is held by another process") {
		t.Errorf("second open: %v", err)
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("not a ledger ", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBolt(dir, BoltOptions{}); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("garbage: %v", err)
	}

	dir = t.TempDir()
	b := open(t, dir, BoltOptions{})
	err := b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, bytesOf(2)) })
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := OpenBolt(dir, BoltOptions{}); err == nil || !strings.Contains(err.Error(), "has schema 2, this version knows 1") {
		t.Errorf("newer schema: %v", err)
	}
}

func TestBounds(t *testing.T) {
	b := open(t, t.TempDir(), BoltOptions{MaxEvents: 10, MaxAge: time.Hour, MaxIntents: 5})
	token, _ := campaign(t, b)
	commit := func(id uint64, at time.Time) {
		t.Helper()
		err := b.Commit(context.Background(), token, Batch{Events: []Event{event(id, "a", at)},
			Intents: []Intent{{ID: id, Node: string(rune('a' + id%26)), State: IntentHeld}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for id := uint64(1); id <= 25; id++ {
		commit(id, t0)
	}
	events, err := b.Events(context.Background(), Query{Limit: 1000})
	if err != nil || len(events) != 10 || events[9].ID != 16 {
		t.Errorf("by count: %v, %d left", err, len(events))
	}
	st, _, err := b.Load(context.Background())
	if err != nil || len(st.Intents) != 5 || st.Intents[0].ID != 21 {
		t.Errorf("intents left: %v %+v", err, st.Intents)
	}
	commit(26, t0.Add(61*time.Minute))
	if events, _ = b.Events(context.Background(), Query{}); len(events) != 1 || events[0].ID != 26 {
		t.Errorf("by age: %+v", events)
	}
}

func TestNewerIntentEndsOlder(t *testing.T) {
	b := open(t, t.TempDir(), BoltOptions{})
	token, _ := campaign(t, b)
	first := Batch{Intents: []Intent{
		{ID: 1, Node: "a", Action: ActionSuspend, State: IntentPending},
		{ID: 2, Node: "b", Action: ActionSuspend, State: IntentHeld},
		{ID: 3, Node: "a", Action: ActionEvict, State: IntentPending},
	}}
	check := func(want ...uint64) {
		t.Helper()
		st, _, err := b.Load(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, i := range st.Intents {
			got = append(got, i.ID)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("open intents %v, want %v", got, want)
		}
	}
	commit := func(batch Batch) {
		t.Helper()
		if err := b.Commit(context.Background(), token, batch); err != nil {
			t.Fatal(err)
		}
	}
	commit(first)
	check(2, 3)
	commit(first) // a repeat does not open 1 again
	check(2, 3)
	commit(Batch{Intents: []Intent{{ID: 3, Node: "a", Action: ActionEvict, State: IntentDone, Note: "sent"}}})
	check(2)
	commit(Batch{Intents: []Intent{{ID: 4, Node: "b", Action: ActionResume, State: IntentHeld}}})
	check(4)
}

func TestWatch(t *testing.T) {
	b := open(t, t.TempDir(), BoltOptions{})
	token, _ := campaign(t, b)
	commit := func(ids ...uint64) {
		var batch Batch
		for _, id := range ids {
			batch.Events = append(batch.Events, event(id, "a", t0))
		}
		if err := b.Commit(context.Background(), token, batch); err != nil {
			t.Error(err)
		}
	}
	commit(1, 2, 3)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := b.Watch(ctx, 1)
	go func() {
		for id := uint64(4); id <= 58; id += 3 {
			commit(id, id+1, id+2)
		}
	}()
	last := uint64(1)
	for e := range watch {
		if e.ID != last+1 {
			t.Fatalf("event %d after %d", e.ID, last)
		}
		if last = e.ID; last == 60 {
			cancel()
			break
		}
	}
	for range watch { // ends
	}
	other := b.Watch(context.Background(), 0)
	b.Close()
	for range other { // ends
	}
	if _, open := <-b.Watch(context.Background(), 0); open {
		t.Error("watch of a closed ledger sent something")
	}
	if _, _, err := b.Load(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("load after close: %v", err)
	}
}
