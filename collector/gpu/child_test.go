// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-kit/log"
)

// The kinds below exist in the test binary only; its child process has them too.
func init() {
	register(registration{name: "test", priority: 1000, child: true, open: openTest})
}

// testSource does what the address tells it, a word for each pass.
type testSource struct {
	script []string
	out    string
}

func openTest(_ context.Context, cfg SourceConfig, _ log.Logger) (Source, error) {
	words := strings.Fields(cfg.DCGMAddress)
	if len(words) > 0 && words[0] == "refuse" {
		return nil, errors.New("no such card")
	}
	if len(words) > 0 && words[0] == "hangopen" {
		select {}
	}
	return &testSource{script: words, out: cfg.Labels[0]}, nil
}

func (s *testSource) Read(context.Context) (*Sample, error) {
	word := "ok"
	if len(s.script) > 0 {
		word, s.script = s.script[0], s.script[1:]
	}
	switch word {
	case "hang":
		select {}
	case "exit":
		fmt.Fprintln(os.Stderr, "x: symbol lookup error: x: undefined symbol: y")
		fmt.Fprintln(os.Stderr, "a later line")
		os.Exit(127)
	case "error":
		return nil, errors.New("bus error of the day")
	case "noise":
		fmt.Println("a library prints this on standard output")
	case "environment":
		return &Sample{Driver: os.Getenv("LD_LIBRARY_PATH")}, nil
	case "group":
		return &Sample{Driver: fmt.Sprint(syscall.Getpgrp() == os.Getpid())}, nil
	}
	return &Sample{At: time.Unix(1e9, 5), Driver: word, Devices: []Device{device(0, Value{Field: fieldTemp, V: 41.5})}}, nil
}

func (s *testSource) Close() error {
	return os.WriteFile(s.out, []byte("closed"), 0o600)
}

func testLauncher(t *testing.T) *launcher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newLauncher([]string{self, "gpu-child"}, log.NewNopLogger())
}

// openScript opens the test source in a child; the file returned appears when
// the child closes the source.
func openScript(t *testing.T, l *launcher, script string) (Source, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	file := t.TempDir() + "/closed"
	s, err := l.open(ctx, "test", SourceConfig{DCGMAddress: script, Labels: []string{file}})
	return s, file, err
}

func readOnce(s Source, limit time.Duration) (*Sample, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.Read(ctx)
}

