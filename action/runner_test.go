// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// box is an outbox that remembers what is reported.
type box struct {
	mu      sync.Mutex
	intents []ledger.Intent
	verdict func(in ledger.Intent, w ledger.Witness) ledger.Verdict
	// rehearsal is what mode hard would permit in mode; empty: nothing to rehearse.
	rehearsal func(w ledger.Witness) ledger.Verdict
	mode      string
	events    []string
}

func (b *box) Intents() []ledger.Intent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.intents)
}

func (b *box) Permit(in ledger.Intent, w ledger.Witness) ledger.Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.ContainsFunc(b.intents, func(i ledger.Intent) bool { return i.ID == in.ID }) {
		return ledger.Verdict{Over: true}
	}
	return b.verdict(in, w)
}

func (b *box) Rehearse(_ ledger.Intent, w ledger.Witness) (ledger.Verdict, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mode == "" {
		return ledger.Verdict{}, ""
	}
	return b.rehearsal(w), b.mode
}

// rehearses sets what mode hard would permit.
func (b *box) rehearses(f func(w ledger.Witness) ledger.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rehearsal = f
}

func (b *box) Report(_ context.Context, in ledger.Intent, e ledger.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, in.Node+" "+e.Evidence["result"]+": "+e.Reason)
	i := slices.IndexFunc(b.intents, func(i ledger.Intent) bool { return i.ID == in.ID })
	switch {
	case i < 0:
	case in.State == ledger.IntentDone:
		b.intents = slices.Delete(b.intents, i, i+1)
	default:
		b.intents[i] = in
	}
	return nil
}

func (b *box) set(v ledger.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict = func(ledger.Intent, ledger.Witness) ledger.Verdict { return v }
}

// sink is a target that remembers its orders.
type sink struct {
	mu     sync.Mutex
	orders []string
	fail   int // how many calls fail first
	slow   time.Duration
	busy   map[string]bool
	bad    error
}

func (s *sink) Apply(ctx context.Context, o Order) (string, error) {
	s.mu.Lock()
	if s.busy[o.Node] {
		s.bad = errors.New("two calls for " + o.Node + " at once")
	}
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[o.Node] = true
	s.mu.Unlock()
	var err error
	if s.slow > 0 {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(s.slow):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[o.Node] = false
	if err == nil && s.fail > 0 {
		s.fail--
		err = errors.New("not now")
	}
	if err != nil {
		return "", err
	}
	s.orders = append(s.orders, fmt.Sprintf("%s %s %t", o.Node, o.Action, o.Hard))
	return "marked", nil
}

func (s *sink) Close() error { return s.bad }

func (s *sink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.orders)
}

// start runs a runner in a synctest bubble; the returned func ends it.
func start(t *testing.T, b *box, o Options, targets ...*sink) func() {
	o.Outbox = b
	for i, s := range targets {
		o.Targets = append(o.Targets, Named{Name: fmt.Sprint("t", i), Target: s})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- NewRunner(o).Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func intent(id uint64, node, action string) ledger.Intent {
	return ledger.Intent{ID: id, Node: node, Action: action, Actor: "registry", Reason: "no beat for 30s", State: ledger.IntentPending}
}

func TestRunnerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict), intent(2, "n2", ledger.ActionSuspend)}}
		b.set(ledger.Verdict{Soft: true, Reason: "mode soft"})
		first, second := &sink{}, &sink{fail: 3}
		defer start(t, b, Options{}, first, second)()
		time.Sleep(20 * time.Second)
		if got := first.got(); !slices.Equal(got, []string{"n1 evict false", "n2 suspend false"}) && !slices.Equal(got, []string{"n2 suspend false", "n1 evict false"}) {
			t.Errorf("first target: %v", got)
		}
		if got := second.got(); len(got) != 2 {
			t.Errorf("second target, which failed three times: %v", got)
		}
		if got := b.Intents(); len(got) != 1 || got[0].Node != "n1" {
			t.Errorf("open: %+v", got)
		}
		b.set(ledger.Verdict{Soft: true, Hard: true})
		time.Sleep(3 * time.Second)
		if got := first.got(); len(got) != 3 || got[2] != "n1 evict true" {
			t.Errorf("after hard was permitted: %v", got)
		}
		if got := b.Intents(); len(got) != 0 {
			t.Errorf("open: %+v", got)
		}
	})
}

func TestRunnerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict)}}
		b.set(ledger.Verdict{Reason: "breaker: 60 of 100 nodes are silent"})
		s := &sink{}
		defer start(t, b, Options{}, s)()
		time.Sleep(5 * time.Minute)
		if got := s.got(); len(got) != 0 {
			t.Errorf("acted: %v", got)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.events) != 1 || b.events[0] != "n1 held: held: breaker: 60 of 100 nodes are silent" {
			t.Errorf("events %q", b.events)
		}
	})
}

