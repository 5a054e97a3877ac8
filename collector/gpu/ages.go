// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// ageKey is one field of one entity.
type ageKey struct {
	group, entity uint
	field         uint16
}

// sampleAges tells how old values are whose own clock may not be trusted: that of
// another host, or one that was just set. What counts is when a value's timestamp was
// seen to change, by the clock of this process that only runs forward.
type sampleAges struct {
	last map[ageKey]sampleAge
	read time.Time // the pass before this one
	now  time.Time // this pass
}

type sampleAge struct {
	ts   int64         // microseconds, of the library
	age  time.Duration // when it was seen first
	seen time.Time
}

// pass begins a pass over all values.
func (a *sampleAges) pass(now time.Time) {
	a.read, a.now = a.now, now
}

// forget begins anew, as with other watches.
func (a *sampleAges) forget() {
	a.last = nil
}

// of returns the age of a value:
//   - seen for the first time: what its timestamp says, if that is in the past;
//   - with another timestamp than before, a later or an earlier one: what it says, if
//     that is in the time since the pass before, else nothing, since a clock was set;
//   - with the same timestamp as before: as much older as time has passed.
func (a *sampleAges) of(key ageKey, ts int64) time.Duration {
	last, known := a.last[key]
	if known && last.ts == ts {
		return last.age + a.now.Sub(last.seen)
	}
	age := a.now.Sub(time.UnixMicro(ts))
	if age < 0 || known && age > a.now.Sub(a.read) {
		age = 0
	}
	if a.last == nil {
		a.last = make(map[ageKey]sampleAge)
	}
	a.last[key] = sampleAge{ts: ts, age: age, seen: a.now}
	return age
}

// staleAge is the age from which a value is not shown, as in the collector's store.
func staleAge(interval time.Duration) time.Duration {
	return max(3*interval, 30*time.Second)
}
