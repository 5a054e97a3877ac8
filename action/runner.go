// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/ledger"
)

const (
	// lookInterval is how often the outbox is looked at.
	lookInterval = 500 * time.Millisecond
	// workers is how many nodes are acted on at once.
	workers = 8
	// applyTimeout bounds one call of a target; slurmctld's own is 10 s.
	applyTimeout = 30 * time.Second
	retryMin     = time.Second
	retryMax     = time.Minute
	// burst is how many actions may follow each other at once.
	burst = 3
	// slowInterval is the least time between two actions while a breaker says
	// slow.
	slowInterval = 10 * time.Second
	// noteInterval is the least time between two notes of what holds an intent.
	noteInterval = 30 * time.Second
	// DefaultPerMinute is how many nodes are acted on in a minute, Kubernetes'
	// 0.1 a second.
	DefaultPerMinute = 6
)

// waits is the note of an intent that has no token yet.
const waits = "waits its turn: the number of actions in a minute is limited"

// Outbox is where the orders come from, and who permits each step.
type Outbox interface {
	// Intents returns the open ones, oldest first.
	Intents() []ledger.Intent
	// Permit says what may be done about one at this moment.
	Permit(in ledger.Intent, w ledger.Witness) ledger.Verdict
	// Rehearse says what Permit would if the node's class were in mode hard, and
	// the mode it is in; empty: there is nothing to rehearse.
	Rehearse(in ledger.Intent, w ledger.Witness) (v ledger.Verdict, mode string)
	// Report records what was done; it returns when that is durable.
	Report(ctx context.Context, in ledger.Intent, e ledger.Event) error
}

// Options are what a Runner works with. Outbox must be set.
type Options struct {
	Outbox  Outbox
	Targets []Named
	// Place says where a node is; it may be nil.
	Place func(node string) (rack, class string)
	// Witness asks a second source whether a node lives, with its words; nil:
	// there is none but the targets.
	Witness func(ctx context.Context, node string) (ledger.Witness, string)
	// Labels says what schedulers should know of nodes, by node and key; nil:
	// nothing is shown.
	Labels func(ctx context.Context) (map[string]map[string]string, error)
	// Maintain and EndMaintenance declare and end a node's maintenance for a window
	// that a target knows; nil: windows are not looked at.
	Maintain       func(ctx context.Context, node string, d time.Duration, reason, window string) error
	EndMaintenance func(ctx context.Context, node, reason, window string) error
	// PerMinute is how many nodes may be acted on in a minute; 0: 6. What gives
	// nodes back, and what operators order, is not counted.
	PerMinute int
	Logger    log.Logger
}

// Runner carries the outbox out. It is a prometheus.Collector.
type Runner struct {
	Options
	results *prometheus.CounterVec
	mu      sync.Mutex
	jobs    map[string]*job
	tokens  float64
	filled  time.Time
	slowAt  time.Time
	wg      sync.WaitGroup
}

// job is what the runner remembers of a node's intent.
type job struct {
	id      uint64
	busy    bool
	started bool // a token was taken for it
	retry   time.Time
	delay   time.Duration
	tries   int // that failed since the last success
	note    string
	noted   time.Time
	dryAt   time.Time // of the last note of what would hold it
	dryNote string
}

// NewRunner makes a Runner; Run starts it.
func NewRunner(o Options) *Runner {
	out := &Runner{Options: o, jobs: map[string]*job{}, tokens: burst}
	if out.PerMinute == 0 {
		out.PerMinute = DefaultPerMinute
	}
	if out.Logger == nil {
		out.Logger = log.NewNopLogger()
	}
	out.results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rackpulse_actions_total", Help: "Calls of action targets by their result: done, failed.",
	}, []string{"target", "action", "result"})
	return out
}

// Describe implements prometheus.Collector.
func (r *Runner) Describe(ch chan<- *prometheus.Desc) { r.results.Describe(ch) }

// Collect implements prometheus.Collector.
func (r *Runner) Collect(ch chan<- prometheus.Metric) { r.results.Collect(ch) }

// Run looks at the outbox until ctx ends; calls under way have then ended, and
// the targets are closed.
func (r *Runner) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	r.filled = time.Now()
	r.wg.Go(func() { r.label(ctx) })
	r.wg.Go(func() { r.maintain(ctx) })
	for {
		select {
		case <-ctx.Done():
			r.wg.Wait()
			var first error
			for _, t := range r.Targets {
				if err := t.Close(); err != nil && first == nil {
					first = fmt.Errorf("action %s: %w", t.Name, err)
				}
			}
			return first
		case <-ticker.C:
			r.look(ctx, time.Now())
		}
	}
}

// look starts what is due.
func (r *Runner) look(ctx context.Context, now time.Time) {
	intents := r.Outbox.Intents()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = min(burst, r.tokens+now.Sub(r.filled).Minutes()*float64(r.PerMinute))
	r.filled = now
	open := make(map[string]bool, len(intents))
	running := 0
	for _, j := range r.jobs {
		if j.busy {
			running++
		}
	}
	slices.SortStableFunc(intents, func(a, b ledger.Intent) int { return urgency(&b) - urgency(&a) })
	for _, in := range intents {
		open[in.Node] = true
		j := r.jobs[in.Node]
		if j == nil {
			j = &job{}
			r.jobs[in.Node] = j
		}
		if j.busy || running >= workers {
			continue
		}
		if j.id != in.ID {
			*j = job{id: in.ID, note: in.Note}
		}
		if now.Before(j.retry) {
			continue
		}
		if r.idle(in, j) {
			j.retry = now.Add(retryMin)
			continue
		}
		running++
		j.busy = true
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			r.work(ctx, in, j)
		}()
	}
	for node, j := range r.jobs {
		if !open[node] && !j.busy {
			delete(r.jobs, node)
		}
	}
}

