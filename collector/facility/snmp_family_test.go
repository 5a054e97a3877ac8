// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/site"
)

// family is one profile with a walk of a device and what a person would read
// off it.
type family struct {
	profile string
	walk    string // name of the walk; empty: the profile's
	device  string
	more    []string // of the block snmp
	want    string
}

var families = slices.Concat([]family{
	{profile: "apc-rpdu2", device: "r01-a", more: []string{"chain: {2: r01-b}", `sensors: [{sensor: "1.1", device: r01-in-top}, {sensor: "1.2", device: r01-out, measures: outlet_temperature}]`}, want: `
 branch_current[1] 16
 current 16
 energy 7.08372e+09
 outlet_current[1] 2.1
 outlet_power[1] 480
 phase_current[1] 16
 phase_current[2] 8
 phase_current[3] 12.5
 phase_power[1] 3640
 phase_power[2] 1810
 phase_power[3] 2840
 phase_power_factor[1] 0.99
 phase_power_factor[2] 0.98
 phase_power_factor[3] 0.99
 phase_voltage[1] 230
 phase_voltage[2] 230
 phase_voltage[3] 229
 power 8290
 power_factor 0.99
r01-b current 4.4
r01-b phase_current[1] 4.4
r01-b phase_power[1] 1000
r01-b phase_voltage[1] 230
r01-b power 1000
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 23.5
`},
	{profile: "apc-rpdu", device: "r01-a", want: `
 branch_current[1] 1.8
 branch_current[2] 1
 current 2.8
 outlet_current[1] 0.7
 phase_current[1] 2.8
 power 312
 power_factor 0.93
`},
	{profile: "raritan-pdu2", device: "r01-a", more: []string{`sensors: [{sensor: "1.1", device: r01-in-top}, {sensor: "1.2", device: r01-rh}, {sensor: "1.3", device: r01-out, measures: outlet_temperature}, {sensor: "1.5", device: row-a-leak}]`}, want: `
 branch_current[1] 6.2
 branch_current[2] 3.8
 current 10
 energy 1.08e+13
 line_current[1] 10
 line_current[2] 5
 line_current[3] 7.5
 neutral_current 4.33
 outlet_current[1] 0.633
 outlet_current[3] 0.63
 outlet_power[1] 143
 outlet_power[3] 140
 phase_current[1] 10
 phase_current[2] 5
 phase_current[3] 7.5
 phase_power[1] 2277
 phase_power[2] 1127
 phase_power[3] 1700
 phase_power_factor[1] 0.99
 phase_power_factor[2] 0.98
 phase_power_factor[3] -0.99
 phase_voltage[1] 230
 phase_voltage[1-2] 399
 phase_voltage[2] 230
 phase_voltage[2-3] 398
 phase_voltage[3] 229
 phase_voltage[3-1] 397
 power 5123
 power_factor 0.98
r01-in-top inlet_temperature 23.1
r01-out outlet_temperature 25
r01-rh inlet_humidity 0.38
row-a-leak leak 1
`},
	{profile: "ups-mib", device: "ups1", want: `
 ups_battery_charge 0.8
 ups_battery_runtime 1200
 ups_battery_temperature 25
 ups_input_voltage[1] 0
 ups_input_voltage[2] 0
 ups_load 0.66
 ups_on_battery 1
 ups_output_current[1] 10
 ups_output_current[2] 8
 ups_output_current[3] 9
 ups_output_phase_load[1] 0.66
 ups_output_phase_load[2] 0.53
 ups_output_phase_load[3] 0.59
 ups_output_phase_power[1] 2200
 ups_output_phase_power[2] 1750
 ups_output_phase_power[3] 1950
 ups_output_power 5900
 ups_output_voltage[1] 230
 ups_output_voltage[2] 231
 ups_output_voltage[3] 229
`},
	{profile: "if-mib", device: "tor1", want: `
 port_flaps[Ethernet1] 0
 port_flaps[Ethernet2] 0
 port_flaps[Old1] 0
 port_flaps[mgmt0] 0
 port_neighbor[Ethernet1] gpu001
 port_neighbor[Ethernet2] gpu002
 port_receive_bytes[Ethernet1] 1.000000000000001e+15
 port_receive_bytes[Ethernet2] 1.000000000000002e+15
 port_receive_bytes[mgmt0] 4.29496001e+09
 port_receive_discards[Ethernet1] 11
 port_receive_discards[Ethernet2] 12
 port_receive_discards[Old1] 21
 port_receive_discards[mgmt0] 20
 port_receive_errors[Ethernet1] 21
 port_receive_errors[Ethernet2] 22
 port_receive_errors[Old1] 31
 port_receive_errors[mgmt0] 30
 port_speed[Ethernet1] 1.25e+10
 port_speed[Ethernet2] 1.25e+10
 port_speed[Old1] 1.25e+08
 port_speed[mgmt0] 1.25e+07
 port_transmit_bytes[Ethernet1] 2.000000000000001e+15
 port_transmit_bytes[Ethernet2] 2.000000000000002e+15
 port_transmit_bytes[mgmt0] 7010
 port_transmit_discards[Ethernet1] 31
 port_transmit_discards[Ethernet2] 32
 port_transmit_discards[Old1] 41
 port_transmit_discards[mgmt0] 40
 port_transmit_errors[Ethernet1] 41
 port_transmit_errors[Ethernet2] 42
 port_transmit_errors[Old1] 51
 port_transmit_errors[mgmt0] 50
 port_up[Ethernet1] 1
 port_up[Ethernet2] 0
 port_up[Old1] 1
 port_up[mgmt0] 0
`},
}, pduFamilies, morePDUFamilies, climateFamilies)

