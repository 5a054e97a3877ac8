// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/site"
)

func TestRunCommand(t *testing.T) {
	sh := func(script string, timeout time.Duration) (string, string) {
		out, err := runCommand(t.Context(), []string{"sh", "-c", script}, timeout)
		if err == nil {
			return out, ""
		}
		return out, err.Error()
	}
	if out, err := sh("echo a; echo b >&2", time.Minute); out != "a\nb\n" || err != "" {
		t.Errorf("%q, %s", out, err)
	}
	if _, err := sh("echo why; echo; exit 3", time.Minute); err != "exit status 3: why" {
		t.Error(err)
	}
	if out, err := sh("yes 12345678 | head -c 10000000; echo end", time.Minute); len(out) != maxCommandOutput || !strings.HasSuffix(out, "end\n") || err != "" {
		t.Errorf("%d bytes, %s", len(out), err)
	}
	if _, err := runCommand(t.Context(), []string{"/nonexistent"}, time.Minute); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("error %v", err)
	}
	// At the deadline its children go too.
	from := time.Now()
	pidFile := filepath.Join(t.TempDir(), "pid")
	if _, err := sh("sleep 300 & echo $! > "+pidFile+"; wait", 300*time.Millisecond); err != "it did not end within 300ms" {
		t.Error(err)
	}
	if took := time.Since(from); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(text), &pid)
	for stat := ""; !strings.Contains(stat, ") Z "); { // gone, or nobody's zombie
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		stat = string(data)
		if time.Since(from) > time.Minute {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the child lives: %s", stat)
		}
	}
}

// factsCase is a node whose driver comes when the test says so.
type factsCase struct {
	*nodeFacts
	dir    string
	driver atomic.Value
	told   atomic.Int32
	free   atomic.Bool
}

func newFactsCase(dir, boot string, cfg baselineConfig) *factsCase {
	c := &factsCase{dir: dir}
	c.driver.Store("")
	cfg.ToolkitCommand = []string{"sh", "-c", "echo run >> " + filepath.Join(dir, "toolkit") + "; echo NVIDIA Container Toolkit CLI version 1.17.5; echo commit: 1.2"}
	c.nodeFacts = &nodeFacts{cfg: cfg.withDefaults(), logger: log.NewNopLogger(), stateDir: dir, boot: boot, every: 20 * time.Millisecond,
		gpu:      func() site.Facts { return site.Facts{Driver: c.driver.Load().(string)} },
		burnable: c.free.Load, changed: func() { c.told.Add(1) }}
	c.look()
	return c
}

// runs counts how often a command ran.
func (c *factsCase) runs(name string) int {
	data, _ := os.ReadFile(filepath.Join(c.dir, name))
	return bytes.Count(data, []byte("run\n"))
}

func (c *factsCase) command(name, then string) []string {
	return []string{"sh", "-c", "echo run >> " + filepath.Join(c.dir, name) + "; " + then}
}

