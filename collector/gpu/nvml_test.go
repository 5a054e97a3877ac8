// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// family returns the metric name of a line of a page, "" for a comment.
func family(line string) string {
	if strings.HasPrefix(line, "#") {
		return ""
	}
	return line[:strings.IndexAny(line, "{ ")]
}

// TestNVMLSameAsDCGM compares the page with that of the DCGM source: the two
// stand-ins have the same hardware, so every series must be the same, names,
// labels and values. Only what NVML does not know may be missing.
func TestNVMLSameAsDCGM(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join(testtool.Root(), "testdata", "golden", "gpu-dcgm.prom"))
	if err != nil {
		t.Fatal(err)
	}
	useNVML(t, "", "gpus 8")
	r, rec := startNVML(t, Config{})
	eventually(t, "8 GPUs and a rate", func() bool {
		return ups(t, rec) == "11111111" && len(series(rec.page(t), "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")) == 8
	})
	got := goldenPage(rec.page(t))
	unknown := []string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
		"DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES", "rackpulse_gpu_call_overdue", "rackpulse_gpu_recovery_action"} // which is there from driver 565 on
	wanted := 0
	for line := range strings.Lines(string(golden)) {
		name := family(line)
		if name == "" || slices.Contains(unknown, name) {
			continue
		}
		wanted++
		if !strings.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	profiling := slices.DeleteFunc(slices.Clone(unknown), func(name string) bool { return !strings.HasPrefix(name, "DCGM_FI_PROF_") })
	for _, field := range append(profiling, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_FAN_SPEED") {
		if lacks := series(got, "rackpulse_gpu_field_supported", `field="`+field+`"`); len(lacks) != 8 {
			t.Errorf("%s: unsupported on %d GPUs", field, len(lacks))
		}
	}
	if lacks := series(got, "rackpulse_gpu_field_supported"); len(lacks) != 8*(len(profiling)+2) {
		t.Errorf("%d fields unsupported", len(lacks))
	}
	if wanted < 8*30 {
		t.Errorf("only %d lines were compared", wanted)
	}
	for line := range strings.Lines(got) { // the stand-in for DCGM has no links unless it is told
		lacks := strings.HasPrefix(line, "rackpulse_gpu_field_supported{") && !strings.Contains(line, "_FAN_SPEED")
		if !lacks && !strings.Contains(string(golden), line) && !strings.Contains(line, "rackpulse_nvlink") {
			t.Errorf("not with DCGM: %s", line)
		}
	}
	if inv := r.Inventory(); inv.Status != "fresh" || len(inv.UUIDs) != 8 {
		t.Errorf("inventory: %+v", inv)
	}
	if got := rec.reason(); got != "nvml" {
		t.Errorf("reason: %q", got)
	}
}

func TestNVMLValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counters.csv")
	var text strings.Builder
	for _, field := range []string{"FB_TOTAL", "FB_FREE", "FB_USED", "FB_RESERVED", "POWER_USAGE", "ENFORCED_POWER_LIMIT", "POWER_MGMT_LIMIT",
		"TOTAL_ENERGY_CONSUMPTION", "GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL", "FAN_SPEED", "PCIE_LINK_WIDTH", "PCIE_MAX_LINK_WIDTH",
		"PCIE_TX_THROUGHPUT", "PCIE_RX_THROUGHPUT", "ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL", "ECC_SBE_AGG_TOTAL", "ECC_DBE_AGG_TOTAL",
		"CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_PENDING", "ROW_REMAP_FAILURE",
		"RETIRED_SBE", "RETIRED_DBE", "RETIRED_PENDING", "SHUTDOWN_TEMP", "MEMORY_TEMP"} {
		text.WriteString("DCGM_FI_DEV_" + field + ", gauge, x\n")
	}
	if err := os.WriteFile(file, []byte(text.String()+"DCGM_FI_DEV_SERIAL, label, s\nDCGM_FI_DEV_MINOR_NUMBER, label, m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := "value 0 nvmlDeviceGet"
	useNVML(t, "", "gpus 1", f+"PowerUsage 412345", f+"MemoryInfo_v2.used 5368709120", f+"UtilizationRates.gpu 97", f+"UtilizationRates.memory 41",
		f+"EncoderUtilization 3", f+"DecoderUtilization 4", f+"FanSpeed 55", f+"CurrPcieLinkWidth 8", f+"TotalEccErrors.sbe 11",
		f+"TotalEccErrors.dbe 12", f+"TotalEccErrors.sbe_agg 13", f+"TotalEccErrors.dbe_agg 14", f+"RemappedRows.correctable 5",
		f+"RemappedRows.uncorrectable 6", f+"RemappedRows.pending 1", f+"RemappedRows.failure 1", f+"RetiredPages.sbe 2", f+"RetiredPages.dbe 9",
		f+"RetiredPagesPendingStatus 1", f+"FieldValues.82 71", f+"MinorNumber 4", f+"CurrentClocksEventReasons 132")
	_, rec := startNVML(t, Config{CountersFile: file})
	eventually(t, "1 GPU", func() bool { return ups(t, rec) == "1" })
	page := rec.page(t)
	for field, value := range map[string]string{
		"FB_TOTAL": "81920", "FB_FREE": "75776", "FB_USED": "5120", "FB_RESERVED": "1024", // 5 GiB used
		"POWER_USAGE": "412.345", "ENFORCED_POWER_LIMIT": "650", "POWER_MGMT_LIMIT": "700", "TOTAL_ENERGY_CONSUMPTION": "600000",
		"GPU_UTIL": "97", "MEM_COPY_UTIL": "41", "ENC_UTIL": "3", "DEC_UTIL": "4", "FAN_SPEED": "55",
		"PCIE_LINK_WIDTH": "8", "PCIE_MAX_LINK_WIDTH": "16", "PCIE_TX_THROUGHPUT": "1200", "PCIE_RX_THROUGHPUT": "3400",
		"ECC_SBE_VOL_TOTAL": "11", "ECC_DBE_VOL_TOTAL": "12", "ECC_SBE_AGG_TOTAL": "13", "ECC_DBE_AGG_TOTAL": "14",
		"CORRECTABLE_REMAPPED_ROWS": "5", "UNCORRECTABLE_REMAPPED_ROWS": "6", "ROW_REMAP_PENDING": "1", "ROW_REMAP_FAILURE": "1",
		"RETIRED_SBE": "2", "RETIRED_DBE": "9", "RETIRED_PENDING": "1", "SHUTDOWN_TEMP": "92", "MEMORY_TEMP": "71",
	} {
		want(t, field, series(page, "DCGM_FI_DEV_"+field, `device="nvidia4"`, `DCGM_FI_DEV_SERIAL="1650123000000"`, `DCGM_FI_DEV_MINOR_NUMBER="4"`), value)
	}
	for _, r := range throttleReasons { // 132: 0x80 and 0x4
		value := "0"
		if r.reason == "sw_power_cap" || r.reason == "hw_power_brake" {
			value = "1"
		}
		want(t, r.reason, series(page, "rackpulse_gpu_throttle", `reason="`+r.reason+`"`), value)
	}
	want(t, "margin", series(page, "rackpulse_gpu_thermal_margin_celsius"), "53")
	want(t, "not asked for", series(page, "DCGM_FI_DEV_GPU_TEMP"))
}

// TestNVMLNotSupported looks at a workstation card: what it does not have is
// absent, and not asked for again and again.
func TestNVMLNotSupported(t *testing.T) {
	f := "value * nvmlDeviceGet"
	fake := useNVML(t, "", "gpus 2", "model NVIDIA GeForce RTX 4090", f+"TotalEccErrors notsupported", f+"RemappedRows notsupported",
		f+"FieldValues notsupported", f+"NvLinkState notsupported", f+"MarginTemperature notsupported", f+"PowerManagementLimit notsupported",
		"value 1 nvmlDeviceGetMinorNumber notsupported", f+"EncoderUtilization noperm")
	_, rec := startNVML(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	eventually(t, "some passes", func() bool { return len(fake.calls("nvmlDeviceGetTemperature ")) > 20 })
	page := rec.page(t)
	for _, field := range []string{"ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE", "FAN_SPEED",
		"MEMORY_TEMP", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_BANDWIDTH_TOTAL", "ENC_UTIL", "VGPU_LICENSE_STATUS"} {
		want(t, field, series(page, "DCGM_FI_DEV_"+field))
	}
	want(t, "others", series(page, "DCGM_FI_DEV_GPU_TEMP", `modelName="NVIDIA GeForce RTX 4090"`), "34", "35")
	want(t, "margin by the slowdown threshold", series(page, "rackpulse_gpu_thermal_margin_celsius"), "53", "52") // 87 - 34
	want(t, "limit in force", series(page, "DCGM_FI_DEV_POWER_MGMT_LIMIT"), "650", "650")
	want(t, "device without a minor number", series(page, "DCGM_FI_DEV_GPU_TEMP", `device="nvidia1"`), "35")
	for _, call := range []string{"nvmlDeviceGetTotalEccErrors ", "nvmlDeviceGetFieldValues "} {
		if n := len(fake.calls(call)); n > 2*4 { // 2 GPUs, at most 4 fields
			t.Errorf("%d calls of %s", n, call)
		}
	}
	if n := len(fake.calls("nvmlDeviceGetName ")); n != 2 {
		t.Errorf("names read %d times", n)
	}
}

func TestNVMLLostGPU(t *testing.T) {
	fake := useNVML(t, "", "gpus 4")
	r, rec := startNVML(t, Config{})
	eventually(t, "4 GPUs", func() bool { return ups(t, rec) == "1111" })
	fake.say("gpus 4", "lost 2")
	eventually(t, "GPU 2 lost", func() bool { return ups(t, rec) == "1101" })
	page := rec.page(t)
	want(t, "temperatures", series(page, "DCGM_FI_DEV_GPU_TEMP"), "34", "35", "37")
	const uuid = "GPU-01000100-0000-0000-0000-000000000002"
	want(t, "its last known labels", series(page, "rackpulse_gpu_up", `UUID="`+uuid+`"`, `gpu="2"`), "0")
	if inv := r.Inventory(); inv.Status != "fresh" || len(inv.UUIDs) != 3 || slices.Contains(inv.UUIDs, uuid) {
		t.Errorf("inventory: %+v", inv)
	}
	// It does not take the others' driver errors along.
	fake.say("gpus 4", "lost 2", "xid 1 94 1")
	eventually(t, "XID of another", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `gpu="1"`, `xid="94"`), []string{"1"})
	})
	fake.say("gpus 4")
	eventually(t, "GPU 2 back", func() bool { return ups(t, rec) == "1111" })
}

