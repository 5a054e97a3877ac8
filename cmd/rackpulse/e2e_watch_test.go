// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

const (
	// beatAge is the oldest that a last beat may be seen: 5 s and 10 % of jitter,
	// and some time to travel.
	beatAge = 7 * time.Second
	// scrapeTime is how long a page may take, whatever the library does. On a
	// machine that is busy with other things a scrape may lose its turn: one that
	// is slower is a fault if the next one is slow as well, or if it took
	// stallTime, half of the shortest time for which the library hangs here.
	scrapeTime = 100 * time.Millisecond
	stallTime  = 500 * time.Millisecond
)

// leaseWatch asks the registry for a node, over and over, and keeps the worst.
type leaseWatch struct {
	node   string
	asked  int
	oldest time.Duration
	down   int
	states map[string]int
	errs   []string
	stop   func()
}

// watchLease begins to watch a node that has a lease.
func (s *small) watchLease(node string) *leaseWatch {
	w := &leaseWatch{node: node, states: map[string]int{}}
	url := s.stack.registry + "/api/v1/nodes/" + node
	w.stop = repeat(s.t, 100*time.Millisecond, func(client *http.Client) {
		w.asked++
		text, err := getURL(client, url)
		var n registry.Node
		if err == nil {
			err = json.Unmarshal([]byte(text), &n)
		}
		if err != nil {
			w.errs = append(w.errs, err.Error())
			return
		}
		w.oldest = max(w.oldest, time.Since(n.LastBeat))
		w.states[n.State]++
		if n.LeaseUp == nil || !*n.LeaseUp {
			w.down++
		}
	})
	return w
}

// check ends the watch and judges it; states are those allowed.
func (w *leaseWatch) check(t *testing.T, states ...string) {
	t.Helper()
	w.stop()
	t.Logf("lease of %s, asked %d times: oldest beat %.2f s, states %v", w.node, w.asked, w.oldest.Seconds(), w.states)
	if w.asked == 0 || len(w.errs) > 0 {
		t.Errorf("registry was asked %d times, errors %q", w.asked, w.errs)
	}
	if w.oldest > beatAge {
		t.Errorf("%s: a beat was %s old, want at most %s", w.node, w.oldest, beatAge)
	}
	if w.down > 0 {
		t.Errorf("%s: the lease was down %d times", w.node, w.down)
	}
	for _, state := range slices.Sorted(maps.Keys(w.states)) {
		if !slices.Contains(states, state) {
			t.Errorf("%s was %s, want only %q", w.node, state, states)
		}
	}
}

// scrapeWatch scrapes an agent, over and over, and keeps the slowest by phase.
type scrapeWatch struct {
	mu      sync.Mutex
	phase   string
	scrapes map[string]int
	slowest map[string]time.Duration
	inRow   []time.Duration // the latest scrapes over scrapeTime
	slow    int             // all of those
	errs    []string
	order   []string
	stop    func()
}

func (s *small) watchScrapes(agent string) *scrapeWatch {
	w := &scrapeWatch{scrapes: map[string]int{}, slowest: map[string]time.Duration{}}
	w.during("rest")
	url := s.urls[agent] + "/metrics"
	w.stop = repeat(s.t, 20*time.Millisecond, func(client *http.Client) {
		before := time.Now()
		text, err := getURL(client, url)
		took := time.Since(before)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil || !strings.Contains(text, "\nrackpulse_source_up{") {
			w.errs = append(w.errs, w.phase+": no whole page")
		}
		if took > scrapeTime {
			w.slow++
			// A call that waits for the library makes all scrapes slow, or one very;
			// a machine that is busy with something else a few.
			if w.inRow = append(w.inRow, took); took > stallTime || len(w.inRow) >= 3 {
				w.errs = append(w.errs, fmt.Sprintf("%s: in a row %s", w.phase, w.inRow))
			}
		} else {
			w.inRow = nil
		}
		w.scrapes[w.phase]++
		w.slowest[w.phase] = max(w.slowest[w.phase], took)
	})
	return w
}

// during names what happens from now on.
func (w *scrapeWatch) during(phase string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
	w.order = append(w.order, phase)
}

func (w *scrapeWatch) check(t *testing.T) {
	t.Helper()
	w.stop()
	for _, phase := range w.order {
		if w.scrapes[phase] == 0 {
			continue
		}
		t.Logf("%d scrapes during %s: slowest %.1f ms", w.scrapes[phase], phase, float64(w.slowest[phase].Microseconds())/1000)
	}
	if w.slow > 0 {
		t.Logf("%d scrapes took more than %s", w.slow, scrapeTime)
	}
	if len(w.errs) > 0 {
		t.Errorf("%d scrapes failed or were slow, first %q", len(w.errs), w.errs[0])
	}
}

// repeat calls f with a client of its own until stop or the end of the test;
// after stop nothing of f runs any more.
func repeat(t *testing.T, every time.Duration, f func(*http.Client)) (stop func()) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	return repeatFunc(t, every, func() { f(client) })
}

func repeatFunc(t *testing.T, every time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f()
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}
