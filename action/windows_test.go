// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// windowSink is a target that knows windows.
type windowSink struct {
	sink
	windows []Window
	err     error
}

func (s *windowSink) Windows(context.Context) ([]Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.windows, s.err
}

func (s *windowSink) have(err error, windows ...Window) {
	s.mu.Lock()
	s.windows, s.err = windows, err
	s.mu.Unlock()
	time.Sleep(time.Minute)
}

// TestWindows: a window is declared once, for its length and at most a day, ended
// when it is gone, and not ended because nobody answers.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{}
		b.set(ledger.Verdict{})
		s := &windowSink{}
		var said []string
		say := func(format string, args ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			said = append(said, fmt.Sprintf(format, args...))
		}
		r := NewRunner(Options{Outbox: b, Targets: []Named{{Name: "slurm", Target: s}},
			Maintain: func(_ context.Context, node string, d time.Duration, reason, window string) error {
				say("%s for %s: %s", node, d.Round(time.Hour), reason)
				return nil
			},
			EndMaintenance: func(_ context.Context, node, reason, window string) error {
				say("end %s: %s", node, reason)
				return nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		fw := Window{Name: "fw", Nodes: []string{"n1", "n2"}, Until: time.Now().Add(5 * time.Hour)}
		s.have(nil, fw)
		s.have(errors.New("no answer"))
		s.have(nil, fw)
		fw.Nodes = fw.Nodes[:1]
		s.have(nil, fw)
		s.have(nil, Window{Name: "long", Nodes: []string{"n1"}, Until: time.Now().Add(100 * time.Hour)})
		s.have(nil)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		slices.Sort(said[:2])
		want := []string{"n1 for 5h0m0s: maintenance window slurm/fw", "n2 for 5h0m0s: maintenance window slurm/fw", "end n2: maintenance window slurm/fw is over",
			"n1 for 24h0m0s: maintenance window slurm/long", "end n1: maintenance window slurm/long is over"}
		if !slices.Equal(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	})
}

// TestSlurmReservations reads what Slurm 22.05 prints of reservations.
func TestSlurmReservations(t *testing.T) {
	s, dir := openStub(t, "IDLE")
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	text := "ReservationName=fw StartTime=2026-03-01T12:00:00 EndTime=" + end.Format("2006-01-02T15:04:05") + " Duration=01:00:00 Nodes=gpu[001-002] NodeCnt=2 Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=2 Users=root State=ACTIVE\n" +
		"ReservationName=later Nodes=gpu003 Flags=MAINT,SPEC_NODES State=INACTIVE\n" +
		"ReservationName=plain Nodes=gpu003 Flags=SPEC_NODES State=ACTIVE\n"
	stub := strings.Replace(stubSlurm, `*"show node"*)`, `*"show reservation"*) cat "$f.res"; exit 0;;`+"\n"+`*"show node"*)`, 1)
	for name, data := range map[string]string{"scontrol": stub, "node.res": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.(Windower).Windows(t.Context())
	if err != nil || len(got) != 1 || got[0].Name != "fw" || !slices.Equal(got[0].Nodes, []string{"gpu001", "gpu002"}) || !got[0].Until.Equal(end) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.res"), []byte("No reservations in the system\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.(Windower).Windows(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
