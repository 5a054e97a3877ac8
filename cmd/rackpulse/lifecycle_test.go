// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder notes what happens, in order.
type recorder struct {
	mu    sync.Mutex
	order []string
}

func (r *recorder) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = append(r.order, what)
}

func (r *recorder) actor(name string, drain bool, takes time.Duration) actor {
	return actor{name: name, drain: drain, run: func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(takes) // on the test's own clock
		r.add(name)
		return nil
	}}
}

// TestStopsInOrder holds that what drains is done before the next is told.
func TestStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var rec recorder
		ended := make(chan error, 1)
		go func() {
			ended <- runActors(ctx, rec.actor("http", true, 3*time.Second), rec.actor("registry", false, time.Second))
		}()
		synctest.Wait()
		start := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("error %v", err)
		}
		if !slices.Equal(rec.order, []string{"http", "registry"}) {
			t.Errorf("ended in order %v", rec.order)
		}
		if took := time.Since(start); took != 4*time.Second {
			t.Errorf("took %s, want 4s", took)
		}
	})
}

// TestFirstFailureStopsAll holds that one actor's error ends the process and is
// the one that is told.
func TestFirstFailureStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		broken := actor{name: "grpc", run: func(context.Context) error { return errors.New("address in use") }}
		err := runActors(t.Context(), rec.actor("http", true, 0), broken)
		if err == nil || err.Error() != "grpc: address in use" {
			t.Errorf("error %v", err)
		}
		if !slices.Equal(rec.order, []string{"http"}) {
			t.Errorf("stopped %v, want http", rec.order)
		}
	})
}

// TestHangingActorIsNamed holds that an actor that does not end does not keep
// the process.
func TestHangingActorIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		hung := actor{name: "gpu", run: func(context.Context) error { <-release; return nil }}
		start := time.Now()
		cancel()
		err := runActors(ctx, hung)
		if err == nil || !strings.HasSuffix(err.Error(), "after the stop: gpu") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took != 11*time.Second {
			t.Errorf("took %s, want 11s", took)
		}
		close(release)
	})
}
