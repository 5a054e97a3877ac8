// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSampleAges follows one value while its clock, which is not ours, is set.
func TestSampleAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a sampleAges
		key := ageKey{entity: 3, field: 150}
		f := func(what string, after time.Duration, ts time.Time, want time.Duration) {
			t.Helper()
			time.Sleep(after)
			a.pass(time.Now())
			if got := a.of(key, ts.UnixMicro()); got != want {
				t.Errorf("%s: %v old, want %v", what, got, want)
			}
		}
		const s = time.Second
		start := time.Now()
		f("first sight of an old value", 0, start.Add(-40*s), 40*s)
		f("not refreshed", s, start.Add(-40*s), 41*s)
		f("refreshed", s, start.Add(1500*time.Millisecond), 500*time.Millisecond)
		f("not refreshed", 10*s, start.Add(1500*time.Millisecond), 10500*time.Millisecond)
		f("refreshed by a clock that was set back", s, start.Add(-time.Hour), 0)
		f("and goes on there", s, start.Add(-time.Hour+s), 0)
		f("set forward", s, start.Add(time.Hour), 0)
		f("a value of the future does not stay for that", 31*s, start.Add(time.Hour), 31*s)
		f("the clock is right again", s, start.Add(46500*time.Millisecond), 500*time.Millisecond)
		a.forget()
		f("first sight of the future", s, start.Add(time.Hour), 0)
		f("which is not refreshed", 5*s, start.Add(time.Hour), 5*s)
	})
}