func TestChild(t *testing.T) {
	noLeaks(t)
	t.Setenv("LD_LIBRARY_PATH", "/opt/somewhere")
	s, file, err := openScript(t, testLauncher(t), "first noise error environment group")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := readOnce(s, 10*time.Second)
	if err != nil || sample.Driver != "first" || !sample.At.Equal(time.Unix(1e9, 5)) || sample.Devices[0].Values[0].V != 41.5 {
		t.Fatalf("first: %+v, %v", sample, err)
	}
	if _, err := readOnce(s, 10*time.Second); err != nil {
		t.Errorf("output on stdout disturbs: %v", err)
	}
	var dead *deadError
	if _, err := readOnce(s, 10*time.Second); err == nil || err.Error() != "bus error of the day" || errors.As(err, &dead) {
		t.Errorf("the source's error: %v", err)
	}
	if sample, err = readOnce(s, 10*time.Second); err != nil || sample.Driver != "/opt/somewhere" {
		t.Errorf("environment: %+v, %v", sample, err)
	}
	if sample, err = readOnce(s, 10*time.Second); err != nil || sample.Driver != "true" {
		t.Errorf("process group of its own: %+v, %v", sample, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("source not closed in the child: %v", err)
	}
	if _, err := readOnce(s, time.Second); err == nil {
		t.Error("a closed child answers")
	}
}

func TestChildRefuses(t *testing.T) {
	noLeaks(t)
	_, _, err := openScript(t, testLauncher(t), "refuse")
	var dead *deadError
	if err == nil || err.Error() != "no such card" || errors.As(err, &dead) {
		t.Errorf("got %v", err)
	}
}

func TestChildHang(t *testing.T) {
	noLeaks(t)
	l := testLauncher(t)
	s, _, err := openScript(t, l, "ok hang")
	if err != nil {
		t.Fatal(err)
	}
	pid := s.(*child).pid
	if _, err := readOnce(s, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	_, err = readOnce(s, 100*time.Millisecond)
	var dead *deadError
	if !errors.As(err, &dead) || dead.end != endHang {
		t.Fatalf("got %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("child %d still exists: %v", pid, err)
	}
	if _, again := readOnce(s, time.Second); !errors.Is(again, err) {
		t.Errorf("a dead child gives %v", again)
	}
	s.Close()
}

func TestChildExit(t *testing.T) {
	noLeaks(t)
	s, _, err := openScript(t, testLauncher(t), "exit")
	if err != nil {
		t.Fatal(err)
	}
	_, err = readOnce(s, 10*time.Second)
	var dead *deadError
	if !errors.As(err, &dead) || dead.end != endCrash {
		t.Fatalf("got %v", err)
	}
	const story = "child process: exit status 127: x: symbol lookup error: x: undefined symbol: y"
	if err.Error() != story {
		t.Errorf("story: %q, want %q", err, story)
	}
	s.Close()
}

func TestChildCannotStart(t *testing.T) {
	noLeaks(t)
	l := newLauncher([]string{"/nonexistent/rackpulse", "gpu-child"}, log.NewNopLogger())
	if _, _, err := openScript(t, l, ""); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

// TestChildAbandoned lets kills do nothing, as for a process in D state.
func TestChildAbandoned(t *testing.T) {
	noLeaks(t)
	l := testLauncher(t)
	l.grace = 50 * time.Millisecond
	l.kill = func(int) error { return nil }
	var pids []int
	for range maxAbandoned {
		s, _, err := openScript(t, l, "hang")
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, s.(*child).pid)
		readOnce(s, 100*time.Millisecond)
		s.Close() // counts once only
	}
	if n := l.stuck(); n != maxAbandoned {
		t.Errorf("%d abandoned, want %d", n, maxAbandoned)
	}
	if _, _, err := openScript(t, l, ""); err == nil || !strings.Contains(err.Error(), "stuck in the kernel") {
		t.Errorf("a third child: %v", err)
	}
	syscall.Kill(-pids[0], syscall.SIGKILL)
	eventually(t, "one ends", func() bool { return l.stuck() == 1 })
	l.kill = func(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
	s, _, err := openScript(t, l, "")
	if err != nil {
		t.Errorf("after one has ended: %v", err)
	} else {
		s.Close()
	}
	syscall.Kill(-pids[1], syscall.SIGKILL)
	eventually(t, "the other ends", func() bool { return l.stuck() == 0 })
}

// TestChildDiesWithAgent kills a process that has a child.
func TestChildDiesWithAgent(t *testing.T) {
	if os.Getenv("RACKPULSE_TEST_AGENT") != "" {
		s, _, err := openScript(t, testLauncher(t), "hang")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child=%d\n", s.(*child).pid)
		readOnce(s, time.Minute)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithAgent$")
	cmd.Env = append(os.Environ(), "RACKPULSE_TEST_AGENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "child=%d\n", &pid); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the child ends", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func TestFrames(t *testing.T) {
	var pipe bytes.Buffer
	w, r := newFrameWriter(&pipe), newFrameReader(&pipe)
	for i := range 3 {
		if err := w.write(&request{ID: uint64(i), Op: opRead}); err != nil {
			t.Fatal(err)
		}
		var got request
		if err := r.read(&got); err != nil || got.ID != uint64(i) || got.Op != opRead {
			t.Fatalf("frame %d: %+v, %v", i, got, err)
		}
	}
	if err := w.write(&response{Err: strings.Repeat("x", maxFrame)}); err == nil {
		t.Error("a frame above the bound was written")
	}
	if err := r.read(&request{}); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	f := func(what string, b []byte) {
		t.Helper()
		if err := newFrameReader(bytes.NewReader(b)).read(&request{}); err == nil || err == io.EOF {
			t.Errorf("%s: %v", what, err)
		}
	}
	f("too long", binary.LittleEndian.AppendUint32(nil, maxFrame+1))
	f("cut in its length", []byte{1, 0})
	f("cut", []byte{9, 0, 0, 0, 1, 2})
	f("no gob", append([]byte{4, 0, 0, 0}, "\xff\xff\xff\xff"...))
}

func TestChildMainRefuses(t *testing.T) {
	var in, out bytes.Buffer
	w := newFrameWriter(&in)
	for i, req := range []request{{Op: opRead}, {Op: opOpen, Source: "nothing"}, {Op: opOpen, Source: "sim"}, {Op: "dance"}} {
		req.ID = uint64(i)
		if err := w.write(&req); err != nil {
			t.Fatal(err)
		}
	}
	if status := ChildMain(context.Background(), &in, &out, log.NewNopLogger()); status != 0 {
		t.Errorf("status %d", status)
	}
	r := newFrameReader(&out)
	for i, text := range []string{"out of order", `no source "nothing"`, `no source "sim"`, "out of order"} {
		var resp response
		if err := r.read(&resp); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		if resp.ID != uint64(i) || !strings.Contains(resp.Err, text) {
			t.Errorf("answer %d: %+v, want %q", i, resp, text)
		}
	}
}
