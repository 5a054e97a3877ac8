// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"
	"testing/synctest"
	"time"
)

// deriving runs a Runner over a stub in virtual time; next gives it values for a
// while and returns the page then.
func deriving(t *testing.T, cfg Config, f func(next func(d time.Duration, values ...Value) string)) {
	t.Helper()
	s := &stub{}
	s.give(device(0))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		_, rec := start(t, cfg, Deps{})
		synctest.Wait()
		f(func(d time.Duration, values ...Value) string {
			s.give(device(0, values...))
			time.Sleep(d)
			synctest.Wait()
			return rec.page(t)
		})
	})
}

func v(field string, value float64) Value { return Value{Field: field, V: value} }

func TestThrottleSeconds(t *testing.T) {
	deriving(t, Config{}, func(next func(time.Duration, ...Value) string) {
		const name = "rackpulse_gpu_throttle_seconds_total"
		next(time.Second, v(fieldThrottle, 0x1))
		page := next(10*time.Second, v(fieldThrottle, 0x48|0x1)) // hw_thermal with hw_slowdown
		// Ten samples have it; each holds until the next, the last is 0 s old.
		want(t, "hw_thermal", series(page, name, `reason="hw_thermal"`), "9")
		want(t, "hw_slowdown", series(page, name, `reason="hw_slowdown"`), "9")
		want(t, "others from the start", series(page, name), "0", "9", "0", "0", "9", "0")
		page = next(5*time.Second, v(fieldThrottle, 0x4))
		want(t, "hw_thermal ended", series(page, name, `reason="hw_thermal"`), "10")
		want(t, "sw_power_cap", series(page, name, `reason="sw_power_cap"`), "4")
		page = next(5 * time.Second) // the mask is missing: no time of anything
		want(t, "unknown", series(page, name))
		page = next(3*time.Second, v(fieldThrottle, 0x4))
		want(t, "known again", series(page, name, `reason="sw_power_cap"`), "7") // 4, 1 until it was missing, 2
	})
}

// TestThrottleGap: time without samples is not throttled time.
func TestThrottleGap(t *testing.T) {
	s := &stub{}
	s.give(device(0, v(fieldThrottle, 0x80)))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := series(rec.page(t), "rackpulse_gpu_throttle_seconds_total", `reason="hw_power_brake"`)
		if err := r.Release(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := r.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, "after an hour away", series(rec.page(t), "rackpulse_gpu_throttle_seconds_total", `reason="hw_power_brake"`), before...)
	})
}

func TestIdleSince(t *testing.T) {
	const name = "rackpulse_gpu_idle_since_timestamp_seconds"
	idle := []Value{v(fieldUtil, 0), v(fieldUsed, 600), v(fieldFree, 80000)} // what a driver takes
	with := func(more ...Value) []Value { return append(more, idle...) }
	deriving(t, Config{}, func(next func(time.Duration, ...Value) string) {
		page := next(90*time.Second, idle...)
		since := series(page, name)
		// Virtual time begins at midnight UTC on 1 January 2000; the first sample had no values.
		want(t, "since the first sample with values", since, "9.46684801e+08")
		want(t, "while memory is in use", series(next(time.Second, v(fieldUtil, 0), v(fieldUsed, 4000), v(fieldFree, 76600)), name))
		want(t, "while there is load", series(next(time.Second, with(v(fieldUtil, 7))...), name)) // the first value counts
		want(t, "idle again", series(next(30*time.Second, idle...), name), "9.46684893e+08")
		want(t, "without utilisation", series(next(time.Second, v(fieldUsed, 600), v(fieldFree, 80000)), name))
		want(t, "by the engine", series(next(time.Second, v(fieldEngine, 0.01), v(fieldUsed, 600), v(fieldFree, 80000)), name), "9.46684924e+08")
		want(t, "busy engine", series(next(time.Second, v(fieldEngine, 0.5), v(fieldUsed, 600), v(fieldFree, 80000)), name))
	})
}

