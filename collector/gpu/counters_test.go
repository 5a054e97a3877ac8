// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

func TestDefaultCounters(t *testing.T) {
	c, err := loadCounters("")
	if err != nil {
		t.Fatal(err)
	}
	// dcgm-exporter's default set (its default-counters.csv) and ours behind it.
	wantNames := strings.Fields(`SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION
		PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED
		UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS
		DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE DCGM_FI_PROF_DRAM_ACTIVE
		DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_PROF_PCIE_RX_BYTES
		FAN_SPEED PCIE_LINK_GEN PCIE_LINK_WIDTH ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL
		NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL POWER_MGMT_LIMIT`)
	var names []string
	for _, m := range c.metrics {
		names = append(names, strings.TrimPrefix(m.name, "DCGM_FI_DEV_"))
		if m.help == "" {
			t.Errorf("%s has no help", m.name)
		}
	}
	if !slices.Equal(names, wantNames) {
		t.Errorf("metrics:\n got %q\nwant %q", names, wantNames)
	}
	if !slices.Equal(c.labels, []labelField{{fieldDriver, fieldDriver}}) {
		t.Errorf("labels: %q", c.labels)
	}
	for _, name := range alwaysRead {
		if !slices.Contains(c.fields(), name) {
			t.Errorf("%s is not read", name)
		}
	}
}

