// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

const (
	// maxTargetSamples bounds what one target may give in one round.
	maxTargetSamples = 200_000
	// maxGather bounds how long one target is waited for; the interval if shorter.
	maxGather = 10 * time.Second
	// maxErrors is how many failing targets an error names.
	maxErrors = 5

	defaultJob = "rackpulse"
)

var staleNaN = math.Float64frombits(value.StaleNaN)

// Target is one gatherer with the labels its series get, as a scrape with
// honor_labels: a label that a metric has itself wins.
type Target struct {
	// Instance is the label instance: the node, or a part of this process.
	Instance string
	// Labels are more target labels, such as site. Without a job the label
	// job is "rackpulse".
	Labels map[string]string
	// Gatherer gives the series. One that fails, panics or takes longer than
	// the interval has up 0 and its series end; others are not disturbed.
	Gatherer prometheus.Gatherer
}

// identity are the target's labels, sorted.
func (t Target) identity() labels.Labels {
	b := labels.NewBuilder(labels.FromMap(t.Labels))
	if t.Labels["job"] == "" {
		b.Set("job", defaultJob)
	}
	b.Set("instance", t.Instance)
	return b.Labels()
}

// ingester writes rounds of targets to the storage.
type ingester struct {
	storage storage.AppendableV2
	timeout time.Duration

	mu      sync.Mutex // one round at a time
	round   uint64
	targets map[string]*targetState
}

// targetState is what is remembered of a target between rounds. One worker at
// a time works on it.
type targetState struct {
	labels labels.Labels
	up     cached
	series map[string]*cached
	round  uint64
	// busy is set while a Gather is under way, which may be longer than a round.
	busy atomic.Bool
}

// cached is a series the storage knows.
type cached struct {
	ref    storage.SeriesRef
	labels labels.Labels
	round  uint64 // last seen
	// ownTime marks a series with timestamps of its own, which ends by itself.
	ownTime bool
}

func newIngester(s storage.AppendableV2, interval time.Duration) *ingester {
	return &ingester{storage: s, timeout: min(interval, maxGather), targets: map[string]*targetState{}}
}

// Ingest reads all targets once and writes their samples with the time at, and
// up (0 or 1) for each. Series that were there in the last round and are not
// any more are marked stale; so are all series of a target that is not listed
// any more. Run calls it; tests and benchmarks may call it with a time of
// their own, which must not go back. The error names targets that failed; all
// others are written.
func (e *Engine) Ingest(ctx context.Context, at time.Time, targets []Target) error {
	ctx, leave, err := e.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return e.ingester.ingest(ctx, at.UnixMilli(), targets)
}

type job struct {
	target Target
	state  *targetState
}

func (in *ingester) ingest(ctx context.Context, at int64, targets []Target) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.round++
	jobs, errs := in.match(targets)
	results := make([]error, len(jobs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(jobs), max(4, runtime.GOMAXPROCS(0))) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(jobs)); i = next.Add(1) - 1 {
				if err := in.read(ctx, at, jobs[i]); err != nil {
					results[i] = fmt.Errorf("target %s: %w", jobs[i].target.Instance, err)
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err() // an interrupted round says nothing about the targets
	}
	errs = append(errs, results...)
	for key, state := range in.targets {
		if state.round != in.round {
			errs = append(errs, in.end(ctx, at, state))
			delete(in.targets, key)
		}
	}
	return summary(errs)
}

// match finds the state of each target.
func (in *ingester) match(targets []Target) ([]job, []error) {
	jobs := make([]job, 0, len(targets))
	var errs []error
	for _, t := range targets {
		identity := t.identity()
		key := identity.String()
		state, ok := in.targets[key]
		if !ok {
			state = &targetState{labels: identity, series: map[string]*cached{}}
			b := labels.NewBuilder(identity)
			b.Set(model.MetricNameLabel, "up")
			state.up.labels = b.Labels()
			in.targets[key] = state
		}
		if state.round == in.round {
			errs = append(errs, fmt.Errorf("target %s: listed twice", key))
			continue
		}
		state.round = in.round
		jobs = append(jobs, job{target: t, state: state})
	}
	return jobs, errs
}

// read gathers one target and writes it.
func (in *ingester) read(ctx context.Context, at int64, j job) error {
	families, err := in.gather(ctx, j)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w := &writer{app: in.storage.AppenderV2(ctx), state: j.state, round: in.round, at: at}
	up := 0.0
	if err == nil {
		up = 1
		if err = w.families(families); errors.Is(err, errTooMany) {
			// As a scrape over its sample_limit: nothing of it is kept.
			err = errors.Join(err, w.app.Rollback())
			w = &writer{app: in.storage.AppenderV2(ctx), state: j.state, round: in.round + 1, at: at}
			up = 0
		}
	}
	w.endUnseen()
	w.put(&j.state.up, at, up)
	return errors.Join(err, w.err(), w.app.Commit())
}

// end marks all series of a target stale.
func (in *ingester) end(ctx context.Context, at int64, state *targetState) error {
	w := &writer{app: in.storage.AppenderV2(ctx), state: state, round: in.round, at: at}
	w.endUnseen()
	w.put(&state.up, at, staleNaN)
	if err := errors.Join(w.err(), w.app.Commit()); err != nil {
		return fmt.Errorf("ending target %s: %w", state.labels, err)
	}
	return nil
}

type gathered struct {
	families []*dto.MetricFamily
	err      error
}

// gather calls the gatherer, for the timeout at most. One that hangs goes on
// in its goroutine and is not called again before it returns.
func (in *ingester) gather(ctx context.Context, j job) ([]*dto.MetricFamily, error) {
	if !j.state.busy.CompareAndSwap(false, true) {
		return nil, errors.New("still busy with an earlier round")
	}
	done := make(chan gathered, 1)
	go func() {
		g := gatherSafely(j.target.Gatherer)
		j.state.busy.Store(false) // before anyone can start the next round
		done <- g
	}()
	timer := time.NewTimer(in.timeout)
	defer timer.Stop()
	select {
	case g := <-done:
		return g.families, g.err
	case <-timer.C:
		return nil, fmt.Errorf("no answer within %v", in.timeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// gatherSafely turns a panic into an error, as net/http does for a scrape.
func gatherSafely(g prometheus.Gatherer) (result gathered) {
	defer func() {
		if r := recover(); r != nil {
			result = gathered{err: fmt.Errorf("panic: %v", r)}
		}
	}()
	families, err := g.Gather()
	return gathered{families, err}
}

// summary joins the errors that are not nil, a few of them.
func summary(errs []error) error {
	var some []error
	failed := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if failed++; failed <= maxErrors {
			some = append(some, err)
		}
	}
	if failed > maxErrors {
		some = append(some, fmt.Errorf("and %d more", failed-maxErrors))
	}
	return errors.Join(some...)
}
