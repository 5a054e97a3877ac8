// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackpulse/rackpulse/lease/testdata/minimal"
	"github.com/rackpulse/rackpulse/testtool"
)

// memory is the resident memory of a process, MiB.
func (p *process) memory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// TestE2EAttack lets 100,000 unknown nodes beat, and 1,000 connections say
// nothing, while the nodes of the site keep their leases.
func TestE2EAttack(t *testing.T) {
	afterMeasuring(t)
	s := newSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 3s}\n")
	nodes := []string{"gpu001", "cpu001", "cpu002"}
	newCrew(s, nodes...)
	for _, n := range nodes {
		s.awaitState(n, "READY", 20*time.Second)
	}
	before := s.reg.memory(t)
	var idle []net.Conn
	for range 1000 {
		c, err := net.Dial("tcp", s.grpc)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	const unknown, workers = 100000, 20
	var wg sync.WaitGroup
	for w := range workers {
		conn := s.dial()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < unknown && !t.Failed(); i += workers {
				stream := openStream(t, conn, fmt.Sprintf("evil%06d", i))
				err := stream.beat() // the reply says why, the end says it again
				if err == nil {
					err = stream.RecvMsg(&minimal.HeartbeatReply{})
				}
				if status.Code(err) != codes.NotFound {
					t.Errorf("evil%06d: %v", i, err)
				}
			}
		}()
	}
	wg.Wait()
	if got := series(s.fetch(""), "rackpulse_lease_beats_refused_total", `reason="unknown_node"`); !slices.Equal(got, []string{strconv.Itoa(unknown)}) {
		t.Errorf("refused beats counted: %q", got)
	}
	// Those that say nothing are sent away.
	s.eventually(40*time.Second, "silent connections are closed", func() error {
		open := 0
		for _, c := range idle {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			buf := make([]byte, 4096)
			for {
				_, err := c.Read(buf)
				if err == nil {
					continue // the server's preface
				}
				if os.IsTimeout(err) {
					open++
				}
				break
			}
		}
		if open > 0 {
			return fmt.Errorf("%d are open", open)
		}
		return nil
	})
	after := s.reg.memory(t)
	t.Logf("registry: %d MiB before, %d MiB after", before, after)
	if after > before+100 {
		t.Errorf("the registry grew from %d to %d MiB", before, after)
	}
	for _, n := range nodes {
		if st := s.node(n); st.State != "READY" || st.Flaps != 0 {
			t.Errorf("%s is %s, %d flaps", n, st.State, st.Flaps)
		}
	}
}

// TestE2EFullDisk fills the disk under the ledger: leases go on, the changes are
// kept and written when there is room; nothing is lost over a restart.
func TestE2EFullDisk(t *testing.T) {
	t.Parallel()
	s := prepareSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 3s}\n")
	dir := filepath.Join(s.dir, "ledger")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		testtool.Missing(t, "a small file system cannot be mounted here: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s.startReg()
	c := newCrew(s, "gpu001", "cpu001", "cpu002")
	for n := range c.stop {
		s.awaitState(n, "READY", 20*time.Second)
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close()
	// Enough changes that the file has to grow: a node that comes and goes.
	pending := func() string { return strings.Join(series(s.fetch(""), "rackpulse_ledger_pending_changes"), "") }
	s.eventually(90*time.Second, "changes wait for the disk", func() error {
		c.kill("cpu002")
		s.awaitState("cpu002", "SUSPECT", 10*time.Second)
		c.start("cpu002")
		s.awaitState("cpu002", "READY", 10*time.Second)
		if p := pending(); p == "0" || p == "" {
			return fmt.Errorf("%q are pending", p)
		}
		return nil
	})
	s.awaitSaid(5*time.Second, s.reg, "ledger did not take changes", "no space left on device")
	c.kill("cpu001")
	s.awaitState("cpu001", "EXPIRED", 20*time.Second) // a full disk hides no dead node
	if n := s.node("gpu001"); n.State != "READY" || n.Flaps != 0 {
		t.Errorf("gpu001 is %s, %d flaps", n.State, n.Flaps)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.awaitSeries(30*time.Second, "", []string{"0"}, "rackpulse_ledger_pending_changes")
	s.reg.end()
	s.startReg()
	if n := s.node("cpu001"); n.State != "EXPIRED" {
		t.Errorf("after the restart cpu001 is %s", n.State)
	}
	if audit := s.cli("audit", "cpu001"); !strings.Contains(audit, "SUSPECT -> EXPIRED") {
		t.Errorf("the audit lost the expiry:\n%s", audit)
	}
}

// TestE2ECorruptLedger starts the registry on files that are no ledger, or no
// longer one: it says so, with the file, and does not start on half of it.
func TestE2ECorruptLedger(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "")
	c := newCrew(s, "cpu001")
	s.awaitState("cpu001", "READY", 30*time.Second)
	c.kill("cpu001")
	s.reg.end()
	file := filepath.Join(s.dir, "ledger", "ledger.db")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{
		"text":            []byte("not a ledger at all\n"),
		"cut":             good[:len(good)/3],
		"overwritten":     slices.Concat(slices.Repeat([]byte{0xff}, 16384), good[min(16384, len(good)):]),
		"zeros in middle": slices.Concat(good[:8192], make([]byte, len(good)-8192)),
	} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		said := refuses(t, s.dir, "registry", "--config.file=registry.yml", "--web.listen-address="+s.web)
		t.Logf("%s: %s", what, strings.TrimSpace(said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]))
		if !strings.Contains(said, "ledger.db") || strings.Contains(said, "goroutine ") {
			t.Errorf("%s: %s", what, said)
		}
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	s.startReg()
	if n := s.node("cpu001"); n.State == "" {
		t.Error("the good ledger lost its node")
	}
}