func (f family) walkName() string { return cmp.Or(f.walk, f.profile) }

// TestFamilies reads a device of each family, once with the profile named and
// once by what the device says of itself. What electricity says of the values
// must hold.
func TestFamilies(t *testing.T) {
	for _, f := range families {
		t.Run(f.walkName(), func(t *testing.T) {
			a := newAgent(t, walkFile(t, f.walkName()))
			names := []string{f.profile, "auto"}
			if p, err := loadProfile(f.profile); err == nil && len(p.SNMP.Match) == 0 {
				names = names[:1] // it is only there to be named or included
			}
			for _, profile := range names {
				d := openOf(t, snmpEntry(t, f.device, profile, a.address(), f.more...))
				list, err := d.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := show(list); got != strings.TrimPrefix(f.want, "\n") {
					t.Errorf("profile %s: got\n%s\nwant%s", profile, got, f.want)
				}
				checks := 0
				for _, c := range crossCheck(list) {
					checks++
					if c.Implausible {
						t.Errorf("check %s of %q: %s", c.Check, c.Device, c.Text)
					}
				}
				if kind := hallKind(f.device); checks == 0 && (kind == site.KindPDU || kind == site.KindUPS) && f.profile != "apc-rpdu" && f.profile != "hpe-ipdu" {
					t.Error("no cross check was possible")
				}
			}
		})
	}
}

// TestUPSVariants: the same UPS behind cards that do not keep to the MIB.
func TestUPSVariants(t *testing.T) {
	index := regexp.MustCompile(`(33\.1\.(3\.3|4\.4)\.1\.\d\.\d)\|`)
	volts := regexp.MustCompile(`(33\.1\.(3\.3\.1\.3|4\.4\.1\.2)\.\d(\.0)?\|2\|.*)`)
	amps := regexp.MustCompile(`(33\.1\.4\.4\.1\.3\.\d\|2\|\d+)(0)`)
	for _, c := range []struct {
		objectID, descr, firmware string
		old                       *regexp.Regexp
		new                       string
	}{
		{"705.1.2", "MGE Galaxy 7000", "", volts, "${1}0"},
		{"705.1", "Eaton 5PX", "", nil, ""},
		{"2254.2.5", "", "", volts, "${1}0"},
		{"12551.4.0", "", "", amps, "${1}00"},
		{"850.1", "", "12.04.0056", amps, "${1}"},
		{"850.1", "", "12.06.0069", nil, ""},
		{"850.1", "", "12.06.0064", amps, "${1}"},
		{"850.1", "", "12.04.0055", nil, ""},
	} {
		walk := strings.NewReplacer("99999.1", c.objectID, "|4|2.1", "|4|"+c.firmware, "Some UPS", c.descr).Replace(walkFile(t, "ups-mib"))
		if c.old != nil {
			walk = c.old.ReplaceAllString(walk, c.new)
		}
		if strings.Contains(c.descr, "Galaxy") {
			walk = index.ReplaceAllString(walk, "${1}.0|")
		}
		list := mustRead(t, openSNMP(t, "ups1", "auto", newAgent(t, walk).address()))
		wantValue(t, list, "ups_output_current", "1", 10)
		wantValue(t, list, "ups_output_voltage", "1", 230)
		wantValue(t, list, "ups_output_voltage", "3", 229)
	}
}

// TestFamiliesAll: every profile for SNMP has a walk and a test.
func TestFamiliesAll(t *testing.T) {
	list, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, f := range families {
		tested[f.profile] = true
	}
	for _, p := range list {
		if p.SNMP != nil && !tested[p.Name] {
			t.Errorf("profile %s has no test in families", p.Name)
		}
	}
}

// TestFamiliesCovered: each value of each profile gives a reading of some walk,
// phases to neutral and between lines apart.
func TestFamiliesCovered(t *testing.T) {
	kind := func(q, part string) string {
		if byName[q].PartLabel == "phase" && strings.Contains(part, "-") {
			return q + " between lines"
		}
		return q
	}
	seen := map[string]bool{}
	for _, f := range families {
		r, err := ProbeSNMP(t.Context(), newAgent(t, walkFile(t, f.walkName())).address(), SNMPConfig{CommunityFile: communityFile(t)}, f.profile, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Values {
			if v.Value != nil {
				seen[v.Object+" "+kind(v.Quantity, v.Part)] = true
			}
		}
	}
	list, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.SNMP == nil {
			continue
		}
		for i := range p.SNMP.Tables {
			table := &p.SNMP.Tables[i]
			for _, v := range table.Values {
				_, parts := v.partOf(table)
				for _, part := range append(slices.Collect(maps.Values(parts)), "") {
					if (part == "") == (len(parts) > 0) {
						continue
					}
					key := v.Object + " " + kind(v.Quantity, part)
					if v.Signed != "" && seen[v.Signed+" "+kind(v.Quantity, part)] {
						continue
					}
					if !seen[key] {
						t.Errorf("profile %s: no walk shows %s", p.Name, key)
					}
				}
			}
		}
	}
}