func TestParseCounters(t *testing.T) {
	c, err := parseCounters([]byte("\ufeff# comment\r\n\n"+
		"DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, by its name of DCGM 4.6\n"+
		"DCGM_FI_DEV_GPU_TEMP, gauge, the same by its older name\r\n"+
		"dcgm_fb_used,gauge,by its oldest name\n"+
		"  DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, a mask, of bits, \n"+
		"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL , counter , \"Errors, counted, \"\"all\"\"\"\n"+
		"\"DCGM_FI_DEV_SM_CLOCK\",\"gauge\",\"quoted\"\n"+
		"DCGM_FI_DEV_MEM_CLOCK,gauge,the \"memory\" clock\n"+
		"DCGM_FI_DEV_ENC_UTIL,gauge,\n"+
		"DCGM_FI_DEV_DEC_UTIL,gauge,bytes \xff that are no UTF-8\n"+
		"DCGM_FI_DEV_SERIAL, label, Serial\n"+
		"DCGM_FI_SYSTEM_DRIVER_VERSION, label, Driver\n"+
		"DCGM_FI_DEV_OF_TOMORROW, gauge, not known yet\n"+
		"DCGM_EXP_XID_ERRORS_COUNT, gauge, computed there"), "c.csv")
	if err != nil {
		t.Fatal(err)
	}
	wantMetrics := []counter{
		{"DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_GPU_TEMP", "by its name of DCGM 4.6", collector.Gauge},
		{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP", "the same by its older name", collector.Gauge},
		{"dcgm_fb_used", "DCGM_FI_DEV_FB_USED", "by its oldest name", collector.Gauge},
		{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", fieldThrottle, "a mask, of bits,", collector.Gauge},
		{"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", `Errors, counted, "all"`, collector.Counter},
		{"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK", "quoted", collector.Gauge},
		{"DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", `the "memory" clock`, collector.Gauge},
		{"DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_ENC_UTIL", "", collector.Gauge},
		{"DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "bytes \ufffd that are no UTF-8", collector.Gauge},
	}
	if !slices.Equal(c.metrics, wantMetrics) {
		t.Errorf("metrics: %+v", c.metrics)
	}
	if want := []labelField{{"DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_SERIAL"}, {"DCGM_FI_SYSTEM_DRIVER_VERSION", fieldDriver}}; !slices.Equal(c.labels, want) {
		t.Errorf("labels: %q", c.labels)
	}
	if !slices.Equal(c.exp, []counter{{expXIDs, expXIDs, "computed there", collector.Gauge}}) || !c.has(expXIDs) || c.has(expHealth) {
		t.Errorf("computed: %+v", c.exp)
	}
	if want := []unknownField{{"DCGM_FI_DEV_OF_TOMORROW", 14}}; !slices.Equal(c.unknown, want) {
		t.Errorf("unknown: %+v", c.unknown)
	}
	n := 0
	for _, name := range c.fields() {
		if name == fieldTemp {
			n++
		}
	}
	if n != 1 {
		t.Errorf("a field of two names is read %d times", n)
	}
}

// TestTwoNames shows one value under both names that the file has for its field.
func TestTwoNames(t *testing.T) {
	c, err := parseCounters([]byte("DCGM_FI_DEV_GPU_TEMP,gauge,old\nDCGM_FI_DEV_GPU_TEMP_CELSIUS,gauge,new\nDCGM_FI_SYSTEM_DRIVER_VERSION,label,\n"), "c.csv")
	if err != nil {
		t.Fatal(err)
	}
	conv := newConverter(newLayout(c, "none"), "h", newExpCounts(time.Minute), newDerived())
	points, slow := conv.points(&Sample{At: time.Now(), Driver: "550.1", Devices: []Device{device(0, Value{Field: fieldTemp, V: 41})}}, nil, newXIDBook())
	var got []string
	for _, p := range append(points, slow...) {
		if p.Value == 41 {
			got = append(got, p.Desc.Name+" "+p.Desc.Labels[len(p.Values)-1]+" "+p.Values[len(p.Values)-1])
		}
	}
	want(t, "series", got, "DCGM_FI_DEV_GPU_TEMP DCGM_FI_SYSTEM_DRIVER_VERSION 550.1",
		"DCGM_FI_DEV_GPU_TEMP_CELSIUS DCGM_FI_SYSTEM_DRIVER_VERSION 550.1")
}

func TestParseCountersErrors(t *testing.T) {
	f := func(text, wantErr string) {
		t.Helper()
		_, err := parseCounters([]byte(text), "c.csv")
		if err == nil || err.Error() != wantErr {
			t.Errorf("%q: got %v, want %s", text, err, wantErr)
		}
	}
	const temp = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	f("", "c.csv: no counters")
	f("# only\n", "c.csv: no counters")
	f(temp+"\nDCGM_FI_DEV_GPU_UTIL gauge\n", `c.csv:3: want 'field, type, help', got "DCGM_FI_DEV_GPU_UTIL gauge"`)
	f(temp+"DCGM_FI_DEV_GPU_UTIL, gauge\n", `c.csv:2: want 'field, type, help', got "DCGM_FI_DEV_GPU_UTIL, gauge"`)
	f("DCGM_FI_DEV_GPU_UTIL, histogram, u\n", `c.csv:1: field DCGM_FI_DEV_GPU_UTIL: a histogram has buckets or quantiles, a DCGM field has one value (use gauge or counter)`)
	f("DCGM_EXP_P2P_STATUS, label, p\n", `c.csv:1: field DCGM_EXP_P2P_STATUS: its numbers are no label (gauge or counter)`)
	f("DCGM_FI_DEV_GPU_UTIL, Gauge, u\n", `c.csv:1: field DCGM_FI_DEV_GPU_UTIL: unknown type "Gauge" (gauge, counter or label)`)
	f(temp+temp, "c.csv:2: field DCGM_FI_DEV_GPU_TEMP is already on line 1")
	f("DCGM_FI_DRIVER_VERSION, label, only a label\n", "c.csv: no counters")
	f(temp+strings.Repeat("DCGM_FI_X,gauge,", 300)+"\n", "c.csv:2: longer than 4096 bytes")
	f("DCGM FI, gauge, t\n", `c.csv:1: "DCGM FI" is not a field name`)
	f("DCGM_FI_DEV_GPU_TEMP,gauge,\"open\n", `c.csv:1: no closing quote: "\"open"`)
	f("DCGM_FI_DEV_GPU_TEMP,gauge,\"a\" b\n", `c.csv:1: text behind the closing quote: "b"`)
	f("DCGM_FI_DEV_GPU_TEMP,gauge,\"a\",b\n", `c.csv:1: more than three cells: "b"`)
	f("x\n"+temp+"y\n", `c.csv:1: want 'field, type, help', got "x"; c.csv:3: want 'field, type, help', got "y"`)
	f(strings.Repeat(",\n", 12), func() string {
		var lines []string
		for i := 1; i <= 10; i++ {
			lines = append(lines, fmt.Sprintf(`c.csv:%d: want 'field, type, help', got ","`, i))
		}
		return strings.Join(append(lines, "and more"), "; ")
	}())
	var many strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, "DCGM_FI_%d,gauge,\n", i)
	}
	f(many.String(), "c.csv:1001: more than 1000 counters")
}

func TestCountersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("nonsense\n")
	if _, err := New(Config{CountersFile: path}, Deps{}); err == nil || !strings.Contains(err.Error(), path+":1: want") {
		t.Errorf("New: %v", err)
	}
	if _, err := New(Config{CountersFile: path + "x"}, Deps{}); err == nil || !strings.Contains(err.Error(), "gpu.counters_file") {
		t.Errorf("New without file: %v", err)
	}
	write("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_NEW, gauge, n\n")
	if _, err := New(Config{CountersFile: path}, Deps{}); err != nil {
		t.Errorf("New with an unknown field: %v", err)
	}
	if err := CheckCounters(path); err == nil || err.Error() != path+`:2: unknown DCGM field "DCGM_FI_NEW"` {
		t.Errorf("check of an unknown field: %v", err)
	}
	if err := CheckCounters(""); err != nil {
		t.Errorf("check of the built-in list: %v", err)
	}
	write(strings.Repeat("# filler filler filler filler\n", 40000))
	if err := CheckCounters(path); err == nil || err.Error() != path+": larger than 1048576 bytes" {
		t.Errorf("check of a large file: %v", err)
	}
}

