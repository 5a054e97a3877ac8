// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// quietTime is how long a scenario is watched after its page for messages that
// should not come: longer than the symptoms' "for" (2 min), group_wait (30 s)
// and an evaluation (15 s) together.
const quietTime = 200 * time.Second

// TestE2ECoolingLoss holds that a stopped cooling unit gives one page, that it
// names the unit and its racks, and that its symptoms are muted.
func TestE2ECoolingLoss(t *testing.T) {
	afterMeasuring(t)
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
	afterMeasuring(t)
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
	afterMeasuring(t)
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
	afterMeasuring(t)
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
	afterMeasuring(t)
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

// checkSeriesPerRack counts the series of every family by rack in Prometheus
// against the site file: joins that look green and match nothing show here. A
// family that is missing from a rack, or that wantSeries does not know, fails.
func (s *stack) checkSeriesPerRack() {
	s.t.Helper()
	checked := 0
	s.eventually(2*time.Minute, "every family has its series in every rack", func() error {
		got, err := s.counts()
		if err != nil {
			return err
		}
		checked = 0
		var wrong []string
		for _, rack := range s.site.Racks {
			want := wantSeries(s.site, rack.ID)
			for family := range got {
				if family == "rackpulse_gpu_idle_since_timestamp_seconds" {
					continue // of idle GPUs only
				}
				if _, known := want[family]; !known {
					wrong = append(wrong, family+" is not in the test's table")
				}
			}
			for family, n := range want {
				if got[family][rack.ID] != n {
					wrong = append(wrong, fmt.Sprintf("%s in %s: %d series, the site file says %d", family, rack.ID, got[family][rack.ID], n))
				}
				checked++
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong[:min(len(wrong), 5)], "; "))
		}
		return nil
	})
	s.t.Logf("%d families of racks have as many series as the site file says", checked)
	if got, err := s.value(`count({__name__=~".+",exported_rack_id!=""}) or vector(0)`); err != nil || got != 0 {
		s.t.Errorf("%v series have an exported_rack_id (%v)", got, err)
	}
}

// counts is the number of series of each family in each rack, of our own exporters
// and of node_exporter's up.
func (s *stack) counts() (map[string]map[string]int, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	out := map[string]map[string]int{}
	for _, expr := range []string{`count by (__name__, rack_id) ({job="rackpulse",rack_id!=""})`, `count by (__name__, rack_id) (up{job="node_exporter",rack_id!=""} == 1)`} {
		samples, err := s.prom.Instant(ctx, expr, time.Now())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		for _, sample := range samples {
			family := sample.Labels["__name__"]
			if out[family] == nil {
				out[family] = map[string]int{}
			}
			out[family][sample.Labels["rack_id"]] = int(sample.Value)
		}
	}
	return out, nil
}

