// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/site"
)

// quietTime is how long a scenario is watched after its page for messages that
// should not come: longer than the symptoms' "for" (2 min), group_wait (30 s)
// and an evaluation (15 s) together.
const quietTime = 200 * time.Second

// TestE2ECoolingLoss holds that a stopped cooling unit gives one page, that it
// names the unit and its racks, and that its symptoms are muted.
func TestE2ECoolingLoss(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackConfig{scenario: "cooling-loss", speed: 5, onset: 5 * time.Minute})
	s.checkSeriesPerRack()
	page := s.waitPage("CoolingFault", 6*time.Minute)
	want := map[string]string{"cooling_unit": "crah1", "severity": "critical", "team": "facility", "annotation_cause": "cooling unit crah1", "annotation_racks": "r01,r02"}
	for k, v := range want {
		if page[k] != v {
			t.Errorf("page has %s %q, want %q", k, page[k], v)
		}
	}
	s.checkPanels()
	time.Sleep(quietTime)
	s.checkOnly("CoolingFault", 1)
	muted := s.byLabel(`count by (alertname) (ALERTS{alertstate="firing",rack_id=~"r01|r02",alertname=~"GPUHot|RackInletHot"})`, "alertname")
	if len(muted) == 0 {
		t.Error("no symptom fires in the racks of crah1: nothing was there to be muted")
	}
	t.Logf("symptoms that fired and were muted: %v", muted)
}

// TestE2EAirflowLoss holds that the literal rule fires: hot GPUs, a warm inlet
// and no load.
func TestE2EAirflowLoss(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackConfig{scenario: "airflow-loss", speed: 5, onset: 5 * time.Minute})
	page := s.waitPage("RackAirflowLost", 8*time.Minute)
	rack := page["rack_id"]
	if rack == "" || page["annotation_racks"] != rack {
		t.Errorf("page names rack %q, racks %q", rack, page["annotation_racks"])
	}
	literal := fmt.Sprintf(`count(max by (site, rack_id, UUID) (DCGM_FI_DEV_GPU_TEMP{rack_id=%q}) > 85 and on (site, rack_id) max by (site, rack_id) (rack_inlet_temperature_celsius) > 28 and on (UUID) DCGM_FI_DEV_GPU_UTIL < 10)`, rack)
	if n, err := s.value(literal); err != nil || n < 1 {
		t.Errorf("the literal condition holds for %v GPUs (%v)", n, err)
	}
	time.Sleep(quietTime)
	s.checkOnly("RackAirflowLost", 1)
}

// TestE2EFeedLoss holds that a dead feed is one alert that names the feed.
func TestE2EFeedLoss(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackConfig{scenario: "feed-loss", speed: 5, onset: 10 * time.Minute})
	page := s.waitPage("FeedLost", 6*time.Minute)
	if page["feed"] != "feed-a" || page["annotation_racks"] != "r01,r02,r03,r04" {
		t.Errorf("page names feed %q, racks %q", page["feed"], page["annotation_racks"])
	}
	time.Sleep(quietTime)
	s.checkOnly("FeedLost", 1)
}

// TestE2EDeadManagementCard holds that a PDU's dead controller is told as such:
// nothing says power.
func TestE2EDeadManagementCard(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackConfig{scenario: "dead-pdu-management", speed: 5, onset: 10 * time.Minute})
	s.eventually(6*time.Minute, "FacilityDeviceDown is told", func() error {
		if len(s.hook.firing("-notice")["FacilityDeviceDown"]) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	time.Sleep(quietTime)
	if pages := s.hook.firing("-page"); len(pages) != 0 {
		t.Errorf("paged %v, want nothing", pages)
	}
	for name := range s.hook.firing("") {
		if name != "FacilityDeviceDown" && name != "Watchdog" {
			t.Errorf("told %s: %v", name, s.hook.firing("")[name])
		}
	}
}

// TestE2ELoadOnly holds that full load alone pages nobody.
func TestE2ELoadOnly(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackConfig{scenario: "load-only", speed: 5, onset: 5 * time.Minute})
	s.checkSeriesPerRack()
	time.Sleep(time.Until(s.started.Add(time.Minute)) + quietTime + time.Minute)
	if pages := s.hook.firing("-page"); len(pages) != 0 {
		t.Errorf("paged %v, want nothing", pages)
	}
}

// waitPage waits for the page of one alert and returns its labels and, with the
// prefix annotation_, its annotations.
func (s *stack) waitPage(alert string, limit time.Duration) map[string]string {
	s.t.Helper()
	var page map[string]string
	s.eventually(limit, alert+" pages", func() error {
		got := s.hook.firing("-page")[alert]
		if len(got) == 0 {
			return fmt.Errorf("paged so far: %v", slices.Sorted(maps.Keys(s.hook.firing("-page"))))
		}
		page = got[0]
		return nil
	})
	s.t.Logf("%s paged %.0f s after the start: %s (%s)", alert, time.Since(s.started).Seconds(), page["annotation_summary"], page["annotation_description"])
	return page
}

