// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

const (
	benchNodes    = 8  // per rack
	benchGPUs     = 8  // per node
	benchFamilies = 40 // series per GPU
)

// benchNode is a synthetic node: every gather builds new families, as a
// registry does, with values that move as a sensor's do.
func benchNode(rack, node int) Target {
	name, rackID := fmt.Sprintf("gpu%04d", rack*benchNodes+node), fmt.Sprintf("r%02d", rack)
	random := rand.New(rand.NewPCG(uint64(rack), uint64(node)))
	pair := func(n, v string) *dto.LabelPair { return &dto.LabelPair{Name: proto.String(n), Value: proto.String(v)} }
	labelSets := make([][]*dto.LabelPair, benchGPUs)
	for g := range labelSets {
		labelSets[g] = []*dto.LabelPair{
			pair("Hostname", name), pair("UUID", fmt.Sprintf("GPU-%08x-0000-0000-0000-%012d", rack*64+node*8+g, g)),
			pair("device", fmt.Sprintf("nvidia%d", g)), pair("gpu", strconv.Itoa(g)), pair("modelName", "NVIDIA H100 80GB HBM3"),
			pair("node", name), pair("pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", g)), pair("rack_id", rackID),
		}
	}
	gather := func() ([]*dto.MetricFamily, error) {
		families := make([]*dto.MetricFamily, benchFamilies)
		for i := range families {
			f := &dto.MetricFamily{Name: proto.String("DCGM_FI_DEV_SYNTHETIC_" + strconv.Itoa(i)), Type: dto.MetricType_GAUGE.Enum()}
			switch i {
			case 0:
				f.Name = proto.String("DCGM_FI_DEV_GPU_TEMP")
			case 1:
				f.Name = proto.String("DCGM_FI_DEV_GPU_UTIL")
			}
			for g := range labelSets {
				v := float64(60 + random.IntN(20))
				f.Metric = append(f.Metric, &dto.Metric{Label: labelSets[g], Gauge: &dto.Gauge{Value: &v}})
			}
			families[i] = f
		}
		if node == 0 {
			families = append(families, gauge("rack_inlet_temperature_celsius", 24, []string{"rack_id", rackID, "sensor", rackID + "-in-top"}))
		}
		return families, nil
	}
	return Target{Instance: name, Labels: map[string]string{"site": "ams1"}, Gatherer: prometheus.GathererFunc(gather)}
}

func benchTargets(racks int) []Target {
	var targets []Target
	for r := range racks {
		for n := range benchNodes {
			targets = append(targets, benchNode(r, n))
		}
	}
	return targets
}

// benchRules are a sample of what correlations compile to: hot sets, shares
// per rack, a joined alert.
const benchRules = `
groups:
- name: signals
  rules:
  - record: signal:gpu_hot
    expr: DCGM_FI_DEV_GPU_TEMP{rack_id!=""} > 78
  - record: signal:inlet
    expr: max by (site, rack_id) (rack_inlet_temperature_celsius{rack_id!=""})
  - record: signal:gpu_busy
    expr: avg by (site, rack_id) (DCGM_FI_DEV_GPU_UTIL{rack_id!=""})
  - record: signal:gpus
    expr: count by (site, rack_id) (DCGM_FI_DEV_GPU_TEMP{rack_id!=""})
- name: alerts
  rules:
  - alert: RackCooling
    expr: count by (site, rack_id) (signal:gpu_hot) / signal:gpus > 0.25 and on (site, rack_id) max_over_time(signal:inlet[5m]) > 28 unless on (site, rack_id) signal:gpu_busy > 90
    for: 1m
  - alert: GPUHot
    expr: DCGM_FI_DEV_GPU_TEMP{rack_id!=""} > 85 and on (UUID) DCGM_FI_DEV_GPU_UTIL < 10
  - alert: RackWithoutInlet
    expr: count by (site, rack_id) (DCGM_FI_DEV_GPU_TEMP{rack_id!=""}) unless on (site, rack_id) rack_inlet_temperature_celsius
`

// BenchmarkIngest is one round of 1,024 GPUs (16 racks), 40 series each.
func BenchmarkIngest(b *testing.B) {
	e := newEngine(b, Config{})
	targets := benchTargets(16)
	now := start
	round := func() {
		now = now.Add(15 * time.Second)
		if err := e.Ingest(b.Context(), now, targets); err != nil {
			b.Fatal(err)
		}
	}
	round()
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(16*benchNodes*benchGPUs*benchFamilies), "ns/sample")
}

// BenchmarkEval is one evaluation of the sample rules over 1,024 GPUs.
func BenchmarkEval(b *testing.B) {
	e := newEngine(b, Config{RuleFiles: map[string][]byte{"bench.yml": []byte(benchRules)}})
	targets := benchTargets(16)
	now := start
	for range 20 { // five minutes, so that windows are full
		now = now.Add(15 * time.Second)
		if err := e.Ingest(b.Context(), now, targets); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		if err := e.EvalAt(b.Context(), now); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHall runs 64 racks x 8 nodes x 8 GPUs through virtual hours and
// reports what a round (ingest and rules) costs and the largest memory of the
// process. Three hours fill the head and have its first block written.
//
//	RACKPULSE_BENCH_HOURS=3.2 go test ./engine -run - -bench Hall -benchtime 1x
func BenchmarkHall(b *testing.B) {
	hours := 0.1
	if text := os.Getenv("RACKPULSE_BENCH_HOURS"); text != "" {
		var err error
		if hours, err = strconv.ParseFloat(text, 64); err != nil {
			b.Fatal(err)
		}
	}
	e := newEngine(b, Config{RuleFiles: map[string][]byte{"bench.yml": []byte(benchRules)}})
	targets := benchTargets(64)
	now := start
	rounds := 0
	for b.Loop() {
		for end := now.Add(time.Duration(hours * float64(time.Hour))); now.Before(end); rounds++ {
			now = now.Add(15 * time.Second)
			if err := e.Ingest(b.Context(), now, targets); err != nil {
				b.Fatal(err)
			}
			if err := e.EvalAt(b.Context(), now); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(rounds), "ms/round")
	b.ReportMetric(peakRSS(b), "peak-MiB")
	b.ReportMetric(float64(e.db.Head().NumSeries()), "series")
}

// peakRSS is the largest resident memory of this process so far, in MiB.
func peakRSS(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	return 0
}
