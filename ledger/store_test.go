// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// place is where a ledger lies; open opens it, again and again.
type place struct {
	open func(opts BoltOptions) Store
}

// eachStore runs a test over every kind of store.
func eachStore(t *testing.T, test func(t *testing.T, p place)) {
	t.Helper()
	t.Run("bolt", func(t *testing.T) {
		dir := t.TempDir()
		test(t, place{func(opts BoltOptions) Store { return open(t, dir, opts) }})
	})
	t.Run("etcd", func(t *testing.T) {
		endpoint := etcdURL(t)
		test(t, place{func(opts BoltOptions) Store {
			return openEtcd(t, EtcdOptions{Endpoints: []string{endpoint}, MaxEvents: opts.MaxEvents, MaxAge: opts.MaxAge})
		}})
	})
}

// registries counts those that were opened.
var registries atomic.Int32

// etcd is the real one of this process, started for the first test that needs it.
var etcd struct {
	once sync.Once
	cmd  *exec.Cmd
	url  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if etcd.cmd != nil {
		_ = etcd.cmd.Process.Kill()
		_ = etcd.cmd.Wait() // it was killed
		_ = os.RemoveAll(etcd.cmd.Dir)
	}
	os.Exit(code)
}

// etcdURL is the address of a real etcd.
func etcdURL(t *testing.T) string {
	t.Helper()
	program := testtool.EtcdProgram(t)
	etcd.once.Do(func() {
		dir, err := os.MkdirTemp("", "etcd")
		if err != nil {
			etcd.err = err
			return
		}
		etcd.cmd, etcd.url, etcd.err = testtool.StartEtcd(program, dir, "http")
	})
	if etcd.err != nil {
		t.Fatal(etcd.err)
	}
	return etcd.url
}

func openEtcd(t *testing.T, opts EtcdOptions) *Etcd {
	t.Helper()
	opts.Prefix = "/rackpulse/" + t.Name() + "/"
	if opts.Self.Beats == "" {
		opts.Self.Beats = fmt.Sprintf("reg%d:9402", registries.Add(1))
	}
	e, err := OpenEtcd(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func campaign(t *testing.T, b Store) (Token, <-chan struct{}) {
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

func TestSurvivesReopening(t *testing.T) { eachStore(t, testSurvivesReopening) }

func testSurvivesReopening(t *testing.T, p place) {
	b := p.open(BoltOptions{})
	token, lost := campaign(t, b)
	batch := Batch{
		Nodes: []NodeRecord{{Node: "gpu001", State: "SUSPECT", Since: t0, Epoch: 7, Accepted: []string{"GPU-a", "GPU-b"}, AcceptedBy: "eve"}},
		Records: []Record{{Kind: RecordAgent, ID: "fac1", Data: []byte(`{"address":"10.8.0.1:9400"}`)}, {Kind: RecordHold, ID: "x", Data: []byte(`{}`)},
			{Kind: RecordAgent, ID: "gone", Data: []byte(`{}`)}, {Kind: RecordAgent, ID: "gone"}, {Kind: RecordAgent, ID: "never"}},
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

	b = p.open(BoltOptions{})
	if next, _ := campaign(t, b); next.Fence <= token.Fence {
		t.Errorf("fence %d is not above the former %d", next.Fence, token.Fence)
	}
	st, rev, err := b.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if rev != 12 || !reflect.DeepEqual(st.Nodes, batch.Nodes) || !reflect.DeepEqual(st.Records, batch.Records[:2]) || !reflect.DeepEqual(st.Intents, batch.Intents) {
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

func TestQuery(t *testing.T) { eachStore(t, testQuery) }

func testQuery(t *testing.T, p place) {
	b := p.open(BoltOptions{})
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

func TestFencing(t *testing.T) { eachStore(t, testFencing) }

func testFencing(t *testing.T, p place) {
	b := p.open(BoltOptions{})
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

func TestBounds(t *testing.T) { eachStore(t, testBounds) }

func testBounds(t *testing.T, p place) {
	b := p.open(BoltOptions{MaxEvents: 10, MaxAge: time.Hour, MaxIntents: 5})
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
	if _, one := b.(*Etcd); one { // keeps one for each node and none that is done
		if err != nil || len(st.Intents) != 25 {
			t.Errorf("intents left: %v %+v", err, st.Intents)
		}
	} else if err != nil || len(st.Intents) != 5 || st.Intents[0].ID != 21 {
		t.Errorf("intents left: %v %+v", err, st.Intents)
	}
	commit(26, t0.Add(61*time.Minute))
	if events, _ = b.Events(context.Background(), Query{}); len(events) != 1 || events[0].ID != 26 {
		t.Errorf("by age: %+v", events)
	}
}

func TestNewerIntentEndsOlder(t *testing.T) { eachStore(t, testNewerIntentEndsOlder) }

func testNewerIntentEndsOlder(t *testing.T, p place) {
	b := p.open(BoltOptions{})
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

func TestWatch(t *testing.T) { eachStore(t, testWatch) }

func testWatch(t *testing.T, p place) {
	b := p.open(BoltOptions{})
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
