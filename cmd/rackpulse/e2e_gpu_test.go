// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// gpuAgent is the configuration of a GPU node's agent; more are further keys of gpu.
func (s *small) gpuAgent(node, more string) string {
	return fmt.Sprintf("node: %s\nstate_dir: state-%s\nregistry: {addresses: [%q]}\n", node, node, s.grpc) +
		"gpu: {source: dcgm, interval: 200ms, read_timeout: 1s, open_timeout: 5s" + more + "}\n"
}

// up returns n times want, for rackpulse_gpu_up.
func up(n int) []string { return slices.Repeat([]string{"1"}, n) }

// uuid of a GPU of the stand-in.
func uuid(gpu int) string { return fmt.Sprintf("GPU-01000100-0000-0000-0000-%012d", gpu) }

// goldenSeries are dcgm-exporter's lines for the stand-in's eight GPUs, on a
// node in a rack.
func goldenSeries(t *testing.T, node, rack string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "testdata", "golden", "gpu-dcgm.prom"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "DCGM_FI_") {
			line = strings.Replace(line, `Hostname="vm"`, fmt.Sprintf("Hostname=%q", node), 1)
			out = append(out, strings.Replace(line, "} ", fmt.Sprintf(",node=%q,rack_id=%q} ", node, rack), 1))
		}
	}
	return out
}

func dcgmSeries(page string) []string {
	var out []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "DCGM_FI_") {
			out = append(out, line)
		}
	}
	return out
}

// childPIDs lists the processes that a process started.
func childPIDs(t testing.TB, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		// PID (NAME) STATE PPID; the name may hold blanks.
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			out = append(out, child)
		}
	}
	return out
}

// gpuCase is a node with eight GPUs whose library does what the test says.
type gpuCase struct {
	*small
	t       *testing.T
	fake    *fakeGPUs
	scrapes *scrapeWatch
}

