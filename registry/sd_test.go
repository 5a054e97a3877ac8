// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// sdSite is a small hall: a node with an exporter of its own, one with an
// address, one that is only known by what its agent advertises, one rackless.
const sdSite = `
site: {id: lab.1}
racks: [{id: r01}]
pdus: [{id: r01-a, rack: r01, phases: 1, rated_amperes: 16}, {id: r01-b, rack: r01, phases: 1, rated_amperes: 16, exporters: {snmp: "10.9.1.2:161"}}]
cooling_units: [{id: crac1, exporters: {snmp: "10.9.1.3:161"}}]
node_classes: [{id: plain, height_u: 2}, {id: desk, rackless: true}]
nodes:
- {id: n1, rack: r01, u: 1, class: plain, exporters: {node_exporter: "n1.example:9101"}}
- {id: n2, rack: r01, u: 3, class: plain, address: 10.9.0.2}
- {id: n3, rack: r01, u: 5, class: plain}
- {id: n4, class: desk}
`

func parseSite(t *testing.T, text string) *site.Site {
	t.Helper()
	s, err := site.Parse("site.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startPrometheus runs a real Prometheus on the scrape configuration.
func startPrometheus(t *testing.T, scrapeConfigs string) string {
	t.Helper()
	bin := testtool.Binary(t, "prometheus")
	dir := t.TempDir()
	conf := writeFile(t, dir, "prometheus.yml", "global: {scrape_interval: 1s}\nscrape_configs:\n"+scrapeConfigs)
	address := testtool.FreeAddress(t)
	cmd := exec.Command(bin, "--config.file="+conf, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	testtool.Start(t, cmd)
	return "http://" + address
}

// target is one of Prometheus' active targets.
type target struct {
	Labels    map[string]string
	ScrapeURL string
	Health    string
	LastError string
}

// targetsOf asks Prometheus for its targets, by job and instance.
func targetsOf(t *testing.T, prometheus string) (map[string]target, error) {
	t.Helper()
	resp, err := http.Get(prometheus + "/api/v1/targets?state=active")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body struct {
		Data struct{ ActiveTargets []target }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return nil, err
	}
	out := map[string]target{}
	for _, one := range body.Data.ActiveTargets {
		out[one.Labels["job"]+"/"+one.Labels["instance"]] = one
	}
	return out, nil
}

// TestDiscoveryByPrometheus lets a real Prometheus find everything through the
// registry, scrape what is there, and keep a silent agent as a target that is
// down.
func TestDiscoveryByPrometheus(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{Site: parseSite(t, sdSite)})
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `pdu_current_ampere{pdu_id="r01-a",rack_id="r01"} 3`)
	}))
	defer page.Close()
	alive := strings.TrimPrefix(page.URL, "http://")
	gpu := func(node, advertise string) *agent {
		return dial(t, r.grpc, node, &leasepb.Hello{Epoch: 7, Roles: []string{"gpu"}, Advertise: advertise})
	}
	for node, advertise := range map[string]string{"n1": alive, "n3": "127.0.0.1:1", "n4": "ws.example:9400"} {
		if _, err := gpu(node, advertise).once(); err != nil {
			t.Fatal(err)
		}
	}
	fac := dial(t, r.grpc, "fac1", &leasepb.Hello{Epoch: 8, Roles: []string{"facility"}, Advertise: alive, Devices: []string{"r01-a"}})
	if _, err := fac.once(); err != nil {
		t.Fatal(err)
	}

	prometheus := startPrometheus(t, fmt.Sprintf(`
- job_name: rackpulse
  honor_labels: true
  http_sd_configs: [{url: %q, refresh_interval: 1s}]
- job_name: node_exporter
  http_sd_configs: [{url: %q, refresh_interval: 1s}]
`, r.api.URL+"/api/v1/sd/agents", r.api.URL+"/api/v1/sd/exporters?job=node_exporter&port=9100"))

	self := strings.TrimPrefix(r.api.URL, "http://")
	want := map[string]target{
		"rackpulse/n1":       {Labels: map[string]string{"job": "rackpulse", "instance": "n1", "site": "lab.1"}, ScrapeURL: "http://" + alive + "/metrics", Health: "up"},
		"rackpulse/n3":       {Labels: map[string]string{"job": "rackpulse", "instance": "n3", "site": "lab.1"}, ScrapeURL: "http://127.0.0.1:1/metrics", Health: "down"},
		"rackpulse/n4":       {Labels: map[string]string{"job": "rackpulse", "instance": "n4", "site": "lab.1"}, ScrapeURL: "http://ws.example:9400/metrics", Health: "down"},
		"rackpulse/fac1":     {Labels: map[string]string{"job": "rackpulse", "instance": "fac1", "site": "lab.1"}, ScrapeURL: "http://" + alive + "/metrics", Health: "up"},
		"rackpulse/registry": {Labels: map[string]string{"job": "rackpulse", "instance": "registry", "site": "lab.1"}, ScrapeURL: "http://" + self + "/metrics", Health: "up"},
		"node_exporter/n1":   {Labels: map[string]string{"job": "node_exporter", "instance": "n1", "node": "n1", "rack_id": "r01", "site": "lab.1"}, ScrapeURL: "http://n1.example:9101/metrics", Health: "down"},
		"node_exporter/n2":   {Labels: map[string]string{"job": "node_exporter", "instance": "n2", "node": "n2", "rack_id": "r01", "site": "lab.1"}, ScrapeURL: "http://10.9.0.2:9100/metrics", Health: "down"},
		"node_exporter/n3":   {Labels: map[string]string{"job": "node_exporter", "instance": "n3", "node": "n3", "rack_id": "r01", "site": "lab.1"}, ScrapeURL: "http://127.0.0.1:9100/metrics", Health: "down"},
		"node_exporter/n4":   {Labels: map[string]string{"job": "node_exporter", "instance": "n4", "node": "n4", "site": "lab.1"}, ScrapeURL: "http://ws.example:9100/metrics", Health: "down"},
	}
	eventually(t, "targets of Prometheus", func() error {
		got, err := targetsOf(t, prometheus)
		if err != nil {
			return err
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
			return fmt.Errorf("targets %v", names)
		}
		for name, w := range want {
			g := got[name]
			if g.Health == "unknown" || g.Health == "down" && w.Health == "up" {
				return fmt.Errorf("%s is %s: %s", name, g.Health, g.LastError)
			}
			if name == "node_exporter/n2" || name == "node_exporter/n3" {
				g.Health = w.Health // somebody may listen on 9100 here
			}
			if g.LastError = ""; !reflect.DeepEqual(g, w) {
				t.Fatalf("%s: %+v\nwant %+v", name, g, w)
			}
		}
		return nil
	})
	r.checkStoredSeries(t, prometheus)
}

