// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// errand is work that a pass must not wait for, such as a call into DCGM that may
// take a minute. It runs in a goroutine of its own, never twice at a time, and its
// result waits for the next pass. Its methods are for one goroutine.
type errand[T any] struct {
	every  time.Duration // from one beginning to the next
	budget time.Duration // after which it is overdue
	begun  time.Time
	result chan T // holds one; nil: none is under way
}

// take returns the result of the work that was under way, once.
func (e *errand[T]) take() (result T, ok bool) {
	if e.result == nil {
		return result, false
	}
	select {
	case result = <-e.result:
		e.result = nil
		return result, true
	default:
		return result, false
	}
}

// due tells whether the work is to begin; half a second of tolerance keeps a pass
// that comes early from putting it off by a whole pass.
func (e *errand[T]) due(now time.Time) bool {
	return e.result == nil && (e.begun.IsZero() || now.Sub(e.begun) >= e.every-min(e.every/2, 500*time.Millisecond))
}

// begin starts the work. The goroutine ends with it.
func (e *errand[T]) begin(now time.Time, work func() T) {
	result := make(chan T, 1)
	e.begun, e.result = now, result
	go func() { result <- work() }()
}

// underway tells whether there is work without a result, or a result not taken.
func (e *errand[T]) underway() bool { return e.result != nil }

// overdue tells whether the work has been under way for longer than its budget.
func (e *errand[T]) overdue(now time.Time) bool {
	return e.result != nil && now.Sub(e.begun) > e.budget
}

// end waits for the work, but not for longer than limit, and drops its result. It
// reports whether none is under way any more.
func (e *errand[T]) end(limit time.Duration) bool {
	if e.result == nil {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.result:
		e.result = nil
		return true
	case <-timer.C:
		return false
	}
}
