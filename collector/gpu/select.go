// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

const (
	maxBackoff = time.Minute // between two attempts to open a source
	// upgradeInterval is how often "auto" looks for a better source than it has.
	upgradeInterval = time.Minute
	// settledReads is how many good reads in a row reset the back-off: a source
	// that opens and then hangs every time must not be restarted every second.
	settledReads = 10
)

// selector holds the open source and looks for one, or for a better one, in the
// background. It belongs to one goroutine; only open runs beside it.
type selector struct {
	list     []registration
	cfg      SourceConfig
	timeout  time.Duration // of one open
	launcher *launcher
	logger   log.Logger

	active  Source
	index   int      // of active in list; len(list): none
	refused []string // why each of list is not open; "": never tried, or open

	opening bool
	cancel  context.CancelFunc // ends the look that is opening
	results chan openResult    // one at most
	next    time.Time          // when to look again
	backoff time.Duration
	first   time.Duration // shortest back-off
	good    int           // good reads in a row
	told    string        // refusals that the log has
}

// openResult is what one look brought.
type openResult struct {
	source  Source
	index   int
	refused []string
	// dead are the ends of children on the way.
	dead []string
}

func newSelector(s *settings, l *launcher, logger log.Logger) *selector {
	return &selector{
		list: s.list, cfg: s.source, timeout: s.cfg.OpenTimeout, launcher: l, logger: logger,
		index: len(s.list), refused: make([]string, len(s.list)),
		results: make(chan openResult, 1), first: s.cfg.Interval,
	}
}

// look starts looking when it is time to.
func (s *selector) look(ctx context.Context, now time.Time) {
	if s.opening || s.index == 0 || len(s.list) == 0 || now.Before(s.next) {
		return
	}
	s.opening = true
	ctx, s.cancel = context.WithCancel(ctx)
	limit := s.index
	go func() { s.results <- s.open(ctx, limit) }()
}

// open tries the kinds before limit in their order.
func (s *selector) open(ctx context.Context, limit int) openResult {
	result := openResult{index: limit, refused: make([]string, limit)}
	for i, r := range s.list[:limit] {
		source, err := s.openOne(ctx, r)
		if err == nil {
			result.source, result.index = source, i
			return result
		}
		result.refused[i] = err.Error()
		var dead *deadError
		if errors.As(err, &dead) {
			result.dead = append(result.dead, dead.end)
		}
	}
	return result
}

func (s *selector) openOne(ctx context.Context, r registration) (Source, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if r.child {
		return s.launcher.open(ctx, r.name, s.cfg)
	}
	return r.open(ctx, s.cfg, log.With(s.logger, "source", r.name))
}

// serves reports whether the selector has the settings' source already.
func (s *selector) serves(n *settings) bool {
	a, b := &s.cfg, &n.source
	return a.Interval == b.Interval && a.SlowInterval == b.SlowInterval && a.DCGMAddress == b.DCGMAddress &&
		a.HealthInterval == b.HealthInterval && a.P2P == b.P2P && a.CallBudget == b.CallBudget &&
		a.Devices == b.Devices && slices.Equal(a.Exclude, b.Exclude) && slices.Equal(a.Fields, b.Fields) && slices.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(s.list, n.list, func(x, y registration) bool { return x.name == y.name })
}

// adapt makes the active source serve other settings, if only what it reads differs
// and it can change that while it runs: then nothing that is read before and after is
// interrupted.
func (s *selector) adapt(ctx context.Context, n *settings) bool {
	source, ok := s.active.(reconfigurer)
	if !ok || s.opening || s.cfg.DCGMAddress != n.source.DCGMAddress ||
		!slices.EqualFunc(s.list, n.list, func(x, y registration) bool { return x.name == y.name }) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.OpenTimeout)
	defer cancel()
	if err := source.Reconfigure(ctx, n.source); err != nil {
		level.Info(s.logger).Log("msg", "GPU source is opened anew", "source", s.name(), "err", err)
		return false
	}
	s.cfg, s.timeout, s.first = n.source, n.cfg.OpenTimeout, n.cfg.Interval
	return true
}

// opened takes a look's result.
func (s *selector) opened(result openResult, now time.Time) {
	s.opening = false
	s.cancel()
	copy(s.refused, result.refused)
	if result.source == nil {
		if s.active == nil {
			s.delay(now)
		} else {
			s.next = now.Add(upgradeInterval)
		}
		if text := s.refusals(); text != s.told {
			s.told = text
			level.Warn(s.logger).Log("msg", "no GPU source, or no better one", "refused", text)
		}
		return
	}
	s.close()
	s.active, s.index, s.good = result.source, result.index, 0
	s.refused[s.index] = ""
	s.next = now.Add(upgradeInterval)
	level.Info(s.logger).Log("msg", "GPU source opened", "source", s.list[s.index].name, "refused", s.refusals())
}

// drop closes the active source, which failed for the reason given.
func (s *selector) drop(reason string, now time.Time) {
	index := s.index
	s.close()
	s.refused[index] = reason
	s.delay(now)
}

// delay puts the next look off, twice as long each time, with jitter so that the
// nodes of a hall do not act in step.
func (s *selector) delay(now time.Time) {
	s.backoff = min(max(2*s.backoff, s.first), maxBackoff)
	jitter := 0.8 + 0.4*rand.Float64() //nolint:gosec // no secret
	s.next = now.Add(time.Duration(float64(s.backoff) * jitter))
}

// wellRead counts a good read.
func (s *selector) wellRead() {
	if s.good++; s.good == settledReads {
		s.backoff = 0
	}
}

func (s *selector) close() {
	if s.active == nil {
		return
	}
	if err := s.active.Close(); err != nil {
		level.Warn(s.logger).Log("msg", "closing GPU source", "source", s.name(), "err", err)
	}
	s.active, s.index = nil, len(s.list)
}

// stop closes everything. A look that is under way is broken off.
func (s *selector) stop() {
	if s.opening {
		s.cancel()
		if result := <-s.results; result.source != nil {
			result.source.Close()
		}
		s.opening = false
	}
	s.close()
}

// again makes the next look, after a stop, start afresh.
func (s *selector) again() {
	clear(s.refused)
	s.next, s.backoff, s.told = time.Time{}, 0, ""
}

// name is the active source's kind, or "".
func (s *selector) name() string {
	if s.active == nil {
		return ""
	}
	return s.list[s.index].name
}

// refusals says why the better sources are not open.
func (s *selector) refusals() string {
	if len(s.list) == 0 {
		return "no GPU source in this build"
	}
	var parts []string
	for i, reason := range s.refused {
		if reason != "" && i != s.index {
			parts = append(parts, s.list[i].name+": "+strings.TrimPrefix(reason, s.list[i].name+": "))
		}
	}
	return strings.Join(parts, "; ")
}
