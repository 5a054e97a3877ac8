// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"time"

	"github.com/rackpulse/rackpulse/query"
)

// quiet is the gap that ends one episode of a signal: shorter ones are flutter
// around a threshold, as the rules' keep_firing_for bridges them.
const quiet = 5 * time.Minute

// onset is when the last episode of a track that reaches into the window began.
// before says that it began before the data does.
type onset struct {
	at, last time.Time
	value    float64 // at the end of the episode
	before   bool
}

// onsetOf finds the last episode of points for which holds is true.
func (w window) onsetOf(points []query.Point, holds func(float64) bool) (onset, bool) {
	var o onset
	seen := false
	for _, p := range points {
		if !holds(p.Value) {
			continue
		}
		if !seen || p.At.Sub(o.last) > quiet {
			o.at = p.At
		}
		o.last, o.value, seen = p.At, p.Value, true
	}
	if !seen || o.last.Before(w.from) {
		return onset{}, false
	}
	o.before = o.at.Sub(w.begin) < 2*w.step
	return o, true
}

func always(float64) bool   { return true }
func isZero(v float64) bool { return v == 0 }

// covered says that a track has data over most of the time from a to b.
func (w window) covered(points []query.Point, a, b time.Time) bool {
	have := 0
	for _, p := range points {
		if !p.At.Before(a) && !p.At.After(b) {
			have++
		}
	}
	want := int(b.Sub(a)/w.step) + 1
	return float64(have) >= coveredShare*float64(want)
}

// coveredShare is the share of samples that must be there for the absence of a
// signal to mean that it does not hold: one lost scrape in five is bridged.
const coveredShare = 0.8

// change is the step that splits a track best: the point with the least squared
// deviation of both sides from their own means.
type change struct {
	at            time.Time
	before, after float64 // means
}

// minSide is how many points each side of a change must have.
const minSide = 4

// changeOf finds the change point of a track. It is none where the step is
// smaller than twice the scatter that is left on both sides.
func changeOf(points []query.Point) (change, bool) {
	n := len(points)
	if n < 2*minSide {
		return change{}, false
	}
	var total, squares float64
	for _, p := range points {
		if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
			return change{}, false
		}
		total += p.Value
		squares += p.Value * p.Value
	}
	best, rest, sum := change{}, math.Inf(1), 0.0
	for i, p := range points {
		if i >= minSide && i <= n-minSide {
			left, right := sum/float64(i), (total-sum)/float64(n-i)
			if r := squares - float64(i)*left*left - float64(n-i)*right*right; r < rest {
				rest, best = r, change{points[i].At, left, right}
			}
		}
		sum += p.Value
	}
	scatter := math.Sqrt(max(rest, 0) / float64(n))
	step := math.Abs(best.after - best.before)
	return best, step > 2*scatter && step > 1e-9
}

// timing is the factor of a cause that began lead before its symptom: 1 up to
// the longest lead, falling to 0 at twice that; 1 within the lag that scrapes
// and evaluations make; 0.2 for a cause that began after its symptom; 0.5 where
// both began before the data, so that their order is not known.
func timing(cause, symptom onset, longest, lag time.Duration) (factor float64, why string) {
	if symptom.before {
		return 0.5, "both began before the data; their order is not known"
	}
	lead := symptom.at.Sub(cause.at)
	switch {
	case lead < -lag:
		return 0.2, "began " + (-lead).String() + " after the symptom"
	case lead < 0:
		return 1, "began " + (-lead).String() + " after the symptom, within the lag of " + lag.String()
	case longest <= 0 || lead <= longest:
		return 1, "began " + lead.String() + " before the symptom"
	}
	f := max(0, 1-float64(lead-longest)/float64(longest))
	return f, "began " + lead.String() + " before the symptom, more than " + longest.String()
}