// checkStoredSeries asks Prometheus what it stored of the registry's metrics.
func (r *running) checkStoredSeries(t *testing.T, prometheus string) {
	t.Helper()
	q, err := PrometheusConfig{URL: prometheus}.Querier()
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]map[string]string{
		`up{instance="n3",job="rackpulse"}`:    {"__name__": "up", "instance": "n3", "job": "rackpulse", "site": "lab.1"},
		`rackpulse_node_info{node="n2"}`:       {"__name__": "rackpulse_node_info", "node": "n2", "rack_id": "r01", "class": "plain", "instance": "registry", "job": "rackpulse", "site": "lab.1"},
		`rackpulse_lease_state{node="n4"}`:     {"__name__": "rackpulse_lease_state", "node": "n4", "state": "", "instance": "registry", "job": "rackpulse", "site": "lab.1"},
		`pdu_current_ampere{instance="fac1"}`:  {"__name__": "pdu_current_ampere", "pdu_id": "r01-a", "rack_id": "r01", "instance": "fac1", "job": "rackpulse", "site": "lab.1"},
		`{__name__!="",exported_rack_id!=""} `: nil,
	} {
		eventually(t, expr, func() error {
			samples, err := q.Instant(t.Context(), expr, time.Now())
			switch {
			case err != nil:
				return err
			case want == nil && len(samples) == 0:
				return nil
			case len(samples) != 1:
				return fmt.Errorf("%d samples: %v", len(samples), samples)
			}
			if state, ok := samples[0].Labels["state"]; ok && state != "" {
				samples[0].Labels["state"] = "" // it moves on while it does not beat
			}
			if !reflect.DeepEqual(samples[0].Labels, want) {
				t.Fatalf("%s: %v\nwant %v", expr, samples[0].Labels, want)
			}
			return nil
		})
	}
}

// addresses are the targets of an answer by instance.
func addresses(groups []TargetGroup) map[string]string {
	out := map[string]string{}
	for _, g := range groups {
		out[g.Labels["instance"]] = strings.Join(g.Targets, ",")
	}
	return out
}

func TestRestartKeepsStatesAndAddresses(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Advertise = "reg1:9401"
	s := parseSite(t, sdSite)
	r := start(t, cfg, Deps{Site: s})
	a := dial(t, r.grpc, "n1", &leasepb.Hello{Epoch: 7, Roles: []string{"gpu"}, Advertise: "10.9.0.1:9400"})
	a.mustBeat(t, leasepb.State_READY)
	fac := dial(t, r.grpc, "fac1", &leasepb.Hello{Epoch: 8, Roles: []string{"facility"}, Advertise: "10.9.1.1:9400", Devices: []string{"r01-a"}})
	if _, err := fac.once(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"n1": "10.9.0.1:9400", "fac1": "10.9.1.1:9400", "registry": "reg1:9401"}
	var groups []TargetGroup
	r.get(t, "/api/v1/sd/agents", &groups)
	if got := addresses(groups); !maps.Equal(got, want) {
		t.Errorf("targets %v", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	r = start(t, cfg, Deps{Site: s})
	groups = nil
	r.get(t, "/api/v1/sd/agents", &groups)
	if got := addresses(groups); !maps.Equal(got, want) {
		t.Errorf("targets after the restart: %v", got)
	}
	var n Node
	r.get(t, "/api/v1/nodes/n1", &n)
	if n.State != "RESTORED" || n.LeaseUp == nil || !*n.LeaseUp || !n.Schedulable {
		t.Errorf("n1 after the restart: %+v", n)
	}
	a = dial(t, r.grpc, "n1", &leasepb.Hello{Epoch: 7, Roles: []string{"gpu"}, Advertise: "10.9.0.1:9400"})
	a.seq = 1000 // the same agent beats on
	a.mustBeat(t, leasepb.State_READY)

	// Gone from the site file, gone from the targets.
	less := strings.ReplaceAll(sdSite, `- {id: n1, rack: r01, u: 1, class: plain, exporters: {node_exporter: "n1.example:9101"}}`, "")
	if err := r.ApplySite(parseSite(t, less)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 is no target", func() error {
		groups = nil
		r.get(t, "/api/v1/sd/agents", &groups)
		if got := addresses(groups); got["n1"] != "" {
			return fmt.Errorf("targets %v", got)
		}
		return nil
	})
}
