// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// Apply validates a new configuration as a whole and hands it to Run. An error
// changes nothing.
func (r *Runner) Apply(cfg Config) error {
	s, err := newSettings(cfg, r.deps.Sim)
	if err != nil {
		return err
	}
	r.settings.Store(s)
	r.log.use(s)
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return nil
}

// use starts with settings.
func (r *Runner) use(ctx context.Context, s *settings) {
	for _, u := range s.counters.unknown {
		level.Error(r.logger).Log("msg", "unknown DCGM field, left out", "field", u.name, "file", s.cfg.CountersFile, "line", u.line)
	}
	exp := newExpCounts(s.cfg.CountWindow)
	if r.converter != nil && r.converter.exp.window == exp.window {
		exp = r.converter.exp
	}
	for name, exp := range map[string]string{healthName: expHealth, p2pName: expP2P} {
		if !s.counters.has(exp) { // what is not asked for any more goes at once
			r.deps.Store.Put(collector.Snapshot{Source: name})
		}
	}
	r.converter = newConverter(newLayout(s.counters, s.cfg.HostnameLabel), r.deps.Hostname, exp, r.derived)
	r.derived.use(s.cfg.Interval)
	r.sel = newSelector(s, r.launcher, r.logger)
	if r.watch != nil {
		r.watch.stop()
	}
	r.watch = watchCounters(ctx, s)
	r.counters = countersState{ok: true, at: time.Now()}
	r.events.changed = true
}

// change goes over to other settings. A source that can read other fields from now
// on does so; else it is opened anew. Until then the last sample stays on the page.
func (r *Runner) change(ctx context.Context, s *settings) {
	old := r.sel
	r.use(ctx, s)
	switch {
	case old.serves(s): // only the look of the page changed
		old.timeout = s.cfg.OpenTimeout
		r.sel = old
	case old.adapt(ctx, s):
		r.sel = old
	default:
		old.stop()
	}
	level.Info(r.logger).Log("msg", "GPU configuration changed", "source", s.cfg.Source, "interval", s.cfg.Interval)
}
