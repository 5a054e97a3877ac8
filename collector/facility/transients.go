// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"math"
	"time"
)

// A transient is a change of the total power by a fifth of the larger value
// within one second. Both numbers are our own choice: steps of fans, discs and a
// single job stay below a fifth of a rack, while a training job that stops
// between two iterations takes most of the rack's power away in some 100 ms. Of a
// device that tells no power, the total current is taken in its place.
//
// A step on in the same direction belongs to the transient before it, until a
// step in the other direction came or a second passed without any: a fall in
// several stairs is one.
const (
	swingRatio  = 0.2
	swingWithin = time.Second
	// A smaller step than these, about one power supply's idle load, is no swing
	// of a rack.
	minSwingWatts   = 500
	minSwingAmperes = 2
)

// swing is one value of a total with the smallest step that counts for it.
type swing struct {
	Reading
	least float64
}

// transients counts the transients of one device.
type transients struct {
	quantity     string // power or current; one series, not both
	recent       window // since the latest step, at most swingWithin
	last         time.Time
	up, down     uint64
	rose, fallen bool // the latest step, while it may go on
}

func (t *transients) add(s swing) {
	if s.Quantity != t.quantity {
		return
	}
	low, high, ok := t.recent.bounds(s.At.Add(-swingWithin))
	t.recent.add(s.At, s.Value, swingWithin)
	if !ok {
		return
	}
	fell, rose := s.stepFrom(high) && s.Value < high, s.stepFrom(low) && s.Value > low
	switch {
	case fell && !t.fallen:
		t.down++
	case rose && !t.rose:
		t.up++
	}
	switch {
	case fell, rose: // not both: the step between low and high has cut the window
		t.fallen, t.rose, t.last = fell, rose, s.At
		t.recent = window{}
		t.recent.add(s.At, s.Value, swingWithin)
	case s.At.Sub(t.last) >= swingWithin:
		t.fallen, t.rose = false, false
	}
}

// stepFrom says whether the way from an earlier value is a transient.
func (s swing) stepFrom(v float64) bool {
	return math.Abs(s.Value-v) >= max(s.least, swingRatio*max(s.Value, v))
}
