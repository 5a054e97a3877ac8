// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestE2EGPULibraryAbsent starts an agent on a node whose driver packages come later.
func TestE2EGPULibraryAbsent(t *testing.T) {
	measuring(t)
	library := fakeLibrary(t)
	c := &gpuCase{small: newSmall(t, "lease: {cooldown: 10s}\n"), t: t, fake: newFakeGPUs(t, "gpus 8")}
	dir := t.TempDir()
	from := time.Now()
	c.agent("gpu001", c.gpuAgent("gpu001", ""), c.fake.env(dir)...)
	t.Logf("served %.2f s after the start, library absent", time.Since(from).Seconds())
	if took := time.Since(from); took > 3*time.Second {
		t.Errorf("served only after %s", took)
	}
	c.awaitSeries(5*time.Second, "gpu001", []string{"1"}, "rackpulse_source_info", `source="gpu"`, "dcgm: libdcgm.so.4 not found")
	c.awaitSeries(5*time.Second, "gpu001", []string{"0"}, "rackpulse_source_up", `source="gpu"`)
	c.scrapes = c.watchScrapes("gpu001")
	c.scrapes.during("library absent")
	c.awaitState("gpu001", "READY", 20*time.Second)
	beats := c.watchLease("gpu001")
	c.awaitState("gpu001", "DEGRADED", 40*time.Second)
	n := c.node("gpu001")
	t.Logf("without a library: %s: %s", n.State, n.Reason)
	if !strings.Contains(n.Reason, "inventory unavailable for more than 30s: ") || !strings.Contains(n.Reason, "libdcgm.so.4 not found") {
		t.Errorf("reason %q", n.Reason)
	}
	if err := os.Symlink(filepath.Join(library, "libdcgm.so.4"), filepath.Join(dir, "libdcgm.so.4")); err != nil {
		t.Fatal(err)
	}
	there := time.Now()
	c.awaitSeries(90*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	shown := time.Now()
	t.Logf("GPUs shown %.1f s after the library appeared", shown.Sub(there).Seconds())
	c.ready(shown, 10*time.Second)
	if n := c.node("gpu001"); len(n.Accepted) != 8 {
		t.Errorf("%d GPUs accepted, want 8", len(n.Accepted))
	}
	c.scrapes.check(t)
	beats.check(t, "READY", "DEGRADED")
}

// TestE2EGPUMissingFromTheStart holds that a GPU that this agent never saw is
// shown as missing once the registry has told how many there should be.
func TestE2EGPUMissingFromTheStart(t *testing.T) {
	measuring(t)
	s := newSmall(t, "")
	s.agent("gpu001", s.gpuAgent("gpu001", ""), newFakeGPUs(t, "gpus 7").env(fakeLibrary(t))...)
	s.awaitSeries(20*time.Second, "gpu001", up(7), "rackpulse_gpu_up", `UUID="GPU-`)
	s.awaitSeries(20*time.Second, "gpu001", []string{"0"}, "rackpulse_gpu_up", `gpu="unseen7"`)
}

// TestE2EGPUIdentity lets a node learn its rack from the registry, move to another
// one, and remember it while the registry is away.
func TestE2EGPUIdentity(t *testing.T) {
	measuring(t)
	s := newSmall(t, "")
	fake := newFakeGPUs(t, "gpus 8")
	env := fake.env(fakeLibrary(t))
	agent := s.agent("gpu001", s.gpuAgent("gpu001", ""), env...)
	racks := func(rack string) func() {
		return func() {
			s.t.Helper()
			page := s.fetch("gpu001")
			if n := len(series(page, "DCGM_FI_DEV_GPU_TEMP")); n != 8 {
				t.Errorf("%d temperatures", n)
			}
			for _, line := range dcgmSeries(page) {
				if !strings.Contains(line, `,node="gpu001",rack_id="`+rack+`"} `) {
					t.Fatalf("not in %s: %s", rack, line)
				}
			}
		}
	}
	s.awaitSeries(20*time.Second, "gpu001", slices.Repeat([]string{"1"}, 8), "rackpulse_gpu_up", `rack_id="r01"`)
	racks("r01")()

	started := agent.cmd.Process.Pid
	s.write("site.yml", strings.Replace(smallSite, "{id: gpu001, rack: r01, u: 1, class: h100, outlets: [r01-a/1]}", "{id: gpu001, rack: r02, u: 1, class: h100, outlets: [r02-a/1]}", 1))
	s.reg.signal(syscall.SIGHUP)
	moved := time.Now()
	s.awaitSeries(10*time.Second, "gpu001", slices.Repeat([]string{"1"}, 8), "rackpulse_gpu_up", `rack_id="r02"`)
	t.Logf("rack changed on the page %.1f s after the reload, agent is still process %d", time.Since(moved).Seconds(), started)
	racks("r02")()

	s.reg.end()
	agent.end()
	s.agent("gpu001", s.gpuAgent("gpu001", ""), env...)
	s.awaitSeries(10*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	if err := answers(s.stack.registry + "/-/healthy"); err == nil {
		t.Error("the registry runs")
	}
	racks("r02")()
	t.Log("rack_id from the cache after a restart without a registry")
}