// TestNVMLGoneGPU takes a GPU off the list; the others move up, as they do.
func TestNVMLGoneGPU(t *testing.T) {
	fake := useNVML(t, "", "gpus 3")
	_, rec := startNVML(t, Config{})
	eventually(t, "3 GPUs", func() bool { return ups(t, rec) == "111" })
	fake.say("ids 0,2")
	eventually(t, "one gone", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_up", "0000-000000000001"), []string{"0"})
	})
	eventually(t, "one moved", func() bool {
		return slices.Equal(series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP", `gpu="1"`, "0000-000000000002", `device="nvidia2"`), []string{"36"})
	})
	fake.say("gpus 3")
	eventually(t, "back", func() bool { return ups(t, rec) == "111" })
	fake.say("gpus 4")
	eventually(t, "one more", func() bool { return ups(t, rec) == "1111" })
}

func TestNVMLMIG(t *testing.T) {
	useNVML(t, "", "gpus 2", "mig 1 2", "value 1 nvmlDeviceGetCurrentClocksEventReasons 4")
	r, rec := startNVML(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	want(t, "memory of an instance", series(page, "DCGM_FI_DEV_FB_FREE", `gpu="1"`, `GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",Hostname=`), "10112") // (81920-1024)/8
	want(t, "of all", series(page, "DCGM_FI_DEV_FB_FREE"), "80896", "10112", "10112")
	want(t, "temperature of the GPU", series(page, "DCGM_FI_DEV_GPU_TEMP", `gpu="1"`), "35", "35")
	want(t, "utilisation", series(page, "DCGM_FI_DEV_GPU_UTIL"), "0") // of GPU 0 only
	want(t, "decoder", series(page, "DCGM_FI_DEV_DEC_UTIL"), "0")
	want(t, "one state per GPU", series(page, "rackpulse_gpu_throttle", `reason="sw_power_cap"`), "0", "1")
	if got := r.Inventory().UUIDs; len(got) != 2 {
		t.Errorf("inventory: %q", got)
	}
}

// TestNVMLFaults lets the library hang or crash.
func TestNVMLFaults(t *testing.T) {
	f := func(what string, fault string, timeout time.Duration, end, reason string) {
		t.Run(what, func(t *testing.T) {
			fake := useNVML(t, "", "gpus 2")
			r, rec := startNVML(t, Config{ReadTimeout: timeout})
			eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
			fake.say("gpus 2", fault)
			eventually(t, "child replaced", func() bool {
				got := series(rec.page(t), "rackpulse_gpu_child_restarts_total", `reason="`+end+`"`)
				return len(got) == 1 && got[0] != "0"
			})
			if !strings.Contains(rec.reason(), reason) {
				t.Errorf("reason: %q, want %q in it", rec.reason(), reason)
			}
			want(t, "last sample", series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), "34", "35")
			if inv := r.Inventory(); len(inv.UUIDs) != 2 {
				t.Errorf("inventory: %+v", inv)
			}
			fake.say("gpus 2")
			eventually(t, "source back", func() bool {
				return slices.Equal(series(rec.page(t), "rackpulse_source_up", `source="gpu"`), []string{"1"})
			})
		})
	}
	f("hang", "hang nvmlDeviceGetPowerUsage", 500*time.Millisecond, "hang", `no answer to "read" in time`)
	f("segv", "crash nvmlDeviceGetTemperature segv", 0, "crash", "child process: exit status 2")
}

