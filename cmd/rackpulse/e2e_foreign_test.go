// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// foreignSite has no agent of ours: two nodes with dcgm-exporter, two PDUs that
// snmp_exporter reads, of which one does not answer.
const foreignSite = `
site: {id: ams1}
racks: [{id: r01}]
feeds: [{id: feed-a, line_volts: 400, rated_amperes: 63}, {id: feed-b, line_volts: 400, rated_amperes: 63}]
pdus:
- {id: r01-a, rack: r01, feed: feed-a, phases: 3, rated_amperes: 63, exporters: {snmp-apcups: "10.0.0.1:161"}}
- {id: r01-b, rack: r01, feed: feed-b, phases: 3, rated_amperes: 63, exporters: {snmp-apcups: "10.0.0.2:161"}}
node_classes: [{id: h100, height_u: 8, gpus: 8}]
nodes: [{id: "gpu[001-002]", rack: r01, u: 1, class: h100, exporters: {dcgm-exporter: "%s"}}]
`

// TestE2EForeign lets a real Prometheus run what "rules adapters" writes: it finds
// the exporters through the registry, and their series come out under our names,
// in their rack, each once. Then a GPU leaves dcgm-exporter's page, and the
// built-in rules say that it is lost.
func TestE2EForeign(t *testing.T) {
	t.Parallel()
	s := &stack{t: t, dir: t.TempDir()}
	page := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(testtool.Root(), "rules", "testdata", "exporters", name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	pdu, gpus := page("snmp-apcups.prom"), page("dcgm-exporter.prom")
	var lost atomic.Bool
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/snmp" && r.FormValue("target") == "10.0.0.1:161" && r.FormValue("module") == "apcups":
			_, _ = w.Write(pdu) // the test sees what is missing
		case r.URL.Path == "/snmp":
			http.Error(w, "error collecting metric", http.StatusInternalServerError) // as snmp_exporter does
		default:
			for line := range bytes.Lines(gpus) {
				if !lost.Load() || !bytes.Contains(line, []byte(`gpu="3"`)) {
					_, _ = w.Write(line) // as above
				}
			}
		}
	}))
	defer exporter.Close()
	address := strings.TrimPrefix(exporter.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	s.write("site.yml", fmt.Sprintf(foreignSite, "127.0.0.[1-2]:"+port))
	s.startRegistry()
	s.writeForeignPrometheus(address)
	s.wants(t, `sum by (rack_id) (up{job="dcgm-exporter"})`, 1) // the server listens on 127.0.0.1 alone
	s.wants(t, `count(rackpulse_gpu_up{rack_id="r01",node="gpu001",adapter="dcgm-exporter"} == 1)`, 8)
	s.wants(t, `count by (rack_id) (DCGM_FI_DEV_GPU_TEMP{rack_id="r01",node="gpu001",Hostname!=""})`, 8)
	s.wants(t, `facility_device_up{rack_id="r01",device="r01-a"}`, 1)
	s.wants(t, `facility_device_up{rack_id="r01",device="r01-b"}`, 0)
	s.wants(t, `count(pdu_phase_current_ampere{rack_id="r01",pdu_id="r01-a"})`, 3)
	s.wants(t, `max(rack_inlet_temperature_celsius{rack_id="r01",pdu_id="r01-a"})`, 22.4)
	s.wants(t, `count({exported_rack_id!=""}) or vector(0)`, 0)
	lost.Store(true)
	s.wants(t, `count(ALERTS{alertname="GPULost",node="gpu001",gpu="3",alertstate="firing"})`, 1)
}

// writeForeignPrometheus runs Prometheus on the generated files, with the given
// server as the exporter that is told its target.
func (s *stack) writeForeignPrometheus(exporter string) {
	root := testtool.Root()
	out := filepath.Join(s.dir, "adapters")
	if code := execute(s.t.Context(), []string{"rules", "adapters", "dcgm-exporter", "snmp-apcups", "--registry.url=" + s.registry, "-o", out}, stdio{out: os.Stdout, err: os.Stderr}); code != 0 {
		s.t.Fatalf("rules adapters: status %d", code)
	}
	for _, name := range []string{"adapters.scrape.yml", "adapters.rules.yml"} {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			s.t.Fatal(err)
		}
		// Faster than in earnest, so that the test ends.
		s.write(name, strings.NewReplacer("snmp-exporter:9116", exporter, "interval: 15s", "interval: 2s").Replace(string(data)))
	}
	for _, name := range []string{"correlations.rules.yml", "coverage.rules.yml"} {
		data, err := os.ReadFile(filepath.Join(root, "rules", "generated", name))
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(name, strings.ReplaceAll(string(data), "interval: 15s", "interval: 2s"))
	}
	s.write("prometheus.yml", fmt.Sprintf(`global: {scrape_interval: 2s, scrape_timeout: 2s}
scrape_config_files: [adapters.scrape.yml]
rule_files: ["*.rules.yml"]
scrape_configs:
- {job_name: rackpulse, honor_labels: true, http_sd_configs: [{url: %q, refresh_interval: 2s}]}
`, s.registry+"/api/v1/sd/agents"))
	address := s.promAddr()
	start(s.t, s.dir, "prometheus", testtool.Binary(s.t, "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=promdata", "--web.listen-address="+address)
	var err error
	if s.prom, err = query.NewHTTP(query.Config{URL: s.promURL}); err != nil {
		s.t.Fatal(err)
	}
}

// wants waits until a query has this value.
func (s *stack) wants(t *testing.T, expr string, want float64) {
	t.Helper()
	s.eventually(3*time.Minute, expr, func() error {
		got, err := s.value(expr)
		if err == nil && got != want {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}
