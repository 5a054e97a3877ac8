// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rackpulse/rackpulse/lease/testdata/minimal"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
)

const (
	chaosNodes = 2000
	chaosRacks = 250
	chaosBeat  = 2 * time.Second
)

// swarm are 2,000 clients, one stream each, that beat every 2 s.
type swarm struct {
	t     *testing.T
	mute  [chaosNodes]atomic.Bool
	skew  atomic.Int64 // seconds that their clocks are off
	beats atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup
}

func startSwarm(t *testing.T, s *small) *swarm {
	w := &swarm{t: t, stop: make(chan struct{})}
	var conns []*grpc.ClientConn
	for range 50 {
		conns = append(conns, s.dial())
	}
	t.Cleanup(func() {
		close(w.stop)
		w.wg.Wait()
	})
	for i := range chaosNodes {
		w.wg.Add(1)
		go w.client(i, conns[i%len(conns)])
	}
	return w
}

// client beats until the end; a stream that breaks is opened anew.
func (w *swarm) client(i int, conn *grpc.ClientConn) {
	defer w.wg.Done()
	node := fmt.Sprintf("n%04d", i)
	tick := time.NewTicker(chaosBeat)
	defer tick.Stop()
	wait := time.NewTimer(time.Duration(i) * chaosBeat / chaosNodes) // phases of their own
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-w.stop:
		return
	}
	stream := openStream(w.t, conn, node)
	for {
		if !w.mute[i].Load() {
			beat := &minimal.HeartbeatRequest{NodeId: node, Timestamp: time.Now().Unix() + w.skew.Load()}
			if stream.SendMsg(beat) != nil || stream.RecvMsg(&minimal.HeartbeatReply{}) != nil {
				stream = openStream(w.t, conn, node)
			} else {
				w.beats.Add(1)
			}
		}
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
	}
}

// chaosSite has 250 racks of 8 nodes.
func chaosSite() string {
	var b strings.Builder
	fmt.Fprintf(&b, "site: {id: chaos}\nrooms: [{id: h}]\nrows: [{id: a, room: h}]\nracks: [{id: \"r[001-%03d]\", row: a}]\nnode_classes: [{id: plain, height_u: 1}]\nnodes:\n", chaosRacks)
	for r := range chaosRacks {
		fmt.Fprintf(&b, "- {id: \"n[%04d-%04d]\", rack: r%03d, u: 1, class: plain}\n", r*8, r*8+7, r+1)
	}
	return b.String()
}

// TestE2EChaos holds that 2,000 sound nodes are never acted on, whatever happens
// to the registry, their clocks, or all of them together, at a TTL of 10 s.
func TestE2EChaos(t *testing.T) {
	afterMeasuring(t)
	log := &callLog{}
	srv := httptest.NewServer(log)
	defer srv.Close()
	s := prepareSmall(t, "lease: {beat_interval: 2s, ttl: 10s, cooldown: 10s}\n"+
		"actions: {mode: hard, witness: none, max_per_minute: 600, targets: [{action: webhook, url: '"+srv.URL+"', secret_file: key}]}\n")
	s.write("key", "0123456789")
	s.write("site.yml", chaosSite())
	s.startReg()
	w := startSwarm(t, s)
	states := func() map[string]int {
		nodes, err := s.api().Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int{}
		for _, n := range nodes {
			out[n.State]++
		}
		return out
	}
	ready := func(limit time.Duration) {
		t.Helper()
		s.eventually(limit, "all are READY", func() error {
			if got := states(); got["READY"] != chaosNodes {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	ready(time.Minute)
	quiet := func(what string) {
		t.Helper()
		if got := log.got(); len(got) != 0 {
			t.Errorf("%s: %d calls, such as %q", what, len(got), got[0])
		}
	}
	// The registry stands still for one and a half TTLs.
	s.reg.signal(syscall.SIGSTOP)
	time.Sleep(15 * time.Second)
	s.reg.signal(syscall.SIGCONT)
	ready(30 * time.Second)
	lost := s.lostSince(t, 40*time.Second)
	t.Logf("after 15 s of SIGSTOP: %d of %d leases lost", lost, chaosNodes)
	if lost != 0 {
		t.Errorf("%d leases lost", lost)
	}
	quiet("SIGSTOP")
	// Their clocks are a day ahead, then a day behind.
	for _, skew := range []int64{86400, -86400} {
		w.skew.Store(skew)
		before := w.beats.Load()
		time.Sleep(6 * time.Second)
		if n := w.beats.Load() - before; n < 2*chaosNodes {
			t.Errorf("%d beats in three intervals", n)
		}
		ready(time.Second)
	}
	w.skew.Store(0)
	quiet("clock steps")
	// One rack is cut off.
	for i := range 8 {
		w.mute[i].Store(true)
	}
	s.eventually(30*time.Second, "the rack is lost", func() error {
		if got := states(); got["EXPIRED"] != 8 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	time.Sleep(5 * time.Second)
	quiet("a rack cut off")
	if open, err := s.api().Breakers(t.Context()); err != nil || len(open) != 1 || open[0].Scope != "rack" || open[0].ID != "r001" {
		t.Errorf("breakers %+v, %v", open, err)
	}
	// Everybody is silent.
	for i := range w.mute {
		w.mute[i].Store(true)
	}
	s.eventually(30*time.Second, "all are lost", func() error {
		if got := states(); got["EXPIRED"] != chaosNodes {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	time.Sleep(15 * time.Second)
	quiet("full silence")
	for i := range w.mute {
		w.mute[i].Store(false)
	}
	s.eventually(60*time.Second, "all are back", func() error {
		if got := states(); got["READY"] != chaosNodes {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	for _, call := range log.got() {
		if !strings.HasSuffix(call, " resume false") {
			t.Errorf("after everybody came back: %s", call)
		}
	}
}

// api is a client of the registry.
func (s *small) api() *registry.Client {
	c, err := registry.NewClient(registry.ClientConfig{URLs: []string{s.stack.registry}})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// lostSince counts the leases that expired within a time.
func (s *small) lostSince(t *testing.T, d time.Duration) int {
	t.Helper()
	events, err := s.api().Events(t.Context(), ledger.Query{Since: time.Now().Add(-d), Limit: 10000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range events {
		if e.Kind == ledger.KindTransition && e.To == "EXPIRED" {
			n++
		}
	}
	return n
}
