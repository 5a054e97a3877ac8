// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenPage is the page without what differs from run to run, and from machine to
// machine: whether there is NVML, Slurm or a kubelet.
func goldenPage(page string) string {
	own := []string{"rackpulse_source_", "timestamp_seconds", "rackpulse_rejected_samples_total", "rackpulse_gpu_process", "rackpulse_gpu_orphan_", "rackpulse_gpu_unowned_", podInfo, "rackpulse_gpu_job_info"}
	var b strings.Builder
	for line := range strings.Lines(page) {
		if !slices.ContainsFunc(own, func(text string) bool { return strings.Contains(line, text) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestDCGMGolden compares the page of a healthy node. Its DCGM_FI_ part was made
// from a page of dcgm-exporter over DCGM 4.6.0, with the stand-in's values put in.
func TestDCGMGolden(t *testing.T) {
	fake := useFake(t, "", "gpus 8")
	r, rec := startDCGM(t, Config{})
	eventually(t, "8 GPUs", func() bool { return ups(t, rec) == "11111111" })
	got := goldenPage(rec.page(t))
	path := filepath.Join(testtool.Root(), "testdata", "golden", "gpu-dcgm.prom")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(golden) {
		t.Errorf("page differs from %s; got:\n%s", path, got)
	}
	if inv := r.Inventory(); inv.Status != "fresh" || len(inv.UUIDs) != 8 || !slices.IsSorted(inv.UUIDs) {
		t.Errorf("inventory: %+v", inv)
	}
	if got, want := r.Facts(), (site.Facts{Driver: "550.163.01", CUDA: "12.4", VBIOS: "text85", GPUModel: "NVIDIA H100 80GB HBM3", GPUCount: 8,
		MIGMode: site.Off, ECCMode: site.Off, Persistence: site.Off}); got != want {
		t.Errorf("facts %+v, want %+v", got, want)
	}
	if got := rec.reason(); got != "dcgm" {
		t.Errorf("reason: %q", got)
	}
	// One call for all GPUs (the first is for names), samples kept for two intervals,
	// no expensive calls.
	for i, call := range fake.calls("dcgmEntitiesGetLatestValues")[1:] {
		some := "entities=8 fields=22 "
		if i == 0 {
			some = "entities=8 fields=46 " // the slow ones as well
		}
		if !strings.HasPrefix(call, "dcgmEntitiesGetLatestValues "+some+"flags=0") {
			t.Errorf("%d: %s", i, call)
		}
	}
	if watches := fake.calls("dcgmWatchFields freq=100000 "); len(watches) != 2 || !strings.HasSuffix(watches[0], "age=0.200 samples=2") {
		t.Errorf("watches: %q", watches)
	}
	if watches := fake.calls("dcgmWatchFields freq=10000000 "); len(watches) != 1 || !strings.HasSuffix(watches[0], "age=20.000 samples=2") {
		t.Errorf("slow watches: %q", watches)
	}
	for _, never := range []string{"dcgmGetDeviceAttributes", "dcgmGetDeviceTopology", "dcgmGetCpuHierarchy", "dcgmHealthSet", "dcgmGetNvLinkP2PStatus"} {
		if calls := fake.calls(never); len(calls) > 0 {
			t.Errorf("%d calls of %s", len(calls), never)
		}
	}
}

func TestDCGMClosesHandles(t *testing.T) {
	fake := useFake(t, "")
	t.Run("run", func(t *testing.T) {
		_, rec := startDCGM(t, Config{})
		eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	})
	for _, call := range []string{"dcgmUnwatchFields", "dcgmGroupDestroy", "dcgmStopEmbedded", "dcgmShutdown"} {
		if len(fake.calls(call)) == 0 {
			t.Errorf("%s was not called at the end", call)
		}
	}
}

func TestDCGMRemote(t *testing.T) {
	f := func(flag, address, wantCall string) {
		t.Run(flag+address, func(t *testing.T) {
			fake := useFake(t, flag)
			_, rec := startDCGM(t, Config{DCGM: DCGMConfig{Address: address}})
			eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
			if calls := fake.calls("dcgmConnect"); len(calls) != 1 || calls[0] != wantCall {
				t.Errorf("calls: %q, want %q", calls, wantCall)
			}
			if calls := fake.calls("dcgmStartEmbedded"); len(calls) > 0 {
				t.Error("DCGM was started in the process")
			}
		})
	}
	f("", "tcp://127.0.0.1:5555", "dcgmConnect_v3 tcp://127.0.0.1:5555")
	f("", "unix:///run/dcgm", "dcgmConnect_v3 unix:///run/dcgm")
	f("FAKE_OLD", "tcp://127.0.0.1:5555", "dcgmConnect_v2 127.0.0.1:5555 unix=0")
	f("FAKE_OLD", "unix:///run/dcgm", "dcgmConnect_v2 /run/dcgm unix=1")
}

func TestDCGMLostGPU(t *testing.T) {
	fake := useFake(t, "", "gpus 4")
	r, rec := startDCGM(t, Config{})
	eventually(t, "4 GPUs", func() bool { return ups(t, rec) == "1111" })
	fake.say("gpus 4", "lost 2")
	eventually(t, "GPU 2 lost", func() bool { return ups(t, rec) == "1101" })
	page := rec.page(t)
	want(t, "temperatures", series(page, "DCGM_FI_DEV_GPU_TEMP"), "34", "35", "37")
	const uuid = "GPU-01000100-0000-0000-0000-000000000002"
	want(t, "its last known labels", series(page, "rackpulse_gpu_up", `UUID="`+uuid+`"`, `gpu="2"`), "0")
	for line := range strings.Lines(page) {
		if strings.Contains(line, uuid) && !strings.HasPrefix(line, "rackpulse_gpu_up{") && !strings.HasPrefix(line, "rackpulse_gpu_xid_errors_total{") {
			t.Errorf("lost GPU still has %s", line)
		}
	}
	if inv := r.Inventory(); inv.Status != "fresh" || len(inv.UUIDs) != 3 || slices.Contains(inv.UUIDs, uuid) {
		t.Errorf("inventory: %+v", inv)
	}
	fake.say("gpus 4")
	eventually(t, "GPU 2 back", func() bool { return ups(t, rec) == "1111" })
}

// TestDCGMRefuses lets DCGM refuse the whole batch, as DCGM does for some faults.
func TestDCGMRefuses(t *testing.T) {
	fake := useFake(t, "", "gpus 2")
	_, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	fake.say("gpus 2", "fail dcgmEntitiesGetLatestValues -18")
	eventually(t, "lost", func() bool { return ups(t, rec) == "00" })
	if calls := fake.calls("dcgmEntitiesGetLatestValues entities=1 "); len(calls) == 0 {
		t.Error("GPUs not read one by one")
	}
	fake.say("gpus 2")
	eventually(t, "back", func() bool { return ups(t, rec) == "11" })
}

func TestDCGMIDs(t *testing.T) {
	useFake(t, "", "ids 0,2,5", "unsupported 2")
	_, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	want(t, "GPU 5", series(page, "DCGM_FI_DEV_GPU_TEMP", `gpu="5"`, `device="nvidia5"`, "0000-000000000002"), "36")
	want(t, "GPU 2", series(page, "rackpulse_gpu_up", `gpu="2"`))
}

func TestDCGMBlanks(t *testing.T) {
	useFake(t, "", "value * 203 notsupported", "value * 155 noperm", "value 0 150 notfound", "value 1 150 blank",
		"value 0 140 2147483632", "value 0 252 644245923", "noprof")
	_, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	want(t, "not supported", series(page, "DCGM_FI_DEV_GPU_UTIL"))
	want(t, "no permission", series(page, "DCGM_FI_DEV_POWER_USAGE"))
	want(t, "not found, blank", series(page, "DCGM_FI_DEV_GPU_TEMP"))
	want(t, "32-bit blank", series(page, "DCGM_FI_DEV_MEMORY_TEMP"), "32")
	want(t, "out of range goes to the gate", series(page, "DCGM_FI_DEV_FB_USED"), "0")
	if got := series(page, "rackpulse_rejected_samples_total", `field="DCGM_FI_DEV_FB_USED"`, `reason="range"`); len(got) != 1 {
		t.Errorf("rejected: %q", got)
	}
	want(t, "profiling", series(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
	want(t, "others", series(page, "DCGM_FI_DEV_SM_CLOCK"), "345", "345")
}

func TestDCGMLabelFields(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counters.csv")
	text := "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_SERIAL, label, s\nDCGM_FI_DRIVER_VERSION, label, d\n" +
		"DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, of a switch\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fake := useFake(t, "", "driver 570.1", `model A "B" \C`)
	_, rec := startDCGM(t, Config{CountersFile: file})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	line := `DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-01000100-0000-0000-0000-000000000001",pci_bus_id="00000000:1B:00.0",device="nvidia1",` +
		`modelName="A \"B\" \\C",Hostname="vm",DCGM_FI_DEV_SERIAL="1650123000001",DCGM_FI_DRIVER_VERSION="570.1"} 35` + "\n"
	if !strings.Contains(page, line) {
		t.Errorf("no line %sin\n%s", line, page)
	}
	if !strings.HasPrefix(fake.calls("dcgmEntitiesGetLatestValues entities=2 fields=7 ")[0], "dcgm") {
		t.Error("reads fields of a switch")
	}
}

func TestDCGMMIG(t *testing.T) {
	useFake(t, "", "gpus 2", "mig 1 2", "value 1 112 4")
	r, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	want(t, "instances", series(page, "DCGM_FI_DEV_FB_FREE", `gpu="1"`, `modelName="NVIDIA H100 80GB HBM3",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname=`), "80896")
	want(t, "all", series(page, "DCGM_FI_DEV_FB_FREE"), "80896", "80896", "80896")
	want(t, "one state per GPU", series(page, "rackpulse_gpu_throttle", `reason="sw_power_cap"`), "0", "1")
	if got := r.Inventory().UUIDs; len(got) != 2 {
		t.Errorf("inventory: %q", got)
	}
}

// TestDCGMFaults lets the library hang, crash or miss a function, and looks that
// the page and the inventory live on and the GPUs come back.
func TestDCGMFaults(t *testing.T) {
	f := func(what string, fault string, timeout time.Duration, end, reason string) {
		t.Run(what, func(t *testing.T) {
			fake := useFake(t, "", "gpus 2")
			r, rec := startDCGM(t, Config{ReadTimeout: timeout})
			eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
			fake.say("gpus 2", fault)
			eventually(t, "child replaced", func() bool {
				got := series(rec.page(t), "rackpulse_gpu_child_restarts_total", `reason="`+end+`"`)
				return len(got) == 1 && got[0] != "0"
			})
			if !strings.Contains(rec.reason(), reason) {
				t.Errorf("reason: %q, want %q in it", rec.reason(), reason)
			}
			want(t, "source", series(rec.page(t), "rackpulse_source_up", `source="gpu"`), "0")
			want(t, "last sample", series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), "34", "35")
			before := time.Now()
			inv := r.Inventory()
			if took := time.Since(before); took > 50*time.Millisecond || len(inv.UUIDs) != 2 {
				t.Errorf("inventory took %v: %+v", took, inv)
			}
			fake.say("gpus 2")
			eventually(t, "source back", func() bool {
				return slices.Equal(series(rec.page(t), "rackpulse_source_up", `source="gpu"`), []string{"1"})
			})
			want(t, "abandoned", series(rec.page(t), "rackpulse_gpu_children_abandoned"), "0")
		})
	}
	f("hang", "hang dcgmEntitiesGetLatestValues", 500*time.Millisecond, "hang", `no answer to "read" in time`)
	f("segv", "crash dcgmEntitiesGetLatestValues segv", 0, "crash", "child process: exit status 2")
	f("abort", "crash dcgmEntitiesGetLatestValues abort", 0, "crash", "child process: ")
	f("exit", "crash dcgmEntitiesGetLatestValues exit", 0, "crash", "child process: exit status 3")
}

// TestDCGMUndefinedSymbol lets the dynamic linker end the child, exit status 127.
func TestDCGMUndefinedSymbol(t *testing.T) {
	useFake(t, "")
	t.Setenv("LD_BIND_NOW", "1")
	r, rec := startDCGM(t, Config{})
	eventually(t, "told", func() bool { return strings.Contains(rec.reason(), "undefined symbol: ") })
	if !strings.Contains(rec.reason(), "exit status 127") {
		t.Errorf("reason: %q", rec.reason())
	}
	if inv := r.Inventory(); inv.Status != "unavailable" || !strings.Contains(inv.Reason, "127") {
		t.Errorf("inventory: %+v", inv)
	}
	os.Unsetenv("LD_BIND_NOW")
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
}

func TestDCGMOldLibrary(t *testing.T) {
	fake := useFake(t, "FAKE_OLD", "gpus 2")
	_, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	fake.say("gpus 2", "xid 1 79 1") // no samples there: the field tells
	eventually(t, "XID", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `xid="79"`), []string{"0", "1"})
	})
}

func TestDCGMBrokenLibrary(t *testing.T) {
	useFake(t, "FAKE_BROKEN")
	_, rec := startDCGM(t, Config{})
	eventually(t, "told", func() bool {
		return rec.reason() == "dcgm: libdcgm.so.4 lacks the function dcgmEntitiesGetLatestValues"
	})
	want(t, "no restart counted", series(rec.page(t), "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
}

func TestDCGMLibraryAppears(t *testing.T) {
	lib := buildFake(t, "")
	dir := t.TempDir()
	t.Setenv("LD_LIBRARY_PATH", dir)
	withKinds(t, registry["dcgm"])
	_, rec := startDCGM(t, Config{Source: "auto"})
	eventually(t, "reason", func() bool { return strings.Contains(rec.reason(), "dcgm: libdcgm.so.4 not found") })
	if got := series(rec.page(t), "rackpulse_source_info", "dcgm: libdcgm.so.4 not found"); len(got) != 1 {
		t.Errorf("not on the page: %q", rec.reason())
	}
	if err := os.Symlink(filepath.Join(lib, "libdcgm.so.4"), filepath.Join(dir, "libdcgm.so.4")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
}

func TestDCGMConnectionLost(t *testing.T) {
	fake := useFake(t, "", "gpus 2")
	_, rec := startDCGM(t, Config{DCGM: DCGMConfig{Address: "tcp://127.0.0.1:5555"}})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	fake.say("disconnected")
	eventually(t, "noticed", func() bool { return strings.Contains(rec.reason(), "host engine is not valid") })
	fake.say("gpus 2", "value 0 150 77")
	eventually(t, "back", func() bool {
		return slices.Equal(series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), []string{"77", "35"})
	})
	fake.say("gpus 2", "xid 0 31 1") // they are watched again as well
	eventually(t, "XID", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `xid="31"`), []string{"1"})
	})
}

func TestDCGMXIDs(t *testing.T) {
	fake := useFake(t, "", "gpus 2")
	_, rec := startDCGM(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	count := func(xid string) string {
		return strings.Join(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `gpu="1"`, `xid="`+xid+`"`), "")
	}
	fake.say("gpus 2", "xid 1 48 1", "xid 1 63 1", "xid 1 94 1", "xid 1 94 2") // in one pass
	eventually(t, "a burst", func() bool { return count("48")+count("63")+count("94") == "112" })
	want(t, "value of the last", series(rec.page(t), "DCGM_FI_DEV_XID_ERRORS"), "94")

	fake.say("gpus 2", "xid 1 94 1", "xid 1 94 2", "crash dcgmEntitiesGetLatestValues segv")
	eventually(t, "a new child", func() bool {
		got := series(rec.page(t), "rackpulse_gpu_child_restarts_total", `reason="crash"`)
		return len(got) == 1 && got[0] != "0"
	})
	fake.say("gpus 2", "xid 1 94 1", "xid 1 94 2")
	eventually(t, "source back", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_source_up", `source="gpu"`), []string{"1"})
	})
	fake.say("gpus 2", "xid 1 94 1", "xid 1 94 2", "xid 1 79 3")
	eventually(t, "a later one", func() bool { return count("79") == "1" })
	if got := count("94"); got != "2" {
		t.Errorf("XID 94 counted %s times over a restart, want 2", got)
	}
	want(t, "value of the last", series(rec.page(t), "DCGM_FI_DEV_XID_ERRORS"), "79")
}
