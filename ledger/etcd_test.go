// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// await asks again until check says yes.
func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !check(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestEtcdSuccession lets a second registry wait, learn who leads, and lead when
// the first one's session is taken away; the first one writes nothing any more.
func TestEtcdSuccession(t *testing.T) {
	endpoint := etcdURL(t)
	first := openEtcd(t, EtcdOptions{Endpoints: []string{endpoint}, Self: Leader{Beats: "reg1:9402", Web: "reg1:9401"}})
	second := openEtcd(t, EtcdOptions{Endpoints: []string{endpoint}, Self: Leader{Beats: "reg2:9402"}})
	old, lost := campaign(t, first)
	if err := first.Commit(context.Background(), old, Batch{Nodes: []NodeRecord{{Node: "a", State: "READY"}}, Events: []Event{event(1, "a", t0)}}); err != nil {
		t.Fatal(err)
	}
	led := make(chan Token, 1)
	go func() {
		token, _, err := second.Campaign(context.Background())
		if err != nil {
			t.Error(err)
		}
		led <- token
	}()
	await(t, "the second knows the first", func() bool {
		l, ok := second.Leader()
		return ok && l == Leader{Beats: "reg1:9402", Web: "reg1:9401"}
	})
	if l, ok := first.Leader(); ok {
		t.Errorf("the leader was told to follow %v", l)
	}
	select {
	case <-led:
		t.Fatal("two registries lead")
	default:
	}
	// As when it stood still for longer than its session.
	if _, err := first.client.Revoke(context.Background(), first.lead.session.Lease()); err != nil {
		t.Fatal(err)
	}
	token := <-led
	if token.Fence != old.Fence+1 {
		t.Errorf("fence %d after %d", token.Fence, old.Fence)
	}
	err := first.Commit(context.Background(), old, Batch{Nodes: []NodeRecord{{Node: "a", State: "EXPIRED"}}, Events: []Event{event(2, "a", t0)}})
	if !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("commit of the former leader: %v", err)
	}
	<-lost
	st, last, err := second.Load(context.Background())
	if err != nil || last != 1 || len(st.Nodes) != 1 || st.Nodes[0].State != "READY" {
		t.Errorf("after the fenced commit: %d %+v %v", last, st, err)
	}
	await(t, "the first knows the second", func() bool {
		l, ok := first.Leader()
		return ok && l.Beats == "reg2:9402"
	})
	// A restore does not get in.
	short, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	empty := `{"begin":{"version":1,"site":"x"}}` + "\n" + `{"end":{}}`
	if _, err := Restore(short, first, "x", strings.NewReader(empty)); err == nil || !strings.Contains(err.Error(), "a registry may be running") {
		t.Errorf("restore beside a leader: %v", err)
	}
	// One that waits and gives up leaves no candidate behind.
	ctx, cancel := context.WithCancel(context.Background())
	gave := make(chan error, 1)
	go func() {
		_, _, err := first.Campaign(ctx)
		gave <- err
	}()
	candidates := func() int64 {
		resp, err := second.client.Get(context.Background(), second.leaderPrefix()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	await(t, "the first waits", func() bool { return candidates() == 2 })
	cancel()
	if err := <-gave; !errors.Is(err, context.Canceled) {
		t.Errorf("campaign given up: %v", err)
	}
	await(t, "the first is out", func() bool { return candidates() == 1 })
}

// TestEtcdLimits commits what is too large for one transaction, whole or not at
// all.
func TestEtcdLimits(t *testing.T) {
	e := openEtcd(t, EtcdOptions{Endpoints: []string{etcdURL(t)}})
	token, _ := campaign(t, e)
	batch := func(n, size int) Batch {
		var b Batch
		for i := range n {
			id := uint64(i + 1)
			b.Nodes = append(b.Nodes, NodeRecord{Node: fmt.Sprintf("n%03d", i), Reason: strings.Repeat("x", size)})
			b.Events = append(b.Events, event(id, fmt.Sprintf("n%03d", i), t0))
			b.Intents = append(b.Intents, Intent{ID: id, Node: fmt.Sprintf("n%03d", i), State: IntentPending})
		}
		return b
	}
	for _, b := range []Batch{batch(64, 10), batch(40, 40000)} {
		if err := e.Commit(context.Background(), token, b); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d nodes of %d bytes: %v", len(b.Nodes), len(b.Nodes[0].Reason), err)
		}
	}
	if st, last, err := e.Load(context.Background()); err != nil || len(st.Nodes) != 0 || last != 0 {
		t.Errorf("a refused batch wrote %d nodes, %v", len(st.Nodes), err)
	}
	// The most that there is room for: 126 operations, 1.2 MB.
	whole := batch(62, 19000)
	if err := e.Commit(context.Background(), token, whole); err != nil {
		t.Fatal(err)
	}
	if st, last, err := e.Load(context.Background()); err != nil || len(st.Nodes) != 62 || len(st.Intents) != 62 || last != 62 {
		t.Errorf("loaded %d nodes, %d intents, %v", len(st.Nodes), len(st.Intents), err)
	}
}

// TestEtcdPages reads more than a page of everything.
func TestEtcdPages(t *testing.T) {
	e := openEtcd(t, EtcdOptions{Endpoints: []string{etcdURL(t)}, MaxEvents: 5000})
	token, _ := campaign(t, e)
	const nodes, commits = 2 * statePage, 200
	for i := range commits {
		var b Batch
		for j := range nodes / commits {
			name := fmt.Sprintf("n%04d", i*nodes/commits+j)
			b.Nodes = append(b.Nodes, NodeRecord{Node: name})
			b.Events = append(b.Events, event(uint64(i*nodes/commits+j+1), name, t0))
		}
		if err := e.Commit(context.Background(), token, b); err != nil {
			t.Fatal(err)
		}
	}
	st, last, err := e.Load(context.Background())
	if err != nil || len(st.Nodes) != nodes || st.Nodes[nodes-1].Node != "n1999" || last != nodes {
		t.Errorf("loaded %d nodes, last %d, %v", len(st.Nodes), last, err)
	}
	events, err := e.Events(context.Background(), Query{Limit: maxLimit})
	if err != nil || len(events) != nodes || events[0].ID != nodes || events[nodes-1].ID != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
	next := uint64(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for ev := range e.Watch(ctx, 0) {
		if ev.ID != next {
			t.Fatalf("event %d, want %d", ev.ID, next)
		}
		if next++; next > nodes {
			cancel()
			break
		}
	}
}

// TestEtcdAway opens a ledger whose etcd does not answer.
func TestEtcdAway(t *testing.T) {
	e := openEtcd(t, EtcdOptions{Endpoints: []string{"http://127.0.0.1:1"}})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := e.Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "http://127.0.0.1:1: campaign") {
		t.Errorf("campaign: %v", err)
	}
	if _, _, err := e.Load(ctx); err == nil || !strings.Contains(err.Error(), "ledger etcd http://127.0.0.1:1: load") {
		t.Errorf("load: %v", err)
	}
	if _, err := OpenEtcd(EtcdOptions{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/x"}); err == nil {
		t.Error("a prefix without a slash at its end was taken")
	}
}
