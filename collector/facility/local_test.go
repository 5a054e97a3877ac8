// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"os"
	"path/filepath"
	"testing"
)

// sysfs writes files below a root.
func sysfs(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, "sys", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The bytes of w1_slave are a DS18B20's scratchpad: 0x0158 sixteenths of a
// degree are 21.5.
func TestLocal(t *testing.T) {
	root := t.TempDir()
	sysfs(t, root, map[string]string{
		"bus/w1/devices/28-000000000001/w1_slave":    "58 01 4b 46 7f ff 0c 10 5e : crc=5e YES\n58 01 4b 46 7f ff 0c 10 5e t=21500\n",
		"bus/w1/devices/28-000000000002/temperature": "-5687\n",
		"class/hwmon/hwmon0/name":                    "coretemp\n",
		"class/hwmon/hwmon0/temp1_input":             "61000\n",
		"class/hwmon/hwmon3/name":                    "nct6775\n",
		"class/hwmon/hwmon3/temp1_input":             "33000\n",
		"class/hwmon/hwmon3/temp7_input":             "27250\n",
		"class/hwmon/hwmon3/temp7_label":             "SYSTIN\n",
	})
	d := openOf(t, `facility:
- device: r01-in-top
  driver: local
  local:
    root: `+root+`
    sensors:
    - {w1: 28-000000000001, quantity: inlet_temperature}
    - {w1: 28-000000000002, device: r01-out, quantity: outlet_temperature}
    - {hwmon: nct6775/SYSTIN, device: r01-rh, quantity: inlet_temperature}
    - {hwmon: nct6775/temp1, device: crah1, quantity: return_temperature}
`)
	wantText(t, read(t, d), `crah1 return_temperature 33
r01-in-top inlet_temperature 21.5
r01-out outlet_temperature -5.687
r01-rh inlet_temperature 27.25
`)
	// The value after power-on and that of an open line are none, and a wrong
	// checksum is an error; the others stay.
	for text, want := range map[string]string{
		"50 05 4b 46 7f ff 0c 10 1c : crc=1c YES\n50 05 4b 46 7f ff 0c 10 1c t=85000\n": "",
		"ff ff : crc=c9 YES\nff ff t=-127000\n":                                         "",
		"00 00 : crc=00 NO\n00 00 t=0\n":                                                "1-wire 28-000000000001: wrong checksum",
		"":                                                                              "wrong checksum",
		"x YES\n":                                                                       "no temperature",
		"x YES\nt=abc\n":                                                                `"abc" is no number`,
	} {
		sysfs(t, root, map[string]string{"bus/w1/devices/28-000000000001/w1_slave": text})
		list, err := d.Read(t.Context())
		if want != "" {
			wantErr(t, err, want)
		} else if err != nil {
			t.Error(err)
		}
		wantText(t, show(list), "crah1 return_temperature 33\nr01-out outlet_temperature -5.687\nr01-rh inlet_temperature 27.25\n")
	}
	for _, gone := range []string{"bus/w1/devices/28-000000000002", "class/hwmon/hwmon3"} {
		if err := os.RemoveAll(filepath.Join(root, "sys", gone)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := d.Read(t.Context())
	wantErr(t, err, "1-wire 28-000000000002: ", "no such file", "no chip nct6775 with SYSTIN", "no chip nct6775 with temp1")
	if len(list) > 0 {
		t.Errorf("values of nothing: %s", show(list))
	}
}

func TestLocalConfigErrors(t *testing.T) {
	for sensor, want := range map[string]string{
		"{quantity: inlet_temperature}":                                                        "want one of w1, hwmon and hidraw",
		"{w1: ../../etc, quantity: inlet_temperature}":                                         "is no id of a thermometer",
		"{hwmon: a, quantity: inlet_temperature}":                                              "is not chip/channel",
		"{hwmon: a/temp1, quantity: inlet_humidity}":                                           "is no temperature",
		"{hidraw: hidraw0, quantity: inlet_temperature}":                                       "is no absolute path",
		"{hidraw: /dev/hidraw0, probe: 3, quantity: inlet_temperature}":                        "a hidraw has 1 and 2",
		"{hwmon: a/temp1, probe: 1, quantity: inlet_temperature}":                              "a hidraw has 1 and 2",
		"{hidraw: /dev/hidraw0, quantity: leak}":                                               "is no temperature",
		"{hwmon: a/temp1, quantity: supply_temperature}":                                       "belongs to a cooling_unit",
		"{hwmon: a/temp1, quantity: inlet_temperature, part: 1}":                               "agent.yml:4: unknown key",
		"{hwmon: a/1, quantity: inlet_temperature}, {hwmon: a/2, quantity: inlet_temperature}": "sensors[1]: inlet_temperature of r01-in-top is given twice",
	} {
		_, err := planOf(t, "facility:\n- device: r01-in-top\n  driver: local\n  local: {sensors: ["+sensor+"]}\n")
		wantErr(t, err, want)
	}
}
