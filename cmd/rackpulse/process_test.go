// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// TestProcessCollector compares each value with that of client_golang's own collector.
func TestProcessCollector(t *testing.T) {
	ours, theirs := processValues(t, newProcessCollector()), processValues(t, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	tolerance := map[string]float64{
		"process_cpu_seconds_total": 1, "process_open_fds": 3, "process_max_fds": 0, "process_start_time_seconds": 0.02,
		"process_resident_memory_bytes": 64 << 20, "process_virtual_memory_bytes": 256 << 20,
	}
	if len(ours) != len(tolerance) {
		t.Errorf("%d series: %v", len(ours), ours)
	}
	for name, d := range tolerance {
		got, ok := ours[name]
		want, there := theirs[name]
		if !ok || !there || math.Abs(got-want) > d {
			t.Errorf("%s is %v, client_golang says %v", name, got, want)
		}
	}
}

func processValues(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
	}
	return values
}
