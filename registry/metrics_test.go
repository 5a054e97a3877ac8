// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// gather collects r as Prometheus would, by family.
func gather(t *testing.T, r *Registry) map[string]*dto.MetricFamily {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(r)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// labelsOf are a series' labels.
func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// TestEdges compares the series with the example hall as its file says it: four
// racks of four nodes, two PDUs each, eight outlets and four ports used in each.
func TestEdges(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	families := gather(t, r.Registry)
	perRack := func(family string) map[string]int {
		out := map[string]int{}
		for _, m := range families[family].GetMetric() {
			out[labelsOf(m)["rack_id"]]++
		}
		return out
	}
	each := func(n int) map[string]int { return map[string]int{"r01": n, "r02": n, "r03": n, "r04": n} }
	with := func(m map[string]int, none int) map[string]int { m[""] = none; return m }
	for family, want := range map[string]map[string]int{
		"rackpulse_rack_info":             each(1),
		"rackpulse_rack_power_limit_watt": each(1),
		"rackpulse_rack_feed_info":        each(2),
		"rackpulse_pdu_usable_ampere":     each(2),
		"rackpulse_pdu_rated_ampere":      each(2),
		"rackpulse_rack_cooling_info":     each(1),
		"rackpulse_node_info":             with(each(4), 1),
		"rackpulse_node_outlet_info":      each(8),
		"rackpulse_node_port_info":        each(4),
		// Two PDUs, a switch and five sensors in each rack; two cooling units,
		// two leak sensors and three meters outside.
		"rackpulse_facility_device_info": with(each(8), 7),
	} {
		if got := perRack(family); !maps.Equal(got, want) {
			t.Errorf("%s by rack: %v, want %v", family, got, want)
		}
	}
	r.checkSeries(t, families)
}

// checkSeries looks for single series of the example hall.
func (r *running) checkSeries(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	for family, want := range map[string]map[string]string{
		"rackpulse_rack_info":            {"rack_id": "r03", "row": "row-b", "room": "hall1"},
		"rackpulse_rack_feed_info":       {"rack_id": "r02", "pdu_id": "r02-b", "feed": "feed-b"},
		"rackpulse_rack_cooling_info":    {"rack_id": "r04", "cooling_unit": "crah2"},
		"rackpulse_node_info":            {"node": "ws01", "class": "workstation", "rackless": "true"},
		"rackpulse_node_outlet_info":     {"node": "gpu006", "rack_id": "r02", "pdu_id": "r02-a", "outlet": "2"},
		"rackpulse_node_port_info":       {"node": "gpu006", "rack_id": "r02", "switch": "tor02", "port": "Ethernet2"},
		"rackpulse_facility_device_info": {"device": "meter-it", "kind": "meter"},
	} {
		found := false
		for _, m := range families[family].GetMetric() {
			found = found || maps.Equal(labelsOf(m), want) && m.GetGauge().GetValue() == 1
		}
		if !found {
			t.Errorf("%s: no series %v", family, want)
		}
	}
	// 63 A a line at a feed that allows 0.8 of it.
	for _, m := range families["rackpulse_pdu_usable_ampere"].GetMetric() {
		if v := m.GetGauge().GetValue(); v < 50.399 || v > 50.401 {
			t.Errorf("usable current %v", m)
		}
	}
	for _, m := range families["rackpulse_pdu_rated_ampere"].GetMetric() {
		if m.GetGauge().GetValue() != 63 || labelsOf(m)["phases"] != "3" {
			t.Errorf("rated current %v", m)
		}
	}
	for _, m := range families["rackpulse_rack_power_limit_watt"].GetMetric() {
		if m.GetGauge().GetValue() != 44000 {
			t.Errorf("power limit %v", m)
		}
	}
}

// TestMetricsAreCleanAndTheLeadersAlone lints all families, and looks that
// nothing but the registry's own counters is shown before it leads and after.
func TestMetricsAreCleanAndTheLeadersAlone(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	gpuNode(t, r, "gpu001", "10.1.0.1:9400").mustBeat(t, leasepb.State_READY)
	problems, err := testutil.CollectAndLint(r.Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families := gather(t, r.Registry)
	for _, name := range []string{"rackpulse_lease_up", "rackpulse_lease_state", "rackpulse_lease_last_beat_timestamp_seconds", "rackpulse_node_info"} {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for name := range gather(t, r.Registry) {
		if name != "rackpulse_registry_refused_requests_total" {
			t.Errorf("%s is shown by a registry that does not lead", name)
		}
	}
}

func TestProbes(t *testing.T) {
	r, err := New(testConfig(t.TempDir()), Deps{Site: example(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	code := func(path string) int {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	for path, want := range map[string]int{
		"/-/healthy": http.StatusOK, "/-/ready": http.StatusServiceUnavailable, "/metrics": http.StatusOK,
		"/api/v1/nodes": http.StatusServiceUnavailable, "/api/v1/nodes/gpu001": http.StatusServiceUnavailable,
		// Prometheus keeps its targets when discovery fails; an empty list would take them away.
		"/api/v1/sd/agents": http.StatusServiceUnavailable, "/api/v1/sd/exporters?job=a&port=1": http.StatusServiceUnavailable,
		"/api/v1/site": http.StatusOK, "/api/v1/view": http.StatusOK,
	} {
		if got := code(path); got != want {
			t.Errorf("%s before it leads: %d, want %d", path, got, want)
		}
	}
}

// TestLedgerIsHeldOnce starts a second registry on the same folder.
func TestLedgerIsHeldOnce(t *testing.T) {
	cfg := testConfig(t.TempDir())
	start(t, cfg, Deps{})
	if _, err := New(cfg, Deps{Site: example(t)}); err == nil || !strings.Contains(err.Error(), "held by another process") {
		t.Errorf("second registry: %v", err)
	}
}
