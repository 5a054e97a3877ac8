// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"strings"
	"testing"
)

// TestProfilesLoad: every embedded profile is valid and belongs to a driver.
func TestProfilesLoad(t *testing.T) {
	list, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("no profiles")
	}
	for _, p := range list {
		if len(p.Sources) == 0 {
			t.Errorf("profile %s names no sources", p.Name)
		}
	}
	if _, err := loadProfile("apc-rpdu9"); err == nil || !strings.Contains(err.Error(), "apc-rpdu2") {
		t.Errorf("an unknown profile: %v", err)
	}
}

// sound is a profile with nothing wrong; the faults are made of it.
const sound = `about: A test device
kind: pdu
snmp:
  match: [{sys_object_id: 1.3.6.1.4.1.99, model: ^X, firmware: ">=2 <3.1"}]
  model: model
  firmware: firmware
  tables:
  - entry: 1.3.6.1.4.1.99.1
    columns: {model: 1, firmware: 2, flag: 3, watts: 4}
    values:
    - {object: watts, quantity: power, unit: watt, scale: 1}
  - entry: 1.3.6.1.4.1.99.2
    index: [unit, phase]
    chain: "{unit}"
    columns: {amps: 1, state: 2, digits: 1.3.6.1.4.1.99.7.1}
    values:
    - {object: amps, quantity: phase_current, part: "{phase}", unit: ampere, digits: digits, where: {state: [1, 2]}}
  - entry: 1.3.6.1.4.1.99.3
    index: [unit, probe]
    sensor: "{unit}.{probe}"
    columns: {temp: 1}
    values:
    - {object: temp, quantity: inlet_temperature, unit_from: {object: flag, values: {0: celsius, 1: fahrenheit}}, scale: 0.1}
modbus:
  registers:
  - {address: 0, function: input, type: float32, quantity: power, unit: watt, scale: 1}
derived:
- {quantity: current, highest: phase_current}
`

// TestProfileFaults: each fault is found, with its line.
func TestProfileFaults(t *testing.T) {
	if _, err := parseProfile("x.yml", []byte(sound)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"about: A test device", "about: ''", "x.yml:1: about is missing"},
		{"kind: pdu", "kind: toaster", `x.yml:2: kind "toaster" is none of`},
		{"kind: pdu", "kind: pdu\nsmnp: {}", `x.yml:3: unknown key "smnp"`},
		{"quantity: power, unit: watt, scale: 1}\n  - entry", "quantity: powr, unit: watt, scale: 1}\n  - entry", `x.yml:11: unknown quantity "powr"`},
		{"{object: watts, quantity: power, unit: watt, scale: 1}", "{object: watts, quantity: power, unit: watt}", "x.yml:11: scale is missing: the factor from the raw number to watt"},
		{"{object: watts, quantity: power, unit: watt, scale: 1}", "{object: watts, quantity: power, scale: 1}", "x.yml:11: unit is missing"},
		{"{object: watts, quantity: power, unit: watt, scale: 1}", "{object: watts, quantity: power, unit: volt, scale: 1}", `x.yml:11: unit "volt" does not measure watt`},
		{"{object: watts, quantity: power, unit: watt, scale: 1}", "{object: watts, quantity: power, unit: watt, scale: 0}", "x.yml:11: scale 0 is not"},
		{"object: watts", "object: wats", `x.yml:11: "wats" is neither an index of the table nor an object`},
		{"entry: 1.3.6.1.4.1.99.1\n", "entry: 1.3.6.1..4\n", `x.yml:8: entry "1.3.6.1..4" is no OID`},
		{"watts: 4", "watts: four", `x.yml:9: object watts: "four" is neither a column number nor an OID`},
		{"{amps: 1,", "{watts: 1,", "object watts is in two tables"},
		{"{amps: 1,", "{amps: 1, amps: 2,", `x.yml:15: mapping key "amps" already defined`},
		{"part: \"{phase}\"", "part: \"{phases}\"", `x.yml:17: "phases" is neither an index`},
		{"part: \"{phase}\"", "part: \"{phase\"", "x.yml:17: \"{phase\": braces do not match"},
		{", part: \"{phase}\"", "", "x.yml:17: quantity phase_current needs a part (its phase)"},
		{"index: [unit, phase]", "instance: 1\n    index: [unit, phase]", `instance "1": want numbers such as 1, and no index beside it`},
		{"sensor: \"{unit}.{probe}\"", "where: {unit: 1}", "x.yml:23: quantity inlet_temperature belongs to a sensor, not to a pdu"},
		{"0: celsius", "0: kilocelsius", `x.yml:23: unit_from: unit "kilocelsius" is unknown`},
		{"unit_from: {object: flag", "unit_from: {object: temp2", `x.yml:23: "temp2" is neither`},
		{"where: {state: [1, 2]}", "where: {states: [1, 2]}", `x.yml:17: "states" is neither an index`},
		{"sys_object_id: 1.3.6.1.4.1.99,", "", "x.yml:4: match: sys_object_id or has is needed"},
		{"model: ^X", "model: '(X'", "x.yml:4: model: error parsing regexp"},
		{">=2 <3.1", "2 to 3", `x.yml:4: firmware: "2" is no bound`},
		{"model: model", "model: models", `x.yml:5: unknown object "models"`},
		{"highest: phase_current", "highest: power", "x.yml:28: current (ampere) cannot be made of the parts of power (watt)"},
		{"highest: phase_current", "sum: phase_power", "x.yml:28: current (ampere) cannot be made of the parts of phase_power (watt)"},
		{"function: input", "function: coil", `x.yml:26: function "coil" is neither`},
		{"type: float32", "type: float31", `x.yml:26: type "float31" is unknown`},
		{"address: 0", "address: 65535", "x.yml:26: address 65535 is not"},
	} {
		text := strings.Replace(sound, c.old, c.new, 1)
		if text == sound {
			t.Fatalf("%q is not in the profile", c.old)
		}
		_, err := parseProfile("x.yml", []byte(text))
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.new, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error is\n  %v\nwant\n  %s", c.new, err, c.want)
		}
	}
}

// TestVersionRange: firmware texts of devices against ranges.
func TestVersionRange(t *testing.T) {
	for _, c := range []struct {
		bounds, have string
		want         bool
	}{
		{">=3 <4.1", "v4.0.9", true},
		{">=3 <4.1", "4.1", false},
		{">=3 <4.1", "AOS 2.9.99", false},
		{"=3.5", "v3.5.0", true},
		{">3.5", "v3.5.0", false},
		{"<=3.10", "v3.9", true},
		{">1", "none", false},
	} {
		r, err := parseVersionRange(c.bounds)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.holds(c.have); got != c.want {
			t.Errorf("%s holds for %q: %v", c.bounds, c.have, got)
		}
	}
}
