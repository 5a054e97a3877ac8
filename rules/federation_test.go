// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promrules "github.com/prometheus/prometheus/rules"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool/hall"
)

// federated is what a global Prometheus holds of a site's page: the series of two
// replicas of the site's Prometheus, those of a dcgm-exporter beside our agents,
// and, of node gpu002, GPUs that are divided by MIG. The registry's series are
// those of its leader, which changes.
func federated(p page, at time.Duration) page {
	out := page{}
	for series, value := range p {
		name, rest, _ := strings.Cut(series, "{")
		rest = strings.TrimSuffix(rest, "}")
		job := `,job="rackpulse"`
		if !strings.Contains(rest, "instance=") {
			job += `,instance="` + instance(name, at) + `"`
		}
		lists := []string{rest + job}
		if strings.HasPrefix(name, "DCGM_") {
			if strings.Contains(rest, `node="gpu002"`) {
				lists = instances(name, rest, job)
			}
			lists = append(lists, rest+`,Hostname="h",job="dcgm-exporter",instance="foreign:9400"`)
		}
		for _, list := range lists {
			for _, replica := range []string{"a", "b"} {
				out[name+"{"+list+`,replica="`+replica+`"}`] = value
			}
		}
	}
	return out
}

// instance is the target that a series comes from.
func instance(name string, at time.Duration) string {
	registry := strings.HasPrefix(name, "rackpulse_lease_") || strings.HasPrefix(name, "rackpulse_rack_") || strings.HasPrefix(name, "rackpulse_pdu_") || name == "rackpulse_node_info"
	switch {
	case !registry:
		return "agent"
	case at < onset+3*time.Minute:
		return "registry1"
	}
	return "registry2"
}

// instances are the series of a divided GPU: no utilisation, the rest for each of
// seven instances.
func instances(name, rest, job string) []string {
	if name == "DCGM_FI_DEV_GPU_UTIL" {
		return nil
	}
	var out []string
	for i := range 7 {
		out = append(out, fmt.Sprintf(`%s%s,GPU_I_PROFILE="1g.10gb",GPU_I_ID="%d"`, rest, job, i+7))
	}
	return out
}

// identities are the labels that tell alerts of one name apart.
var identities = []string{"site", "cooling_unit", "feed", "rack_id", "pdu_id", "node", "UUID", "device", "source", "signal", "phase"}

// told lists the alerts that notify, as "name site identity", each as often as it
// fires.
func (s *store) told() []string {
	var out []string
	for _, g := range s.groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.State != promrules.StateFiring || a.Labels.Get("role") == "inhibitor" || a.Labels.Get("severity") == "info" || a.Labels.Get("severity") == "none" {
					continue
				}
				id := a.Labels.Get(labels.AlertName)
				for _, l := range identities {
					if v := a.Labels.Get(l); v != "" {
						id += " " + v
					}
				}
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return out
}

// sitePage is the state of a site's hall as its exporters show it.
type sitePage struct {
	hall *sim.Hall
	view *hall.View
}

func newSitePage(t *testing.T, id, scenario string, epoch time.Time) *sitePage {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	s.ID = id
	world, err := sim.New(sim.Spec{Site: s, Scenario: scenario, Seed: 1, Epoch: epoch, Onset: onset})
	if err != nil {
		t.Fatal(err)
	}
	return &sitePage{world, hall.New(s)}
}

func (s *sitePage) at(now time.Time) page {
	state := s.hall.At(now)
	s.view.Beat(state)
	return shown(s.view, state)
}

// ever plays sites into one store and returns all alerts that were told, with the
// highest number of times that one was at once.
func ever(t *testing.T, shape func(page, time.Duration) page, scenarios map[string]string) map[string]int {
	t.Helper()
	epoch := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	var sites []*sitePage
	for _, id := range slices.Sorted(maps.Keys(scenarios)) {
		sites = append(sites, newSitePage(t, id, scenarios[id], epoch))
	}
	st := newStore(t, epoch)
	out := map[string]int{}
	for at := time.Duration(0); at <= onset+6*time.Minute; at += 15 * time.Second {
		st.now = epoch.Add(at)
		p := page{}
		for _, s := range sites {
			maps.Copy(p, shape(s.at(st.now), at))
		}
		st.scrape(p)
		st.eval()
		now := map[string]int{}
		for _, alert := range st.told() {
			now[alert]++
			out[alert] = max(out[alert], now[alert])
		}
	}
	st.check()
	return out
}

// TestFederation holds that a global Prometheus over two sites that use the same
// ids, with all that doubles series (see federated), tells what each site's own
// Prometheus tells: the same alerts, each once, and none across sites.
func TestFederation(t *testing.T) {
	for _, scenarios := range []map[string]string{
		{"ams1": "cooling-loss", "lon1": "feed-loss"},
		{"ams1": "gpu-lost", "lon1": "partition"},
	} {
		if raced && scenarios["ams1"] != "gpu-lost" {
			continue // nothing here runs beside anything else
		}
		t.Run(scenarios["ams1"]+" and "+scenarios["lon1"], func(t *testing.T) {
			want := map[string]int{}
			for id, scenario := range scenarios {
				plain := func(p page, _ time.Duration) page { return p }
				maps.Copy(want, ever(t, plain, map[string]string{id: scenario}))
			}
			got := ever(t, federated, scenarios)
			for _, alert := range slices.Sorted(maps.Keys(got)) {
				if got[alert] != want[alert] {
					t.Errorf("%s: told %d times at once, %d by the site alone", alert, got[alert], want[alert])
				}
			}
			for alert := range want {
				if got[alert] == 0 {
					t.Errorf("%s: told by the site, not by the federation", alert)
				}
			}
			t.Logf("%d alerts: %v", len(got), slices.Sorted(maps.Keys(got)))
		})
	}
}

// TestForeignBeside holds that a dcgm-exporter which nobody relabels, so that its
// series have neither node nor rack, does not tell of a GPU a second time.
func TestForeignBeside(t *testing.T) {
	epoch := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	st := newStore(t, epoch)
	const gpu = `site="ams1",gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"`
	for at := time.Duration(0); at <= 8*time.Minute; at += 15 * time.Second {
		st.now = epoch.Add(at)
		p := page{}
		p[`rackpulse_rack_info{site="ams1",rack_id="r01"}`] = 1
		for _, list := range []string{gpu + `,node="n1",rack_id="r01",instance="n1"`, gpu + `,Hostname="n1",instance="n1:9400",job="dcgm"`} {
			p["DCGM_FI_DEV_GPU_TEMP{"+list+"}"] = 92
			p["DCGM_FI_DEV_GPU_UTIL{"+list+"}"] = 99
		}
		st.scrape(p)
		st.eval()
	}
	st.check()
	want(t, slices.DeleteFunc(st.told(), func(s string) bool { return !strings.HasPrefix(s, "GPUHot") }), "GPUHot ams1 r01 n1 GPU-1")
}
