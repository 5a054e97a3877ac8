// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	fieldSBE   = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
	fieldLimit = "DCGM_FI_DEV_POWER_MGMT_LIMIT"
)

// TestSlowFields goes through every DCGM field: each pattern of slowFields fits one
// at least, and none of those that must not wait is slow.
func TestSlowFields(t *testing.T) {
	fits := func(pattern, field string) bool {
		begin, any := strings.CutSuffix(pattern, "*")
		return field == pattern || any && strings.HasPrefix(field, begin)
	}
	for _, pattern := range slowFields {
		found := false
		for _, n := range fieldNames() {
			found = found || fits(pattern, n.metric)
		}
		if !found && !strings.HasPrefix(pattern, "rackpulse_") {
			t.Errorf("%s: there is no such field", pattern)
		}
	}
	for _, n := range fieldNames() {
		if isSlow(n.metric) != slices.ContainsFunc(slowFields, func(p string) bool { return fits(p, n.metric) }) {
			t.Errorf("%s: slow %v", n.metric, isSlow(n.metric))
		}
		if strings.HasPrefix(n.metric, "DCGM_FI_PROF_") && isSlow(n.metric) {
			t.Errorf("profiling field %s is slow", n.metric)
		}
	}
	for field, slow := range map[string]bool{
		fieldTemp: false, fieldThrottle: false, fieldMargin: false, fieldXID: false, fieldSlowdown: true, fieldSBE: true, fieldLimit: true,
		"DCGM_FI_DEV_POWER_USAGE": false, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": false, "DCGM_FI_DEV_FB_USED": false,
		"DCGM_FI_DEV_PCIE_TX_THROUGHPUT": false, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": false, "DCGM_FI_DEV_PCIE_LINK_WIDTH": true,
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": true, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L3": true,
	} {
		if isSlow(field) != slow {
			t.Errorf("%s: slow %v, want %v", field, !slow, slow)
		}
	}
}

func TestSlowDue(t *testing.T) {
	cfg := SourceConfig{Interval: time.Second, SlowInterval: 10 * time.Second}
	last := time.Unix(1000, 0)
	for after, want := range map[time.Duration]bool{time.Second: false, 9 * time.Second: false,
		9900 * time.Millisecond: true, 10 * time.Second: true, time.Minute: true} {
		if got := cfg.slowDue(last, last.Add(after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
	if !cfg.slowDue(time.Time{}, last) {
		t.Error("not due although never read")
	}
}

// TestRunnerSlow gives samples with and without the slow fields, as children do.
func TestRunnerSlow(t *testing.T) {
	s := &stub{}
	temp := func(v float64) Value { return Value{Field: fieldTemp, V: v} }
	sbe := func(v float64) Value { return Value{Field: fieldSBE, V: v} }
	slowdown := Value{Field: fieldSlowdown, V: 90}
	fast := func(devices ...Device) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sample = func() (*Sample, error) {
			return &Sample{At: time.Now(), FastOnly: true, Devices: slices.Clone(devices)}, nil
		}
	}
	s.give(device(0, temp(40), sbe(1), slowdown), device(1, temp(41), sbe(2), slowdown))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		look := func(what string, temps, sbes, margins string) {
			t.Helper()
			page := rec.page(t)
			for name, values := range map[string]string{fieldTemp: temps, fieldSBE: sbes, "rackpulse_gpu_thermal_margin_celsius": margins} {
				if got := strings.Join(series(page, name), " "); got != values {
					t.Errorf("%s: %s: %q, want %q", what, name, got, values)
				}
			}
		}
		look("first sample", "40 41", "1 2", "50 49")
		fast(device(0, temp(50)), device(1, temp(51)))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		look("fast sample", "50 51", "1 2", "40 39")

		if err := r.Apply(Config{HostnameLabel: "hostname"}); err != nil { // keeps the source
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "other labels at once", series(rec.page(t), fieldSBE, `,hostname="vm"`), "1", "2")

		lost := device(0)
		lost.Lost = true
		fast(lost, device(1, temp(51)))
		time.Sleep(time.Second)
		synctest.Wait()
		look("one lost", "51", "2", "39")
		fast(device(0, temp(50)), device(1, temp(51)))
		time.Sleep(time.Second)
		synctest.Wait()
		look("back, its slow values are not the old ones", "50 51", "2", "39")
		s.give(device(0, temp(50), sbe(7), slowdown), device(1, temp(51), slowdown))
		time.Sleep(time.Second)
		synctest.Wait()
		look("read again", "50 51", "7", "40 39")

		fast(device(0, temp(50)), device(1, temp(51)))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		look("old", "50 51", "7", "40 39")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		want(t, "too old", series(rec.page(t), fieldSBE))
	})
}

// TestRunnerSlowApply changes each of the two intervals: the source is opened anew.
func TestRunnerSlowApply(t *testing.T) {
	s := &stub{}
	s.give(device(0, Value{Field: fieldTemp, V: 50}))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		for i, cfg := range []Config{{SlowInterval: 20 * time.Second}, {SlowInterval: 20 * time.Second},
			{SlowInterval: 20 * time.Second, Interval: 2 * time.Second}} {
			synctest.Wait()
			if err := r.Apply(cfg); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if opens, _ := s.state(); opens != []int{2, 2, 3}[i] {
				t.Errorf("%d: opened %d times", i, opens)
			}
		}
		if err := r.Apply(Config{SlowInterval: time.Millisecond}); err == nil {
			t.Error("a bad slow interval was taken")
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if fast, slow := rec.latest["gpu"].Interval, rec.latest["gpu_slow"].Interval; fast != 2*time.Second || slow != 20*time.Second {
			t.Errorf("published with %v and %v", fast, slow)
		}
	})
}