// TestNVMLEventsHang: a wait that never returns must not keep the child.
func TestNVMLEventsHang(t *testing.T) {
	fake := useNVML(t, "", "gpus 2")
	t.Run("run", func(t *testing.T) {
		_, rec := startNVML(t, Config{})
		eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
		fake.say("gpus 2", "hang nvmlEventSetWait_v2", "value 0 nvmlDeviceGetTemperature 60")
		eventually(t, "read on", func() bool { return slices.Equal(series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), []string{"60", "35"}) })
	})
}

func TestNVMLOldLibrary(t *testing.T) {
	fake := useNVML(t, "FAKE_OLD", "gpus 2", "value 0 nvmlDeviceGetNvLinkErrorCounter.3 5", "value 0 nvmlDeviceGetNvLinkErrorCounter.17 2")
	_, rec := startNVML(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	for _, field := range []string{"TOTAL_ENERGY_CONSUMPTION", "MEMORY_TEMP", "FB_RESERVED", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE", "NVLINK_BANDWIDTH_TOTAL"} {
		want(t, field, series(page, "DCGM_FI_DEV_"+field))
	}
	want(t, "memory", series(page, "DCGM_FI_DEV_FB_USED", `pci_bus_id="00000000:1A:00.0"`), "1024") // what is reserved counts as used
	want(t, "free", series(page, "DCGM_FI_DEV_FB_FREE"), "80896", "80896")
	want(t, "throttle by its old name", series(page, "rackpulse_gpu_throttle", `reason="gpu_idle"`), "1", "1")
	want(t, "margin by the threshold", series(page, "rackpulse_gpu_thermal_margin_celsius"), "53", "52")
	want(t, "NVLink errors summed", series(page, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"), "7", "0")
	want(t, "restarts", series(page, "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
	fake.say("gpus 2", "xid 1 79 1")
	eventually(t, "XID by the old wait", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `gpu="1"`, `xid="79"`), []string{"1"})
	})
}

// TestNVMLXIDs: driver errors that the library has from before the start do not
// count, each later one counts once, and their GPU may be lost already.
func TestNVMLXIDs(t *testing.T) {
	fake := useNVML(t, "", "gpus 2", "xid 1 31 1")
	_, rec := startNVML(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	count := func(xid string) string {
		return strings.Join(series(rec.page(t), "rackpulse_gpu_xid_errors_total", `gpu="1"`, `xid="`+xid+`"`), "")
	}
	fake.say("gpus 2", "xid 1 94 2", "xid 1 94 3")
	eventually(t, "both of the same code", func() bool { return count("94") == "2" })
	want(t, "value of the last", series(rec.page(t), "DCGM_FI_DEV_XID_ERRORS"), "94")
	fake.say("gpus 2", "lost 1", "xid 1 79 4")
	eventually(t, "fallen off the bus", func() bool { return count("79") == "1" && ups(t, rec) == "10" })
	if got := count("31"); got != "" {
		t.Errorf("XID 31 of before the start: %s", got)
	}
}

func TestNVMLRefuses(t *testing.T) {
	f := func(code, reason string) {
		t.Run(code, func(t *testing.T) {
			useNVML(t, "", "init "+code)
			r, rec := startNVML(t, Config{})
			eventually(t, "told", func() bool { return rec.reason() == "nvml: "+reason })
			if inv := r.Inventory(); inv.Status != "unavailable" || !strings.Contains(inv.Reason, reason) {
				t.Errorf("inventory: %+v", inv)
			}
		})
	}
	f("9", "the NVIDIA driver is not loaded")
	f("18", "driver/library version mismatch: the loaded kernel module and libnvidia-ml.so.1 are of different versions, reboot or reload the module")
	f("4", "no permission to talk to the NVIDIA driver (/dev/nvidiactl)")
	f("12", "NVML does not start: a library of the driver is missing")
	f("999", "NVML does not start: Unknown Error")
}

func TestNVMLNoGPU(t *testing.T) {
	useNVML(t, "", "gpus 0")
	_, rec := startNVML(t, Config{})
	eventually(t, "told", func() bool { return rec.reason() == "nvml: NVML shows no GPU" })
}

func TestNVMLBrokenLibrary(t *testing.T) {
	useNVML(t, "FAKE_BROKEN")
	_, rec := startNVML(t, Config{})
	eventually(t, "told", func() bool { return rec.reason() == "nvml: libnvidia-ml.so.1 lacks the function nvmlDeviceGetUUID" })
}

// TestNVMLAutomatic takes NVML, once it is there, where DCGM is missing.
func TestNVMLAutomatic(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LD_LIBRARY_PATH", dir)
	withKinds(t, registry["dcgm"], registry["nvml"])
	_, rec := startDCGM(t, Config{Source: "auto"})
	const neither = "dcgm: libdcgm.so.4 not found; nvml: libnvidia-ml.so.1 not found (no NVIDIA driver)"
	told := func(reason string) bool {
		return len(series(rec.page(t), "rackpulse_source_info", `reason="`+reason+`"`)) == 1
	}
	eventually(t, "neither", func() bool { return rec.reason() == neither && told(neither) })
	lib := filepath.Join(buildFakeNVML(t, ""), "libnvidia-ml.so.1")
	if err := os.Symlink(lib, filepath.Join(dir, filepath.Base(lib))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "NVML", func() bool { return ups(t, rec) == "11" })
	eventually(t, "the choice is told", func() bool { return told("nvml (dcgm: libdcgm.so.4 not found)") })
}
