// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const expCounters = `DCGM_FI_DEV_GPU_TEMP, gauge, t
DCGM_EXP_GPU_HEALTH_STATUS, gauge, h
DCGM_EXP_P2P_STATUS, gauge, p
DCGM_EXP_XID_ERRORS_COUNT, gauge, x
DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, c
`

func health(t *testing.T, rec *recorder, labels ...string) []string {
	t.Helper()
	return series(rec.page(t), expHealth, labels...)
}

func TestDCGMHealth(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "mig 1 2")
	rec := startEntities(t, expCounters, Config{DCGM: DCGMConfig{HealthInterval: time.Second}})
	eventually(t, "11 watches of each GPU, none of its instances", func() bool { return len(health(t, rec)) == 22 })
	page := rec.page(t)
	wantLine(t, page, `DCGM_EXP_GPU_HEALTH_STATUS{gpu="1",UUID="GPU-01000100-0000-0000-0000-000000000001",pci_bus_id="00000000:1B:00.0",device="nvidia1",`+
		`modelName="NVIDIA H100 80GB HBM3",Hostname="vm",health_error_code="DCGM_FR_OK",health_watch="PCIE"} 0`)
	if got := series(page, "rackpulse_gpu_health_check_timestamp_seconds", `gpu="0"`); len(got) != 1 {
		t.Errorf("times: %q", got)
	}

	// A failure of the whole GPU, two of one system, and one that is shown only then.
	fake.say("gpus 2", "health 1 ffffffff 20 120", "health 0 10 10 102", "health 0 10 20 103", "health 0 10 10 102", "health 0 2000 20 122")
	eventually(t, "incidents", func() bool {
		return slices.Contains(health(t, rec, `health_watch="ALL"`), "20") && len(health(t, rec)) == 23
	})
	want(t, "XID 79", health(t, rec, `gpu="1"`, `health_error_code="DCGM_FR_FALLEN_OFF_BUS"`, `health_watch="ALL"`), "20")
	want(t, "the worst of two", health(t, rec, `gpu="0"`, `health_error_code="DCGM_FR_DBE_VIOLATION"`, `health_watch="MEM"`), "20")
	want(t, "one series", health(t, rec, `gpu="0"`, `health_watch="MEM"`), "20")
	want(t, "IMEX", health(t, rec, `health_error_code="DCGM_FR_IMEX_UNHEALTHY"`, `health_watch="IMEX"`), "20")

	fake.say("gpus 2", "lost 1")
	eventually(t, "nothing of a lost GPU", func() bool { return len(health(t, rec, `gpu="1"`)) == 0 && len(health(t, rec)) == 11 })
	if calls := fake.calls("dcgmHealthSet"); len(calls) != 2 {
		t.Errorf("health watches set %d times, want once for each GPU: %q", len(calls), calls)
	}
}

// TestDCGMHealthOfMany checks more GPUs than there are passes in an interval.
func TestDCGMHealthOfMany(t *testing.T) {
	useFake(t, "", "gpus 16")
	rec := startEntities(t, expCounters, Config{DCGM: DCGMConfig{HealthInterval: time.Second}})
	eventually(t, "all of them", func() bool { return len(health(t, rec)) == 16*11 })
}

// TestDCGMHealthHangs lets the health check of all GPUs take very long, as on a GPU
// with many ECC errors: neither samples nor the child suffer.
func TestDCGMHealthHangs(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "delay dcgmHealthCheck 45000")
	rec := startEntities(t, expCounters, Config{ReadTimeout: 2 * time.Second, callBudget: 300 * time.Millisecond,
		DCGM: DCGMConfig{HealthInterval: time.Second}})
	eventually(t, "both overdue, the second in spite of the first", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_call_overdue", `call="health"`), []string{"1", "1"})
	})
	want(t, "no health", health(t, rec))
	fake.say("gpus 2", "delay dcgmHealthCheck 45000", "value 0 150 77")
	eventually(t, "samples go on", func() bool { return slices.Equal(series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), []string{"77", "35"}) })
	if calls := fake.calls("dcgmHealthCheck"); len(calls) != 2 {
		t.Errorf("%d checks under way: %q", len(calls), calls)
	}
	fake.say("gpus 2")
	eventually(t, "health", func() bool { return len(health(t, rec)) == 22 })
	want(t, "no new child", series(rec.page(t), "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
}

// TestDCGMHealthHangsAtTheEnd ends a source whose health check does not return.
func TestDCGMHealthHangsAtTheEnd(t *testing.T) {
	fake := useFake(t, "", "gpus 1", "hang dcgmHealthCheck")
	t.Run("run", func(t *testing.T) {
		_, rec := startDCGM(t, Config{CountersFile: countersFile(t, expCounters), callBudget: 100 * time.Millisecond})
		eventually(t, "overdue", func() bool { return len(fake.calls("dcgmHealthCheck")) == 1 && ups(t, rec) == "1" })
	})
	if calls := fake.calls("dcgmStopEmbedded"); len(calls) > 0 {
		t.Error("DCGM was stopped under a call")
	}
}

func TestDCGMHealthUnsupported(t *testing.T) {
	useFake(t, "FAKE_OLD", "gpus 1") // has neither the checks nor links
	rec := startEntities(t, expCounters, Config{})
	eventually(t, "a GPU", func() bool { return ups(t, rec) == "1" })
	want(t, "calls", series(rec.page(t), "rackpulse_gpu_call_overdue"), "0")
	want(t, "health", health(t, rec))
}

func TestDCGMP2P(t *testing.T) {
	useFake(t, "", "gpus 3")
	rec := startEntities(t, expCounters, Config{})
	eventually(t, "P2P", func() bool { return len(series(rec.page(t), expP2P)) == 6 })
	page := rec.page(t)
	want(t, "0 to 1", series(page, expP2P, `gpu="0"`, `link_status="OK",peer_gpu="1"`), "0")
	want(t, "2 to 0", series(page, expP2P, `gpu="2"`, `link_status="TopologyNotSupported",peer_gpu="0"`), "3")
}

func TestDCGMCounts(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "value 0 112 0")
	rec := startEntities(t, expCounters, Config{CountWindow: 2 * time.Second})
	one := func(name string, labels ...string) string {
		return strings.Join(series(rec.page(t), name, labels...), " ")
	}
	eventually(t, "GPUs", func() bool { return ups(t, rec) == "11" })
	wantLine(t, rec.page(t), `DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="GPU-01000100-0000-0000-0000-000000000000",pci_bus_id="00000000:1A:00.0",device="nvidia0",`+
		`modelName="NVIDIA H100 80GB HBM3",Hostname="vm",window_size_in_ms="2000"} 0`)
	if got := one(expClocks, `gpu="0"`, `Hostname="vm",window_size_in_ms="2000"`); got != "0" {
		t.Errorf("no clock event: %q", got)
	}
	if got := one(expClocks, `gpu="1"`, `Hostname="vm",clock_event="gpu_idle",window_size_in_ms="2000"`); got != "1" {
		t.Errorf("one clock event that lasts: %q", got)
	}
	fake.say("gpus 2", "value 0 112 4", "xid 1 31 1", "xid 1 31 2")
	eventually(t, "two errors", func() bool { return one(expXIDs, `gpu="1"`, `window_size_in_ms="2000",xid="31"`) == "2" })
	eventually(t, "a power cap", func() bool { return one(expClocks, `gpu="0"`, `clock_event="power_cap"`) == "1" })
	fake.say("gpus 2", "value 0 112 0", "xid 1 31 1", "xid 1 31 2")
	fake.say("gpus 2", "value 0 112 0", "lost 1", "xid 1 31 1", "xid 1 31 2", "xid 1 79 3")
	eventually(t, "lost", func() bool { return ups(t, rec) == "10" && one(expXIDs, `gpu="1"`, `xid="79"`) == "1" })
	if got := one(expClocks, `gpu="1"`); got != "" {
		t.Errorf("clock events of a lost GPU: %q", got)
	}
	fake.say("gpus 2", "value 0 112 0", "xid 1 31 1", "xid 1 31 2", "xid 1 79 3")
	eventually(t, "window over", func() bool { return one(expXIDs, `gpu="1"`) == "0" && one(expClocks, `gpu="0"`) == "0" })
	if got := one("rackpulse_gpu_xid_errors_total", `xid="31"`); got != "2" {
		t.Errorf("true counter: %q", got)
	}
}

// TestDCGMAsideReload changes a counters file while the agent runs: what is computed
// and the other entities come and go with it, and the child stays.
func TestDCGMAsideReload(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "switches 2", "links gpu * 1")
	cm := configMap{t, t.TempDir()}
	cm.set("DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
	_, rec := startDCGM(t, Config{CountersFile: filepath.Join(cm.dir, "counters.csv"), SlowInterval: 200 * time.Millisecond,
		DCGM: DCGMConfig{HealthInterval: time.Second}})
	count := func(name string) int { return len(series(rec.page(t), name)) }
	const temperature = "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"
	eventually(t, "GPUs and links", func() bool { return ups(t, rec) == "11" && count("rackpulse_nvlink_up") == 2 })
	cm.set(expCounters + temperature + ", gauge, s\n")
	eventually(t, "all", func() bool {
		return count(temperature) == 2 && count(expHealth) == 22 && count(expP2P) == 2 && count(expXIDs) == 2
	})
	cm.set("DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
	eventually(t, "nothing of it", func() bool {
		return count(temperature) == 0 && count(expHealth) == 0 && count(expP2P) == 0 && count(expXIDs) == 0
	})
	want(t, "temperatures", series(rec.page(t), fieldTemp), "34", "35")
	want(t, "no new child", series(rec.page(t), "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
	if calls := fake.calls("dcgmInit"); len(calls) != 1 {
		t.Errorf("%d times connected", len(calls))
	}
}

// TestHealthCodes compares the names of DCGM's errors with its header's.
func TestHealthCodes(t *testing.T) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "pkg", "dcgm", "dcgm_errors.h"))
	if err != nil {
		t.Fatal(err)
	}
	// dcgm-exporter's names, which are the older ones.
	renamed := map[string]string{
		"DCGM_FR_CLOCKS_EVENT_THERMAL":   "DCGM_FR_CLOCK_THROTTLE_THERMAL",
		"DCGM_FR_CLOCKS_EVENT_POWER":     "DCGM_FR_CLOCK_THROTTLE_POWER",
		"DCGM_FR_CLOCKS_EVENT_VIOLATION": "DCGM_FR_THROTTLING_VIOLATION",
	}
	found := 0
	for _, m := range regexp.MustCompile(`(DCGM_FR_\w+)\s*=\s*(\d+),`).FindAllStringSubmatch(string(header), -1) {
		name := m[1]
		if strings.HasPrefix(name, "DCGM_FR_EC_") || name == "DCGM_FR_ERROR_SENTINEL" {
			continue
		}
		if old, ok := renamed[name]; ok {
			name = old
		}
		found++
		if at := slices.Index(healthCodes(), name); strconv.Itoa(at) != m[2] {
			t.Errorf("%s: %d here, %s in DCGM", name, at, m[2])
		}
	}
	if found != len(healthCodes()) {
		t.Errorf("%d names here, %d in DCGM", len(healthCodes()), found)
	}
	if got := healthCode(999); got != "DCGM_FR_UNKNOWN(999)" {
		t.Error(got)
	}
}
