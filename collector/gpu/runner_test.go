// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rackpulse/rackpulse/sim"
)

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRunnerPage(t *testing.T) {
	s := &stub{}
	s.give(
		device(0, Value{Field: fieldTemp, V: 60}, Value{Field: fieldSlowdown, V: 87}, Value{Field: fieldThrottle, V: 0x88},
			Value{Field: "DCGM_FI_DEV_POWER_USAGE", V: 1e300}),
		device(1, Value{Field: fieldTemp, V: 345}, Value{Field: fieldSlowdown, V: 87}, Value{Field: fieldMargin, V: 12}))
	withKinds(t, kind("stub", 1, s))
	inBubble(t, func(t *testing.T) {
		_, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		page := rec.page(t)
		want(t, "up", series(page, "rackpulse_gpu_up"), "1", "1")
		want(t, "temperature, one outside its gate", series(page, "DCGM_FI_DEV_GPU_TEMP"), "60")
		want(t, "power outside its gate", series(page, "DCGM_FI_DEV_POWER_USAGE"))
		want(t, "rejected", series(page, "rackpulse_rejected_samples_total", `reason="range"`), "1", "1")
		want(t, "margin of GPU 0", series(page, "rackpulse_gpu_thermal_margin_celsius", `gpu="0"`), "27") // 87 - 60
		want(t, "margin of GPU 1", series(page, "rackpulse_gpu_thermal_margin_celsius", `gpu="1"`), "12") // the driver's
		want(t, "brake", series(page, "rackpulse_gpu_throttle", `gpu="0"`, `reason="hw_power_brake"`), "1")
		want(t, "slowdown", series(page, "rackpulse_gpu_throttle", `gpu="0"`, `reason="hw_slowdown"`), "1")
		want(t, "idle", series(page, "rackpulse_gpu_throttle", `gpu="0"`, `reason="gpu_idle"`), "0")
		want(t, "reasons of GPU 0", series(page, "rackpulse_gpu_throttle", `gpu="0"`), "0", "0", "0", "1", "0", "0", "0", "1", "0")
		want(t, "reasons of GPU 1, not told", series(page, "rackpulse_gpu_throttle", `gpu="1"`))
		want(t, "info", series(page, "rackpulse_gpu_info", `UUID="GPU-1"`, `driver="550.1"`, `model="NVIDIA H100"`), "1")
		want(t, "source", series(page, "rackpulse_source_info", `source="gpu"`, `reason="stub"`), "1")
		want(t, "xid 79 from the start", series(page, "rackpulse_gpu_xid_errors_total", `xid="79"`), "0", "0")
		if slices.Contains(strings.Split(page, "\n"), "DCGM_FI_DEV_SLOWDOWN_TEMP") {
			t.Error("a field that the counters do not name is on the page")
		}
	})
}

func TestRunnerFallbackAndUpgrade(t *testing.T) {
	better, worse := &stub{}, &stub{}
	better.give(device(0))
	worse.give(device(0), device(1))
	better.refuseWith("libbetter.so not found")
	withKinds(t, kind("better", 1, better), kind("worse", 2, worse))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		if got := rec.reason(); got != "worse (better: libbetter.so not found)" {
			t.Errorf("reason: %q", got)
		}
		if got := r.Inventory().UUIDs; !slices.Equal(got, []string{"GPU-0", "GPU-1"}) {
			t.Errorf("inventory: %q", got)
		}
		better.refuseWith("") // the library appears
		time.Sleep(upgradeInterval + 2*time.Second)
		synctest.Wait()
		if got := rec.reason(); got != "better" {
			t.Errorf("reason after the upgrade: %q", got)
		}
		_, worseClosed := worse.state()
		_, betterClosed := better.state()
		if !worseClosed || betterClosed {
			t.Errorf("closed: worse %v, better %v", worseClosed, betterClosed)
		}
		// GPU-1 was seen since the start and is missing now.
		want(t, "up", series(rec.page(t), "rackpulse_gpu_up"), "1", "0")
	})
	if _, closed := better.state(); !closed {
		t.Error("source not closed at the end")
	}
}

func TestRunnerNoSource(t *testing.T) {
	s := &stub{}
	s.give(device(0))
	s.refuseWith("libx.so not found")
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want(t, "up", series(rec.page(t), "rackpulse_source_up"), "0")
		want(t, "info", series(rec.page(t), "rackpulse_source_info", `reason="x: libx.so not found"`), "1")
		if inv := r.Inventory(); inv.Status != "unavailable" || inv.Reason != "x: libx.so not found" || len(inv.UUIDs) != 0 {
			t.Errorf("inventory: %+v", inv)
		}
		// Back-off 1, 2, 4 ... 60 s with 20 % jitter: 6 tries in 63 s, then one a minute.
		if tries, _ := s.state(); tries < 12 || tries > 19 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		s.refuseWith("")
		time.Sleep(80 * time.Second)
		synctest.Wait()
		want(t, "up at last", series(rec.page(t), "rackpulse_source_up"), "1")
	})
}

