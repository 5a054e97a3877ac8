// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
)

// tolerance is how late a lease may change: the registry's sweep and our polling.
const tolerance = time.Second

// TestE2ELeases kills, stops, resumes and bids farewell to real agents and holds
// the times of DESIGN section 6.
func TestE2ELeases(t *testing.T) {
	s := newStack(t, stackConfig{nodes: []string{"gpu001", "gpu005", "gpu009", "ws01"}})
	for node := range s.agents {
		if node != "facility" {
			s.awaitState(node, "READY", 30*time.Second)
		}
	}
	killed, stopped, leaving := "gpu001", "gpu005", "gpu009"
	defer s.logEvents(killed, stopped, leaving)

	// A process that dies closes its stream: suspect 10 s later.
	s.agents[killed].signal(syscall.SIGKILL)
	killedAt := time.Now()
	s.agents[stopped].signal(syscall.SIGSTOP)
	lastBeat := s.node(stopped).LastBeat

	s.between(killed+" SUSPECT after its end", s.awaitState(killed, "SUSPECT", 20*time.Second).Sub(killedAt), 10*time.Second)
	// One that hangs is only silent: suspect after three misses and a half.
	s.between(stopped+" SUSPECT after its last beat", s.awaitState(stopped, "SUSPECT", 25*time.Second).Sub(lastBeat), 17500*time.Millisecond)
	if up := s.leaseUp(stopped); !up {
		t.Errorf("%s: the lease is down while the node is only suspect", stopped)
	}
	for _, node := range []string{killed, stopped} {
		s.between(node+" EXPIRED after its last beat", s.awaitState(node, "EXPIRED", 40*time.Second).Sub(s.node(node).LastBeat), 30*time.Second)
		if up := s.leaseUp(node); up {
			t.Errorf("%s: the lease is up although it expired", node)
		}
	}

	// Back: 60 s of cool-down, then ready.
	s.agents[stopped].signal(syscall.SIGCONT)
	s.startAgent(killed)
	back := map[string]time.Time{}
	for _, node := range []string{stopped, killed} {
		back[node] = s.awaitState(node, "RECOVERING", 45*time.Second)
		if up := s.leaseUp(node); up {
			t.Errorf("%s: the lease is up during the cool-down", node)
		}
	}
	for _, node := range []string{stopped, killed} {
		s.between(node+" READY after its return", s.awaitState(node, "READY", 80*time.Second).Sub(back[node]), 60*time.Second)
	}

	// A leave is no loss.
	c, err := registry.NewClient(registry.ClientConfig{URLs: []string{s.registry}})
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes) != len(s.site.Nodes) {
		t.Errorf("registry lists %d nodes, want %d (%v)", len(nodes), len(s.site.Nodes), err)
	}
	s.agents[leaving].signal(syscall.SIGTERM)
	s.awaitState(leaving, "LEFT", 20*time.Second)
	deadline := time.Now().Add(100 * time.Second)
	for time.Now().Before(deadline) {
		for _, a := range s.alerts() {
			if a["node"] == leaving {
				t.Fatalf("alert for the node that left: %v", a)
			}
		}
		time.Sleep(time.Second)
	}
}

// awaitState waits until the registry says that a node is in a state and returns
// since when.
func (s *stack) awaitState(node, state string, limit time.Duration) time.Time {
	s.t.Helper()
	var n registry.Node
	s.eventually(limit, node+" is "+state, func() error {
		n = s.node(node)
		if n.State == state {
			return nil
		}
		return fmt.Errorf("it is %s", n.State)
	})
	return n.Since
}

// logEvents shows what the ledger says of nodes, oldest first.
func (s *stack) logEvents(nodes ...string) {
	s.t.Helper()
	c, err := registry.NewClient(registry.ClientConfig{URLs: []string{s.registry}})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, node := range nodes {
		events, err := c.Events(context.WithoutCancel(s.t.Context()), ledger.Query{Node: node})
		if err != nil {
			s.t.Error(err)
		}
		slices.Reverse(events)
		for _, e := range events {
			s.t.Logf("%s %s: %s -> %s, %s", e.Time.Format("15:04:05.00"), node, e.From, e.To, e.Reason)
		}
	}
}

// between holds that got is want, or later by the tolerance at most.
func (s *stack) between(what string, got, want time.Duration) {
	s.t.Helper()
	s.t.Logf("%s: %.2f s (want %.1f to %.1f s)", what, got.Seconds(), want.Seconds(), (want + tolerance).Seconds())
	if got < want-50*time.Millisecond || got > want+tolerance {
		s.t.Errorf("%s: %s, want %s to %s", what, got, want, want+tolerance)
	}
}

func (s *stack) leaseUp(node string) bool {
	s.t.Helper()
	up := s.node(node).LeaseUp
	if up == nil {
		s.t.Errorf("%s has no lease", node)
		return false
	}
	return *up
}

// alerts lists the label sets of all pending and firing alerts.
func (s *stack) alerts() []map[string]string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	alerts, err := s.prom.Alerts(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.t.Fatal(err)
	}
	var out []map[string]string
	for _, a := range alerts {
		if !slices.Contains([]string{"info", "none"}, a.Labels["severity"]) {
			out = append(out, a.Labels)
		}
	}
	return out
}
