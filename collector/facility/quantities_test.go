// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

// contract are the names that rules, dashboards and users rely on, with their
// part label.
var contract = map[string]string{
	"rack_inlet_temperature_celsius": "", "rack_outlet_temperature_celsius": "", "rack_inlet_relative_humidity_ratio": "",
	"facility_leak_detected": "", "node_power_watt": "node", "pdu_current_ampere": "", "pdu_power_watt": "", "pdu_power_factor_ratio": "",
	"pdu_energy_joules_total": "", "pdu_phase_current_ampere": "phase", "pdu_phase_voltage_volt": "phase",
	"pdu_phase_power_watt": "phase", "pdu_line_current_ampere": "line", "pdu_neutral_current_ampere": "",
	"pdu_branch_current_ampere": "branch", "pdu_outlet_current_ampere": "outlet", "pdu_outlet_power_watt": "outlet",
	"pdu_phase_current_peak_ampere": "phase", "pdu_phase_current_trough_ampere": "phase",
	"pdu_phase_current_rated_ampere": "phase", "pdu_phase_power_factor_ratio": "phase", "switch_port_neighbor_info": "port",
	"pdu_power_transients_total": "direction",
	"switch_port_up":             "port", "switch_port_flaps_total": "port", "switch_port_speed_bytes": "port",
	"switch_port_receive_bytes_total": "port", "switch_port_transmit_bytes_total": "port",
	"switch_port_receive_errors_total": "port", "switch_port_transmit_errors_total": "port",
	"switch_port_receive_discards_total": "port", "switch_port_transmit_discards_total": "port",
	"cooling_unit_up": "", "cooling_unit_supply_temperature_celsius": "", "cooling_unit_return_temperature_celsius": "",
	"cooling_unit_output_watt": "", "cooling_unit_fan_speed_ratio": "", "site_meter_energy_joules_total": "",
}

func TestContractNames(t *testing.T) {
	for name, label := range contract {
		q := byMetric[name]
		if q == nil {
			t.Errorf("no quantity gives %s", name)
			continue
		}
		var want []string
		if label != "" {
			want = []string{label}
		}
		if q.TextLabel != "" {
			want = append(want, q.TextLabel)
		}
		if !slices.Equal(q.Desc.Labels, want) || q.PartLabel != label {
			t.Errorf("%s has labels %v and part %q, want %q", name, q.Desc.Labels, q.PartLabel, label)
		}
	}
	for _, q := range Quantities() {
		if _, ok := contract[q.Desc.Name]; !ok && !strings.HasPrefix(q.Desc.Name, "ups_") {
			t.Errorf("%s is not in the contract", q.Desc.Name)
		}
		if counts := strings.HasSuffix(q.Desc.Name, "_total"); counts != (q.Desc.Type == collector.Counter) {
			t.Errorf("%s: type and suffix _total do not agree", q.Desc.Name)
		}
		if q.Desc.Max <= q.Desc.Min || q.Why == "" || len(q.Kinds) == 0 {
			t.Errorf("%s: no range gate, reason or kind", q.Desc.Name)
		}
	}
}

