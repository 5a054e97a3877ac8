// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func textfileEntry(path, settings string) string {
	return fmt.Sprintf("facility:\n- device: r01-in-top\n  driver: textfile\n  interval: 1m\n  textfile:\n    path: %s\n%s", path, settings)
}

// written writes a file of a given age.
func written(t *testing.T, text string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "facility.prom")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTextfileOurNames(t *testing.T) {
	path := written(t, `# HELP rack_inlet_temperature_celsius Inlet.
# TYPE rack_inlet_temperature_celsius gauge
rack_inlet_temperature_celsius 23.5
rack_inlet_relative_humidity_ratio{sensor="r01-rh",rack_id="r01"} 0.413
pdu_outlet_power_watt{pdu_id="r01-a",outlet="7"} 812 1700000000000
pdu_energy_joules_total{pdu_id="r01-a"} 9e6
site_meter_energy_joules_total{meter="main"} 1.5e12
switch_port_up{switch="tor1",port="Ethernet1"} 1
node_load1 0.3
pdu_power_watt{pdu_id="r01-a"} NaN
`, 10*time.Second)
	d := openOf(t, textfileEntry(path, ""))
	got, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := `main meter_energy 1.5e+12
r01-a energy 9e+06
r01-a outlet_power[7] 812
r01-in-top inlet_temperature 23.5
r01-rh inlet_humidity 0.413
tor1 port_up[Ethernet1] 1
`
	if text := show(got); text != want {
		t.Errorf("got\n%swant\n%s", text, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		at := info.ModTime()
		if r.Quantity == "outlet_power" {
			at = time.Unix(1700000000, 0)
		}
		if !r.At.Equal(at) {
			t.Errorf("%s is of %s, want %s", r.Quantity, r.At, at)
		}
	}
}

func TestTextfileMapping(t *testing.T) {
	path := written(t, `hwmon_temp{chip="a",sensor="1"} 70.7
hwmon_temp{chip="b",sensor="1"} 99
snmp_outlet_decawatt{index="1"} 12
snmp_outlet_decawatt{index="2"} 65535
`, 0)
	d := openOf(t, textfileEntry(path, `    fields:
    - {name: hwmon_temp, match: {chip: a}, quantity: inlet_temperature, unit: fahrenheit}
    - {name: snmp_outlet_decawatt, part_label: index, quantity: outlet_power, scale: 10, sentinels: [65535], device: r01-a}
`))
	got, err := d.Read(t.Context())
	// 70.7 F is 21.5 C.
	if err != nil || show(got) != "r01-a outlet_power[1] 120\nr01-in-top inlet_temperature 21.5\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

func TestTextfileLines(t *testing.T) {
	d := openOf(t, textfileEntry(written(t, "# made by cron\nt=23.5\nh=41.3\n", 0), kvFields))
	if got, err := d.Read(t.Context()); err != nil || show(got) != "r01-in-top inlet_temperature 23.5\nr01-rh inlet_humidity 0.413\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

// TestTextfileErrors: what cannot be read as a whole gives nothing, and says
// where it is wrong.
func TestTextfileErrors(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	good := "rack_inlet_temperature_celsius 20\n"
	for _, c := range []struct{ name, path, settings, want string }{
		{"broken line", written(t, good+"rack_outlet_temperature_celsius{ 20\n", 0), "", "line 2"},
		{"half written", written(t, good+"rack_outlet_temperature_celsius 2", 0), "", "line 2"},
		{"half written number", written(t, "t=23.5\nh=4", 0), kvFields, "the last line has no end"},
		{"half written json", written(t, `{"t": 2`, 0), "    format: json" + climateFields, "document 1: unexpected EOF"},
		{"broken value", written(t, "t=23.5\nh=?\n", 0), kvFields, "line 2"},
		{"empty", written(t, "", 0), "", "no facility metric and no configured field"},
		{"nothing of ours", written(t, "node_load1 1\n", 0), "", "no facility metric"},
		{"stale", written(t, good, 200*time.Second), "", "is stale: written 3m20s ago, max_age is 3m0s"},
		{"stale by choice", written(t, good, 45*time.Second), "    max_age: 30s\n", "is stale: written 45s ago, max_age is 30s"},
		{"too large", written(t, strings.Repeat("# filler\n", 120_000), 0), "", "is larger than 1048576 bytes"},
		{"directory", dir, "", "is not a regular file"},
		{"pipe", pipe, "", "is not a regular file"},
		{"absent", filepath.Join(dir, "absent"), "", "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := openOf(t, textfileEntry(c.path, c.settings)).Read(t.Context())
			wantErr(t, err, c.want, c.path)
			if len(got) > 0 {
				t.Errorf("readings %v", got)
			}
		})
	}
}

// TestTextfileReplaced: the way files should be written, through a rename and
// even through a symlink.
func TestTextfileReplaced(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "current.prom")
	d := openOf(t, textfileEntry(link, ""))
	for i := 1; i <= 3; i++ {
		file := filepath.Join(dir, fmt.Sprint("version", i))
		if err := os.WriteFile(file, fmt.Appendf(nil, "rack_inlet_temperature_celsius %d\n", 20+i), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("r01-in-top inlet_temperature %d\n", 20+i)
		if got, err := d.Read(t.Context()); err != nil || show(got) != want {
			t.Errorf("%s %v", show(got), err)
		}
	}
}

func TestTextfileConfigErrors(t *testing.T) {
	for settings, want := range map[string]string{
		"    max_age: 5m\n":                                                     "max_age 5m0s is over 3m0s",
		"    max_age: -1s\n":                                                    "max_age -1s",
		"    format: prometheus\n    regexp: x\n":                               "not for format prometheus",
		"    fields: [{column: 1, quantity: inlet_temperature}]\n":              "format prometheus needs a name",
		"    fields: [{name: x, part_label: y, quantity: inlet_temperature}]\n": "part_label does not go with quantity inlet_temperature",
		"    format: lines\n    fields: [{name: x, quantity: leak}]\n":          `format "lines"`,
	} {
		_, err := planOf(t, textfileEntry("/run/x.prom", settings))
		wantErr(t, err, want)
	}
	_, err := planOf(t, textfileEntry("x.prom", ""))
	wantErr(t, err, `path "x.prom" is not absolute`)
}
