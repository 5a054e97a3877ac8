// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// TestE2EFederation runs two sites that use the same ids, a pair of Prometheus
// servers over the first, one over the second, and one above that takes all series
// of the three, replicas and all. All four evaluate the rules and tell one
// Alertmanager: of each site's fault it must tell once, and of none at the other.
func TestE2EFederation(t *testing.T) {
	afterMeasuring(t)
	s := &stack{t: t, dir: t.TempDir(), hook: newHook(t), started: time.Now()}
	starting.Lock()
	s.startAlertmanager()
	ams := s.startSite("ams1", "cooling-loss")
	lon := s.startSite("lon1", "feed-loss")
	below := []string{s.sitePrometheus("ams1", "a", ams), s.sitePrometheus("ams1", "b", ams), s.sitePrometheus("lon1", "a", lon)}
	s.above(below)
	starting.Unlock()

	want := map[string]string{"CoolingFault": "ams1 cooling unit crah1", "FeedLost": "lon1 feed feed-a"}
	for alert := range want {
		s.waitPage(alert, 8*time.Minute)
	}
	// The one above fires them too, from series that it has of both replicas.
	s.eventually(4*time.Minute, "the rules fire above", func() error {
		n, err := s.value(`count(ALERTS{alertname=~"CoolingFault|FeedLost",alertstate="firing"})`)
		if err == nil && n != 2 {
			err = fmt.Errorf("%v causes fire, want 2", n)
		}
		return err
	})
	// Now and then a replica's scrape from above is late: then its series pause.
	s.eventually(2*time.Minute, "both replicas are there", func() error {
		twice, err := s.value(`min(count by (site, UUID) (DCGM_FI_DEV_GPU_TEMP{site="ams1",replica!=""}))`)
		if err == nil && twice != 2 {
			err = fmt.Errorf("the temperature of a GPU is there %v times", twice)
		}
		return err
	})
	time.Sleep(quietTime)
	s.checkTold(want)
}

// startSite runs everything of one site in a process and returns its address.
func (s *stack) startSite(id, scenario string) string {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "site", "example.yml"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(id+"/site.yml", strings.Replace(string(data), "site: {id: ams1", "site: {id: "+id, 1))
	s.write(id+"/agent.yml", fmt.Sprintf("site_file: site.yml\nsimulate: {scenario: %q, speed: 5, onset: 10m, epoch: %s}\n", scenario, s.started.UTC().Format(time.RFC3339)))
	addr := freePort(s.t)
	start(s.t, s.dir, id, binary(s.t), "standalone", "--simulate", "--config.file="+id+"/agent.yml", "--web.listen-address="+addr)
	return addr
}

// sitePrometheus runs one Prometheus of a site.
func (s *stack) sitePrometheus(site, replica, target string) string {
	name := "prometheus-" + site + "-" + replica
	return s.prometheus(name, fmt.Sprintf("global: {scrape_interval: 5s, evaluation_interval: 15s, external_labels: {site: %s, replica: %s}}\n", site, replica)+
		fmt.Sprintf("scrape_configs:\n- {job_name: rackpulse, honor_labels: true, static_configs: [{targets: [%q], labels: {site: %s}}]}\n", target, site))
}

// above runs the Prometheus that takes all series of the others and evaluates the
// rules again.
func (s *stack) above(below []string) {
	addr := s.prometheus("prometheus-above", "global: {scrape_interval: 15s, evaluation_interval: 15s}\nscrape_configs:\n"+
		"- job_name: federate\n  honor_labels: true\n  metrics_path: /federate\n  params: {\"match[]\": ['{__name__!~\"rackpulse:.+|ALERTS.*\"}']}\n"+
		fmt.Sprintf("  static_configs: [{targets: [\"%s\"]}]\n", strings.Join(below, `", "`)))
	var err error
	if s.prom, err = query.NewHTTP(query.Config{URL: "http://" + addr}); err != nil {
		s.t.Fatal(err)
	}
}

// prometheus runs one with our rules, which tells the Alertmanager and takes off
// the replica.
func (s *stack) prometheus(name, config string) string {
	s.write(name+".yml", config+fmt.Sprintf("rule_files: [%q]\n", filepath.Join(testtool.Root(), "rules", "generated", "*.rules.yml"))+
		fmt.Sprintf("alerting:\n  alert_relabel_configs: [{regex: replica, action: labeldrop}]\n  alertmanagers: [{static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(s.am, "http://")))
	addr := freePort(s.t)
	start(s.t, s.dir, name, testtool.Binary(s.t, "prometheus"), "--config.file="+name+".yml", "--storage.tsdb.path="+name, "--web.listen-address="+addr)
	return addr
}

// checkTold holds that the messages of all teams together tell each cause once,
// under its site, and nothing else but the dead-man's switch and what is missing.
func (s *stack) checkTold(want map[string]string) {
	s.t.Helper()
	told := map[string]int{}
	s.hook.mu.Lock()
	for _, n := range s.hook.got {
		for _, a := range n.Alerts {
			if n.Status == "firing" && a.Status == "firing" && a.Labels["severity"] == "critical" {
				told[a.Labels["alertname"]+": "+a.Labels["site"]+" "+a.Annotations["cause"]]++
			}
		}
	}
	s.hook.mu.Unlock()
	s.t.Logf("told: %v", told)
	for alert, cause := range want {
		if told[alert+": "+cause] != 1 {
			s.t.Errorf("%s of %s is in %d messages, want 1", alert, cause, told[alert+": "+cause])
		}
		delete(told, alert+": "+cause)
	}
	for other, n := range told {
		s.t.Errorf("%s is in %d messages, want none", other, n)
	}
}
