// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReloader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loadErr, applyErr error
		next, applied := 1, [][2]int{}
		r := NewReloader(
			func() (int, error) { return next, loadErr },
			func(old, next int) error { applied = append(applied, [2]int{old, next}); return applyErr })
		check := func(value int, good bool, at time.Time) {
			t.Helper()
			gotGood, gotAt := r.Status()
			if r.Value() != value || gotGood != good || !gotAt.Equal(at) {
				t.Errorf("value %d good %v at %v; want %d %v %v", r.Value(), gotGood, gotAt, value, good, at)
			}
		}
		check(0, false, time.Time{})

		start := time.Now()
		if err := r.Reload(); err != nil {
			t.Fatal(err)
		}
		check(1, true, start)

		time.Sleep(time.Minute)
		next, loadErr = 2, errors.New("bad file")
		if err := r.Reload(); !errors.Is(err, loadErr) {
			t.Errorf("got %v", err)
		}
		check(1, false, start)

		loadErr, applyErr = nil, errors.New("port in use")
		if err := r.Reload(); !errors.Is(err, applyErr) {
			t.Errorf("got %v", err)
		}
		check(1, false, start)

		applyErr = nil
		if err := r.Reload(); err != nil {
			t.Error(err)
		}
		check(2, true, start.Add(time.Minute))

		if len(applied) != 3 || applied[0] != [2]int{0, 1} || applied[1] != [2]int{1, 2} || applied[2] != [2]int{1, 2} {
			t.Errorf("applied %v", applied)
		}
	})
}

func TestReloaderConcurrent(t *testing.T) {
	n := 0
	r := NewReloader(func() (int, error) { n++; return n, nil }, nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _ = r.Reload(); r.Value(); r.Status() })
	}
	wg.Wait()
	if r.Value() != 20 {
		t.Errorf("got %d, want 20", r.Value())
	}
}
