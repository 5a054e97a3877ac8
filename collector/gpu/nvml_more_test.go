// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/testtool"
)

// furtherFields are the fields of nvmlMore under DCGM's names, with what a script says
// for each ("": the default) and what DCGM's header says that the field shows then.
var furtherFields = []struct{ field, says, shows string }{
	{"PSTATE", "nvmlDeviceGetPerformanceState 8", "8"},
	{"VIDEO_CLOCK", "nvmlDeviceGetClockInfo.video 1275", "1275"},
	{"MAX_SM_CLOCK", "", "1980"}, {"MAX_MEM_CLOCK", "", "2619"}, {"MAX_VIDEO_CLOCK", "", "1545"},
	{"APP_SM_CLOCK", "nvmlDeviceGetApplicationsClock.sm 1755", "1755"}, {"APP_MEM_CLOCK", "", "2619"},
	{"GPU_MAX_OP_TEMP", "", "85"}, {"MEM_MAX_OP_TEMP", "", "95"},
	{"POWER_USAGE_INSTANT", "nvmlDeviceGetFieldValues.186 98765", "98.765"}, // mW, W
	{"POWER_MGMT_LIMIT_MIN", "", "200"}, {"POWER_MGMT_LIMIT_MAX", "", "700"}, {"POWER_MGMT_LIMIT_DEF", "", "700"},
	{"BAR1_TOTAL", "", "131072"}, {"BAR1_USED", "", "5"}, {"BAR1_FREE", "", "131067"}, // MiB
	{"FB_USED_PERCENT", "nvmlDeviceGetMemoryInfo_v2.used 42412802048", "0.5"}, // of 80 GiB less 1 GiB: a ratio
	{"COMPUTE_MODE", "nvmlDeviceGetComputeMode 3", "3"}, {"PERSISTENCE_MODE", "", "1"}, {"VIRTUAL_MODE", "nvmlDeviceGetVirtualizationMode 1", "1"},
	{"MIG_MODE", "", "0"}, {"MIG_MAX_SLICES", "", "7"},
	{"FABRIC_MANAGER_STATUS", "", "3"}, {"FABRIC_MANAGER_ERROR_CODE", "", "0"}, {"FABRIC_CLIQUE_ID", "", "0"},
	{"FABRIC_HEALTH_MASK", "", "1"}, {"FABRIC_HEALTH_SUMMARY", "", "1"},
	{"GET_GPU_RECOVERY_ACTION", "nvmlDeviceGetFieldValues.230 4", "4"},
	{"PCIE_COUNT_CORRECTABLE_ERRORS", "nvmlDeviceGetFieldValues.173 12", "12"},
	{"C2C_LINK_COUNT", "nvmlDeviceGetFieldValues.170 10", "10"}, {"C2C_LINK_STATUS", "nvmlDeviceGetFieldValues.171 1", "1"},
	{"C2C_MAX_BANDWIDTH", "nvmlDeviceGetFieldValues.172 44712", "44712"},
	{"ECC_CURRENT", "", "1"}, {"ECC_PENDING", "nvmlDeviceGetEccMode.pending 0", "0"},
	{"THRESHOLD_SRM", "nvmlDeviceGetSramEccErrorStatus 1", "1"},
	{"BANKS_REMAP_ROWS_AVAIL_MAX", "nvmlDeviceGetRowRemapperHistogram.max 2550", "2550"}, {"BANKS_REMAP_ROWS_AVAIL_HIGH", "nvmlDeviceGetRowRemapperHistogram.high 4", "4"},
	{"BANKS_REMAP_ROWS_AVAIL_PARTIAL", "nvmlDeviceGetRowRemapperHistogram.partial 3", "3"}, {"BANKS_REMAP_ROWS_AVAIL_LOW", "nvmlDeviceGetRowRemapperHistogram.low 2", "2"},
	{"BANKS_REMAP_ROWS_AVAIL_NONE", "nvmlDeviceGetRowRemapperHistogram.none 1", "1"},
	{"ECC_SBE_VOL_L1", "nvmlDeviceGetMemoryErrorCounter.sbe.0 10", "10"}, {"ECC_DBE_VOL_L2", "nvmlDeviceGetMemoryErrorCounter.dbe.1 11", "11"},
	{"ECC_SBE_AGG_DEV", "nvmlDeviceGetMemoryErrorCounter.sbe_agg.2 12", "12"}, {"ECC_DBE_AGG_REG", "nvmlDeviceGetMemoryErrorCounter.dbe_agg.3 13", "13"},
	{"ECC_SBE_VOL_TEX", "nvmlDeviceGetMemoryErrorCounter.sbe.4 14", "14"}, {"ECC_DBE_VOL_SHM", "nvmlDeviceGetMemoryErrorCounter.dbe.5 15", "15"},
	{"ECC_DBE_AGG_CBU", "nvmlDeviceGetMemoryErrorCounter.dbe_agg.6 16", "16"}, {"ECC_SBE_AGG_SRM", "nvmlDeviceGetMemoryErrorCounter.sbe_agg.7 17", "17"},
	{"POWER_VIOLATION", "nvmlDeviceGetViolationStatus.0 2000000001", "2.000000001e+09"}, {"THERMAL_VIOLATION", "nvmlDeviceGetViolationStatus.1 21", "21"},
	{"SYNC_BOOST_VIOLATION", "nvmlDeviceGetViolationStatus.2 22", "22"}, {"BOARD_LIMIT_VIOLATION", "nvmlDeviceGetViolationStatus.3 23", "23"},
	{"LOW_UTIL_VIOLATION", "nvmlDeviceGetViolationStatus.4 24", "24"}, {"RELIABILITY_VIOLATION", "nvmlDeviceGetViolationStatus.5 25", "25"},
	{"TOTAL_APP_CLOCKS_VIOLATION", "nvmlDeviceGetViolationStatus.10 26", "26"}, {"TOTAL_BASE_CLOCKS_VIOLATION", "nvmlDeviceGetViolationStatus.11 27", "27"},
	{"CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", "nvmlDeviceGetFieldValues.74 31", "31"}, {"CLOCKS_EVENT_REASON_SYNC_BOOST_NS", "nvmlDeviceGetFieldValues.76 32", "32"},
	{"CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", "nvmlDeviceGetFieldValues.269 33", "33"}, {"CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "nvmlDeviceGetFieldValues.270 34", "34"},
	{"CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", "nvmlDeviceGetFieldValues.271 35", "35"},
	{"NVLINK_CRC_FLIT_ERROR_COUNT_L17", "nvmlDeviceGetNvLinkErrorCounter.17 41", "41"}, {"NVLINK_CRC_DATA_ERROR_COUNT_L0", "nvmlDeviceGetNvLinkErrorCounter.data.0 42", "42"},
	{"NVLINK_REPLAY_ERROR_COUNT_L5", "nvmlDeviceGetNvLinkErrorCounter.replay.5 43", "43"}, {"NVLINK_RECOVERY_ERROR_COUNT_L12", "nvmlDeviceGetNvLinkErrorCounter.recovery.12 44", "44"},
	{"NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "nvmlDeviceGetFieldValues.45 45", "45"}, {"NVLINK_REPLAY_ERROR_COUNT_TOTAL", "nvmlDeviceGetFieldValues.52 46", "46"},
	{"NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "nvmlDeviceGetFieldValues.59 notsupported", "44"}, // the sum of the links then
	{"NVLINK_ERROR_DL_CRC", "nvmlDeviceGetFieldValues.163.3 5", "5"}, {"NVLINK_ERROR_DL_RECOVERY", "nvmlDeviceGetFieldValues.162.17 6", "6"},
	{"NVLINK_ERROR_DL_REPLAY", "nvmlDeviceGetFieldValues.161 2", "36"}, // 18 links, two each
	{"NVLINK_COUNT_RX_ERRORS", "nvmlDeviceGetFieldValues.208.2 7", "7"}, {"NVLINK_COUNT_TX_BYTES", "nvmlDeviceGetFieldValues.202.0 123456789", "1.23456789e+08"},
	{"NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "nvmlDeviceGetFieldValues.214.1 1", "1"},
}

// allFurther are the names of nvmlMore's fields that a counters file can have.
func allFurther() []string {
	var list []string
	for _, c := range nvmlMore {
		for _, field := range c.fields {
			if strings.HasPrefix(field, "DCGM_") && !slices.Contains(list, field) {
				list = append(list, field)
			}
		}
	}
	return list
}

// furtherCounters writes a counters file with all further fields and a few others.
func furtherCounters(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "counters.csv")
	var text strings.Builder
	for _, field := range append(allFurther(), fieldTemp, fieldPower, "DCGM_FI_DEV_FB_USED_PERCENT") {
		fmt.Fprintf(&text, "%s, gauge, x\n", field)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNVMLFurtherFields(t *testing.T) {
	lines := []string{"gpus 1"}
	for _, f := range furtherFields {
		if f.says != "" {
			lines = append(lines, "value 0 "+f.says)
		}
	}
	useNVML(t, "", lines...)
	_, rec := startNVML(t, Config{CountersFile: furtherCounters(t)})
	eventually(t, "a rate of each kind", func() bool {
		page := rec.page(t)
		return len(series(page, "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL")) == 1 && len(series(page, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L17")) == 1
	})
	page := rec.page(t)
	for _, f := range furtherFields {
		want(t, f.field, series(page, "DCGM_FI_DEV_"+f.field), f.shows)
	}
	for _, field := range allFurther() { // those that are not in the table above are there at least
		if len(series(page, field)) != 1 && !strings.HasPrefix(field, "DCGM_FI_DEV_NVLINK_COUNT_") {
			t.Errorf("%s: %q", field, series(page, field))
		}
	}
	parsed(t, page)
}

// TestNVMLLean: a library without the functions of the further fields costs those,
// and neither the others nor the process.
func TestNVMLLean(t *testing.T) {
	useNVML(t, "FAKE_LEAN", "gpus 2")
	_, rec := startNVML(t, Config{CountersFile: furtherCounters(t)})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	page := rec.page(t)
	want(t, "temperature", series(page, fieldTemp), "34", "35")
	want(t, "another function's", series(page, "DCGM_FI_DEV_VIDEO_CLOCK"), "765", "765")
	for _, field := range []string{"PSTATE", "MAX_SM_CLOCK", "ECC_CURRENT", "THRESHOLD_SRM", "FABRIC_MANAGER_STATUS", "POWER_VIOLATION", "ECC_DBE_AGG_SRM", "BAR1_USED"} {
		want(t, field, series(page, "DCGM_FI_DEV_"+field))
	}
	want(t, "restarts", series(page, "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
}

// parsed wants a page that Prometheus' parser understands, no series twice.
func parsed(t *testing.T, page string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(page)); err != nil {
		t.Error(err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(page) {
		series := line[:max(strings.LastIndex(line, " "), 0)]
		if !strings.HasPrefix(line, "#") && seen[series] {
			t.Errorf("twice: %s", series)
		}
		seen[series] = true
	}
}

// expand lists what a name with {a,b} and {0..3} stands for.
func expand(name string) []string {
	m := regexp.MustCompile(`^([^{]*)\{([^}]*)\}(.*)$`).FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	choices := strings.Split(m[2], ",")
	if from, to, ok := strings.Cut(m[2], ".."); ok {
		choices = nil
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		for n := first; n <= last; n++ {
			choices = append(choices, strconv.Itoa(n))
		}
	}
	var list []string
	for _, choice := range choices {
		list = append(list, expand(m[1]+choice+m[3])...)
	}
	return list
}

// TestFurtherDocs holds the table of further fields in docs/gpu.md against the code.
func TestFurtherDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "gpu.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(DCGM_FI_\\S+)` \\|[^|]*\\| (fast|slow) \\| (.*) \\|$")
	function := regexp.MustCompile("`(nvml\\w+)`")
	rows := make(map[string][]string)
	for _, m := range row.FindAllStringSubmatch(string(data), -1) {
		for _, field := range expand(m[1]) {
			if slow := m[2] == "slow"; slow != isSlow(field) {
				t.Errorf("%s: slow %v in docs/gpu.md, not so in the code", field, slow)
			}
			for _, f := range function.FindAllStringSubmatch(m[3], -1) {
				rows[field] = append(rows[field], f[1])
			}
		}
	}
	code := make(map[string][]string)
	for _, c := range nvmlMore {
		for _, field := range c.fields {
			if strings.HasPrefix(field, "DCGM_") {
				code[field] = append(code[field], c.symbol)
			}
		}
	}
	for field, functions := range code {
		if !slices.Equal(rows[field], functions) {
			t.Errorf("%s: functions %q, docs/gpu.md has %q", field, functions, rows[field])
		}
	}
	for field := range rows {
		if code[field] == nil {
			t.Errorf("%s is in docs/gpu.md, not in the code", field)
		}
	}
}