func TestRunnerStale(t *testing.T) {
	s := &stub{}
	s.give(device(0), device(1))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		if inv := r.Inventory(); inv.Status != "fresh" || inv.Reason != "" {
			t.Errorf("inventory: %+v", inv)
		}
		s.fail("no answer")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if inv := r.Inventory(); inv.Status != "fresh" || len(inv.UUIDs) != 2 {
			t.Errorf("inventory after 20 s: %+v", inv)
		}
		want(t, "the last sample stays", series(rec.page(t), "rackpulse_gpu_up"), "1", "1")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if inv := r.Inventory(); inv.Status != "stale" || !strings.Contains(inv.Reason, "no answer") || len(inv.UUIDs) != 2 {
			t.Errorf("inventory after 40 s: %+v", inv)
		}
		want(t, "not for ever", series(rec.page(t), "rackpulse_gpu_up"))
		if got := series(rec.page(t), "rackpulse_gpu_child_restarts_total", `reason="error"`); len(got) != 1 || got[0] == "0" {
			t.Errorf("restarts: %q", got)
		}
		s.give(device(0))
		time.Sleep(80 * time.Second)
		synctest.Wait()
		if inv := r.Inventory(); inv.Status != "fresh" || !slices.Equal(inv.UUIDs, []string{"GPU-0"}) {
			t.Errorf("inventory at the end: %+v", inv)
		}
	})
}

func TestRunnerXIDs(t *testing.T) {
	s := &stub{}
	s.give(device(0), device(1))
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		_, rec := start(t, Config{}, Deps{})
		synctest.Wait()
		when := time.Now()
		s.mu.Lock()
		s.sample = func() (*Sample, error) {
			lost := device(1)
			lost.Lost = true
			sample := &Sample{Devices: []Device{device(0), lost}}
			if time.Since(when) <= time.Second {
				sample.XIDs = []XID{{UUID: "GPU-1", Code: 79, At: when}, {UUID: "GPU-1", Code: 79}, {UUID: "GPU-0", Code: 31, At: when}, {Code: 13}, {UUID: "GPU-0", Code: -1}}
			}
			return sample, nil
		}
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		page := rec.page(t)
		want(t, "79", series(page, "rackpulse_gpu_xid_errors_total", `xid="79"`), "0", "2")
		want(t, "31 of GPU 0 only", series(page, "rackpulse_gpu_xid_errors_total", `xid="31"`), "1")
		want(t, "time", series(page, "rackpulse_gpu_xid_last_timestamp_seconds", `UUID="GPU-0"`, `xid="31"`), "9.466848e+08") // the bubble begins in 2000
		want(t, "last of GPU 0", series(page, "DCGM_FI_DEV_XID_ERRORS", `gpu="0"`), "31")
		want(t, "lost GPU has no readings", series(page, "DCGM_FI_DEV_XID_ERRORS", `gpu="1"`))
		want(t, "up", series(page, "rackpulse_gpu_up"), "1", "0")
	})
}