func (c *gpuCase) restarts(reason string) float64 {
	got := series(c.fetch("gpu001"), "rackpulse_gpu_child_restarts_total", `reason="`+reason+`"`)
	if len(got) != 1 {
		c.t.Fatalf("restarts for %s: %q", reason, got)
	}
	n, err := strconv.ParseFloat(got[0], 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// child is the pid of the one child.
func (c *gpuCase) child() int {
	c.t.Helper()
	var pids []int
	c.eventually(10*time.Second, "the agent has one child", func() error {
		if pids = childPIDs(c.t, c.agents["gpu001"].cmd.Process.Pid); len(pids) != 1 {
			return fmt.Errorf("children %v", pids)
		}
		return nil
	})
	return pids[0]
}

// fault is something that ends the child.
type fault struct {
	what, reason string // reason as counted
	temp         int    // marks the values after it
	do           func()
	hold         func() // what happens while the fault lasts; nil: nothing
	undo         func() // nil: it ends by itself
}

// ends lets the fault happen, wants the child counted and replaced, and new
// values on the page after it.
func (c *gpuCase) ends(f fault) {
	c.t.Helper()
	c.scrapes.during(f.what)
	before, count, from := c.child(), c.restarts(f.reason), time.Now()
	f.do()
	c.eventually(20*time.Second, f.what+": counted as "+f.reason, func() error {
		if got := c.restarts(f.reason); got <= count {
			return fmt.Errorf("restarts %v", got)
		}
		return nil
	})
	counted, why := time.Since(from), c.reason()
	if f.hold != nil {
		f.hold()
	}
	lasted := time.Since(from)
	if f.undo != nil {
		f.undo()
	}
	undone := time.Now()
	c.awaitSeries(60*time.Second, "gpu001", []string{strconv.Itoa(f.temp)}, "DCGM_FI_DEV_GPU_TEMP", `gpu="0"`)
	c.awaitSeries(20*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	back, after := time.Since(undone), c.child()
	c.settle()
	if after == before {
		c.t.Errorf("%s: the child is still process %d", f.what, before)
	}
	c.t.Logf("%s: counted after %.1f s, lasted %.1f s, new values %.1f s later, %v restarts, child %d -> %d; reason %q",
		f.what, counted.Seconds(), lasted.Seconds(), back.Seconds(), c.restarts(f.reason)-count, before, after, why)
}

// settle waits for more good passes than reset the back-off, so that one fault's
// does not count for the next.
func (c *gpuCase) settle() {
	c.t.Helper()
	passes := func() int {
		calls, err := os.ReadFile(c.fake.log)
		if err != nil {
			c.t.Fatal(err)
		}
		return bytes.Count(calls, []byte("dcgmEntitiesGetLatestValues entities="))
	}
	want := passes() + 4*12 // at most four calls a pass
	c.eventually(20*time.Second, "12 good passes", func() error {
		if got := passes(); got < want {
			return fmt.Errorf("%d passes, want %d", got, want)
		}
		return nil
	})
}

// reason is what the page says of the GPU source.
func (c *gpuCase) reason() string {
	for line := range strings.Lines(c.fetch("gpu001")) {
		if _, rest, ok := strings.Cut(line, `rackpulse_source_info{source="gpu",reason="`); ok {
			return strings.TrimSuffix(strings.TrimSpace(rest), `"} 1`)
		}
	}
	return ""
}

// faults hangs and crashes the library. A hang lasts as long as hold, and a
// library that crashes at each read does so for two beats.
func (c *gpuCase) faults(hold func()) {
	script := func(temp int, more ...string) func() {
		return func() { c.fake.say(append([]string{"gpus 8", fmt.Sprintf("value 0 150 %d", temp)}, more...)...) }
	}
	c.ends(fault{what: "hang", reason: "hang", temp: 61, do: script(61, "hang dcgmEntitiesGetLatestValues"), hold: hold, undo: script(61)})
	c.ends(fault{what: "kill -SEGV", reason: "crash", temp: 62, do: func() {
		script(62)()
		if err := syscall.Kill(c.child(), syscall.SIGSEGV); err != nil {
			c.t.Error(err)
		}
	}})
	c.ends(fault{what: "segmentation faults", reason: "crash", temp: 63, hold: c.twoBeats, do: script(63, "crash dcgmEntitiesGetLatestValues segv"), undo: script(63)})
}

// twoBeats waits until the registry has taken two more beats.
func (c *gpuCase) twoBeats() {
	c.t.Helper()
	c.twoMoreBeats("gpu001")
}

// stale waits until the hang has lasted for longer than values may be old.
func (c *gpuCase) stale() {
	c.t.Helper()
	c.awaitState("gpu001", "DEGRADED", 40*time.Second)
	reason := c.node("gpu001").Reason
	c.t.Logf("long hang: DEGRADED: %s", reason)
	if !strings.HasPrefix(reason, "inventory stale for more than 30s: dcgm: ") {
		c.t.Errorf("reason %q", reason)
	}
	c.awaitSeries(5*time.Second, "gpu001", nil, "DCGM_FI_DEV_GPU_TEMP")
}

// lose takes one GPU off the bus and wants it named on both sides. It returns
// when the GPU was put back.
func (c *gpuCase) lose() time.Time {
	c.t.Helper()
	c.scrapes.during("lost GPU")
	c.fake.say("gpus 8", "lost 2")
	lost := time.Now()
	c.awaitSeries(10*time.Second, "gpu001", []string{"1", "1", "0", "1", "1", "1", "1", "1"}, "rackpulse_gpu_up")
	page := c.fetch("gpu001")
	if got := series(page, "rackpulse_gpu_up", uuid(2), `gpu="2"`); !slices.Equal(got, []string{"0"}) {
		c.t.Errorf("the lost GPU: %q", got)
	}
	if got := len(series(page, "DCGM_FI_DEV_GPU_TEMP")); got != 7 {
		c.t.Errorf("%d temperatures, want those of the other 7", got)
	}
	since := c.awaitState("gpu001", "DEGRADED", 15*time.Second)
	n := c.node("gpu001")
	c.t.Logf("lost GPU: DEGRADED %.1f s after the loss: %s", since.Sub(lost).Seconds(), n.Reason)
	// Two beats, each at most 5.5 s after the one before.
	if took := since.Sub(lost); took > 12*time.Second || took < 4500*time.Millisecond {
		c.t.Errorf("DEGRADED %s after the loss, want two beats", took)
	}
	if !slices.Equal(n.Missing, []string{uuid(2)}) || !strings.Contains(n.Reason, uuid(2)) || n.Schedulable {
		c.t.Errorf("missing %q, reason %q, schedulable %t", n.Missing, n.Reason, n.Schedulable)
	}
	c.fake.say("gpus 8")
	back := time.Now()
	c.awaitSeries(10*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	return back
}

// ready waits for READY and holds the cool-down.
func (c *gpuCase) ready(back time.Time, cooldown time.Duration) {
	c.t.Helper()
	took := c.awaitState("gpu001", "READY", cooldown+20*time.Second).Sub(back)
	c.t.Logf("READY again %.1f s after the GPU came back (cool-down %s)", took.Seconds(), cooldown)
	// The first good beat starts the cool-down, the last one may end it.
	if took < cooldown-500*time.Millisecond || took > cooldown+12*time.Second {
		c.t.Errorf("READY %s after the return, want %s and at most two beats", took, cooldown)
	}
}

func newGPUCase(t *testing.T, extra, more string) (*gpuCase, *leaseWatch) {
	t.Helper()
	c := &gpuCase{small: newSmall(t, extra), t: t, fake: newFakeGPUs(t, "gpus 8")}
	c.agent("gpu001", c.gpuAgent("gpu001", more), c.fake.env(fakeLibrary(t))...)
	c.awaitState("gpu001", "READY", 20*time.Second)
	c.scrapes = c.watchScrapes("gpu001")
	return c, c.watchLease("gpu001")
}

// TestE2EGPUFaults runs DCGM inside the child process: a GPU is lost, the library
// hangs and crashes, while the cool-down of the lost GPU goes on.
func TestE2EGPUFaults(t *testing.T) {
	measuring(t)
	c, beats := newGPUCase(t, "", "")
	if got, want := dcgmSeries(c.fetch("gpu001")), goldenSeries(t, "gpu001", "r01"); !slices.Equal(got, want) {
		t.Errorf("%d series of DCGM, want %d; got\n%s", len(got), len(want), strings.Join(got, ""))
	}
	back := c.lose()
	c.faults(c.twoBeats)
	checkNames(t, c.fetch("gpu001"))
	c.scrapes.during("cool-down")
	c.ready(back, time.Minute)
	c.scrapes.check(t)
	beats.check(t, "READY", "DEGRADED")
	noRefusals(t, c.small)
}

// TestE2EGPURemote does the same over an nv-hostengine, which goes away as well.
func TestE2EGPURemote(t *testing.T) {
	measuring(t)
	c, beats := newGPUCase(t, "lease: {cooldown: 10s}\n", `, dcgm: {address: "tcp://127.0.0.1:5555"}`)
	calls, err := os.ReadFile(c.fake.log)
	if err != nil || !strings.Contains(string(calls), "dcgmConnect_v3 tcp://127.0.0.1:5555") || strings.Contains(string(calls), "dcgmStartEmbedded") {
		t.Errorf("no connection to the host engine (%v):\n%.400s", err, calls)
	}
	back := c.lose()
	c.faults(func() {
		c.ready(back, 10*time.Second) // a library that hangs is no missing GPU
		c.stale()
	})
	c.scrapes.during("host engine gone")
	c.fake.say("disconnected")
	c.awaitSeries(20*time.Second, "gpu001", []string{"0"}, "rackpulse_source_up", `source="gpu"`)
	t.Logf("host engine gone: %s", c.reason())
	c.twoBeats()
	c.fake.say("gpus 8", "value 0 150 64")
	c.awaitSeries(60*time.Second, "gpu001", []string{"64"}, "DCGM_FI_DEV_GPU_TEMP", `gpu="0"`)
	c.awaitState("gpu001", "READY", 30*time.Second)
	c.scrapes.check(t)
	beats.check(t, "READY", "DEGRADED")
	noRefusals(t, c.small)
}

// noRefusals wants no beat refused and none missed.
func noRefusals(t *testing.T, s *small) {
	t.Helper()
	page := s.fetch("gpu001")
	if got := series(page, "rackpulse_agent_registry_connection_failures_total"); !slices.Equal(got, []string{"0"}) {
		t.Errorf("connection failures %q", got)
	}
	for _, n := range series(s.fetch(""), "rackpulse_lease_beats_refused_total") {
		if n != "0" {
			t.Errorf("%s beats refused", n)
		}
	}
}

// checkNames lets promtool judge a page. Names of dcgm-exporter's series and of
// their labels are what they are.
func checkNames(t *testing.T, page string) {
	t.Helper()
	cmd := exec.Command(testtool.Binary(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	out, _ := cmd.CombinedOutput() // a status for every complaint
	complaints := 0
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "DCGM_FI_") {
			t.Errorf("promtool: %s", line)
		}
		complaints++
	}
	if complaints == 0 {
		t.Errorf("promtool found nothing to say about dcgm-exporter's names; it said %q", out)
	}
	t.Logf("promtool: %d complaints, all about dcgm-exporter's names", complaints)
}
