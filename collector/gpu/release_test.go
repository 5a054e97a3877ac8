// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
)

// released wants a page without values and the reason.
func released(t *testing.T, r *Runner, rec *recorder, reason string) {
	t.Helper()
	page := rec.page(t)
	want(t, "source up", series(page, "rackpulse_source_up", `source="gpu"`), "0")
	want(t, "reason", series(page, "rackpulse_source_info", `source="gpu"`, `reason="`+reason+`"`), "1")
	for _, family := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FAN_SPEED", "rackpulse_gpu_up", "rackpulse_gpu_throttle"} {
		want(t, family, series(page, family))
	}
	want(t, "errors stay counted", series(page, "rackpulse_gpu_xid_errors_total", `gpu="0"`, `xid="79"`), "0")
	if inv := r.Inventory(); inv.Status != "unavailable" || inv.Reason != reason || len(inv.UUIDs) != 0 {
		t.Errorf("inventory: %+v", inv)
	}
	if _, _, ok := r.Released(); !ok {
		t.Error("not released")
	}
}

func sampled(t *testing.T, r *Runner, rec *recorder, gpus ...string) {
	t.Helper()
	want(t, "up", series(rec.page(t), "rackpulse_gpu_up"), gpus...)
	if inv := r.Inventory(); inv.Status != "fresh" {
		t.Errorf("inventory: %+v", inv)
	}
	if _, _, ok := r.Released(); ok {
		t.Error("still released")
	}
}

func TestRelease(t *testing.T) {
	s := &stub{}
	s.give(device(0, Value{Field: fieldTemp, V: 60}, Value{Field: fieldThrottle, V: 1}, Value{Field: "DCGM_FI_DEV_FAN_SPEED", V: 30}))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		sampled(t, r, rec, "1")
		if err := r.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		opens, closed := s.state()
		if !closed || opens != 1 {
			t.Errorf("closed %v, opened %d times", closed, opens)
		}
		released(t, r, rec, "released")
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		released(t, r, rec, "released")
		if opens, _ := s.state(); opens != 1 {
			t.Errorf("opened %d times while released", opens)
		}
		s.give(device(0), device(1)) // what is there now is listed anew
		if err := r.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		sampled(t, r, rec, "1", "1")
		if err := r.Acquire(t.Context()); err != nil {
			t.Errorf("acquire of what is ours: %v", err)
		}
	})
}

func TestReleaseEnds(t *testing.T) {
	s := &stub{}
	s.give(device(0))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		for _, d := range []time.Duration{-1, MaxRelease + 1} {
			if err := r.Release(t.Context(), d); err == nil || !strings.Contains(err.Error(), "up to 24h") {
				t.Errorf("for %v: %v", d, err)
			}
		}
		sampled(t, r, rec, "1")
		if err := r.Release(t.Context(), 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Minute)
		if err := r.Release(t.Context(), 5*time.Minute); err != nil { // longer, from now
			t.Fatal(err)
		}
		since, until, _ := r.Released()
		if until.Sub(since) != 14*time.Minute {
			t.Errorf("from %v until %v", since, until)
		}
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		released(t, r, rec, "released until "+until.UTC().Format(time.RFC3339))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		sampled(t, r, rec, "1")
	})
}

// TestReleaseWhileOpening breaks the opening off: it may take a minute.
func TestReleaseWhileOpening(t *testing.T) {
	opens := 0
	withKinds(t, registration{name: "slow", priority: 1, open: func(ctx context.Context, _ SourceConfig, _ log.Logger) (Source, error) {
		opens++
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		from := time.Now()
		if err := r.Release(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(from); took > 0 || opens != 1 {
			t.Errorf("took %v, opened %d times", took, opens)
		}
		want(t, "reason", series(rec.page(t), "rackpulse_source_info", `reason="released"`), "1")
		if err := r.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if opens != 2 {
			t.Errorf("opened %d times", opens)
		}
	})
}

func TestReleaseNotRunning(t *testing.T) {
	r, err := New(Config{Source: "auto"}, Deps{Store: newRecorder()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Release(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody obeys: %v", err)
	}
}
