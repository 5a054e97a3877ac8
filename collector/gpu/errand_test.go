// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestErrand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := errand[int]{every: time.Minute, budget: 10 * time.Second}
		if !e.due(time.Now()) || e.underway() || e.overdue(time.Now()) || !e.end(0) {
			t.Fatal("a new errand is not due, or not idle")
		}
		e.begin(time.Now(), func() int { time.Sleep(45 * time.Second); return 7 })
		check := func(after time.Duration, due, overdue, done bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			result, ok := e.take()
			if ok != done || done && result != 7 {
				t.Errorf("result %d, %v; want one: %v", result, ok, done)
			}
			if got := e.due(time.Now()); got != due {
				t.Errorf("due: %v", got)
			}
			if got := e.overdue(time.Now()); got != overdue {
				t.Errorf("overdue: %v", got)
			}
		}
		check(0, false, false, false)
		check(11*time.Second, false, true, false)
		if e.end(time.Second) {
			t.Error("ended while under way")
		}
		check(34*time.Second, false, false, true) // 46 s: done, the next is due at 60 s
		check(13*time.Second, false, false, false)
		check(time.Second, true, false, false) // half a second early is in time
		e.begin(time.Now(), func() int { return 7 })
		if !e.end(time.Second) || e.underway() {
			t.Error("not ended")
		}
	})
}