func TestPCIeDegraded(t *testing.T) {
	const name = "rackpulse_gpu_pcie_degraded"
	link := func(util, width, gen float64) []Value {
		return []Value{v(fieldUtil, util), v(fieldWidth, width), v(fieldMaxWidth, 16), v(fieldGen, gen), v(fieldMaxGen, 5)}
	}
	deriving(t, Config{}, func(next func(time.Duration, ...Value) string) {
		want(t, "idle links are slow", series(next(20*time.Second, link(0, 16, 1)...), name))
		want(t, "read as the load began", series(next(time.Second, link(90, 16, 1)...), name))
		page := next(20*time.Second, link(90, 16, 5)...)
		want(t, "width", series(page, name, `what="width"`), "0")
		want(t, "generation", series(page, name, `what="generation"`), "0")
		page = next(20*time.Second, link(90, 8, 4)...)
		want(t, "half the width", series(page, name, `what="width"`), "1")
		want(t, "a generation less", series(page, name, `what="generation"`), "1")
		want(t, "idle again", series(next(20*time.Second, link(3, 8, 1)...), name))
		page = next(20*time.Second, v(fieldUtil, 90), v(fieldWidth, 8), v(fieldGen, 4))
		want(t, "without a maximum", series(page, name))
	})
}

func TestMemoryFlags(t *testing.T) {
	const name, pending = "rackpulse_gpu_rma_flag", "rackpulse_gpu_memory_repair_pending"
	const rows, failure = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
	deriving(t, Config{}, func(next func(time.Duration, ...Value) string) {
		page := next(time.Second, v(rows, 511), v(failure, 0), v(fieldSRAM, 0), v("DCGM_FI_DEV_ROW_REMAP_PENDING", 0))
		want(t, "sound", series(page, name), "0", "0", "0")
		want(t, "nothing pending", series(page, pending), "0")
		page = next(time.Second, v(rows, 512), v(failure, 1), v(fieldSRAM, 1), v("DCGM_FI_DEV_ROW_REMAP_PENDING", 1))
		for _, cause := range []string{"row_remap_failure", "remapped_rows", "sram_threshold"} {
			want(t, cause, series(page, name, `cause="`+cause+`"`), "1")
		}
		want(t, "not a card with page retirement", series(page, name, `cause="retired_pages"`))
		want(t, "pending", series(page, pending), "1")
		page = next(time.Second, v("DCGM_FI_DEV_RETIRED_SBE", 40), v("DCGM_FI_DEV_RETIRED_DBE", 23), v("DCGM_FI_DEV_RETIRED_PENDING", 1))
		want(t, "63 pages", series(page, name), "0")
		want(t, "page pending", series(page, pending), "1")
		page = next(time.Second, v("DCGM_FI_DEV_RETIRED_SBE", 40), v("DCGM_FI_DEV_RETIRED_DBE", 24))
		want(t, "64 pages", series(page, name), "1")
		want(t, "a card that tells nothing", append(series(next(time.Second), name), series(next(time.Second), pending)...))
	})
}

func TestRecoveryAction(t *testing.T) {
	const name = "rackpulse_gpu_recovery_action"
	deriving(t, Config{}, func(next func(time.Duration, ...Value) string) {
		for value, action := range map[float64]string{0: "none", 1: "gpu_reset", 2: "node_reboot", 4: "drain_and_reset", 7: "system_reboot", 99: "other"} {
			page := next(time.Second, v(fieldRecovery, value))
			want(t, action, series(page, name, `action="`+action+`"`), "1")
			want(t, "only the present one", series(page, name), "1")
		}
		want(t, "old driver", series(next(time.Second), name))
	})
}

func TestLinkFlaps(t *testing.T) {
	d := newDerived()
	link := Entity{Kind: kindLink, ID: "3", GPU: "0"}
	dev := device(0)
	for i, s := range []struct {
		state string
		flaps float64
	}{{"down", 0}, {"up", 0}, {"up", 0}, {"down", 1}, {"down", 1}, {"up", 1}, {"disabled", 2}, {"up", 2}} {
		link.State = s.state
		if got := d.flaps(&link, &dev); got != s.flaps {
			t.Errorf("%d: %s: %v flaps, want %v", i, s.state, got, s.flaps)
		}
	}
	other := device(1) // another GPU's link of the same number
	if got := d.flaps(&link, &other); got != 0 {
		t.Errorf("another link: %v", got)
	}
	for i := range 3 * maxLinks {
		d.flaps(&Entity{Kind: kindLink, ID: "1"}, &Device{UUID: string(rune(i))})
	}
	if len(d.links) > maxLinks {
		t.Errorf("%d links", len(d.links))
	}
}