// TestRunnerLimits: a burst of three, then six a minute; resume and operators are
// not counted; slow is one in ten seconds.
func TestRunnerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{}
		for i := range uint64(40) {
			b.intents = append(b.intents, intent(i+1, fmt.Sprint("n", i), ledger.ActionSuspend))
		}
		for i := range uint64(4) {
			b.intents = append(b.intents, intent(100+i, fmt.Sprint("back", i), ledger.ActionResume))
			op := intent(200+i, fmt.Sprint("op", i), ledger.ActionDrain)
			op.Actor = "alice"
			b.intents = append(b.intents, op)
		}
		b.set(ledger.Verdict{Soft: true, Hard: true})
		s := &sink{}
		defer start(t, b, Options{}, s)()
		time.Sleep(time.Minute)
		counted := 0
		for _, o := range s.got() {
			if o[0] == 'n' {
				counted++
			}
		}
		if counted < 8 || counted > 9 { // 3 and 0.1 a second
			t.Errorf("%d nodes in a minute, want 3+6", counted)
		}
		if n := len(s.got()) - counted; n != 8 {
			t.Errorf("%d of 8 that are not counted were done", n)
		}
		b.set(ledger.Verdict{Soft: true, Hard: true, Slow: true})
		before := len(s.got())
		time.Sleep(time.Minute)
		if n := len(s.got()) - before; n < 5 || n > 6 {
			t.Errorf("%d nodes in a slow minute", n)
		}
	})
}

// TestRunnerOneAtATime: calls for one node never overlap, a newer intent waits,
// and a call under way ends with the runner.
func TestRunnerOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{intents: []ledger.Intent{intent(1, "n1", ledger.ActionSuspend)}}
		b.set(ledger.Verdict{Soft: true})
		s := &sink{slow: 20 * time.Second}
		stop := start(t, b, Options{}, s)
		time.Sleep(5 * time.Second)
		b.mu.Lock()
		b.intents = []ledger.Intent{intent(2, "n1", ledger.ActionResume)}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		if got := s.got(); !slices.Equal(got, []string{"n1 suspend false", "n1 resume false"}) {
			t.Errorf("orders %v", got)
		}
		b.mu.Lock()
		b.intents = []ledger.Intent{intent(3, "n1", ledger.ActionSuspend)}
		b.mu.Unlock()
		time.Sleep(5 * time.Second)
		stop()
		if got := s.got(); len(got) != 2 {
			t.Errorf("orders after the stop %v", got)
		}
	})
}

// TestRunnerAsksBeforeHard: where the work may be taken away but a witness could
// see the node live, it is asked first.
func TestRunnerAsksBeforeHard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict)}}
		b.verdict = func(_ ledger.Intent, w ledger.Witness) ledger.Verdict {
			return ledger.Verdict{Soft: true, Hard: w != ledger.WitnessAlive, Ask: w == ledger.WitnessSilent}
		}
		s := &sink{}
		defer start(t, b, Options{Witness: func(context.Context, string) (ledger.Witness, string) {
			return ledger.WitnessAlive, "it draws 3100 W"
		}}, s)()
		time.Sleep(time.Minute)
		if got := s.got(); !slices.Equal(got, []string{"n1 evict false"}) {
			t.Errorf("orders %v", got)
		}
	})
}

// TestRunnerAsksWitness: the witness is asked only where it matters, and its
// words are kept.
func TestRunnerAsksWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{intents: []ledger.Intent{intent(1, "n1", ledger.ActionEvict), intent(2, "n2", ledger.ActionSuspend)}}
		b.verdict = func(in ledger.Intent, w ledger.Witness) ledger.Verdict {
			if in.Node == "n2" {
				return ledger.Verdict{Soft: true}
			}
			switch w {
			case ledger.WitnessDead:
				return ledger.Verdict{Soft: true, Hard: true}
			case ledger.WitnessAlive:
				return ledger.Verdict{Reason: "it lives"}
			}
			return ledger.Verdict{Ask: true, Reason: "no witness"}
		}
		var asked []string
		says := ledger.WitnessAlive
		s := &sink{}
		defer start(t, b, Options{Witness: func(_ context.Context, node string) (ledger.Witness, string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			asked = append(asked, node)
			return says, "outlet r01-a/1 gives 3100 W"
		}}, s)()
		time.Sleep(10 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if got := s.got(); !slices.Equal(got, []string{"n2 suspend false"}) {
			t.Errorf("orders %v", got)
		}
		if slices.Contains(asked, "n2") || len(asked) == 0 {
			t.Errorf("asked about %v", asked)
		}
		if !slices.Contains(b.events, "n1 held: held: it lives (outlet r01-a/1 gives 3100 W)") {
			t.Errorf("events %q", b.events)
		}
		says = ledger.WitnessDead
		b.mu.Unlock()
		time.Sleep(5 * time.Second)
		b.mu.Lock()
		if got := s.got(); len(got) != 2 || got[1] != "n1 evict true" {
			t.Errorf("orders %v", got)
		}
	})
}
