// SPDX-License-Identifier: Apache-2.0

//go:build !noengine

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/engine"
)

// TestJobFromStore finds jobs that no scheduler knows in the agents' series.
func TestJobFromStore(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no Slurm
	e, err := engine.New(engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	info := prometheus.NewRegistry()
	jobs := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rackpulse_gpu_job_info", Help: "h"}, []string{"UUID", "node", "job_id"})
	info.MustRegister(jobs)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for at := now.Add(-2 * time.Hour); !at.After(now); at = at.Add(time.Minute) {
		jobs.Reset()
		jobs.WithLabelValues("GPU-b", "gpu002", "12").Set(1)
		if at.Before(now.Add(-time.Hour)) {
			jobs.WithLabelValues("GPU-a", "gpu001", "11").Set(1)
			jobs.WithLabelValues("GPU-c", "gpu003", "11").Set(1)
		}
		if err := e.Ingest(t.Context(), at, []engine.Target{{Instance: "x", Gatherer: info}}); err != nil {
			t.Fatal(err)
		}
	}
	j, gpus, err := (&jobFlags{id: "11"}).find(t.Context(), e, time.Time{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(j.Nodes, []string{"gpu001", "gpu003"}) || !slices.Equal(gpus, []string{"GPU-a", "GPU-c"}) {
		t.Errorf("nodes %v, GPUs %v", j.Nodes, gpus)
	}
	// Found to within the steps of the search and Prometheus' five minutes.
	if d := now.Add(-time.Hour).Sub(j.End); d.Abs() > 8*time.Minute || !j.Ended || len(j.Notes) != 1 || !strings.Contains(j.Notes[0], "series alone") {
		t.Errorf("ended %s, notes %q", j.End, j.Notes)
	}
	if j, _, err = (&jobFlags{id: "12"}).find(t.Context(), e, time.Time{}, now); err != nil || j.Ended || !j.End.IsZero() {
		t.Errorf("a job that runs: %+v, %v", j, err)
	}
	if j, _, err = (&jobFlags{id: "11"}).find(t.Context(), e, now.Add(-90*time.Minute), now); err != nil || j.Ended {
		t.Errorf("at a time when it ran: %+v, %v", j, err)
	}
	if _, _, err = (&jobFlags{id: "13"}).find(t.Context(), e, time.Time{}, now); err == nil || !strings.Contains(err.Error(), "no series of job 13") {
		t.Errorf("a job that nobody knows: %v", err)
	}
}
