// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// plays are what the halls of the test go through.
var plays = map[string]virtualConfig{
	"steady":              {scenario: "steady", onset: 2 * time.Minute, duration: 7 * time.Minute},
	"cooling-loss":        {scenario: "cooling-loss", onset: 4 * time.Minute, duration: 9 * time.Minute},
	"airflow-loss":        {scenario: "airflow-loss", onset: 2 * time.Minute, duration: 17 * time.Minute},
	"feed-loss":           {scenario: "feed-loss", onset: 6 * time.Minute, duration: 9 * time.Minute},
	"sag":                 {scenario: "sag", onset: 2 * time.Minute, duration: 5 * time.Minute},
	"gpu-lost":            {scenario: "gpu-lost", onset: 2 * time.Minute, duration: 6 * time.Minute},
	"load-only":           {scenario: "load-only", onset: 6 * time.Minute, duration: 8 * time.Minute},
	"node-crash":          {scenario: "node-crash", onset: 2 * time.Minute, duration: 5 * time.Minute},
	"without some agents": {scenario: "steady", onset: 2 * time.Minute, duration: 12 * time.Minute, change: takeOut},
}

// takeOut leaves a hall without its facility agent, without the agent of its last
// node, and without the GPUs of its first.
func takeOut(s *standalone) {
	s.agents[1].gpu = nil
	s.agents = slices.DeleteFunc(s.agents, func(a *agent) bool { return a.cfg.Node == facilityName || a.cfg.Node == "gpu004" })
}

// shows says in which play a query must show data: the first line counts whose
// board (any, if empty) is the query's and whose text is in it. All others must
// show data when nothing is at fault.
var shows = []struct{ board, text, play string }{
	{"coverage.json", "CorrelationCannotFire", "without some agents"},
	{"coverage.json", " unless on ", "without some agents"},
	{"coverage.json", "facility_device_up{site=~\".+\",rack_id=~\".*\"}) == 0", "feed-loss"},
	{"", `ALERTS{alertstate="firing",correlation`, "cooling-loss"},
	{"unified.json", "> 85 and on (site, rack_id)", "airflow-loss"},
	{"correlation.json", "rackpulse:rack:inlet_up", "cooling-loss"},
	{"correlation.json", "rackpulse:rack:gpus_up", "airflow-loss"},
	{"correlation.json", "rackpulse:rack:load_rising", "load-only"},
	{"capacity.json", "< 10)", "airflow-loss"}, // idle GPUs
	{"correlation.json", "rackpulse:cooling_unit:", "cooling-loss"},
	{"correlation.json", "rackpulse:pdu:pdu_went_silent", "feed-loss"},
	{"correlation.json", "rackpulse:rack:other_feed_step", "feed-loss"},
	{"correlation.json", "rackpulse:node:", "node-crash"},
	{"correlation.json", "rackpulse:gpu:gpu_gone", "gpu-lost"},
	{"correlation.json", "rackpulse:rack:gpus_hot_idle", "airflow-loss"},
	{"node.json", "rackpulse_gpu_xid_errors_total{site=~\".+\",rack_id=~\".*\",node=~\".+\",gpu=~\".+\"}[10m])) > 0", "gpu-lost"},
	{"node.json", "rackpulse_gpu_throttle", "sag"},
}

// playOf is the play that fits a query.
func playOf(board, expr string) string {
	for _, s := range shows {
		if (s.board == "" || s.board == board) && strings.Contains(expr, s.text) {
			return s.play
		}
	}
	return "steady"
}

// boardQuery is one query of a dashboard, ready to be sent.
type boardQuery struct {
	board, panel, expr string
	labels             []string // that its series should have
}