// urgency puts what gives nodes back, and what operators order, before the rest.
func urgency(in *ledger.Intent) int {
	if counted(in) {
		return 0
	}
	return 1
}

// counted says whether an intent needs a token.
func counted(in *ledger.Intent) bool {
	return in.Action != ledger.ActionResume && actor(in) == "registry"
}

// idle says whether an intent is held as it was when that was last noted: then
// it takes no worker. mu is held.
func (r *Runner) idle(in ledger.Intent, j *job) bool {
	v := r.Outbox.Permit(in, ledger.WitnessSilent)
	switch {
	case v.Over:
		return true
	case r.dryNews(in, j):
		return false
	case len(r.Targets) == 0:
		return true
	case v.Ask:
		return false
	case !v.Soft:
		return v.Reason == j.note
	}
	return j.note == waits && !j.started && counted(&in) && r.tokens < 1
}

// work does what may be done about one intent.
func (r *Runner) work(ctx context.Context, in ledger.Intent, j *job) {
	delay := r.attempt(ctx, &in, j)
	r.mu.Lock()
	defer r.mu.Unlock()
	j.busy = false
	j.retry = time.Now().Add(delay)
}

// attempt carries the intent as far as it goes and says when to look again.
func (r *Runner) attempt(ctx context.Context, in *ledger.Intent, j *job) time.Duration {
	r.rehearse(ctx, in, j)
	v, said := r.permit(ctx, *in)
	switch {
	case v.Over || len(r.Targets) == 0:
		return retryMin
	case !v.Soft:
		r.held(ctx, in, j, v.Reason)
		return retryMin
	case !r.pass(in, j, v.Slow):
		r.held(ctx, in, j, waits)
		return retryMin
	}
	in.Steps = slices.Clone(in.Steps)
	failed := false
	for _, t := range r.Targets {
		again, ok := r.attemptTarget(ctx, in, j, t, said)
		if !again {
			return retryMin
		}
		failed = failed || !ok
	}
	if failed {
		j.delay = min(max(2*j.delay, retryMin), retryMax)
		return j.delay
	}
	j.delay = 0
	if !r.done(in) {
		r.held(ctx, in, j, v.Reason)
	}
	return retryMin
}

// attemptTarget carries the intent as far as it goes in one target: it is asked
// right before the call. again is false when nothing more may be done.
func (r *Runner) attemptTarget(ctx context.Context, in *ledger.Intent, j *job, t Named, said ledger.Witness) (again, ok bool) {
	v := r.Outbox.Permit(*in, said)
	if v.Over || !v.Soft {
		return false, true
	}
	step, hard := stepOf(in, t.Name), v.Hard && wantsHard(in.Action)
	if step.Hard || step.Soft && !hard {
		return true, true
	}
	return true, r.apply(ctx, in, j, t, step, hard)
}

// permit asks whether, with a witness where one could matter.
func (r *Runner) permit(ctx context.Context, in ledger.Intent) (ledger.Verdict, ledger.Witness) {
	v, said, _ := r.weigh(ctx, in.Node, func(w ledger.Witness) ledger.Verdict { return r.Outbox.Permit(in, w) })
	return v, said
}

// weigh asks for a verdict, and a witness where one could change it.
func (r *Runner) weigh(ctx context.Context, node string, ask func(ledger.Witness) ledger.Verdict) (v ledger.Verdict, said ledger.Witness, words string) {
	v = ask(ledger.WitnessSilent)
	if !v.Ask {
		return v, ledger.WitnessSilent, ""
	}
	said, words = r.witness(ctx, node)
	if said != ledger.WitnessSilent {
		v = ask(said)
	}
	if v.Reason != "" && words != "" {
		v.Reason += " (" + words + ")"
	}
	return v, said, words
}

// Witness is a target that can tell whether a node lives, such as a scheduler
// with a heartbeat of its own.
type Witness interface {
	// Witness says what it knows, with its words. It does not wait longer than
	// ctx allows; what it cannot find out is WitnessSilent.
	Witness(ctx context.Context, node string) (ledger.Witness, string)
}

// witness asks all there are: one that sees the node live wins.
func (r *Runner) witness(ctx context.Context, node string) (ledger.Witness, string) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	said, words := ledger.WitnessSilent, ""
	ask := func(f func(context.Context, string) (ledger.Witness, string)) bool {
		w, text := f(ctx, node)
		if w > said || words == "" {
			said, words = w, text
		}
		return said == ledger.WitnessAlive
	}
	if r.Witness != nil && ask(r.Witness) {
		return said, words
	}
	for _, t := range r.Targets {
		if w, ok := t.Target.(Witness); ok && ask(w.Witness) {
			break
		}
	}
	return said, words
}

// pass takes a token for an intent that needs one.
func (r *Runner) pass(in *ledger.Intent, j *job, slow bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.started || !counted(in) {
		return true
	}
	now := time.Now()
	if r.tokens < 1 || slow && now.Sub(r.slowAt) < slowInterval {
		return false
	}
	r.tokens--
	r.slowAt = now
	j.started = true
	return true
}
