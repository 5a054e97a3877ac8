// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// vector evaluates a query and returns values by the named labels, "/" between
// them; two series of the same labels are an error.
func (s *store) vector(query string, by ...string) map[string]float64 {
	s.tb.Helper()
	q, err := s.engine.NewInstantQuery(s.tb.Context(), s.db, nil, query, s.now)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer q.Close()
	v, err := q.Exec(s.tb.Context()).Vector()
	if err != nil {
		s.tb.Fatalf("%s: %v", query, err)
	}
	out := map[string]float64{}
	for _, one := range v {
		key := ""
		for i, l := range by {
			if i > 0 {
				key += "/"
			}
			key += one.Metric.Get(l)
		}
		if _, twice := out[key]; twice {
			s.tb.Errorf("%s: two series of %s", query, key)
		}
		out[key] = one.F
	}
	return out
}

// quiet returns the example site and its steady hall.
func quiet(tb testing.TB) (*site.Site, *sim.State) {
	tb.Helper()
	s, err := site.Example()
	if err != nil {
		tb.Fatal(err)
	}
	hall, err := sim.New(sim.Spec{Site: s, Scenario: "steady", Seed: 1, Epoch: epoch})
	if err != nil {
		tb.Fatal(err)
	}
	return s, hall.At(epoch)
}

// rounds scrapes and evaluates a few times.
func (s *store) rounds(n int, fill func(p page)) {
	for range n {
		p := page{}
		fill(p)
		s.scrape(p)
		s.eval()
		s.now = s.now.Add(15 * time.Second)
	}
	s.now = s.now.Add(-15 * time.Second)
	s.check()
}

// TestForeignJoins counts the series of each rack against the site file: each
// GPU, PDU, phase and probe once, in its rack, with the hall's value.
func TestForeignJoins(t *testing.T) {
	s, state := quiet(t)
	f := adapters(t, "dcgm-exporter", "snmp-apcups")
	st := f.store()
	st.rounds(4, func(p page) { mapped(p, s); f.hall(p, s, state) })
	want := map[string]map[string]float64{}
	put := func(query, key string, v float64) {
		if want[query] == nil {
			want[query] = map[string]float64{}
		}
		want[query][key] += v
	}
	for _, r := range s.Racks {
		for range s.NodesIn(r.ID) {
			put(`count by (rack_id) (rackpulse_gpu_up{rack_id!=""} == 1)`, r.ID, 8)
			put(`count by (rack_id) (DCGM_FI_DEV_GPU_TEMP{rack_id!="",Hostname!="",hostname!=""})`, r.ID, 8)
			put(`rackpulse:rack:rack_gpus{rack_id!=""}`, r.ID, 8)
		}
		put(`count by (rack_id) (rack_inlet_temperature_celsius)`, r.ID, 3)
		put(`count by (rack_id) (pdu_phase_current_ampere)`, r.ID, 6)
	}
	for _, d := range s.PDUs {
		now := state.PDUs[d.ID]
		put("facility_device_up", d.Rack+"/"+d.ID, 1)
		put("pdu_power_watt", d.Rack+"/"+d.ID, float64(int(now.PowerWatts/10+.5))*10)
	}
	for query, values := range want {
		by := []string{"rack_id"}
		switch query {
		case "facility_device_up":
			by = append(by, "device")
		case "pdu_power_watt":
			by = append(by, "pdu_id")
		}
		if got := st.vector(query, by...); fmt.Sprint(got) != fmt.Sprint(values) {
			t.Errorf("%s:\ngot  %v\nwant %v", query, got, values)
		}
	}
	for query, n := range map[string]int{"pdu_power_factor_ratio": 0, "count({exported_pod!=\"\"})": 0, `count(DCGM_FI_DEV_GPU_TEMP{rack_id="",node!="ws01"})`: 0} {
		if got := st.vector(query); len(got) != n { // -1 is "not supported"
			t.Errorf("%s: %v", query, got)
		}
	}
}

