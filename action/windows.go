// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/site"
)

// Window is a maintenance that a scheduler knows of and that has begun.
type Window struct {
	// Name is the scheduler's; Nodes are those it is about.
	Name  string
	Nodes []string
	Until time.Time
}

// Windower is a target that knows maintenance windows.
type Windower interface {
	// Windows returns those that have begun and not ended.
	Windows(ctx context.Context) ([]Window, error)
}

const (
	// windowInterval is how often windows are looked at.
	windowInterval = 30 * time.Second
	// maxWindow is the longest maintenance that a lease takes; a longer one is
	// declared again.
	maxWindow = 24 * time.Hour
	// windowReason begins the reason of such a maintenance.
	windowReason = "maintenance window "
)

// held is a maintenance that was declared for a window.
type held struct {
	window string
	until  time.Time // that was declared
}

// maintain keeps nodes in maintenance while a window of a target lasts, until
// ctx ends.
func (r *Runner) maintain(ctx context.Context) {
	if r.Maintain == nil || r.EndMaintenance == nil {
		return
	}
	declared := map[string]held{}
	ticker := time.NewTicker(windowInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		open, err := r.windows(ctx)
		if err != nil {
			// Nothing ends because a scheduler does not answer.
			level.Warn(r.Logger).Log("msg", "maintenance windows are not known", "err", err)
			continue
		}
		for node, w := range open {
			r.declare(ctx, node, w, declared, now)
		}
		for node, h := range declared {
			if w, ok := open[node]; ok && w.Name == h.window {
				continue
			}
			if _, ok := open[node]; ok {
				continue // another window took over
			}
			delete(declared, node)
			if err := r.EndMaintenance(ctx, node, windowReason+h.window+" is over", h.window); err != nil {
				level.Info(r.Logger).Log("msg", "maintenance was not ended", "node", node, "window", h.window, "err", err)
			}
		}
	}
}

// declare puts a node into maintenance for a window, unless it was declared.
func (r *Runner) declare(ctx context.Context, node string, w Window, declared map[string]held, now time.Time) {
	until := w.Until
	if most := now.Add(maxWindow); until.After(most) {
		until = most
	}
	h, known := declared[node]
	if known && h.window == w.Name && until.Sub(h.until) < time.Hour && !until.Before(h.until.Add(-time.Minute)) {
		return
	}
	if err := r.Maintain(ctx, node, until.Sub(now), windowReason+w.Name, w.Name); err != nil {
		level.Debug(r.Logger).Log("msg", "maintenance was not taken", "node", node, "window", w.Name, "err", err)
		return
	}
	declared[node] = held{window: w.Name, until: until}
}

// windows are those of all targets, by node.
func (r *Runner) windows(ctx context.Context) (map[string]Window, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	out := map[string]Window{}
	for _, t := range r.Targets {
		w, ok := t.Target.(Windower)
		if !ok {
			continue
		}
		list, err := w.Windows(ctx)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", t.Name, err)
		}
		for _, window := range list {
			window.Name = t.Name + "/" + window.Name
			for _, node := range window.Nodes {
				out[node] = window
			}
		}
	}
	return out, nil
}

var slurmPair = regexp.MustCompile(`(\w+)=(\S+)`)

// slurmTime is how Slurm writes a time, in the zone of the machine.
const slurmTime = "2006-01-02T15:04:05"

// Windows implements Windower: the active reservations with the flag MAINT.
func (s *slurm) Windows(ctx context.Context) ([]Window, error) {
	text, err := s.call(ctx, "--oneliner", "show", "reservation")
	if err != nil {
		return nil, err
	}
	var out []Window
	var errs []error
	for line := range strings.Lines(text) {
		fields := map[string]string{}
		for _, m := range slurmPair.FindAllStringSubmatch(line, -1) {
			fields[m[1]] = m[2]
		}
		maint := strings.Contains(","+fields["Flags"]+",", ",MAINT,")
		if fields["State"] != "ACTIVE" || !maint || fields["Nodes"] == "(null)" {
			continue
		}
		nodes, err := site.ExpandHostlist(fields["Nodes"])
		if err != nil {
			errs = append(errs, fmt.Errorf("reservation %s: %w", fields["ReservationName"], err))
			continue
		}
		until, err := time.ParseInLocation(slurmTime, fields["EndTime"], time.Local)
		if err != nil {
			until = time.Now().Add(maxWindow) // a reservation without an end
		}
		out = append(out, Window{Name: fields["ReservationName"], Nodes: nodes, Until: until})
	}
	return out, errors.Join(errs...)
}
