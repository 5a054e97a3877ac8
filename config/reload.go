// SPDX-License-Identifier: Apache-2.0

package config

import (
	"sync"
	"time"
)

// Reloader holds a configuration that can be read anew while the program runs.
// A bad file changes nothing but the status.
type Reloader[T any] struct {
	load  func() (T, error)
	apply func(old, next T) error

	loading sync.Mutex // one Reload at a time

	mu      sync.Mutex
	current T
	good    bool
	goodAt  time.Time
}

// NewReloader returns a Reloader without a value; call Reload for the first.
// load reads and checks the whole configuration. apply, which may be nil, puts
// it into force; when it fails it must leave the old one in force.
func NewReloader[T any](load func() (T, error), apply func(old, next T) error) *Reloader[T] {
	return &Reloader[T]{load: load, apply: apply}
}

// Reload loads, applies and then keeps a new value. After an error the value is
// the one before. Concurrent calls run one after the other.
func (r *Reloader[T]) Reload() error {
	r.loading.Lock()
	defer r.loading.Unlock()
	next, err := r.load()
	if err == nil && r.apply != nil {
		err = r.apply(r.Value(), next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.good = err == nil
	if r.good {
		r.current, r.goodAt = next, time.Now()
	}
	return err
}

// Value returns the configuration in force, the zero value before the first
// successful Reload.
func (r *Reloader[T]) Value() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// Status tells whether the last Reload succeeded and when one last did; the time
// is zero before that. It is what rackpulse_config_last_reload_successful and
// rackpulse_config_last_reload_success_timestamp_seconds show.
func (r *Reloader[T]) Status() (good bool, lastGood time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.good, r.goodAt
}