// during runs the facts until the test has seen what it waits for.
func (c *factsCase) during(t *testing.T, see func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	see()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func (c *factsCase) until(t *testing.T, what string, ok func(site.Facts) bool) {
	t.Helper()
	for from := time.Now(); !ok(c.facts()); time.Sleep(10 * time.Millisecond) {
		if time.Since(from) > 30*time.Second {
			t.Fatalf("never %s: %+v", what, c.facts())
		}
	}
}

// TestFactsComeLate lets the driver come after the agent, and the agent be started again.
func TestFactsComeLate(t *testing.T) {
	dir := t.TempDir()
	cfg := baselineConfig{}
	c := newFactsCase(dir, "boot-1", cfg)
	cfg.ContainerCommand = c.command("container", "true")
	cfg.BurnIn.Command = c.command("burn-in", "true")
	c = newFactsCase(dir, "boot-1", cfg)
	if f := c.facts(); f.Kernel == "" || f.TimeSynchronised == "" || f.Driver != "" {
		t.Errorf("facts at the start %+v", f)
	}
	c.during(t, func() {
		c.driver.Store("550.54.14")
		c.until(t, "container", func(f site.Facts) bool {
			return f.ContainerCUDA == site.Passed && f.Toolkit == "1.17.5" && f.Driver == "550.54.14"
		})
		if n := c.runs("burn-in"); n != 0 || c.facts().BurnIn != "" {
			t.Error("burns in while the node may have work")
		}
		c.free.Store(true)
		c.until(t, "burnt in", func(f site.Facts) bool { return f.BurnIn == site.Passed })
	})
	if c.told.Load() == 0 {
		t.Error("nobody was told")
	}
	again := newFactsCase(dir, "boot-1", cfg) // with work, and no need to run anything
	again.driver.Store("550.54.14")
	again.during(t, func() {
		again.until(t, "all known", func(f site.Facts) bool { return f.BurnIn == site.Passed && f.ContainerCUDA == site.Passed })
	})
	if c.runs("container") != 1 || c.runs("burn-in") != 1 || c.runs("toolkit") != 2 {
		t.Errorf("runs: container %d, burn-in %d, toolkit %d", c.runs("container"), c.runs("burn-in"), c.runs("toolkit"))
	}
	booted := newFactsCase(dir, "boot-2", cfg)
	booted.driver.Store("550.54.14")
	booted.free.Store(true)
	booted.during(t, func() {
		booted.until(t, "passed after the boot", func(f site.Facts) bool { return f.BurnIn == site.Passed })
	})
	if c.runs("container") != 2 || c.runs("burn-in") != 2 {
		t.Errorf("runs after a boot: container %d, burn-in %d", c.runs("container"), c.runs("burn-in"))
	}
}

func TestContainerFails(t *testing.T) {
	c := newFactsCase(t.TempDir(), "boot", baselineConfig{})
	c.cfg.ContainerCommand = c.command("container", "echo "+strings.Repeat("x", 1000)+"; exit 125")
	c.cfg.BurnIn.Command = c.command("burn-in", "true")
	c.driver.Store("1")
	c.free.Store(true)
	c.during(t, func() {
		c.until(t, "failed", func(f site.Facts) bool { return strings.HasPrefix(f.ContainerCUDA, "failed: exit status 125: xxx") })
	})
	if got := c.facts(); len(got.ContainerCUDA) > maxFactBytes || c.runs("burn-in") != 0 || got.BurnIn != "" {
		t.Errorf("after a container that fails: %+v, burnt in %d times", got, c.runs("burn-in"))
	}
}

func TestBaselineConfig(t *testing.T) {
	for want, c := range map[string]baselineConfig{
		"": {ContainerCommand: []string{"docker"}},
		"baseline.burn_in: needs state_dir, or it would run again whenever the agent is started": {BurnIn: burnInConfig{Command: []string{"x"}}},
		"baseline.timeout: want up to 1h":          {Timeout: -1},
		"baseline.burn_in.timeout: want up to 24h": {BurnIn: burnInConfig{Timeout: 25 * time.Hour}},
	} {
		got := ""
		if err := c.check(""); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOffsetBound(t *testing.T) {
	for seconds, want := range map[float64]float64{0: 0.001, 0.0011: 0.002, 0.05: 0.05, 0.051: 0.1, 16: 20, 33: 33} {
		if got := offsetBound(seconds); got != want {
			t.Errorf("%g: %g, want %g", seconds, got, want)
		}
	}
}

// TestBaselineCheck runs the verb on this machine, without GPUs.
func TestBaselineCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	agent := write("agent.yml", "node: n1\nsite_file: site.yml\ngpu: {source: none}\nbaseline: {container_command: [\"true\"], toolkit_command: [echo, version 1.17.5]}\n")
	write("site.yml", "site: {id: s}\nnode_classes:\n- {id: good, rackless: true, baseline: {toolkit: '>=1.14.3', kernel: '>=2', container_cuda: true}}\n"+
		"- {id: bad, rackless: true, baseline: {toolkit: '>=1.18', driver: 550, burn_in: true}}\nnodes: [{id: n1, class: good}]\n")
	run := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"baseline", "check", "--config.file", agent}, args...), stdio{nil, &out, &errs})
		return code, out.String() + errs.String()
	}
	code, text := run()
	if code != 0 || !strings.Contains(text, "toolkit            >=1.14.3  1.17.5") || strings.Contains(text, "NO") {
		t.Errorf("status %d:\n%s", code, text)
	}
	code, text = run("--class", "bad")
	if code != 2 || !strings.Contains(text, "driver             550     not told") || strings.Count(text, "NO\n") != 3 {
		t.Errorf("status %d:\n%s", code, text)
	}
	code, text = run("--class", "bad", "--json")
	if code != 2 || !strings.Contains(text, `"want": ">=1.18"`) || !strings.Contains(text, `"met": false`) {
		t.Errorf("status %d:\n%s", code, text)
	}
	if code, text = run("--class", "none"); code != 1 || !strings.Contains(text, `no node class "none"`) {
		t.Errorf("status %d:\n%s", code, text)
	}
}
