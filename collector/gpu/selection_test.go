// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseSelectionErrors(t *testing.T) {
	f := func(devices string, exclude []string, want string) {
		t.Helper()
		_, err := New(Config{Devices: devices, Exclude: exclude}, Deps{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q, %q: got %v, want %s...", devices, exclude, err, want)
		}
	}
	f("f:0", nil, `gpu.devices: f takes no ids (write "g:0")`)
	f("g:", nil, `gpu.devices: no ids behind "g:"`)
	f("g:0,,1", nil, `gpu.devices: "" is no number`)
	f("g:3-1", nil, `gpu.devices: "3-1" is no range`)
	f("0-5000", nil, `gpu.devices: "0-5000" is no range of up to 1024 numbers`)
	f("0-1023,0-1023", nil, `gpu.devices: more than 1024 ids`)
	f("all", nil, `gpu.devices: "all" is no number, range, UUID`)
	f("g:i", nil, `gpu.devices: "i" is no number`)
	f("", []string{"nvidia0"}, `gpu.exclude: "nvidia0" is no number`)
	f("", []string{"MIG-5d5ba0d6"}, `gpu.exclude: "MIG-5d5ba0d6" is no number`)
}

// TestSelection lists what is read of a node with two whole GPUs and one with two
// instances.
func TestSelection(t *testing.T) {
	devices := []Device{device(0), device(1), device(2), device(2)}
	for i, gid := range []string{"7", "9"} {
		d := &devices[2+i]
		d.MIGID, d.MIGProfile, d.Entity = gid, "1g.10gb", []string{"16", "17"}[i]
	}
	f := func(text string, exclude string, want, unmatched string) {
		t.Helper()
		s, err := parseSelection(text, strings.Fields(exclude))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			return
		}
		var got []string
		for i := range devices {
			if s.wants(&devices[i]) {
				got = append(got, strings.TrimSuffix(devices[i].Index+"."+devices[i].MIGID, "."))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q without %q: %q, want %q", text, exclude, got, want)
		}
		if got := strings.Join(s.unmatched(devices), " "); got != unmatched {
			t.Errorf("%q without %q: unmatched %q, want %q", text, exclude, got, unmatched)
		}
	}
	f("", "", "0 1 2.7 2.9", "")
	f("f", "", "0 1 2.7 2.9", "")
	f("g", "", "0 1 2.7 2.9", "") // a source that cannot read GPU 2 as a whole has its instances
	f("g:0,2", "", "0 2.7 2.9", "")
	f("g:1-3", "", "1 2.7 2.9", "3")
	f("0,00000000:01:00.0", "", "0 1", "")
	f("0000:01:00", "", "1", "")
	f("01:00.0", "", "1", "")
	f("gpu-1,GPU-8", "", "1", "GPU-8")
	f("i", "", "2.7 2.9", "")
	f("i:17", "", "2.9", "")
	f("i:2.7", "", "2.7", "")
	f("i:3,16", "", "2.7", "3")
	f("", "1", "0 2.7 2.9", "")
	f("", "2.9 05", "0 1 2.7", "05")
	f("", "00000000:02:00.0", "0 1", "")
}

// TestSelectDevices shows a page of some GPUs: the others are on the node, but not on
// the page, and neither are their faults.
func TestSelectDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		withKinds(t, kind("nvml", 1, s))
		s.give(device(0, Value{Field: fieldTemp, V: 40}), device(1, Value{Field: fieldTemp, V: 41}), device(2, Value{Field: fieldTemp, V: 42}))
		r, rec := start(t, Config{Source: "nvml", Devices: "0-1,7", Exclude: []string{"1", "00000000:09:00.0"}}, Deps{})
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond)
		page := rec.page(t)
		want(t, "temperatures", series(page, fieldTemp), "40")
		want(t, "up", series(page, "rackpulse_gpu_up"), "1")
		want(t, "unmatched 7", series(page, "rackpulse_gpu_selector_unmatched", `id="7"`), "1")
		want(t, "unmatched", series(page, "rackpulse_gpu_selector_unmatched"), "1", "1")
		if len(series(page, "rackpulse_gpu_xid_errors_total", `gpu="1"`)) > 0 {
			t.Error("XIDs of a GPU that is not read")
		}
		if inv := r.Inventory(); len(inv.UUIDs) != 3 {
			t.Errorf("inventory: %+v", inv)
		}
		s.give(device(0, Value{Field: fieldTemp, V: 40}), device(7, Value{Field: fieldTemp, V: 47}))
		time.Sleep(time.Second)
		page = rec.page(t)
		want(t, "temperatures", series(page, fieldTemp), "40", "47")
		want(t, "GPUs 1 and 2 are gone, and not asked for", series(page, "rackpulse_gpu_up"), "1", "1")
		want(t, "unmatched", series(page, "rackpulse_gpu_selector_unmatched"), "1", "1")
	})
}
