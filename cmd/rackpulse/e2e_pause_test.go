// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
)

const (
	chaosNodes = 2000
	chaosBeat  = 2 * time.Second
	chaosTTL   = 10 * time.Second
	// chaosPause is how long a registry, or etcd, stands still.
	chaosPause = 15 * time.Second
)

// storms lets the tests with 2,000 streams run one after the other.
var storms sync.Mutex

// swarm are 2,000 clients, one stream each, that beat every 2 s.
type swarm struct {
	t    *testing.T
	stop chan struct{}
	wg   sync.WaitGroup
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
		if stream.beat() != nil {
			stream = openStream(w.t, conn, node)
		}
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
	}
}

// rackSite has racks r001 and up of eight nodes each, n0000 and up.
func rackSite(racks int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "site: {id: chaos}\nrooms: [{id: h}]\nrows: [{id: a, room: h}]\nracks: [{id: \"r[001-%03d]\", row: a}]\nnode_classes: [{id: plain, height_u: 1}]\nnodes:\n", racks)
	for r := range racks {
		fmt.Fprintf(&b, "- {id: \"n[%04d-%04d]\", rack: r%03d, u: 1, class: plain}\n", r*8, r*8+7, r+1)
	}
	return b.String()
}

// TestE2EPause stops a registry with 2,000 streams, and beside it an etcd with
// 2,000 leases, for longer than the time to live. No client is silent for a
// moment: whoever then gives one up does so wrongly. The registry gives up
// nobody; how many etcd does is told.
func TestE2EPause(t *testing.T) {
	afterMeasuring(t)
	storms.Lock()
	t.Cleanup(storms.Unlock)
	log := &callLog{}
	srv := httptest.NewServer(log)
	defer srv.Close()
	s := prepareSmall(t, "lease: {beat_interval: 2s, ttl: 10s, cooldown: 10s}\n"+
		"actions: {mode: hard, witness: none, max_per_minute: 600, targets: [{action: webhook, url: '"+srv.URL+"', secret_file: key}]}\n")
	s.write("key", "0123456789")
	s.write("site.yml", rackSite(chaosNodes/8))
	s.startReg()
	startSwarm(t, s)
	ready := func(limit time.Duration) {
		t.Helper()
		s.eventually(limit, "all are READY", func() error {
			if n := len(series(s.fetch(""), "rackpulse_lease_state", `state="READY"`)); n != chaosNodes {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
	}
	ready(time.Minute)
	other := startEtcdLeases(t)
	stopped := time.Now()
	s.reg.signal(syscall.SIGSTOP)
	other.signal(syscall.SIGSTOP)
	time.Sleep(chaosPause)
	s.reg.signal(syscall.SIGCONT)
	other.signal(syscall.SIGCONT)
	time.Sleep(chaosTTL) // etcd revokes 500 leases each half second; ours get this time, too
	ready(time.Minute)
	mine := 0
	for _, e := range s.events(s.api(), stopped) {
		if e.Kind == ledger.KindTransition && e.To == "EXPIRED" {
			mine++
		}
	}
	t.Logf("after %s of SIGSTOP at a TTL of %s: the registry lost %d of %d live leases, etcd %d of %d", chaosPause, chaosTTL, mine, chaosNodes, other.lost(), chaosNodes)
	if mine != 0 {
		t.Errorf("%d leases lost", mine)
	}
	if got := log.got(); len(got) != 0 {
		t.Errorf("%d calls, such as %q", len(got), got[0])
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

// events are those of the ledger since a time, newest first.
func (s *small) events(c *registry.Client, since time.Time) []ledger.Event {
	s.t.Helper()
	events, err := c.Events(s.t.Context(), ledger.Query{Since: since, Limit: 10000})
	if err != nil {
		s.t.Fatal(err)
	}
	return events
}
