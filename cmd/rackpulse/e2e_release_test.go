// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// releaseCase is a node whose NVML has a file open where the driver has /dev/nvidia0.
type releaseCase struct {
	*small
	t      *testing.T
	agent  *process
	device string
}

func newReleaseCase(t *testing.T) *releaseCase {
	t.Helper()
	library := filepath.Join(testtool.Root(), "build", "fakenvml")
	if _, err := os.Stat(filepath.Join(library, "libnvidia-ml.so.1")); err != nil {
		testtool.Missing(t, "the stand-in for NVML is not built; run 'make fakenvml'")
	}
	c := &releaseCase{small: newSmall(t, "lease: {cooldown: 10s}\n"), t: t, device: filepath.Join(t.TempDir(), "nvidia0")}
	script := filepath.Join(t.TempDir(), "script")
	for name, text := range map[string]string{c.device: "", script: "gpus 8\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.write("gpu001.yml", strings.Replace(c.gpuAgent("gpu001", ""), "source: dcgm", "source: nvml", 1))
	address := freePort(t)
	c.urls["gpu001"] = "http://" + address
	c.agent = startWith(t, c.dir, "gpu001", func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+library, "FAKENVML_SCRIPT="+script, "FAKENVML_DEVICE="+c.device)
	}, binary(t), "agent", "--config.file=gpu001.yml", "--web.listen-address="+address, "--web.enable-lifecycle")
	c.agents["gpu001"] = c.agent
	c.eventually(15*time.Second, "the agent serves", func() error { return answers(c.urls["gpu001"] + "/-/healthy") })
	return c
}

// post makes a lifecycle request and wants this status.
func (c *releaseCase) post(path string, status int) {
	c.t.Helper()
	resp, err := http.Post(c.urls["gpu001"]+path, "", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		c.t.Errorf("POST %s: %s: %s", path, resp.Status, body)
	}
}

// holders counts the agent's processes that have the device's file open.
func (c *releaseCase) holders() int {
	c.t.Helper()
	n := 0
	agent := c.agent.cmd.Process.Pid
	for _, pid := range append(childPIDs(c.t, agent), agent) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, file := range files {
			if target, _ := os.Readlink(file); target == c.device {
				n++
			}
		}
	}
	return n
}

// sampled waits until all GPUs are on the page and the node is ready.
func (c *releaseCase) sampled() {
	c.t.Helper()
	c.awaitSeries(30*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	c.awaitState("gpu001", "READY", 30*time.Second)
	if n := c.holders(); n != 1 {
		c.t.Errorf("%d of the agent's processes hold the device, want the child", n)
	}
}

// TestE2EGPURelease gives the GPUs back for a change of MIG mode: nobody holds a
// device file, the series end, and the node is in maintenance, not at fault.
func TestE2EGPURelease(t *testing.T) {
	measuring(t)
	c := newReleaseCase(t)
	c.sampled()
	c.post("/-/release?for=soon", http.StatusBadRequest)
	c.post("/-/release", http.StatusOK)
	if n, pids := c.holders(), childPIDs(t, c.agent.cmd.Process.Pid); n != 0 || len(pids) != 0 {
		t.Errorf("after the release %d processes hold the device, children %v", n, pids)
	}
	page := c.fetch("gpu001")
	if got := series(page, "rackpulse_source_info", `source="gpu"`, `reason="released"`); !slices.Equal(got, []string{"1"}) {
		t.Errorf("reason: %q", got)
	}
	if got := append(dcgmSeries(page), series(page, "rackpulse_gpu_up")...); len(got) != 0 {
		t.Errorf("values of released GPUs: %q", got)
	}
	since := c.awaitState("gpu001", "MAINT", 15*time.Second)
	for time.Since(since) < 45*time.Second { // longer than an inventory may be old
		time.Sleep(5 * time.Second)
		if n := c.node("gpu001"); n.State != "MAINT" || n.Inventory != "unavailable" || len(n.Missing) != 0 {
			t.Fatalf("while released: %s (%s), inventory %s, missing %q", n.State, n.Reason, n.Inventory, n.Missing)
		}
	}
	t.Logf("45 s later: %s", c.node("gpu001").Reason)
	c.post("/-/acquire", http.StatusOK)
	c.sampled()

	c.post("/-/release?for=3s", http.StatusOK)
	if n := c.holders(); n != 0 {
		t.Errorf("%d processes hold the device", n)
	}
	c.sampled() // by itself
}