func TestRunnerExpected(t *testing.T) {
	dir := t.TempDir()
	s := &stub{}
	withKinds(t, kind("x", 1, s))
	expected := 0
	run := func(what string, count int, devices []Device, up ...string) {
		t.Helper()
		s.give(devices...)
		expected = count
		inBubble(t, func(t *testing.T) {
			_, rec := start(t, Config{}, Deps{StateDir: dir, ExpectedCount: func() int { return expected }})
			synctest.Wait()
			var got []string
			for _, uuid := range []string{"GPU-0", "GPU-1", "GPU-2", "GPU-7"} {
				for _, v := range series(rec.page(t), "rackpulse_gpu_up", `UUID="`+uuid+`"`) {
					got = append(got, uuid+"="+v)
				}
			}
			for _, index := range []string{"unseen1", "unseen2"} {
				for _, v := range series(rec.page(t), "rackpulse_gpu_up", `{gpu="`+index+`"`) { // no UUID
					got = append(got, index+"="+v)
				}
			}
			want(t, what, got, up...)
		})
	}
	run("first start", 0, []Device{device(0), device(1), device(2)}, "GPU-0=1", "GPU-1=1", "GPU-2=1")
	run("missing from the start, nobody knows the count", 0, []Device{device(0), device(1)}, "GPU-0=1", "GPU-1=1")
	run("missing from the start, count known", 3, []Device{device(0), device(1)}, "GPU-0=1", "GPU-1=1", "GPU-2=0")
	blank := Device{Index: "2", Name: "nvidia2", Lost: true}
	run("lost from the start and nameless", 3, []Device{device(0), device(1), blank}, "GPU-0=1", "GPU-1=1", "GPU-2=0")
	run("swapped: the old one is forgotten", 3, []Device{device(0), device(1), device(7)}, "GPU-0=1", "GPU-1=1", "GPU-7=1")
	run("swapped one missing", 3, []Device{device(0), device(1)}, "GPU-0=1", "GPU-1=1", "GPU-7=0")

	if err := os.WriteFile(filepath.Join(dir, knownFile), []byte("{broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("broken cache", 3, []Device{device(0)}, "GPU-0=1", "unseen1=0", "unseen2=0")
}

func TestRunnerApply(t *testing.T) {
	a, b := &stub{}, &stub{}
	a.give(device(0, Value{Field: fieldTemp, V: 50}))
	b.give(device(0, Value{Field: fieldTemp, V: 60}))
	withKinds(t, kind("a", 1, a), kind("b", 2, b))
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{Source: "a"}, Deps{})
		synctest.Wait()
		if err := r.Apply(Config{Source: "c"}); err == nil {
			t.Error("a bad configuration was taken")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want(t, "after a bad one", series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP", `Hostname="vm"`), "50")

		if err := r.Apply(Config{Source: "a", HostnameLabel: "hostname"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want(t, "label", series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP", `,hostname="vm"`), "50")
		if _, closed := a.state(); closed {
			t.Error("source closed for a label")
		}

		if err := r.Apply(Config{Source: "b"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		want(t, "other source", series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), "60")
		if _, closed := a.state(); !closed {
			t.Error("old source not closed")
		}
	})
}

func TestRunnerSim(t *testing.T) {
	var node atomic.Pointer[sim.Node]
	node.Store(&sim.Node{Up: true, GPUs: []sim.GPU{
		{Index: 0, UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", Present: true, TempC: 61.4, MarginC: 25.7, PowerWatts: 512.25,
			EnergyJoules: 1234.5678, Util: 0.973, FanRatio: 0.4, PCIeGen: 5, PCIeWidth: 16, PowerBrake: true, XIDs: map[int]int{13: 4}},
		{Index: 1, UUID: "GPU-b", Present: false, LastXID: 79, XIDs: map[int]int{}},
	}})
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		r, rec := start(t, Config{Source: "sim"}, Deps{StateDir: dir, Sim: func(time.Time) (*sim.Node, bool) { return node.Load(), true }})
		synctest.Wait()
		later := sim.Node{Up: true, GPUs: slices.Clone(node.Load().GPUs)}
		later.GPUs[1].XIDs = map[int]int{79: 1}
		node.Store(&later)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		page := rec.page(t)
		want(t, "simulated", series(page, "rackpulse_simulated", `layer="gpu"`), "1")
		want(t, "temperature", series(page, "DCGM_FI_DEV_GPU_TEMP"), "61")
		want(t, "margin", series(page, "rackpulse_gpu_thermal_margin_celsius"), "26")
		want(t, "power", series(page, "DCGM_FI_DEV_POWER_USAGE"), "512.25")
		want(t, "energy in mJ", series(page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), "1.234568e+06")
		want(t, "utilisation", series(page, "DCGM_FI_DEV_GPU_UTIL"), "97")
		want(t, "fan", series(page, "DCGM_FI_DEV_FAN_SPEED"), "40")
		want(t, "brake", series(page, "rackpulse_gpu_throttle", `reason="hw_power_brake"`), "1")
		want(t, "up", series(page, "rackpulse_gpu_up"), "1", "0")
		want(t, "xid before the start", series(page, "rackpulse_gpu_xid_errors_total", `xid="13"`))
		want(t, "xid since", series(page, "rackpulse_gpu_xid_errors_total", `xid="79"`), "0", "1")
		if got := r.Inventory().UUIDs; !slices.Equal(got, []string{"GPU-a"}) {
			t.Errorf("inventory: %q", got)
		}
	})
	if _, err := os.Stat(filepath.Join(dir, knownFile)); !os.IsNotExist(err) {
		t.Errorf("simulated GPUs were written to the state directory: %v", err)
	}
}