// TestServedAlready: where RackPulse measures something itself, and where two
// adapters could serve it, there is one series.
func TestServedAlready(t *testing.T) {
	s, state := quiet(t)
	f := adapters(t, "dcgm-exporter", "snmp-apcups", "ipmi-exporter", "nvidia-gpu-exporter")
	st := f.store()
	st.rounds(4, func(p page) {
		f.hall(p, s, state)
		maps.DeleteFunc(p, func(series string, _ float64) bool { return strings.Contains(series, `node="ws01"`) })
		mapped(p, s)
		// Agents of ours read a PDU of rack r01, an inlet sensor of r02 and the GPUs of gpu001.
		p[`pdu_power_watt{site="ams1",rack_id="r01",pdu_id="r01-a"}`] = 1
		p[`rack_inlet_temperature_celsius{site="ams1",rack_id="r02",sensor="r02-in-top",position="top"}`] = 2
		p[`rackpulse_gpu_up{site="ams1",rack_id="r01",node="gpu001",gpu="0",UUID="GPU-own"}`] = 1
		for _, n := range []string{"gpu001", "gpu009"} {
			target := map[string]string{"job": "ipmi-exporter", "site": s.ID, "node": n, "instance": n}
			f.scrape(p, "ipmi_temperature_celsius{id=\"18\",name=\"Inlet Temp\"} 24\nipmi_temperature_celsius{id=\"19\",name=\"Exhaust Temp\"} 40\nipmi_dcmi_power_consumption_current_watts 5100\n", target)
		}
		for _, n := range []string{"gpu002", "ws01"} {
			target := map[string]string{"job": "nvidia-gpu-exporter", "site": s.ID, "node": n, "instance": n}
			f.scrape(p, "nvidia_smi_gpu_info{uuid=\"ab-1\",index=\"0\",name=\"NVIDIA X\"} 1\nnvidia_smi_temperature_gpu{uuid=\"ab-1\"} 41\nnvidia_smi_utilization_gpu_ratio{uuid=\"ab-1\"} 0.5\n", target)
		}
	})
	for _, tc := range []struct {
		query string
		by    []string
		want  string
	}{
		{`count by (pdu_id) (pdu_power_watt{rack_id="r01"})`, []string{"pdu_id"}, "map[r01-a:1 r01-b:1]"},
		{`pdu_power_watt{pdu_id="r01-a"}`, []string{"pdu_id", "adapter"}, "map[r01-a/:1]"},
		{`count by (rack_id, adapter) (rack_inlet_temperature_celsius)`, []string{"rack_id", "adapter"}, "map[r01/snmp-apcups:3 r02/:1 r03/snmp-apcups:3 r04/snmp-apcups:3]"},
		{`count by (adapter) (rackpulse_gpu_up{node="gpu001"})`, []string{"adapter"}, "map[:1]"},
		{`count by (adapter) (rackpulse_gpu_up{node="gpu002"})`, []string{"adapter"}, "map[dcgm-exporter:8]"},
		{`count by (node) (DCGM_FI_DEV_GPU_TEMP{adapter!=""})`, []string{"node"}, "map[ws01:1]"},
		{`DCGM_FI_DEV_GPU_UTIL{node="ws01"}`, []string{"gpu", "UUID", "modelName", "rack_id"}, "map[0/GPU-ab-1/NVIDIA X/:50]"},
		{`node_power_watt`, []string{"rack_id", "node"}, "map[r01/gpu001:5100 r03/gpu009:5100]"},
	} {
		if got := fmt.Sprint(st.vector(tc.query, tc.by...)); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.query, got, tc.want)
		}
	}
}

// TestForeignPages holds that the pages of the tests are those in testdata, where
// people and other tools can read them.
func TestForeignPages(t *testing.T) {
	_, state := quiet(t)
	for name, text := range map[string]string{
		"dcgm-exporter.prom": dcgmPage(state, "gpu001", "hostname"),
		"snmp-apcups.prom":   apcPage(state.PDUs["r01-a"], []float64{22.4, 21.9}),
	} {
		path := filepath.Join(testtool.Root(), "rules", "testdata", "exporters", name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != text {
			t.Errorf("%s is not what the tests use (error %v): go test ./rules -update", path, err)
		}
	}
}
