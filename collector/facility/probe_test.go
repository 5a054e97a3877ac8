// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProbe: a probe shows everything with its origin, also what belongs to
// sensors and units that no configuration names.
func TestProbe(t *testing.T) {
	walk := strings.ReplaceAll(walkFile(t, "apc-rpdu2"), "6.3.1.5.2|2|80", "6.3.1.5.2|2|800") // phase 2: ten times the current
	a := newAgent(t, walk)
	c := SNMPConfig{CommunityFile: communityFile(t)}
	r, err := ProbeSNMP(t.Context(), a.address(), c, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if r.Profile != "apc-rpdu2" || r.Kind != "pdu" || r.Model != "AP8886" || r.Firmware != "v6.5.0" || r.SysObjectID != "1.3.6.1.4.1.318.1.3.4.6" || len(r.Errors) > 0 {
		t.Errorf("the device is %+v", r)
	}
	lines := map[string]bool{}
	for _, v := range r.Values {
		value := "-"
		if v.Value != nil {
			value = round(*v.Value)
		}
		lines[strings.TrimSpace(fmt.Sprintf("%s|%s|%s|%s|%s|%g %s|%s|%s", v.Owner, v.Quantity, v.Part, value, v.Raw, v.Factor, v.Unit, v.Object, v.Note))] = v.Implausible
	}
	for line, implausible := range map[string]bool{
		"|power||8290|829|0.01 kilowatt|rPDU2DeviceStatusPower|":                                      false,
		"|phase_current|2|80|800|0.1 ampere|rPDU2PhaseStatusCurrent|":                                 false,
		"|current||80||0 ||derived":                                                                   false,
		"unit 2|power||1000|100|0.01 kilowatt|rPDU2DeviceStatusPower|":                                false,
		"unit 2|power_factor||-|-1|1 ratio|rPDU2DeviceStatusPowerFactor|the device says -1":           false,
		"sensor 1.1|inlet_temperature||23.5|235|0.1 celsius|rPDU2SensorTempHumidityStatusTempC|":      false,
		"sensor 1.1|inlet_humidity||0.41|41|1 percent|rPDU2SensorTempHumidityStatusRelativeHumidity|": false,
	} {
		if got, there := lines[line]; !there || got != implausible {
			t.Errorf("no line %s (implausible %v) in\n%v", line, implausible, lines)
		}
	}
	found := false
	for _, check := range r.Checks {
		if check.Check == checkPhasePower && check.Owner == "" {
			found = check.Implausible && strings.Contains(check.Text, "phase 2: 1810 W, but V*I*PF is 18032 W")
		}
	}
	if !found {
		t.Errorf("the wrong current is not found: %+v", r.Checks)
	}
}

// TestProbeErrors name the host, or the file.
func TestProbeErrors(t *testing.T) {
	c := SNMPConfig{CommunityFile: communityFile(t), Timeout: 20 * time.Millisecond, Retries: new(int)}
	_, err := ProbeSNMP(t.Context(), "127.0.0.1:9", c, "", "")
	wantErr(t, err, "127.0.0.1:9: no SNMP agent listens there")
	_, err = ProbeSNMP(t.Context(), newAgent(t, sysDescr+"|4|A toaster").address(), c, "", "")
	wantErr(t, err, "no profile fits a device with sysObjectID missing (A toaster)")
	file := filepath.Join(t.TempDir(), "own.yml")
	if err := os.WriteFile(file, []byte("about: x\nkind: pdu\nsnmp: {tables: [{entry: 1.3.6, columns: {a: 1}, values: [{object: a, quantity: power}]}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ProbeSNMP(t.Context(), "127.0.0.1:9", c, "", file)
	wantErr(t, err, file+":3: unit is missing")
}

// TestUnlikely: what a person would not believe. A chip of 60 C in a switch is
// no fault, the inlet of a rack of 60 C is one.
func TestUnlikely(t *testing.T) {
	for _, c := range []struct {
		quantity string
		value    float64
		owner    string
		want     bool
	}{
		{"phase_voltage", 230, "", false}, {"phase_voltage", 23, "", true}, {"phase_voltage", 0, "", false}, {"ups_output_voltage", 2300, "", true},
		{"phase_current", 160, "", true}, {"phase_current", 63, "", false}, {"ups_output_current", 800, "", false},
		{"inlet_temperature", 235, "", true}, {"inlet_temperature", 23.5, "", false},
		{"inlet_temperature", 60, "sensor 11", false}, {"inlet_temperature", 60, "", true}, {"inlet_temperature", 2.35, "sensor 11", true},
	} {
		if got := unlikely(byName[c.quantity], c.value, c.owner) != ""; got != c.want {
			t.Errorf("%s %v of %q is unlikely: %v", c.quantity, c.value, c.owner, got)
		}
	}
}

// TestCrossCheck: each check against a factor that is wrong and values that are
// only rounded.
func TestCrossCheck(t *testing.T) {
	for name, c := range map[string]struct {
		values string // quantity[part]=value
		want   string // the checks that fail
	}{
		"sound":                     {"power[]=690 phase_current[1]=3 phase_voltage[1]=230 phase_power[1]=690", ""},
		"rounded at a low load":     {"power[]=30 phase_current[1]=0.1 phase_voltage[1]=230 phase_power[1]=0 phase_power_factor[1]=1", ""},
		"current ten times":         {"phase_current[1]=30 phase_voltage[1]=230 phase_power[1]=690 phase_power_factor[1]=1", "phase_power"},
		"current a tenth":           {"phase_current[1]=0.3 phase_voltage[1]=230 phase_power[1]=690", "phase_power"},
		"power by the wrong root":   {"phase_current[1]=3 phase_voltage[1]=230 phase_power[1]=398 phase_power_factor[1]=1", "phase_power"},
		"a leading power factor":    {"phase_current[1]=3 phase_voltage[1]=230 phase_power[1]=650 phase_power_factor[1]=-0.946", ""},
		"no current":                {"phase_voltage[1]=230 phase_power[1]=690", ""},
		"sum above the total":       {"power[]=1000 phase_power[1]=700 phase_power[2]=700", "power_sum"},
		"total in tenths":           {"power[]=140 phase_power[1]=700 phase_power[2]=700", "power_sum"},
		"spelled otherwise":         {"power[]=1400 phase_power[L1]=700 phase_current[A]=3.1 phase_voltage[1]=230 phase_power[L2]=700", ""},
		"outlets above":             {"power[]=1000 outlet_power[1]=900 outlet_power[2]=900", "outlet_sum"},
		"outlets below":             {"power[]=1000 outlet_power[1]=90", ""},
		"total against the phases":  {"power[]=690 phase_current[1]=30 phase_voltage[1]=230 power_factor[]=1", "total_power"},
		"total with unknown factor": {"power[]=690 phase_current[1]=3 phase_voltage[1]=230 phase_current[2]=1 phase_voltage[2]=230", ""},
		"a voltage is missing":      {"power[]=690 phase_current[1]=30 phase_current[2]=1 phase_voltage[1]=230", ""},
		"UPS in tenths":             {"ups_output_voltage[1]=2300 ups_output_current[1]=10 ups_output_phase_power[1]=2200", "ups_power"},
		"UPS":                       {"ups_output_voltage[1]=230 ups_output_current[1]=10 ups_output_phase_power[1]=1500", ""},
	} {
		var list []Reading
		for _, word := range strings.Fields(c.values) {
			var r Reading
			name, number, _ := strings.Cut(word, "=")
			r.Quantity, r.Part, _ = strings.Cut(strings.TrimSuffix(name, "]"), "[")
			if _, err := fmt.Sscan(number, &r.Value); err != nil {
				t.Fatal(err)
			}
			list = append(list, r)
		}
		var failed []string
		for _, r := range crossCheck(list) {
			if r.Implausible {
				failed = append(failed, r.Check)
			}
		}
		if got := strings.Join(failed, " "); got != c.want {
			t.Errorf("%s: failed %q, want %q", name, got, c.want)
		}
	}
}
