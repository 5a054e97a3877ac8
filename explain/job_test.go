// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
)

func ranged(t *testing.T, h *played, expr string) []query.Series {
	t.Helper()
	list, err := h.engine.Range(t.Context(), expr, epoch, h.end, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestJob asks after jobs on a node that died, on one whose GPU fell off the bus,
// and on the GPUs beside it.
func TestJob(t *testing.T) {
	crash := play(t, "node-crash", 5*time.Minute, nil)
	lost := play(t, "gpu-lost", 4*time.Minute, nil)
	gone, beside := "", ""
	for _, s := range ranged(t, lost, "rackpulse_gpu_up{node=\"gpu001\"}") {
		switch s.Labels["gpu"] {
		case "0":
			gone = s.Labels["UUID"]
		case "1":
			beside = s.Labels["UUID"]
		}
	}
	start := epoch.Add(time.Minute)
	for _, tc := range []struct {
		name  string
		hall  *played
		job   Job
		named bool
		brief string
	}{
		{"a node of two dies", crash, Job{ID: "4711", State: "NODE_FAIL", Nodes: []string{"gpu001", "gpu002", "elsewhere"}, Start: start, End: crash.end},
			true, "job 4711 (NODE_FAIL) ended 08:11:00 on gpu001, gpu002, elsewhere: node gpu001 itself"},
		{"another node", crash, Job{ID: "4712", Nodes: []string{"gpu009"}, Start: start}, false, "job 4712 on gpu009: nothing wrong is seen"},
		{"it began after the crash", crash, Job{ID: "4713", Nodes: []string{"gpu001"}, Start: crash.end.Add(-30 * time.Second)}, false, "job 4713 on gpu001: unknown"},
		{"its GPU is lost", lost, Job{ID: "ml/train-0", Nodes: []string{"gpu001"}, GPUs: []string{gone}, Start: start}, true, "job ml/train-0 on gpu001: GPU 0 of gpu001"},
		{"the GPU beside it is lost", lost, Job{ID: "4714", Nodes: []string{"gpu001"}, GPUs: []string{beside}, Start: start}, false, "job 4714 on gpu001: no symptom is seen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := tc.hall.ask(t, Request{Job: &tc.job})
			var b strings.Builder
			if err := r.Brief(&b); err != nil {
				t.Fatal(err)
			}
			if r.Named != tc.named || !strings.HasPrefix(b.String(), tc.brief) {
				t.Errorf("named %v, want %v\n got %s\nwant %s", r.Named, tc.named, b.String(), tc.brief)
			}
			sound(t, r)
		})
	}
	for _, bad := range []Request{
		{Job: &Job{ID: "1", Nodes: []string{"elsewhere"}}},
		{Job: &Job{ID: "1", Nodes: []string{"gpu001"}}, Node: "gpu001"},
	} {
		bad.To = crash.end
		if _, err := Explain(t.Context(), Deps{Querier: crash.engine, Site: crash.site, Pack: crash.pack}, bad); err == nil {
			t.Errorf("%+v was answered", bad)
		}
	}
}