// wantSeries says how many series of each family a rack must have.
func wantSeries(hall *site.Site, rack string) map[string]int {
	out := map[string]int{}
	add := func(n int, families ...string) {
		for _, family := range families {
			out[family] = n
		}
	}
	nodes, gpus, ports, outlets := 0, 0, 0, 0
	for _, node := range hall.NodesIn(rack) {
		class, _ := hall.Class(node.ID)
		nodes, gpus, ports, outlets = nodes+1, gpus+class.GPUs, ports+len(node.Ports), outlets+len(node.Outlets)
	}
	for _, field := range strings.Fields(`SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER
		GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL FB_FREE FB_USED FB_RESERVED NVLINK_BANDWIDTH_TOTAL UNCORRECTABLE_REMAPPED_ROWS
		CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE FAN_SPEED PCIE_LINK_GEN PCIE_LINK_WIDTH ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL
		NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL POWER_MGMT_LIMIT`) {
		add(gpus, "DCGM_FI_DEV_"+field)
	}
	for _, field := range strings.Fields("GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES") {
		add(gpus, "DCGM_FI_PROF_"+field)
	}
	add(gpus, "rackpulse_gpu_up", "rackpulse_gpu_info", "rackpulse_gpu_thermal_margin_celsius")
	add(2*gpus, "rackpulse_gpu_last_sample_timestamp_seconds") // fast, slow
	add(2*gpus, "rackpulse_gpu_rma_flag")                      // causes that the simulator knows
	add(6*gpus, "rackpulse_gpu_throttle_seconds_total")        // reasons
	add(9*gpus, "rackpulse_gpu_throttle")                      // reasons
	add(20*gpus, "rackpulse_gpu_xid_errors_total")             // critical codes start at 0
	add(nodes, "rackpulse_gpu_children_abandoned", "rackpulse_node_info", "rackpulse_lease_up", "rackpulse_lease_state", "rackpulse_lease_last_beat_timestamp_seconds")
	add(3*nodes, "rackpulse_gpu_child_restarts_total") // reasons
	add(nodes, "up")                                   // node_exporter: our own targets have no rack
	add(outlets, "rackpulse_node_outlet_info")
	add(ports, "rackpulse_node_port_info")
	add(1, "rackpulse_rack_info", "rackpulse_rack_power_limit_watt")
	add(len(hall.CoolingOf(rack)), "rackpulse_rack_cooling_info")

	pdus, sockets, devices := len(hall.PDUsOf(rack)), 0, 0
	for _, pdu := range hall.PDUsOf(rack) {
		sockets += pdu.Outlets
	}
	for _, device := range hall.Devices() {
		if device.Rack == rack {
			devices++
		}
	}
	add(devices, "facility_device_up", "facility_last_sample_timestamp_seconds", "rackpulse_facility_device_info")
	add(pdus, "pdu_current_ampere", "pdu_power_watt", "pdu_power_factor_ratio", "pdu_energy_joules_total", "rackpulse_rack_feed_info",
		"rackpulse_pdu_rated_ampere", "rackpulse_pdu_usable_ampere", "rackpulse_facility_transients_observable")
	add(3*pdus, "pdu_phase_current_ampere", "pdu_phase_voltage_volt", "pdu_phase_power_watt", "pdu_line_current_ampere")
	add(3*pdus, "pdu_phase_current_peak_ampere", "pdu_phase_current_trough_ampere")
	add(2*pdus, "pdu_power_transients_total")     // directions
	add(3*pdus, "rackpulse_facility_implausible") // checks
	add(sockets, "pdu_outlet_power_watt")
	add(ports, "switch_port_up", "switch_port_flaps_total", "switch_port_speed_bytes", "switch_port_receive_bytes_total",
		"switch_port_transmit_bytes_total", "switch_port_receive_errors_total", "switch_port_transmit_errors_total")
	for family, measures := range map[string]string{
		"rack_inlet_temperature_celsius": "inlet_temperature", "rack_outlet_temperature_celsius": "outlet_temperature",
		"rack_inlet_relative_humidity_ratio": "inlet_humidity",
	} {
		n := 0
		for _, sensor := range hall.SensorsIn(rack) {
			if sensor.Measures == measures {
				n++
			}
		}
		add(n, family)
	}
	return out
}

// official holds the queries of Grafana dashboard 12239, which dcgm-exporter also
// bundles, written with its variables' "All"; and what its variables ask for.
var official = []string{
	`DCGM_FI_DEV_GPU_TEMP{instance=~".+",gpu=~".+"}`,
	`avg(DCGM_FI_DEV_GPU_TEMP{instance=~".+",gpu=~".+"})`,
	`DCGM_FI_DEV_POWER_USAGE{instance=~".+",gpu=~".+"}`,
	`sum(DCGM_FI_DEV_POWER_USAGE{instance=~".+",gpu=~".+"})`,
	`DCGM_FI_DEV_SM_CLOCK{instance=~".+",gpu=~".+"} * 1000000`,
	`DCGM_FI_DEV_GPU_UTIL{instance=~".+",gpu=~".+"}`,
	`DCGM_FI_DEV_FB_USED{instance=~".+",gpu=~".+"}`,
	`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".+",gpu=~".+"}`,
	`group by (instance, gpu) (DCGM_FI_DEV_GPU_TEMP{instance!="",gpu!=""})`,
}

// checkPanels runs the queries of our dashboards that should show data while
// cooling is lost, and those of the official one.
func (s *stack) checkPanels() {
	s.t.Helper()
	exprs := slices.Clone(official)
	byPlay := boardQueries(s.t)
	for _, q := range slices.Concat(byPlay["steady"], byPlay["cooling-loss"]) {
		if !strings.Contains(q.expr, "node_infiniband_") && !slices.ContainsFunc(foreign, func(name string) bool { return strings.Contains(q.expr, name) }) {
			exprs = append(exprs, q.expr)
		}
	}
	for _, expr := range exprs {
		s.eventually(2*time.Minute, "data for "+expr, func() error {
			samples, err := s.prom.Instant(s.t.Context(), expr, time.Now())
			if err == nil && len(samples) == 0 {
				err = errors.New("no data")
			}
			return err
		})
	}
	s.t.Logf("%d dashboard queries have data, e.g. %s", len(exprs), exprs[len(exprs)-1])
}
