// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
)

// series makes points of 15 s from the epoch; NaN stands for none.
func series(values ...float64) []query.Point {
	var out []query.Point
	for i, v := range values {
		if !math.IsNaN(v) {
			out = append(out, query.Point{At: epoch.Add(time.Duration(i) * 15 * time.Second), Value: v})
		}
	}
	return out
}

func repeat(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func join(parts ...[]float64) []float64 {
	var out []float64
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestOnset(t *testing.T) {
	none := math.NaN()
	w := window{begin: epoch, from: epoch.Add(5 * time.Minute), to: epoch.Add(30 * time.Minute), step: 15 * time.Second}
	f := func(name string, values []float64, ok bool, at time.Duration, before bool) {
		t.Helper()
		o, got := w.onsetOf(series(values...), always)
		if got != ok || ok && (o.at.Sub(epoch) != at || o.before != before) {
			t.Errorf("%s: %v at %s before %v, want %v at %s before %v", name, got, o.at.Sub(epoch), o.before, ok, at, before)
		}
	}
	f("never", repeat(none, 60), false, 0, false)
	f("from minute 8", join(repeat(none, 32), repeat(1, 20)), true, 8*time.Minute, false)
	f("over before the window", join(repeat(1, 12), repeat(none, 60)), false, 0, false)
	f("from before the data", repeat(1, 60), true, 0, true)
	// Gone for 2 minutes: one episode. Gone for 6: a new one.
	f("flutter", join(repeat(none, 32), repeat(1, 4), repeat(none, 8), repeat(1, 4)), true, 8*time.Minute, false)
	f("again", join(repeat(none, 4), repeat(1, 20), repeat(none, 24), repeat(1, 4)), true, 12*time.Minute, false)
}

// TestTiming holds the factor by hand: the longest lead is 10 minutes, the lag 1.
func TestTiming(t *testing.T) {
	symptom := onset{at: epoch.Add(time.Hour)}
	f := func(lead time.Duration, want float64) {
		t.Helper()
		got, why := timing(onset{at: symptom.at.Add(-lead)}, symptom, 10*time.Minute, time.Minute)
		if math.Abs(got-want) > 1e-9 || why == "" {
			t.Errorf("lead %s: %v (%s), want %v", lead, got, why, want)
		}
	}
	f(0, 1)
	f(5*time.Minute, 1)
	f(10*time.Minute, 1)
	f(15*time.Minute, 0.5)
	f(20*time.Minute, 0)
	f(40*time.Minute, 0)
	f(-time.Minute, 1)
	f(-61*time.Second, 0.2)
	symptom.before = true
	f(0, 0.5)
}

func TestChange(t *testing.T) {
	f := func(name string, values []float64, ok bool, at time.Duration, before, after float64) {
		t.Helper()
		ch, got := changeOf(series(values...))
		if got != ok || ok && (ch.at.Sub(epoch) != at || math.Abs(ch.before-before) > 1e-9 || math.Abs(ch.after-after) > 1e-9) {
			t.Errorf("%s: %v %+v, want %v at %s, %v to %v", name, got, ch, ok, at, before, after)
		}
	}
	f("step", join(repeat(22, 20), repeat(31, 12)), true, 5*time.Minute, 22, 31)
	f("fall", join(repeat(700, 8), repeat(100, 8)), true, 2*time.Minute, 700, 100)
	f("flat", repeat(22, 40), false, 0, 0, 0)
	f("short", repeat(22, 7), false, 0, 0, 0)
	saw := make([]float64, 40)
	for i := range saw {
		saw[i] = float64(i % 2)
	}
	f("saw", saw, false, 0, 0, 0)
	f("not a number", join(repeat(1, 10), []float64{math.Inf(1)}, repeat(2, 10)), false, 0, 0, 0)
}

// TestCovered: one lost scrape in five is bridged, two in five are not.
func TestCovered(t *testing.T) {
	w := window{step: 15 * time.Second}
	end := epoch.Add(19 * 15 * time.Second)
	values := repeat(1, 20)
	for _, i := range []int{3, 8, 13, 18} {
		values[i] = math.NaN()
	}
	if !w.covered(series(values...), epoch, end) {
		t.Error("16 of 20: not covered")
	}
	values[5] = math.NaN()
	if w.covered(series(values...), epoch, end) {
		t.Error("15 of 20: covered")
	}
}
