// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"slices"
	"strings"
	"testing"
)

// regressionSeed is one of the seeds that rules may be tuned on.
const regressionSeed = 2

// TestRegression runs every kind once: the right cause comes first in explain
// and among the alerts, and nobody is paged twice. With the race detector, which
// makes it ten times slower, three kinds stand for all.
func TestRegression(t *testing.T) {
	b := newBench(t)
	kinds := b.kinds()
	if raceDetector {
		kinds = []string{"feed-loss", "gpu-lost", "partition"}
	}
	var plays []*play
	for _, kind := range kinds {
		plays = append(plays, b.alone(kind, regressionSeed))
	}
	for _, o := range b.all(t, plays) {
		v := o.judge(b, 0)
		n := pages(o.sent, o.truths[0].onset, o.end)
		if v.explain != 1 || v.alert != 1 || n > 1 {
			t.Errorf("%s: rank %d in explain (%s), %d among the alerts, %d pages", o.play, v.explain, o.asked[0].Conclusion, v.alert, n)
		}
		if v.delay < 0 || v.delay > minutes(b.Time.Ask) {
			t.Errorf("%s: named %s after the onset", o.play, v.delay)
		}
	}
}

// TestDraw: a seed gives the same play again, another seed another one, each
// kind of the parameters is a scenario whose alerts and rules are known here, and
// no two incidents of a pair hold one another.
func TestDraw(t *testing.T) {
	b := newBench(t)
	var known []string
	for _, c := range alertCauses {
		known = append(known, c.kind)
	}
	for _, kind := range b.kinds() {
		one, again, other := b.alone(kind, 1), b.alone(kind, 1), b.alone(kind, 2)
		if len(one.events) != len(again.events) || !slices.Equal(one.events, again.events) {
			t.Errorf("%s: not repeatable", kind)
		}
		if slices.Equal(one.events, other.events) {
			t.Errorf("%s: two seeds are alike", kind)
		}
		if len(correlations[kind]) == 0 || !slices.Contains(known, kind) {
			t.Errorf("%s: nothing names it", kind)
		}
	}
	for seed := range int64(200) {
		p := b.pair(seed, 0)
		one, two := p.truths[0], p.truths[1]
		if one.kind == two.kind || b.holds(one.place, two.place) || b.holds(two.place, one.place) {
			t.Errorf("seed %d: %s, %v and %v", seed, p.name, one.place, two.place)
		}
	}
}

// TestIntervals holds the statistics against values of textbooks and tables.
func TestIntervals(t *testing.T) {
	// Wilson, 95 %: 10 of 10 is 72.2-100 %, 8 of 10 is 49.0-94.3 %.
	if got := share(10, 10); got != "100.0 (72.2-100.0)" {
		t.Error(got)
	}
	if got := share(8, 10); got != "80.0 (49.0-94.3)" {
		t.Error(got)
	}
	// Poisson: 0 events have an upper limit of 3.69, 5 events 1.62-11.67.
	if got := perDay(0, 10); got != "0.00 (0.00-0.37)" {
		t.Error(got)
	}
	if got := perDay(5, 1); got != "5.00 (1.62-11.67)" {
		t.Error(got)
	}
	if got := meanInterval([]int{1, 1, 1}); got != "1.00 (1.00-1.00)" {
		t.Error(got)
	}
}

// TestParameters: each value of parameters.yml stands beside its reason, and the
// file is the one that was committed before the first run.
func TestParameters(t *testing.T) {
	const committed = "b1ab5453870500a80443366bca4888780db6f06894331a334a3c34f85bccd7bd"
	if sum() != committed {
		t.Errorf("parameters.yml has the sum %s, it was committed with %s before the rules ran on it; new parameters are a new benchmark", sum(), committed)
	}
	if !strings.Contains(string(parametersFile), "assumed") {
		t.Error("no value is marked as assumed")
	}
}