// TestPromlint holds the names to Prometheus' own linter. Singular ampere, volt
// and watt are the one expected exception: node_exporter's power supply family
// (node_power_supply_current_ampere) has set that custom.
func TestPromlint(t *testing.T) {
	store := collector.NewStore()
	snap := collector.Snapshot{Source: "lint", At: time.Now()}
	for _, q := range Quantities() {
		p := collector.Point{Desc: q.Desc, Value: max(0, q.Desc.Min)}
		if q.PartLabel != "" {
			p.Values = []string{"1"}
		}
		if q.TextLabel != "" {
			p.Values = append(p.Values, "a text")
		}
		snap.Points = append(snap.Points, p)
	}
	for _, d := range []*collector.Desc{descUp, descLastSample, descRefused} {
		snap.Points = append(snap.Points, collector.Point{Desc: d, Values: make([]string, len(d.Labels)), Value: 1})
	}
	store.Put(snap)
	families, err := store.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(quantities)+3 {
		t.Fatalf("%d families for %d quantities", len(families), len(quantities))
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		singular := strings.Contains(p.Metric, "_ampere") || strings.Contains(p.Metric, "_volt") || strings.Contains(p.Metric, "_watt")
		if !singular || !strings.Contains(p.Text, "base unit") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct{ quantity, kind, want string }{
		{"leak", site.KindPDU, "quantity leak belongs to a sensor or cooling_unit, not to a pdu"},
		{"phase_current", site.KindSensor, "quantity phase_current belongs to a pdu, not to a sensor"},
		{"meter_energy", site.KindPDU, "belongs to a meter"},
		{"leak", site.KindSensor, ""}, {"port_up", site.KindSwitch, ""}, {"leak", "", ""},
	} {
		q, err := lookup(c.quantity)
		if err != nil {
			t.Fatal(err)
		}
		err = q.allows(c.kind)
		if c.want == "" && err != nil {
			t.Errorf("%s on %s: %v", c.quantity, c.kind, err)
		}
		if c.want != "" {
			wantErr(t, err, c.want)
		}
	}
	_, err := lookup("inlet_temprature")
	wantErr(t, err, `unknown quantity "inlet_temprature"`, "inlet_temperature")
}

func TestParts(t *testing.T) {
	good := [][3]string{
		{"phase_current", "1", "1"}, {"phase_current", "L2", "2"}, {"phase_current", "l3", "3"}, {"phase_current", "A", "1"},
		{"phase_voltage", "AB", "1-2"}, {"phase_voltage", "L3-L1", "3-1"}, {"line_current", "C", "3"},
		{"outlet_power", "12", "12"}, {"port_up", "Ethernet1/1", "Ethernet1/1"}, {"power", "", ""},
		{"power_transients", "up", "up"},
	}
	for _, c := range good {
		q, _ := lookup(c[0])
		if got, err := q.part(c[1]); err != nil || got != c[2] {
			t.Errorf("%s %q: %q, %v; want %q", c[0], c[1], got, err, c[2])
		}
	}
	bad := [][3]string{
		{"phase_current", "4", "unknown phase"}, {"phase_current", "", "needs a part (its phase)"},
		{"line_current", "1-2", "unknown line"}, {"power", "1", "has no parts"},
		{"outlet_power", "a\nb", "not printable"}, {"outlet_power", strings.Repeat("x", 65), "at most 64 bytes"},
		{"outlet_power", "\xff", "not printable"}, {"power_transients", "left", "neither up nor down"},
	}
	for _, c := range bad {
		q, _ := lookup(c[0])
		_, err := q.part(c[1])
		wantErr(t, err, c[2])
	}
}

// TestGatesStopWrongScale checks the gates with values that real devices gave
// through a wrong scale or as "no value".
func TestGatesStopWrongScale(t *testing.T) {
	for _, c := range []struct {
		quantity string
		value    float64
		ok       bool
	}{
		{"inlet_temperature", 85, false},      // DS18B20 before its first conversion
		{"inlet_temperature", -127, false},    // DS18B20 disconnected
		{"inlet_temperature", -273.1, false},  // Eaton probe unplugged
		{"inlet_temperature", -5.7, true},     // a cold morning
		{"phase_current", 7467, false},        // Raritan milliampere
		{"phase_current", 65535, false},       // all ones
		{"phase_voltage", 2300, false},        // Sentry3 tenths
		{"phase_voltage", 277, true},          // 480 V wye
		{"power_factor", -0.946, true},        // Eaton, leading
		{"power_factor", 98, false},           // Raritan, scale not applied
		{"energy", 4294967295 * 3.6e5, false}, // all ones in tenths of kWh
		{"inlet_humidity", 41.3, false},       // percent
		{"current", -1, false},                // "not supported"
	} {
		q, err := lookup(c.quantity)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.value >= q.Desc.Min && c.value <= q.Desc.Max; got != c.ok {
			t.Errorf("%s %g passes: %v, want %v", c.quantity, c.value, got, c.ok)
		}
	}
}
