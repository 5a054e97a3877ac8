// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/rackpulse/rackpulse/testtool"
)

// parsePage reads a page as Prometheus does and returns its series by family. A
// series that is there twice, or a sample without its TYPE line, fails the test.
func parsePage(t *testing.T, page string) map[string]int {
	t.Helper()
	p := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
	seen, families, typed := make(map[string]bool), make(map[string]int), make(map[string]bool)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return families
		}
		if err != nil {
			t.Fatalf("Prometheus does not take the page: %v\n%s", err, page)
		}
		switch entry {
		case textparse.EntryType:
			name, _ := p.Type()
			typed[string(name)] = true
		case textparse.EntrySeries:
			var l labels.Labels
			p.Labels(&l)
			name := l.Get(model.MetricNameLabel)
			if seen[l.String()] || !typed[name] {
				t.Errorf("twice, or without a type: %s", l)
			}
			seen[l.String()] = true
			families[name]++
		}
	}
}

// exporterCounters is the part of the built-in list that is dcgm-exporter's own.
func exporterCounters(t *testing.T) string {
	t.Helper()
	own, _, ok := strings.Cut(defaultCountersCSV, "# What RackPulse adds")
	if !ok {
		t.Fatal("the built-in list has no part of ours")
	}
	return own
}

// TestGoldenPages compares whole pages. Names, labels, types, help and the number of
// series are those of dcgm-exporter for the same counters over DCGM 4.6.0: 23
// families of 8 GPUs, and one more series for each GPU that had an XID. A GPU
// without vGPUs has no vGPU license.
func TestGoldenPages(t *testing.T) {
	f := func(name, counters string, script []string, families map[string]int) {
		t.Run(name, func(t *testing.T) {
			useFake(t, "", script...)
			rec := startEntities(t, counters, Config{HostnameLabel: "hostname"})
			complete := func() bool {
				page := rec.page(t)
				for family, n := range families {
					if len(series(page, family)) != n {
						return false
					}
				}
				return len(series(page, "rackpulse_gpu_xid_errors_total")) > 0 // they come after the others
			}
			eventually(t, "a whole page", complete)
			got := goldenPage(rec.page(t))
			path := filepath.Join(testtool.Root(), "testdata", "golden", name)
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
			counts := parsePage(t, got)
			for family, n := range families {
				if counts[family] != n {
					t.Errorf("%s: %d series, want %d", family, counts[family], n)
				}
			}
			for family := range counts {
				if _, ok := families[family]; !ok && strings.HasPrefix(family, "DCGM_") {
					t.Errorf("%s: not expected", family)
				}
			}
		})
	}
	whole := make(map[string]int)
	for _, line := range strings.Split(exporterCounters(t), "\n") {
		name, rest, _ := strings.Cut(line, ",")
		switch {
		case !strings.HasPrefix(name, "DCGM_"), strings.HasPrefix(strings.TrimSpace(rest), "label"):
		case name == fieldXID, name == "DCGM_FI_DEV_VGPU_LICENSE_STATUS": // blank
		default:
			whole[name] = 8
		}
	}
	if len(whole) != 23 {
		t.Errorf("%d families of dcgm-exporter, want 23", len(whole))
	}
	f("gpu-8.prom", exporterCounters(t), []string{"gpus 8"}, whole)

	mig := make(map[string]int) // of GPU 0, and of three instances of GPU 1
	for name := range whole {
		mig[name] = 4
	}
	for _, name := range []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL"} {
		mig[name] = 1 // DCGM has none of instances
	}
	f("gpu-mig.prom", exporterCounters(t),
		[]string{"gpus 2", "instance 1 8 1 3g.40gb", "instance 1 9 5 2g.20gb", "instance 1 10 13 1g.10gb"}, mig)

	f("gpu-nvswitch.prom", entityCounters, []string{"gpus 2", "switches 2", "links gpu * 2", "links switch * 2", "cpus 1 2",
		"link gpu 1 1 down", "link switch 1 0 down"}, map[string]int{
		"DCGM_FI_DEV_GPU_TEMP": 2, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT": 2, "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX": 4,
		"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL": 4, "DCGM_FI_DEV_CPU_UTIL_TOTAL": 3, "DCGM_FI_DEV_CPU_TEMP_CURRENT": 1})
}

// TestGoldenExp has all metrics that dcgm-exporter computes, once for each device.
func TestGoldenExp(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "mig 1 2")
	rec := startEntities(t, expCounters, Config{DCGM: DCGMConfig{HealthInterval: time.Second}})
	eventually(t, "health", func() bool { return len(health(t, rec)) == 22 })
	fake.say("gpus 2", "mig 1 2", "xid 1 79 1")
	eventually(t, "XID", func() bool { return len(series(rec.page(t), expXIDs, `xid="79"`)) == 2 })
	counts := parsePage(t, rec.page(t))
	for family, n := range map[string]int{expHealth: 22, expP2P: 2, expXIDs: 3, expClocks: 3, "DCGM_FI_DEV_GPU_TEMP": 3} {
		if counts[family] != n {
			t.Errorf("%s: %d series, want %d", family, counts[family], n)
		}
	}
}
