// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// TestRunnerRehearses follows a lost node of a class in mode observe: what would
// hold it, what would be done and when, each noted once; no target is called.
func TestRunnerRehearses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{mode: "observe", intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict)}}
		b.intents[0].State, b.intents[0].Note = ledger.IntentHeld, "mode observe"
		b.set(ledger.Verdict{Reason: "mode observe"})
		b.rehearses(func(w ledger.Witness) ledger.Verdict {
			return ledger.Verdict{Reason: "breaker of rack r01: 4 of 8 are silent"}
		})
		s := &sink{}
		var power atomic.Int32
		defer start(t, b, Options{Witness: func(context.Context, string) (ledger.Witness, string) {
			return ledger.Witness(power.Load()), "its outlets draw 0 W"
		}}, s)()
		time.Sleep(time.Minute)
		b.rehearses(func(w ledger.Witness) ledger.Verdict {
			return ledger.Verdict{Soft: true, Hard: w == ledger.WitnessDead, Ask: w == ledger.WitnessSilent, Reason: "no witness says that it is dead"}
		})
		time.Sleep(20 * time.Second)
		if in := b.Intents()[0]; !in.Rehearsed.Soft || in.Rehearsed.Hard || in.Note != "mode observe" || in.State != ledger.IntentHeld {
			t.Errorf("intent %+v", in)
		}
		power.Store(int32(ledger.WitnessDead))
		time.Sleep(20 * time.Second)
		want := []string{
			"n1 would be held: would be held: breaker of rack r01: 4 of 8 are silent",
			"n1 would: would give it no new work",
			"n1 would: would take its work away",
		}
		time.Sleep(time.Hour)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Equal(b.events, want) {
			t.Errorf("events %q\nwant %q", b.events, want)
		}
		if got := s.got(); len(got) != 0 {
			t.Errorf("acted: %v", got)
		}
	})
}

// TestRunnerRehearsesWithoutTargets notes what would be done where there is
// nothing to act in, and does not repeat itself.
func TestRunnerRehearsesWithoutTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{mode: "observe", intents: []ledger.Intent{intent(1, "n1", ledger.ActionSuspend), intent(2, "n2", ledger.ActionResume)}}
		b.set(ledger.Verdict{Reason: "mode observe"})
		b.rehearses(func(ledger.Witness) ledger.Verdict { return ledger.Verdict{Soft: true} })
		defer start(t, b, Options{})()
		time.Sleep(time.Hour)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Equal(b.events, []string{"n1 would: would give it no new work"}) {
			t.Errorf("events %q", b.events)
		}
	})
}

// TestRunnerRehearsesTheRest marks a node in mode soft and notes that mode hard
// would have taken its work away.
func TestRunnerRehearsesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{mode: "soft", intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict)}}
		b.set(ledger.Verdict{Soft: true, Reason: "mode soft"})
		b.rehearses(func(ledger.Witness) ledger.Verdict { return ledger.Verdict{Soft: true, Hard: true} })
		s := &sink{}
		defer start(t, b, Options{}, s)()
		time.Sleep(10 * time.Minute)
		if got := s.got(); !slices.Equal(got, []string{"n1 evict false"}) {
			t.Errorf("acted: %v", got)
		}
		in := b.Intents()[0]
		if !in.Rehearsed.Hard || len(in.Steps) != 1 || !in.Steps[0].Soft || in.Steps[0].Hard {
			t.Errorf("intent %+v", in)
		}
	})
}