// boardQueries are the queries of all dashboards by the play that fits them.
func boardQueries(t *testing.T) map[string][]boardQuery {
	t.Helper()
	names, err := fs.Glob(dashboards.Files(), "*.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]boardQuery{}
	for _, name := range names {
		data, err := fs.ReadFile(dashboards.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		queries, err := dashboards.Queries(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range queries {
			expr, err := dashboards.Substitute(data, q.Expr, "1m", "10m")
			if err != nil {
				t.Fatal(err)
			}
			play := playOf(name, expr)
			out[play] = append(out[play], boardQuery{board: name, panel: q.Panel, expr: expr, labels: q.Labels})
		}
	}
	return out
}

// TestDashboardsShowData plays halls through scenarios, with the real agents,
// registry, engine and rules, and asks every query of every dashboard in the play
// that fits it. A query that stays without a value is named.
func TestDashboardsShowData(t *testing.T) {
	queries := boardQueries(t)
	for _, s := range shows {
		if !slices.ContainsFunc(queries[s.play], func(q boardQuery) bool { return strings.Contains(q.expr, s.text) }) {
			t.Errorf("the line of %s %q fits no query", s.board, s.text)
		}
	}
	nodes := nodeExporterPages(t)
	asked := 0
	for name, cfg := range plays {
		t.Run(name, func(t *testing.T) {
			change := cfg.change
			cfg.change = func(s *standalone) {
				s.own.MustRegister(nodes, labelled(t, beside, ""))
				if change != nil {
					change(s)
				}
			}
			cfg.play(t, func(h *virtualHall) {
				for _, q := range queries[name] {
					asked++
					// As often as it is scraped: what lasts half a minute must show.
					series, err := h.querier.Range(h.ctx, q.expr, h.started.Add(2*time.Minute), h.ended, 15*time.Second)
					if err != nil {
						t.Errorf("%s: panel %q: %v", q.board, q.panel, err)
						continue
					}
					values := 0
					for _, s := range series {
						for _, p := range s.Points {
							if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
								values++
							}
						}
					}
					if values == 0 {
						t.Errorf("%s: panel %q is empty: %s", q.board, q.panel, q.expr)
						continue
					}
					for _, label := range q.labels {
						if strings.Contains(q.expr, "ALERTS{") && !slices.Contains([]string{"site", "alertname", "correlation"}, label) {
							continue // each alert names its own kind of entity
						}
						if !slices.ContainsFunc(series, func(s query.Series) bool { return s.Labels[label] != "" }) {
							t.Errorf("%s: panel %q names the label %s in its legend or links, which no series has: %s", q.board, q.panel, label, q.expr)
						}
					}
				}
			})
		})
	}
	t.Logf("%d queries in %d plays", asked, len(plays))
}

// TestDashboardsExport holds what is written out, and that it still passes the lint.
func TestDashboardsExport(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (int, string) {
		var out strings.Builder
		code := execute(t.Context(), append([]string{"dashboards"}, args...), stdio{nil, &out, &out})
		return code, out.String()
	}
	if code, out := run("export", "-o", dir, "--datasource=prom-1", "--rackpulse-url=https://rp.example/", "--folder=Halls"); code != 0 || strings.Count(out, "\n") != 13 {
		t.Fatalf("exit status %d: %s", code, out)
	}
	written, err := filepath.Glob(filepath.Join(dir, "dashboards", "*.json"))
	if err != nil || len(written) != 12 {
		t.Fatalf("written %v, %v", written, err)
	}
	if code, out := run(append([]string{"lint"}, written...)...); code != 0 || out != "12 dashboards, no problems\n" {
		t.Errorf("lint: exit status %d: %s", code, out)
	}
	var board struct {
		Templating struct {
			List []struct {
				Name    string
				Query   any
				Current struct{ Value any }
			}
		}
	}
	data, err := os.ReadFile(written[0])
	if err == nil {
		err = json.Unmarshal(data, &board)
	}
	if list := board.Templating.List; err != nil || list[0].Current.Value != "prom-1" || list[1].Query != "https://rp.example" || list[1].Current.Value != "https://rp.example" {
		t.Errorf("variables %+v, %v", list, err)
	}
	data, err = os.ReadFile(filepath.Join(dir, "provisioning", "dashboards", "rackpulse.yml"))
	want := "apiVersion: 1\nproviders:\n  - name: rackpulse\n    folder: Halls\n    type: file\n    options:\n      path: " + filepath.Join(dir, "dashboards") + "\n"
	if err != nil || string(data) != want {
		t.Errorf("provisioning %q, want %q, %v", data, want, err)
	}
	if code, out := run("lint"); code != 0 || !strings.HasPrefix(out, "12 ") {
		t.Errorf("lint of our own: exit status %d: %s", code, out)
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"uid":"x-v1","editable":false,"panels":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := run("lint", bad); code != 1 || !strings.HasPrefix(out, bad+": template-datasource: ") {
		t.Errorf("lint of a bad one: exit status %d: %s", code, out)
	}
	if code, out := run("export", "-o", dir, "--rackpulse-url=rp.example"); code != 1 || !strings.Contains(out, "--rackpulse-url") {
		t.Errorf("bad URL: exit status %d: %s", code, out)
	}
}

// page is a foreign exporter's page as a collector.
type page []*dto.MetricFamily

// Describe implements prometheus.Collector: nothing is known before.
func (page) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (p page) Collect(ch chan<- prometheus.Metric) {
	for _, f := range p {
		for _, m := range f.Metric {
			ch <- pageMetric{f, m}
		}
	}
}

type pageMetric struct {
	family *dto.MetricFamily
	metric *dto.Metric
}

// Desc implements prometheus.Metric.
func (m pageMetric) Desc() *prometheus.Desc {
	return prometheus.NewDesc(m.family.GetName(), m.family.GetHelp(), nil, nil)
}

// Write implements prometheus.Metric.
func (m pageMetric) Write(out *dto.Metric) error {
	proto.Merge(out, m.metric)
	return nil
}

// labelled reads a page and gives every series the labels that discovery would.
func labelled(t *testing.T, text string, names string, labels ...string) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var out page
	for name, f := range families {
		if !strings.HasPrefix(name, names) {
			continue
		}
		for _, m := range f.Metric {
			for i := 0; i < len(labels); i += 2 {
				m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
			}
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
		out = append(out, f)
	}
	return out
}

// nodeExporterPages are the page of a real node_exporter over this machine, and of
// one over a sysfs with an InfiniBand card.
func nodeExporterPages(t *testing.T) page {
	t.Helper()
	sys := t.TempDir()
	card := filepath.Join(sys, "class", "infiniband", "mlx5_0")
	for name, text := range map[string]string{
		"board_id": "MT_0000000838", "fw_ver": "28.39.1002", "hca_type": "MT4129", "ports/1/state": "4: ACTIVE", "ports/1/phys_state": "5: LinkUp",
		"ports/1/rate": "400 Gb/sec (4X NDR)", "ports/1/counters/port_rcv_data": "7", "ports/1/counters/port_xmit_data": "7", "ports/1/counters/symbol_error": "1",
		"ports/1/counters/port_rcv_errors": "1", "ports/1/counters/port_xmit_discards": "1", "ports/1/counters/link_downed": "1", "ports/1/counters/link_error_recovery": "1",
	} {
		path := filepath.Join(card, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	labels := []string{"job", "node_exporter", "instance", "gpu001:9100", "node", "gpu001", "rack_id", "r01"}
	out := labelled(t, nodeExporterPage(t), "node_", labels...)
	return append(out, labelled(t, nodeExporterPage(t, "--collector.disable-defaults", "--collector.infiniband", "--path.sysfs="+sys), "node_infiniband_", labels...)...)
}

// nodeExporterPage starts a node_exporter, reads its page and ends it.
func nodeExporterPage(t *testing.T, flags ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testtool.Binary(t, "prometheus-node-exporter"), append(flags, "--web.listen-address="+addr, "--log.level=error")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	var text string
	await(t, 30*time.Second, "node_exporter answers", func() bool {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		text = string(data)
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return text
}

// foreign are metrics that only real devices, schedulers and drivers make.
var foreign = []string{
	"rackpulse_rejected_samples_total", "rackpulse_facility_implausible", "switch_port_neighbor_info", "ups_", "pdu_phase_current_peak_ampere", "pdu_phase_current_trough_ampere",
	"pdu_power_transients_total", "pdu_branch_current_ampere", "rackpulse_gpu_job_info", "rackpulse_gpu_pod_info", "rackpulse_gpu_process_memory_bytes",
}

// beside is what neither the simulated hall nor the embedded Prometheus can show:
// what a real Prometheus notes of a scrape (the end-to-end tests ask a real one), how
// long a reading takes where time stands still, and faults of real devices.
const beside = `# TYPE scrape_duration_seconds gauge
scrape_duration_seconds{job="rackpulse"} 0.002
# TYPE scrape_samples_scraped gauge
scrape_samples_scraped{job="rackpulse"} 812
# TYPE rackpulse_source_read_duration_seconds gauge
rackpulse_source_read_duration_seconds{source="r01-a",instance="facility"} 0.3
# TYPE rackpulse_rejected_samples_total counter
rackpulse_rejected_samples_total{field="rack_inlet_temperature_celsius",reason="range",instance="facility"} 3
# TYPE rackpulse_facility_implausible gauge
rackpulse_facility_implausible{device="r09-a",check="phase_power",pdu_id="r09-a",rack_id="r09",instance="facility2"} 1
# TYPE switch_port_neighbor_info gauge
switch_port_neighbor_info{switch="tor01",port="Ethernet1",neighbor="gpu001",rack_id="r01",instance="facility"} 1
# TYPE pdu_phase_current_peak_ampere gauge
pdu_phase_current_peak_ampere{pdu_id="r01-a",phase="1",rack_id="r01",instance="facility"} 31
# TYPE pdu_phase_current_trough_ampere gauge
pdu_phase_current_trough_ampere{pdu_id="r01-a",phase="1",rack_id="r01",instance="facility"} 12
# TYPE pdu_power_transients_total counter
pdu_power_transients_total{pdu_id="r01-a",direction="rise",rack_id="r01",instance="facility"} 4
# TYPE pdu_branch_current_ampere gauge
pdu_branch_current_ampere{pdu_id="r01-a",branch="1",rack_id="r01",instance="facility"} 9
# TYPE ups_on_battery gauge
ups_on_battery{ups="ups1",instance="facility"} 0
# TYPE ups_battery_charge_ratio gauge
ups_battery_charge_ratio{ups="ups1",instance="facility"} 1
# TYPE ups_battery_runtime_seconds gauge
ups_battery_runtime_seconds{ups="ups1",instance="facility"} 900
# TYPE ups_load_ratio gauge
ups_load_ratio{ups="ups1",instance="facility"} 0.4
# TYPE rackpulse_gpu_job_info gauge
rackpulse_gpu_job_info{UUID="GPU-1",gpu="0",job_id="4711",uid="1000",node="gpu001",rack_id="r01",instance="gpu001"} 1
# TYPE rackpulse_gpu_pod_info gauge
rackpulse_gpu_pod_info{UUID="GPU-1",gpu="0",namespace="ml",pod="train-0",container="main",node="gpu001",rack_id="r01",instance="gpu001"} 1
# TYPE rackpulse_gpu_process_memory_bytes gauge
rackpulse_gpu_process_memory_bytes{UUID="GPU-1",gpu="0",node="gpu001",rack_id="r01",instance="gpu001"} 4e+10
`
