// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/action"
)

// callLog is a server that takes the calls of the target webhook.
type callLog struct {
	mu    sync.Mutex
	calls []string
	down  bool
}

func (c *callLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call action.Call
	err := json.NewDecoder(r.Body).Decode(&call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || r.Header.Get(action.HeaderSignature) == "" || c.down {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	c.calls = append(c.calls, fmt.Sprintf("%s %s %t", call.Node, call.Action, call.Hard))
}

func (c *callLog) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// crew are clients that beat once a second for nodes of the small site.
type crew struct {
	s    *small
	stop map[string]chan struct{}
	mute map[string]chan struct{}
	wg   sync.WaitGroup
}

func newCrew(s *small, nodes ...string) *crew {
	c := &crew{s: s, stop: map[string]chan struct{}{}, mute: map[string]chan struct{}{}}
	for _, n := range nodes {
		c.start(n)
	}
	s.t.Cleanup(func() {
		for n := range c.stop {
			c.kill(n)
		}
		c.wg.Wait()
	})
	return c
}

func (c *crew) start(node string) {
	stop, mute := make(chan struct{}), make(chan struct{})
	c.stop[node], c.mute[node] = stop, mute
	var gpus []string
	switch {
	case strings.HasPrefix(node, "gpu"):
		for i := range 8 {
			gpus = append(gpus, fmt.Sprintf("GPU-%s-%d", node, i))
		}
	case strings.HasPrefix(node, "pair"):
		gpus = []string{"GPU-" + node + "-0", "GPU-" + node + "-1"}
	}
	conn := c.s.dial()
	stream := openStream(c.s.t, conn, node)
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer conn.Close()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for stream.beat(gpus...) == nil {
			select {
			case <-stop:
				return
			case <-mute:
				<-stop
				return
			case <-tick.C:
			}
		}
	}()
}

// kill ends a client's stream without a leave.
func (c *crew) kill(node string) {
	if stop := c.stop[node]; stop != nil {
		close(stop)
		delete(c.stop, node)
	}
}

// hush lets a client fall silent; its stream stays open.
func (c *crew) hush(node string) { close(c.mute[node]) }

// cli runs the program against the registry and returns what it prints.
func (s *small) cli(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary(s.t), append(args, "--registry.url="+s.stack.registry)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("rackpulse %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestE2EOutbox lets one node die and come back, then all of them: the first is
// acted on and given back, the others are left alone; the audit tells it all.
func TestE2EOutbox(t *testing.T) {
	t.Parallel()
	log := &callLog{}
	srv := httptest.NewServer(log)
	defer srv.Close()
	s := prepareSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 6s}\n"+
		"actions: {mode: hard, witness: none, targets: [{action: webhook, name: tickets, url: '"+srv.URL+"', secret_file: key}]}\n")
	s.write("key", "0123456789")
	s.startReg()
	nodes := []string{"gpu001", "gpu002", "pair1", "cpu001", "cpu002"}
	c := newCrew(s, nodes...)
	for _, n := range nodes {
		s.awaitState(n, "READY", 20*time.Second)
	}
	c.kill("pair1")
	await := func(limit time.Duration, want ...string) {
		t.Helper()
		s.eventually(limit, fmt.Sprintf("the calls are %q", want), func() error {
			if got := log.got(); !slices.Equal(got, want) {
				return fmt.Errorf("they are %q", got)
			}
			return nil
		})
	}
	await(10*time.Second, "pair1 suspend false")
	log.mu.Lock()
	log.down = true // the other system is away when the lease expires
	log.mu.Unlock()
	s.awaitState("pair1", "EXPIRED", 15*time.Second)
	s.eventually(15*time.Second, "the failure is in the outbox", func() error {
		if out := s.cli("outbox"); !strings.Contains(out, "pair1") || !strings.Contains(out, "tickets:failed") {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	log.mu.Lock()
	log.down = false
	log.mu.Unlock()
	await(30*time.Second, "pair1 suspend false", "pair1 evict true")
	c.start("pair1")
	s.awaitState("pair1", "RECOVERING", 5*time.Second)
	await(20*time.Second, "pair1 suspend false", "pair1 evict true", "pair1 resume false")
	for _, n := range nodes {
		c.kill(n)
	}
	s.awaitState("gpu001", "EXPIRED", 20*time.Second)
	if out := s.cli("breaker"); !strings.Contains(out, "full") || !strings.Contains(out, "5 of 5 nodes are silent") {
		t.Errorf("breakers:\n%s", out)
	}
	s.eventually(10*time.Second, "the outbox says what holds it", func() error {
		if out := s.cli("outbox"); strings.Count(out, "it may be the registry that is cut off") != 5 {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	await(time.Second, "pair1 suspend false", "pair1 evict true", "pair1 resume false")
	audit := s.cli("audit", "pair1")
	for _, want := range []string{"READY -> SUSPECT", "suspend tickets: done", "SUSPECT -> EXPIRED", "evict tickets: failed", "evict tickets: done", "resume tickets: done"} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit does not say %q:\n%s", want, audit)
		}
	}
	t.Logf("audit of pair1:\n%s", audit)
	s.reg.end()
	if data, err := os.ReadFile(s.reg.log); err != nil || strings.Contains(string(data), "0123456789") {
		t.Errorf("the log holds a secret (%v)", err)
	}
}
