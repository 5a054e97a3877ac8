// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// countersPoll is how often a counters file is read to see whether it changed, some
// 20 us of work. A
// ConfigMap is swapped by a symbolic link far from the file, editors write in place or
// rename, and network file systems tell nobody: reading a few kB sees all of that.
const countersPoll = 500 * time.Millisecond

// countersChange is what the file has become.
type countersChange struct {
	data []byte
	err  error // it cannot be read
}

// countersWatch looks at one counters file.
type countersWatch struct {
	cancel  context.CancelFunc
	changes chan countersChange // nil: there is no file to look at
}

// watchCounters begins to look at the settings' counters file, in a goroutine of its
// own, since a file may be on a disk that hangs. It ends with ctx or stop.
func watchCounters(ctx context.Context, s *settings) *countersWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &countersWatch{cancel: cancel}
	if path := s.cfg.CountersFile; path != "" {
		w.changes = make(chan countersChange)
		go w.run(ctx, path, s.counters.sum)
	}
	return w
}

func (w *countersWatch) stop() { w.cancel() }

// run tells of each change once, when two looks in a row found the same: the first
// may have found half a file.
func (w *countersWatch) run(ctx context.Context, path string, told [sha256.Size]byte) {
	ticker := time.NewTicker(countersPoll)
	defer ticker.Stop()
	last := told
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var change countersChange
		change.data, change.err = readCounters(path)
		sum := sha256.Sum256(change.data)
		if change.err != nil {
			sum = sha256.Sum256([]byte(change.err.Error()))
		}
		steady := sum == last
		last = sum
		if !steady || sum == told {
			continue
		}
		select {
		case w.changes <- change:
			told = sum
		case <-ctx.Done():
			return
		}
	}
}

// countersState is what the page says of the counters file.
type countersState struct {
	ok bool
	at time.Time // of the last good reading
}

// countersChanged returns the settings with the file's new content, or those in force
// where the file is bad or not different.
func (r *Runner) countersChanged(s *settings, change countersChange) *settings {
	path := s.cfg.CountersFile
	var c *counters
	err := change.err
	if err == nil {
		c, err = parseCounters(change.data, path)
	}
	r.events.changed = true
	r.counters.ok = err == nil
	if err != nil {
		level.Error(r.logger).Log("msg", "counters file is bad, the old one stays in force", "err", err)
		return s
	}
	r.counters.at = time.Now()
	if c.sum == s.counters.sum {
		level.Info(r.logger).Log("msg", "counters file is again what it was", "file", path)
		return s
	}
	next := *s
	next.take(c)
	if !r.settings.CompareAndSwap(s, &next) { // a new configuration came, with the file as it is now
		return s
	}
	level.Info(r.logger).Log("msg", "counters file changed", "file", path, "counters", len(c.metrics), "labels", len(c.labels))
	return &next
}

// countersPoints appends what the page says of the counters file.
func (r *Runner) countersPoints(points []collector.Point) []collector.Point {
	s := r.settings.Load()
	points = r.unmatchedPoints(points)
	for _, u := range s.counters.unknown {
		points = append(points, collector.Point{Desc: descCounterIgnored, Values: []string{u.name, "unknown"}, Value: 1})
	}
	if s.cfg.CountersFile == "" {
		return points
	}
	ok := 0.0
	if r.counters.ok {
		ok = 1
	}
	return append(points,
		collector.Point{Desc: descCountersOK, Value: ok},
		collector.Point{Desc: descCountersTime, Value: float64(r.counters.at.UnixMilli()) / 1e3})
}
