// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// MaxRelease is the longest release that ends by itself.
const MaxRelease = 24 * time.Hour

// release is the time in which the devices belong to somebody else.
type release struct {
	since time.Time
	until time.Time // zero: until it is ended by request
}

func (r *release) reason() string {
	if r.until.IsZero() {
		return "released"
	}
	return "released until " + r.until.UTC().Format(time.RFC3339)
}

// command is a release, or the end of one.
type command struct {
	release *release // nil: the end
	done    chan error
}

// Release ends the child process, so that no process of this agent holds a device
// file, and samples nothing until Acquire is called, or for d if that is above 0;
// MIG mode, a VM or another driver can have the GPUs then. The values go from the
// page and the inventory becomes unavailable. A release of released GPUs changes
// its end. The error says that d is no such time, that ctx ended first, or that a
// child cannot be ended.
func (r *Runner) Release(ctx context.Context, d time.Duration) error {
	if d < 0 || d > MaxRelease {
		return fmt.Errorf("release for %v: not above 0 and up to %v", d, MaxRelease)
	}
	now := time.Now()
	rel := &release{since: now}
	if d > 0 {
		rel.until = now.Add(d)
	}
	return r.order(ctx, rel)
}

// Acquire ends a release: the GPUs are looked for and listed anew. Without a
// release it does nothing. The error says that ctx ended first.
func (r *Runner) Acquire(ctx context.Context) error {
	return r.order(ctx, nil)
}

// Released returns since when the GPUs are released and until when, zero for an
// end by request only; ok is false while they are not released.
func (r *Runner) Released() (since, until time.Time, ok bool) {
	rel := r.released.Load()
	if rel == nil {
		return since, until, false
	}
	return rel.since, rel.until, true
}

// order hands a command to Run and waits until it is carried out.
func (r *Runner) order(ctx context.Context, rel *release) error {
	c := command{release: rel, done: make(chan error, 1)}
	select {
	case r.commands <- c:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// obey carries a command out.
func (r *Runner) obey(ctx context.Context, c command) error {
	if c.release == nil {
		if r.released.Load() != nil {
			r.acquire()
			r.tick(ctx)
		}
		return nil
	}
	if old := r.released.Load(); old != nil {
		c.release.since = old.since
	} else {
		r.letGo()
	}
	reason := c.release.reason()
	level.Info(r.logger).Log("msg", "GPUs given back", "reason", reason)
	r.inv.Store(&inventory{reason: reason})
	r.released.Store(c.release)
	r.status.Up, r.status.Since = false, c.release.since
	r.status.Consecutive = max(r.status.Consecutive, 1) // it was tried
	r.publishStatus(reason)
	if n := r.launcher.stuck(); n > 0 {
		return fmt.Errorf("%d child processes are stuck in the kernel and may still hold the GPUs", n)
	}
	return nil
}

// letGo closes the source and takes its values off the page.
func (r *Runner) letGo() {
	r.sel.stop()
	r.slow = slowValues{}
	r.owners.clear()
	for _, name := range []string{sourceName, slowName, entitiesName, p2pName, healthName} {
		r.deps.Store.Put(collector.Snapshot{Source: name, At: time.Now(), Interval: r.settings.Load().cfg.Interval})
	}
}

// acquire ends a release; the next tick looks for the GPUs.
func (r *Runner) acquire() {
	r.released.Store(nil)
	r.inv.Store(&inventory{reason: "not sampled yet"})
	r.sel.again()
	level.Info(r.logger).Log("msg", "GPUs taken again")
}

// away tells whether the GPUs are released, and ends a release whose time is over.
func (r *Runner) away(now time.Time) bool {
	rel := r.released.Load()
	if rel == nil {
		return false
	}
	if rel.until.IsZero() || now.Before(rel.until) {
		return true
	}
	r.acquire()
	return false
}
