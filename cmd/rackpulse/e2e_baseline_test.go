// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestE2EBaseline starts an agent on a node with the wrong driver: it is not admitted.
// Then the driver is replaced, which takes the child process with it, and the node is
// ready. When the MIG mode changes under it, it is degraded.
func TestE2EBaseline(t *testing.T) {
	t.Parallel()
	library := fakeLibrary(t)
	s := prepareSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 6s}\n")
	s.write("site.yml", strings.Replace(smallSite, "gpu_model: NVIDIA H100 80GB HBM3}",
		"gpu_model: NVIDIA H100 80GB HBM3, baseline: {driver: 550.54.14, cuda: [12.2, 12.4], toolkit: '>=1.14.3', mig_mode: off, container_cuda: true, burn_in: true}}", 1))
	s.startReg()
	fake := newFakeGPUs(t, "gpus 8", "driver 550.90.07")
	marks := t.TempDir()
	ran := func(name string) string { return fmt.Sprintf("echo ran >> %s", filepath.Join(marks, name)) }
	s.agent("gpu001", "node: gpu001\nstate_dir: state\nregistry: {addresses: ['"+s.grpc+"']}\ngpu: {source: dcgm, slow_interval: 1s}\n"+
		"baseline:\n  toolkit_command: [echo, NVIDIA Container Toolkit CLI version 1.17.5]\n"+
		"  container_command: [sh, -c, '"+ran("container")+"']\n  burn_in: {command: [sh, -c, '"+ran("burn-in")+"']}\n", fake.env(library)...)

	const want = "outside the baseline of class h100: driver 550.90.07, want 550.54.14"
	s.eventually(30*time.Second, "the one difference is named", func() error {
		if n := s.node("gpu001"); n.State != "JOINING" || n.Reason != want || n.Schedulable || n.LeaseUp != nil {
			return fmt.Errorf("%s: %s, schedulable %t, lease up %v", n.State, n.Reason, n.Schedulable, n.LeaseUp)
		}
		return nil
	})
	s.twoMoreBeats("gpu001")
	if n := s.node("gpu001"); n.State != "JOINING" || n.Agent.Facts.CUDA != "12.4" || n.Agent.Facts.Toolkit != "1.17.5" {
		t.Errorf("after more beats %s, facts %+v", n.State, n.Agent.Facts)
	}

	fake.say("gpus 8", "driver 550.54.14")
	for _, pid := range childPIDs(t, s.agents["gpu001"].cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	s.awaitState("gpu001", "READY", 30*time.Second)

	fake.say("gpus 8", "driver 550.54.14", "value 3 67 1") // DCGM_FI_DEV_MIG_MODE
	s.awaitState("gpu001", "DEGRADED", 30*time.Second)
	if n := s.node("gpu001"); n.Reason != "outside the baseline of class h100: mig mode mixed, want off" {
		t.Errorf("reason %q", n.Reason)
	}
	fake.say("gpus 8", "driver 550.54.14")
	s.awaitState("gpu001", "READY", 40*time.Second)
	for name, want := range map[string]int{"container": 2, "burn-in": 2} { // once for each driver
		data, err := os.ReadFile(filepath.Join(marks, name))
		if err != nil || strings.Count(string(data), "ran\n") > want || len(data) == 0 {
			t.Errorf("%s ran: %q, %v", name, data, err)
		}
	}
}

// twoMoreBeats waits until the registry has taken two more beats of a node.
func (s *small) twoMoreBeats(node string) {
	s.t.Helper()
	for range 2 {
		last := s.node(node).LastBeat
		s.eventually(beatAge, "another beat", func() error {
			if s.node(node).LastBeat.Equal(last) {
				return fmt.Errorf("the last one was at %s", last)
			}
			return nil
		})
	}
}