func TestGates(t *testing.T) {
	c, err := loadCounters("")
	if err != nil {
		t.Fatal(err)
	}
	l := newLayout(c, "Hostname")
	f := func(metric string, lo, hi float64) {
		t.Helper()
		d := l.descs[metric][0]
		if d.Min != lo || d.Max != hi {
			t.Errorf("%s: gate %v..%v, want %v..%v", metric, d.Min, d.Max, lo, hi)
		}
	}
	f("DCGM_FI_DEV_GPU_TEMP", -20, 130)
	f("DCGM_FI_DEV_GPU_UTIL", 0, 100)
	f("DCGM_FI_DEV_POWER_USAGE", 0, 4200)
	f("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 1e18)
	f("DCGM_FI_DEV_VGPU_LICENSE_STATUS", 0, 0)
	for name := range gates {
		if n, ok := fieldNames()[name]; !ok || n.metric != name {
			t.Errorf("gate of %s: no metric has that name", name)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	f := func(cfg Config, wantErr string) {
		t.Helper()
		_, err := New(cfg, Deps{})
		if err == nil || !strings.HasPrefix(err.Error(), wantErr) {
			t.Errorf("%+v: got %v, want %s...", cfg, err, wantErr)
		}
	}
	f(Config{Interval: 3_000_000}, "gpu.interval: 3ms is below 100ms")
	f(Config{Interval: time.Second, SlowInterval: 500 * time.Millisecond}, "gpu.slow_interval: 500ms is below gpu.interval, 1s")
	f(Config{SlowInterval: -1}, "gpu.slow_interval: ")
	f(Config{SlowInterval: time.Hour}, "gpu.slow_interval: 1h0m0s is above 5m0s")
	f(Config{ReadTimeout: 1}, "gpu.read_timeout: ")
	f(Config{OpenTimeout: -1}, "gpu.open_timeout: ")
	f(Config{Source: "cuda"}, `gpu.source: unknown GPU source "cuda" (this build has auto, `)
	f(Config{Source: "sim"}, "gpu.source: GPU source sim: no simulation was asked for")
	f(Config{HostnameLabel: "host"}, `gpu.hostname_label: "host" is none of`)
	f(Config{DCGM: DCGMConfig{Address: "localhost:5555"}}, `gpu.dcgm.address: "localhost:5555" is not`)
}

func TestSlowIntervalDefault(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 100 * time.Millisecond: 10 * time.Second,
		10 * time.Second: 10 * time.Second, 10 * time.Minute: 10 * time.Minute} {
		s, err := newSettings(Config{Source: "dcgm", Interval: interval}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.source.SlowInterval != want {
			t.Errorf("interval %v: slow %v, want %v", interval, s.source.SlowInterval, want)
		}
	}
}

func TestHostnameLabel(t *testing.T) {
	c := &counters{metrics: []counter{{fieldTemp, fieldTemp, "t", collector.Gauge}}, labels: []labelField{{fieldDriver, fieldDriver}}}
	d := device(3)
	d.MIGProfile, d.MIGID = "1g.10gb", "7"
	f := func(setting string, wantLabels, wantValues string) {
		t.Helper()
		l := newLayout(c, setting)
		labels := strings.Join(l.descs[fieldTemp][0].Labels, " ")
		values := strings.Join(l.values(&d, "550.1", "h"), " ")
		if labels != wantLabels || values != wantValues {
			t.Errorf("%s:\n got %s = %s\nwant %s = %s", setting, labels, values, wantLabels, wantValues)
		}
	}
	const l0 = "gpu UUID pci_bus_id device modelName GPU_I_PROFILE GPU_I_ID "
	const v0 = "3 GPU-3 00000000:03:00.0 nvidia3 NVIDIA H100 1g.10gb 7 "
	f("Hostname", l0+"Hostname DCGM_FI_DRIVER_VERSION", v0+"h 550.1")
	f("hostname", l0+"hostname DCGM_FI_DRIVER_VERSION", v0+"h 550.1")
	f("both", l0+"Hostname hostname DCGM_FI_DRIVER_VERSION", v0+"h h 550.1")
	f("none", l0+"DCGM_FI_DRIVER_VERSION", v0+"550.1")
}
