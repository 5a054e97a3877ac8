// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"strings"
	"testing"
	"time"
)

// TestE2EBreaches lets a GPU of a real agent get hot, then count an uncorrectable
// memory error: the node is limited, then isolated, with the GPU and the numbers
// named, and sound again when both are gone.
func TestE2EBreaches(t *testing.T) {
	t.Parallel()
	library := fakeLibrary(t)
	s := newSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 6s}\n")
	fake := newFakeGPUs(t, "gpus 8")
	s.agent("gpu001", "node: gpu001\nregistry: {addresses: ['"+s.grpc+"']}\ngpu: {source: dcgm, slow_interval: 1s}\n", fake.env(library)...)
	s.awaitState("gpu001", "READY", 30*time.Second)
	check := func(state, reason string) {
		t.Helper()
		s.awaitState("gpu001", state, 30*time.Second)
		n := s.node("gpu001")
		t.Logf("%s: %s", n.State, n.Reason)
		if !strings.Contains(n.Reason, reason) || n.Schedulable || n.LeaseUp == nil || !*n.LeaseUp {
			t.Errorf("reason %q, schedulable %t, lease up %v; want %q", n.Reason, n.Schedulable, n.LeaseUp, reason)
		}
	}
	fake.say("gpus 8", "value 3 150 91")
	check("LIMITED", "breach of gpu_hot "+uuid(3)+" 91 C of 8")
	fake.say("gpus 8", "value 3 150 91", "value 3 311 2")
	check("ISOLATED", "ecc_uncorrected "+uuid(3)+" 2")
	fake.say("gpus 8")
	s.awaitState("gpu001", "READY", 40*time.Second)
}
