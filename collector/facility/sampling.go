// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// Load that swings within a second is not seen by a read each 15 s. A device
// that allows it is therefore read up to ten times a second, and what happened
// between two scrapes is shown by peaks, troughs and counters.
const (
	// MinSample and MaxSample bound the time between two fast reads: training
	// loads swing at 0.2 to 3 Hz, so one read a second is the least that helps.
	MinSample = 100 * time.Millisecond
	MaxSample = time.Second
	// peakWindow is the trailing time of peaks and troughs.
	peakWindow = 60 * time.Second
)

var descObservable = &collector.Desc{
	Name: "rackpulse_facility_transients_observable", Labels: []string{"device"}, Max: 1,
	Help: "Whether power swings within seconds can be seen at this PDU (1), by fast sampling or by peaks that it measures itself, or not (0).",
}

// fastReader is a Driver that can read its electrical values alone.
type fastReader interface {
	// ReadFast is like Read but returns only what changes within seconds.
	ReadFast(ctx context.Context) ([]Reading, error)
}

type readingKey struct{ device, quantity, part string }

func keyOf(r Reading) readingKey { return readingKey{r.Device, r.Quantity, r.Part} }

// sampler is a Driver that reads another one all the time, in a goroutine of its
// own, and returns the latest values and what the window has seen.
type sampler struct {
	inner              Driver
	every, full, limit time.Duration
	logger             log.Logger
	cancel             context.CancelFunc
	done               chan struct{}
	first              chan struct{} // closed after the first sample

	mu      sync.Mutex
	held    map[readingKey]Reading
	windows map[readingKey]*window
	powers  map[string]*transients // by device
	fresh   bool                   // a sample delivered since the last Read
	err     error                  // of the latest sample
}

// sampled lets the driver that open opens be read each c.Sample.
func sampled(open func(context.Context) (Driver, error), c DeviceConfig, logger log.Logger) func(context.Context) (Driver, error) {
	return func(ctx context.Context) (Driver, error) {
		inner, err := open(ctx)
		if err != nil {
			return nil, err
		}
		s := &sampler{
			inner: inner, every: c.Sample, full: c.Interval, limit: c.Deadline, logger: logger,
			done: make(chan struct{}), first: make(chan struct{}),
			held: map[readingKey]Reading{}, windows: map[readingKey]*window{}, powers: map[string]*transients{},
		}
		run, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		go s.run(run)
		return s, nil
	}
}

func (s *sampler) run(ctx context.Context) {
	defer close(s.done)
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	var full time.Time // of the latest read of everything
	for begun := false; ctx.Err() == nil; begun = true {
		now := time.Now()
		read := s.inner.Read
		if fast, ok := s.inner.(fastReader); ok && now.Sub(full) < s.full {
			read = fast.ReadFast
		} else {
			full = now
		}
		list, err := s.sample(ctx, read)
		if ctx.Err() != nil {
			return
		}
		s.take(list, err, time.Now())
		if !begun {
			close(s.first)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// sample reads once. A panic of the driver is an error: it must not end the agent.
func (s *sampler) sample(ctx context.Context, read func(context.Context) ([]Reading, error)) (list []Reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			list, err = nil, fmt.Errorf("read panicked: %v", r)
		}
	}()
	return read(ctx)
}

// take keeps a sample.
func (s *sampler) take(list []Reading, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.fresh = s.fresh || len(list) > 0
	totals := map[string]swing{}
	for _, r := range list[:min(len(list), maxReadings)] {
		if r.At.IsZero() {
			r.At = now
		}
		s.held[keyOf(r)] = r
		switch r.Quantity {
		case "phase_current":
			w := s.windows[keyOf(r)]
			if w == nil {
				w = &window{}
				s.windows[keyOf(r)] = w
			}
			w.add(r.At, r.Value, peakWindow)
		case "power":
			totals[r.Device] = swing{r, minSwingWatts}
		case "current":
			if _, ok := totals[r.Device]; !ok {
				totals[r.Device] = swing{r, minSwingAmperes}
			}
		}
	}
	for device, t := range totals {
		if s.powers[device] == nil {
			s.powers[device] = &transients{quantity: t.Quantity}
		}
		s.powers[device].add(t)
	}
}

// Read returns the latest values of all samples since the last Read, and what
// the windows hold. It waits only for the first sample.
func (s *sampler) Read(ctx context.Context) ([]Reading, error) {
	select {
	case <-s.first:
	case <-ctx.Done():
		return nil, fmt.Errorf("no sample yet: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return nil, s.err
	}
	s.fresh = false
	now := time.Now()
	out := make([]Reading, 0, len(s.held))
	for key, r := range s.held {
		if now.Sub(r.At) > staleAfter(s.full) {
			delete(s.held, key)
			continue
		}
		out = append(out, r)
	}
	for key, w := range s.windows {
		low, high, ok := w.bounds(now.Add(-peakWindow))
		if !ok {
			delete(s.windows, key)
			continue
		}
		out = append(out,
			Reading{Device: key.device, Quantity: "phase_current_trough", Part: key.part, Value: low, At: now},
			Reading{Device: key.device, Quantity: "phase_current_peak", Part: key.part, Value: high, At: now})
	}
	for device, t := range s.powers {
		out = append(out,
			Reading{Device: device, Quantity: "power_transients", Part: "down", Value: float64(t.down), At: now},
			Reading{Device: device, Quantity: "power_transients", Part: "up", Value: float64(t.up), At: now})
	}
	return out, s.err
}

// garbageLines passes on what the driver of a serial line counts.
func (s *sampler) garbageLines() int {
	if g, ok := s.inner.(interface{ garbageLines() int }); ok {
		return g.garbageLines()
	}
	return 0
}

// Close ends the goroutine and closes the device, at once or, when a read hangs,
// after it came back.
func (s *sampler) Close() error {
	s.cancel()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-s.done:
		return s.inner.Close()
	case <-timer.C:
	}
	go func() {
		<-s.done
		if err := s.inner.Close(); err != nil {
			level.Warn(s.logger).Log("msg", "closing a device failed", "err", err)
		}
	}()
	return nil
}

// window holds the values of a trailing time, oldest first.
type window struct {
	at     []time.Time
	values []float64
}

// add appends a value and drops those older than the span.
func (w *window) add(at time.Time, v float64, span time.Duration) {
	w.trim(at.Add(-span))
	w.at, w.values = append(w.at, at), append(w.values, v)
}

func (w *window) trim(oldest time.Time) {
	n := 0
	for n < len(w.at) && w.at[n].Before(oldest) {
		n++
	}
	w.at, w.values = slices.Delete(w.at, 0, n), slices.Delete(w.values, 0, n)
}

// bounds are the lowest and highest value not older than oldest.
func (w *window) bounds(oldest time.Time) (low, high float64, ok bool) {
	w.trim(oldest)
	if len(w.values) == 0 {
		return 0, 0, false
	}
	return slices.Min(w.values), slices.Max(w.values), true
}
