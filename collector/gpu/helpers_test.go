// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/common/expfmt"

	"github.com/rackpulse/rackpulse/collector"
)

// TestMain lets the test binary be its own child process, as cmd does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "gpu-child" {
		logger := log.NewLogfmtLogger(os.Stderr)
		os.Exit(ChildMain(context.Background(), os.Stdin, os.NewFile(ChildFD, "answers"), logger))
	}
	status := m.Run()
	for _, clean := range atEnd {
		clean()
	}
	os.Exit(status)
}

// atEnd runs when all tests have.
var atEnd []func()

// eventually waits for a condition that other processes bring about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// noLeaks fails the test if goroutines of this package outlive it, or others whose
// stack has one of the texts.
func noLeaks(t *testing.T, texts ...string) {
	t.Helper()
	texts = append(texts, "collector/gpu.(*")
	t.Cleanup(func() {
		var stacks string
		for range 200 {
			buf := make([]byte, 1<<20)
			stacks = string(buf[:runtime.Stack(buf, true)])
			if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(stacks, text) }) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("goroutines left behind:\n%s", stacks)
	})
}

// recorder is a real store that also remembers what was put into it.
type recorder struct {
	*collector.Store
	mu     sync.Mutex
	latest map[string]collector.Snapshot
	status collector.Status
	puts   int
	each   func(collector.Snapshot) // if set, called with each snapshot
}

func newRecorder() *recorder {
	return &recorder{Store: collector.NewStore(), latest: map[string]collector.Snapshot{}}
}

func (r *recorder) Put(s collector.Snapshot) {
	r.Store.Put(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest[s.Source] = s
	r.puts++
	if r.each != nil {
		r.each(s)
	}
}

func (r *recorder) SetStatus(source string, st collector.Status) {
	r.Store.SetStatus(source, st)
	if source != sourceName {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = st
}

func (r *recorder) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.Reason
}

// page is the rendered page, and value one series of it.
func (r *recorder) page(t *testing.T) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&buf, f); err != nil {
			t.Fatal(err)
		}
	}
	return buf.String()
}

// series returns the values of the lines whose series begins with name and has
// all the label texts, in page order.
func series(page, name string, labels ...string) []string {
	var values []string
lines:
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		values = append(values, line[strings.LastIndex(line, " ")+1:])
	}
	return values
}

func want(t *testing.T, what string, got []string, values ...string) {
	t.Helper()
	if !slices.Equal(got, values) {
		t.Errorf("%s: got %q, want %q", what, got, values)
	}
}

// start runs a Runner until the test ends.
func start(t *testing.T, cfg Config, deps Deps) (*Runner, *recorder) {
	t.Helper()
	rec := newRecorder()
	deps.Store = rec
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	if deps.Hostname == "" {
		deps.Hostname = "vm"
	}
	deps.quietLog = true // not this machine's
	r, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r, rec
}

// stub is a source whose answers a test sets.
type stub struct {
	mu     sync.Mutex
	sample func() (*Sample, error)
	refuse string // why it does not open, "": it does
	opens  int    // how often that was tried
	closed bool
}

func (s *stub) Read(context.Context) (*Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sample()
}

func (s *stub) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// give makes the stub answer with these devices from now on.
func (s *stub) give(devices ...Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sample = func() (*Sample, error) {
		return &Sample{At: time.Now(), Driver: "550.1", Devices: slices.Clone(devices)}, nil
	}
}

// fail makes the stub fail from now on.
func (s *stub) fail(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sample = func() (*Sample, error) { return nil, errors.New(text) }
}

// withKinds replaces the registered kinds of sources for one test.
func withKinds(t *testing.T, kinds ...registration) {
	t.Helper()
	old := registry
	registry = map[string]registration{}
	for _, k := range kinds {
		register(k)
	}
	t.Cleanup(func() { registry = old })
}

// refuseWith makes the stub refuse to open; "" ends that.
func (s *stub) refuseWith(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = text
}

// state returns how often the stub was opened and whether it is closed.
func (s *stub) state() (opens int, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.closed
}

// kind registers a stub under a name.
func kind(name string, priority int, s *stub) registration {
	return registration{name: name, priority: priority, open: func(context.Context, SourceConfig, log.Logger) (Source, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opens++
		if s.refuse != "" {
			return nil, errors.New(s.refuse)
		}
		s.closed = false
		return s, nil
	}}
}

func device(i int, values ...Value) Device {
	return Device{Index: fmt.Sprint(i), UUID: fmt.Sprintf("GPU-%d", i), PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i),
		Name: fmt.Sprintf("nvidia%d", i), Model: "NVIDIA H100", Values: values}
}
