// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// Defaults of PollConfig.
const (
	defaultInterval   = 15 * time.Second
	defaultMinBackoff = time.Second
	defaultMaxBackoff = time.Minute
	maxDeadline       = 10 * time.Second
)

// late is how long a read may take to come back after its ctx ended before it
// counts as abandoned.
const late = 100 * time.Millisecond

// PollConfig says how one source is sampled.
type PollConfig struct {
	// Name is the source's name, used where the snapshot leaves Source empty.
	Name string
	// Interval is the sampling interval; 0 means 15 s.
	Interval time.Duration
	// Deadline bounds one read; 0 means Interval, but not under 1 s or over 10 s.
	Deadline time.Duration
	// MinBackoff and MaxBackoff bound the wait after failed reads, which doubles
	// with each; 0 means 1 s and 60 s (Interval, where that is longer).
	MinBackoff, MaxBackoff time.Duration
	// Read takes one sample. It is never called twice at the same time. One that
	// does not return when its ctx ends is left alone until it does, and what it
	// then returns is dropped. A snapshot with points is shown although an error
	// came with it: the source then counts as up, with the error as its reason.
	// A panic counts as an error.
	Read func(ctx context.Context) (Snapshot, error)
	// OnStatus, if set, is told the status before the first read and after each,
	// when the Store has it already. It must not block.
	OnStatus func(Status)
}

func (cfg *PollConfig) setDefaults() {
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Deadline <= 0 {
		cfg.Deadline = min(max(cfg.Interval, time.Second), maxDeadline)
	}
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = defaultMinBackoff
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = max(defaultMaxBackoff, cfg.Interval)
	}
}

// Poll samples a source until ctx ends: at once, then in each interval with a
// jitter of up to a tenth of it; after an error it backs off. Snapshots and the
// status go to the store; after an error the last snapshot stays there until it
// is stale. When ctx ends Poll waits for a read under way, but not longer than
// the read's ctx allows; the source stays in the store.
func Poll(ctx context.Context, cfg PollConfig, store *Store, logger log.Logger) {
	cfg.setDefaults()
	p := &poller{cfg: cfg, store: store, logger: log.With(logger, "source", cfg.Name), start: time.Now()}
	p.status = Status{Reason: "not read yet", Since: p.start}
	p.publish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := p.sample(ctx)
		if ctx.Err() != nil {
			return
		}
		p.log(err)
		p.publish()
		timer.Reset(p.wait(time.Now()))
	}
}

// errNoAnswer says that a read ignored its deadline; errHangs that it still does.
var (
	errNoAnswer = errors.New("read does not answer")
	errHangs    = errors.New("an earlier read still hangs")
)

type poller struct {
	cfg    PollConfig
	store  *Store
	logger log.Logger
	start  time.Time
	status Status
	logged string // the last reason logged
	// abandoned is the read that missed its deadline; nil: none.
	abandoned <-chan readResult
}

type readResult struct {
	snap Snapshot
	err  error
	took time.Duration
}

// sample does one read and updates the status.
func (p *poller) sample(ctx context.Context) error {
	snap, err := p.read(ctx)
	now := time.Now()
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err == nil || len(snap.Points) > 0 {
		p.put(snap, now)
		p.setUp(true, now)
		p.status.Consecutive = 0
	} else {
		p.setUp(false, now)
		p.status.Consecutive++
	}
	p.status.Reason = ""
	if err != nil {
		p.status.Errors++
		p.status.Reason = reasonOf(err, p.cfg.Deadline)
	}
	return err
}

// read runs one Read in its own goroutine and waits for it at most for its
// deadline and a moment more.
func (p *poller) read(ctx context.Context) (Snapshot, error) {
	if p.abandoned != nil {
		select {
		case <-p.abandoned: // too late: dropped
			p.abandoned = nil
		default:
			return Snapshot{}, errHangs
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Deadline)
	defer cancel()
	done := make(chan readResult, 1)
	go func() {
		start := time.Now()
		snap, err := p.guard(ctx)
		done <- readResult{snap, err, time.Since(start)}
	}()
	select {
	case res := <-done:
		p.status.Duration = res.took
		return res.snap, res.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(late)
	defer grace.Stop()
	select {
	case res := <-done:
		p.status.Duration = res.took
		return res.snap, res.err
	case <-grace.C:
	}
	p.abandoned = done
	p.status.Abandoned++
	return Snapshot{}, errNoAnswer
}

// guard turns a panic of Read into an error: one fault never spreads.
func (p *poller) guard(ctx context.Context) (snap Snapshot, err error) {
	defer func() {
		if r := recover(); r != nil {
			level.Error(p.logger).Log("msg", "read panicked", "err", r, "stack", string(debug.Stack()))
			snap, err = Snapshot{}, fmt.Errorf("read panicked: %v", r)
		}
	}()
	return p.cfg.Read(ctx)
}

func (p *poller) put(snap Snapshot, now time.Time) {
	if snap.Source == "" {
		snap.Source = p.cfg.Name
	}
	if snap.Interval == 0 {
		snap.Interval = p.cfg.Interval
	}
	if snap.At.IsZero() {
		snap.At = now
	}
	p.store.Put(snap)
	p.status.LastSample = snap.At
}

func (p *poller) setUp(up bool, now time.Time) {
	if p.status.Up != up {
		p.status.Up, p.status.Since = up, now
	}
}

func (p *poller) publish() {
	p.store.SetStatus(p.cfg.Name, p.status)
	if p.cfg.OnStatus != nil {
		p.cfg.OnStatus(p.status)
	}
}

// log tells of changes only, not of each failure.
func (p *poller) log(err error) {
	state := fmt.Sprint(p.status.Up, p.status.Reason)
	if state == p.logged {
		return
	}
	p.logged = state
	if err != nil {
		level.Warn(p.logger).Log("msg", "read failed", "err", err, "up", p.status.Up)
		return
	}
	level.Info(p.logger).Log("msg", "source delivers")
}

// wait returns the time until the next read: the next slot of the fixed cadence
// and a jitter, or the back-off after failures, which is jittered downwards.
func (p *poller) wait(now time.Time) time.Duration {
	if p.status.Consecutive == 0 {
		slots := now.Sub(p.start)/p.cfg.Interval + 1
		return p.start.Add(slots*p.cfg.Interval).Sub(now) + jitter(p.cfg.Interval/10)
	}
	d := p.cfg.MinBackoff
	for i := 1; i < p.status.Consecutive && d < p.cfg.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, p.cfg.MaxBackoff)
	return d - jitter(d/4)
}

// jitter is a random duration in [0, limit).
func jitter(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return rand.N(limit)
}

// reasonOf words an error so that equal failures read equal: a label made of
// it must not change with the clock or the local port.
func reasonOf(err error, deadline time.Duration) string {
	if errors.Is(err, errNoAnswer) || errors.Is(err, errHangs) {
		return fmt.Sprintf("no answer within %s", deadline)
	}
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) && op.Source != nil {
		text = strings.ReplaceAll(text, op.Source.String()+"->", "")
	}
	return text
}
