// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// labelSink is a target that remembers labels.
type labelSink struct {
	sink
	labels []string
	fail   bool
}

func (s *labelSink) Label(_ context.Context, node string, labels map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return errors.New("not now")
	}
	s.labels = append(s.labels, node+" "+labels["health"])
	return nil
}

// TestLabels: a label is told once, again when it changes, and again when the
// telling failed.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{}
		b.set(ledger.Verdict{})
		s := &labelSink{}
		health := "ready"
		r := NewRunner(Options{Outbox: b, Targets: []Named{{Name: "t", Target: s}, {Name: "plain", Target: &sink{}}}, Labels: func(context.Context) (map[string]map[string]string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return map[string]map[string]string{"n1": {"health": health}, "n2": {"health": "ready"}}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		set := func(h string, fail bool) {
			s.mu.Lock()
			health, s.fail = h, fail
			s.mu.Unlock()
			time.Sleep(3 * time.Minute)
		}
		set("ready", false)
		set("limited", true)
		set("limited", false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"n1 ready", "n2 ready", "n1 limited"}; !slices.Equal(s.labels, want) {
			t.Errorf("labels %q, want %q", s.labels, want)
		}
	})
}

func TestSlurmFeatures(t *testing.T) {
	s, dir := openStub(t, "IDLE")
	line := "NodeName=gpu001 Arch=x86_64 AvailableFeatures=h100,rp_health_limited,ib ActiveFeatures=h100,rp_health_limited State=IDLE ThreadsPerCore=1\n"
	if err := os.WriteFile(filepath.Join(dir, "node"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.(Labeler).Label(t.Context(), "gpu001", map[string]string{"health": "ready", "power-headroom-kw": "6"}); err != nil {
		t.Fatal(err)
	}
	calls, _ := os.ReadFile(filepath.Join(dir, "node.calls"))
	want := "AvailableFeatures=h100,ib,rp_health_ready,rp_power_headroom_kw_6 ActiveFeatures=h100,rp_health_ready,rp_power_headroom_kw_6\n"
	if !strings.HasSuffix(string(calls), want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}
