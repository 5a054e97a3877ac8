// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
)

// chaos are 2,000 of the agents' own beaters, one connection each, at three
// registries over a real etcd. Those of the first rack are in a network namespace
// of their own, all others in another.
type chaos struct {
	*trio
	rack, rest *wire
	skew       atomic.Int64 // nanoseconds that the nodes' clocks are off
	lead       int
	suspended  int // calls seen so far
}

// TestE2EChaos holds that sound nodes are never evicted, whatever happens to the
// leader, to their clocks, to their network, or to all of them together, at a TTL
// of 10 s.
func TestE2EChaos(t *testing.T) {
	afterMeasuring(t)
	storms.Lock()
	t.Cleanup(storms.Unlock)
	w := newWires(t)
	c := &chaos{rack: w.lay(), rest: w.lay()}
	c.trio = startTrio(t, chaosNodes, w.host, "{beat_interval: 2s, ttl: 10s, cooldown: 10s}")
	c.lead = c.leader(30 * time.Second)
	c.fleet(chaosBeat, func(n int, b *lease.Beater) {
		b.Config.Dial = c.rest.dial
		if n < 8 {
			b.Config.Dial = c.rack.dial
		}
		b.Clock = func(now time.Time) time.Time { return now.Add(time.Duration(c.skew.Load())) }
	})
	c.phase("all connect", false, func() {})
	c.phase("the leader stands still for 15 s", false, c.stopLeader)
	c.phase("the clocks are a day ahead", false, func() { c.step(24 * time.Hour) })
	c.phase("the clocks are a day behind", false, func() { c.step(-24 * time.Hour) })
	c.phase("the leader is killed", false, c.killLeader)
	c.phase("a rack is cut off", true, c.cutRack)
	c.phase("everybody is silent", true, c.silence)
}

// phase does something to the fleet and waits until it is whole again. Nobody may
// be evicted, and nobody lost unless it is silent itself.
func (c *chaos) phase(what string, silent bool, do func()) {
	c.t.Helper()
	from := time.Now()
	do()
	c.allReady(2 * time.Minute)
	expired := 0
	for _, e := range c.events(c.operatorAPI(), from) {
		if e.Kind == ledger.KindTransition && e.To == "EXPIRED" {
			expired++
		}
	}
	calls := c.log.got()[c.suspended:]
	c.suspended += len(calls)
	marks, evictions := 0, 0
	for _, call := range calls {
		switch {
		case strings.Contains(call, " evict "):
			evictions++
		case strings.Contains(call, " suspend "):
			marks++
		}
	}
	c.t.Logf("%s: %d leases lost, %d nodes evicted, %d marked; all READY after %.0f s", what, expired, evictions, marks, time.Since(from).Seconds())
	if evictions > 0 || !silent && (expired > 0 || len(calls) > 0) {
		c.t.Errorf("%s: calls %q", what, calls)
	}
}

// stopLeader stops the leader for longer than its session and the TTL, and lets
// it go on.
func (c *chaos) stopLeader() {
	c.regs[c.lead].signal(syscall.SIGSTOP)
	time.Sleep(chaosPause)
	c.regs[c.lead].signal(syscall.SIGCONT)
	c.deposed(c.lead)
	c.startReg(c.lead)
	c.lead = c.leader(30 * time.Second)
}

func (c *chaos) killLeader() {
	c.regs[c.lead].signal(syscall.SIGKILL)
	<-c.regs[c.lead].done
	killed, former := time.Now(), c.lead
	c.lead = c.leader(40 * time.Second)
	c.t.Logf("another registry led %.1f s after kill -9", time.Since(killed).Seconds())
	c.startReg(former)
}

// step steps the nodes' clocks, and waits until the leader sees it of each.
func (c *chaos) step(by time.Duration) {
	c.skew.Store(int64(by))
	c.eventually(30*time.Second, "the leader sees the clocks", func() error {
		nodes, err := c.operatorAPI().Nodes(c.t.Context())
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.SkewSeconds == nil || math.Abs(*n.SkewSeconds-by.Seconds()) > 60 {
				return fmt.Errorf("that of %s is off by %v s", n.Node, n.SkewSeconds)
			}
		}
		return nil
	})
	time.Sleep(chaosTTL / 2)
}

// cutRack pulls the wire of one rack out: it is lost, and left alone, for no
// witness says that it is dead.
func (c *chaos) cutRack() {
	c.rack.cut(true)
	c.lostNodes(8)
	open, err := c.operatorAPI().Breakers(c.t.Context())
	if err != nil || len(open) != 1 || open[0].Scope != "rack" || open[0].ID != "r001" {
		c.t.Errorf("breakers %+v, %v", open, err)
	}
	time.Sleep(5 * time.Second)
	c.rack.cut(false)
}

// silence pulls all wires out.
func (c *chaos) silence() {
	c.rack.cut(true)
	c.rest.cut(true)
	c.lostNodes(chaosNodes)
	time.Sleep(15 * time.Second)
	c.rack.cut(false)
	c.rest.cut(false)
}

// lostNodes waits until exactly so many leases are lost.
func (c *chaos) lostNodes(want int) {
	c.t.Helper()
	c.eventually(40*time.Second, fmt.Sprintf("%d are lost", want), func() error {
		page, err := getURL(http.DefaultClient, c.stack.registry+"/metrics")
		if err != nil {
			return err
		}
		if n := len(series(page, "rackpulse_lease_state", `state="EXPIRED"`)); n != want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// operatorAPI is a client of the leader with the operator's token.
func (c *trio) operatorAPI() *registry.Client {
	c.t.Helper()
	token, err := config.ReadSecret(filepath.Join(c.dir, "token"))
	if err != nil {
		c.t.Fatal(err)
	}
	api, err := registry.NewClient(registry.ClientConfig{URLs: []string{c.stack.registry}, Token: token})
	if err != nil {
		c.t.Fatal(err)
	}
	return api
}