// checkOnly holds that alert was told to the teams n times, and nothing else but
// the dead-man's switch.
func (s *stack) checkOnly(alert string, n int) {
	s.t.Helper()
	for name, got := range s.hook.firing("") {
		if name == "Watchdog" {
			continue
		}
		if name != alert || len(got) != n {
			s.t.Errorf("told %d times %s, want %d times %s only: %v", len(got), name, n, alert, got)
		}
	}
}

// checkSeriesPerRack counts the series of each family by rack in Prometheus
// against the site file: joins that look green and match nothing show here.
func (s *stack) checkSeriesPerRack() {
	s.t.Helper()
	for family, count := range wantSeries(s.site) {
		for _, rack := range s.site.Racks {
			want := count(rack.ID)
			s.eventually(40*time.Second, family+" in "+rack.ID, func() error {
				got := s.byLabel(fmt.Sprintf("count by (rack_id) (%s{rack_id=%q})", family, rack.ID), "rack_id")[rack.ID]
				if int(got) != want {
					return fmt.Errorf("%v series, the site file says %d", got, want)
				}
				return nil
			})
		}
	}
	if got, err := s.value(`count({__name__=~".+",exported_rack_id!=""}) or vector(0)`); err != nil || got != 0 {
		s.t.Errorf("%v series have an exported_rack_id (%v)", got, err)
	}
}

// wantSeries says how many series of each family a rack must have.
func wantSeries(hall *site.Site) map[string]func(rack string) int {
	gpus := func(rack string) int {
		n := 0
		for _, node := range hall.NodesIn(rack) {
			if class, ok := hall.Class(node.ID); ok {
				n += class.GPUs
			}
		}
		return n
	}
	nodes := func(rack string) int { return len(hall.NodesIn(rack)) }
	pdus := func(rack string) int { return len(hall.PDUsOf(rack)) }
	times := func(n int, f func(string) int) func(string) int {
		return func(rack string) int { return n * f(rack) }
	}
	ports := func(rack string) int {
		n := 0
		for _, node := range hall.NodesIn(rack) {
			n += len(node.Ports)
		}
		return n
	}
	sensors := func(measures string) func(string) int {
		return func(rack string) int {
			n := 0
			for _, sensor := range hall.Sensors {
				if sensor.Rack == rack && sensor.Measures == measures {
					n++
				}
			}
			return n
		}
	}
	return map[string]func(string) int{
		"DCGM_FI_DEV_GPU_TEMP": gpus, "DCGM_FI_DEV_POWER_USAGE": gpus, "DCGM_FI_DEV_GPU_UTIL": gpus,
		"rackpulse_gpu_up": gpus, "rackpulse_node_info": nodes, "rackpulse_lease_up": nodes, "rackpulse_lease_state": nodes,
		"up":                 nodes, // node_exporter: our own targets have no rack label
		"pdu_current_ampere": pdus, "pdu_power_watt": pdus, "pdu_energy_joules_total": pdus,
		"pdu_phase_current_ampere": times(3, pdus), "pdu_phase_voltage_volt": times(3, pdus),
		"rackpulse_rack_feed_info": pdus, "switch_port_up": ports,
		"rack_inlet_temperature_celsius":     sensors("inlet_temperature"),
		"rack_outlet_temperature_celsius":    sensors("outlet_temperature"),
		"rack_inlet_relative_humidity_ratio": sensors("inlet_humidity"),
		"rackpulse_rack_cooling_info":        func(rack string) int { return len(hall.CoolingOf(rack)) },
	}
}

// official holds the queries of Grafana dashboard 12239, the one of
// dcgm-exporter, written with its variables' "All".
var official = []string{
	`DCGM_FI_DEV_GPU_TEMP{instance=~".+",gpu=~".+"}`,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~".+",gpu=~".+"})`,
	`DCGM_FI_DEV_POWER_USAGE{instance=~".+",gpu=~".+"}`,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~".+",gpu=~".+"})`,
	`DCGM_FI_DEV_SM_CLOCK{instance=~".+",gpu=~".+"} * 1000000`,
	`DCGM_FI_DEV_GPU_UTIL{instance=~".+",gpu=~".+"}`,
	`DCGM_FI_DEV_FB_USED{instance=~".+",gpu=~".+"}`,
	`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".+",gpu=~".+"}`,
}

// checkPanels runs every query of our dashboards and of the official one.
func (s *stack) checkPanels() {
	s.t.Helper()
	queries := slices.Clone(official)
	err := fs.WalkDir(dashboards.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dashboards.Files(), path)
		if err != nil {
			return err
		}
		all, err := dashboards.Queries(data)
		for _, q := range all {
			queries = append(queries, dashboards.Substitute(q.Expr, "1m"))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, expr := range queries {
		s.eventually(2*time.Minute, "data for "+expr, func() error {
			samples, err := s.prom.Instant(s.t.Context(), expr, time.Now())
			if err == nil && len(samples) == 0 {
				err = errors.New("no data")
			}
			return err
		})
	}
	s.t.Logf("%d dashboard queries have data, e.g. %s", len(queries), strings.TrimSpace(queries[len(queries)-1]))
}
