// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// read reads a driver once and wants no error.
func read(t testing.TB, d Driver) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := d.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return show(list)
}

func wantText(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The currents are those of the inlet's lines (the neutral is no line), 10400.25
// kWh of lifetime energy are 37440.9 MJ, and branch B2 has only a line current.
const pduReadings = ` branch_current[B1] 10.4
 branch_current[B2] 11.2
 current 11.2
 energy 3.74409e+10
 line_current[1] 10.4
 line_current[2] 11.2
 line_current[3] 9.6
 neutral_current 1.39
 phase_current[1] 10.4
 phase_current[2] 11.2
 phase_current[3] 9.6
 phase_current_rated[1] 32
 phase_current_rated[2] 32
 phase_current_rated[3] 32
 phase_power[1] 2330.328
 phase_power[2] 2504.152
 phase_power[3] 2139.8976
 phase_voltage[1] 231
 phase_voltage[1-2] 399.6
 phase_voltage[2] 230.5
 phase_voltage[2-3] 398.6
 phase_voltage[3] 229.8
 phase_voltage[3-1] 399.1
 power 6974.4
 power_factor 0.97
`

const outletReadings = ` outlet_current[1] 3.2
 outlet_current[2] 0
 outlet_power[1] 716.1
 outlet_power[2] 0
`

func withOutlets(text string) string {
	return strings.Replace(text, " phase_current[1]", outletReadings+" phase_current[1]", 1)
}

func TestRedfishPDU(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	d := openOf(t, m.entry("r01-a"))
	wantText(t, read(t, d), pduReadings) // the mock does not expand: no outlets

	m.with(func() { m.expand = true })
	d = openOf(t, m.entry("r01-a"))
	m.with(func() { m.gets = nil })
	wantText(t, read(t, d), withOutlets(pduReadings))
	if len(m.gets) != 4 { // metrics, mains, branches, outlets
		t.Errorf("a read took %d requests: %v", len(m.gets), m.gets)
	}
	m.with(func() { m.expand = false })
	d = openOf(t, m.entry("r01-a", "outlets: true",
		`sensors: [{uri: /redfish/v1/Chassis/left/Sensors/Probe1, device: r01-in-top, quantity: inlet_temperature},`,
		` {uri: /redfish/v1/Chassis/left/Sensors/Hum1, device: r01-rh, quantity: inlet_humidity}]`))
	wantText(t, read(t, d), withOutlets(pduReadings)+"r01-in-top inlet_temperature 23.6\nr01-rh inlet_humidity 0.415\n")
	m.set("/redfish/v1/Chassis/left/Sensors/Probe1", `{"ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": null}`)
	if got := read(t, d); strings.Contains(got, "inlet_temperature") {
		t.Errorf("null is not absent: %s", got)
	}
}

// A load between lines makes the current of a phase another one than that of a
// line, and its power adds to those to neutral.
func TestRedfishDelta(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	const unit = "/redfish/v1/PowerEquipment/RackPDUs/left"
	m.set(unit+"/Metrics", `{"PowerWatts": null, "EnergykWh": {"Reading": "2"}}`)
	m.set(unit+"/Mains/AC", `{"Id": "AC", "PolyPhaseCurrentAmps": {"Line1": {"Reading": 8}, "Line2": 9.5, "Line3": {"Reading": 7}},
		"PolyPhasePowerWatts": {"Line1ToLine2": {"Reading": 700.5}, "Line2ToLine3": {"Reading": 710}, "Line1ToNeutral": {"Reading": 100}}}`)
	d := openOf(t, m.entry("r01-a"))
	got := read(t, d)
	for _, line := range []string{" power 1510.5\n", " current 9.5\n", " line_current[2] 9.5\n", " energy 7.2e+06\n", " phase_power[1-2] 700.5\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	if strings.Contains(got, "phase_current[") {
		t.Errorf("line currents are taken for phase currents:\n%s", got)
	}
}

// A shelf with two inlets: lines and phases only of the inlet that is named.
func TestRedfishTwoInlets(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	const unit = "/redfish/v1/PowerEquipment/RackPDUs/left"
	m.set(unit+"/Mains", `{"Members": [{"@odata.id": "`+unit+`/Mains/AC"}, {"@odata.id": "`+unit+`/Mains/AC2"}]}`)
	m.set(unit+"/Mains/AC", `{"Id": "AC", "Voltage": {"Reading": 230}, "CurrentAmps": {"Reading": 12}, "PowerWatts": {"Reading": 2700}}`)
	m.set(unit+"/Mains/AC2", `{"Id": "AC2", "Voltage": {"Reading": 229}, "CurrentAmps": {"Reading": 13}, "PowerWatts": {"Reading": 2900}}`)
	m.set(unit+"/Metrics", `{}`)
	m.set(unit+"/Branches", `{}`)
	wantText(t, read(t, openOf(t, m.entry("r01-a"))), " current 13\n power 5600\n")
	wantText(t, read(t, openOf(t, m.entry("r01-a", "mains: AC2"))),
		" current 13\n line_current[1] 13\n phase_current[1] 13\n phase_power[1] 2900\n phase_voltage[1] 229\n power 5600\n")
}

func TestRedfishCooling(t *testing.T) {
	m := newRedfishMock(t, "cdu.json")
	d := openOf(t, m.entry("crah1", "leak_sensors: {Base: row-a-leak}"))
	const want = ` cooling_output 80000
 cooling_up 1
 fan_speed 0.625
 leak 1
 return_temperature 43
 supply_temperature 31.9
row-a-leak leak 0
`
	wantText(t, read(t, d), want)
	const unit = "/redfish/v1/ThermalEquipment/CDUs/1"
	m.set(unit, `{"Id": "1", "Status": {"State": "StandbyOffline"}}`)
	m.set(unit+"/LeakDetection/LeakDetectors/Tray", `{"Id": "Tray", "DetectorState": "OK"}`)
	for i := range 2 {
		m.set(fmt.Sprintf("%s/SecondaryCoolantConnectors/%d", unit, i+1), `{"HeatRemovedkW": {"Reading": null}}`)
	}
	got := read(t, d)
	wantText(t, got, " cooling_output 79000\n cooling_up 0\n fan_speed 0.625\n leak 0\nrow-a-leak leak 0\n")
	// Other units have their detectors inside the LeakDetection.
	m.set(unit, `{"Status": {"State": "Enabled"}, "LeakDetection": {"@odata.id": "`+unit+`/LeakDetection"}}`)
	m.set(unit+"/LeakDetection", `{"LeakDetectorGroups": [{"Detectors": [
		{"DataSourceUri": "/redfish/v1/Chassis/CDU/LeakDetectors/Base", "DetectorState": "Warning"},
		{"DeviceName": "Rope", "DetectorState": "OK"}, {"DeviceName": "Spare", "DetectorState": null}]}]}`)
	wantText(t, read(t, openOf(t, m.entry("crah1", "leak_sensors: {Base: row-a-leak}"))), " cooling_up 1\n leak 0\nrow-a-leak leak 1\n")
}

func TestRedfishServer(t *testing.T) {
	m := newRedfishMock(t, "server.json")
	const chassis = "/redfish/v1/Chassis/Self"
	check := func(want string) {
		t.Helper()
		wantText(t, read(t, openOf(t, m.entry("r01-in-top", "node: gpu001"))), want)
	}
	check(" inlet_temperature 24.25\n node_power[gpu001] 6540\n")
	// Without the new subsystems' values the old resources are read; 0 W of a
	// chassis that answers is no measurement.
	m.set(chassis+"/ThermalSubsystem/ThermalMetrics", "null")
	m.set(chassis+"/EnvironmentMetrics", `{"PowerWatts": {"Reading": null}}`)
	check(" inlet_temperature 25\n node_power[gpu001] 6510.5\n")
	// Then the sensor at the intake, and the sum of the power supplies.
	m.set(chassis, strings.Replace(strings.Replace(string(m.resources[chassis]), `"Thermal"`, `"NoThermal"`, 1), `"Power"`, `"NoPower"`, 1))
	check(" inlet_temperature 22.75\n node_power[gpu001] 3111\n")
	wantText(t, read(t, openOf(t, m.entry("r01-in-top"))), " inlet_temperature 22.75\n")
}

// One session serves all reads; a service that forgot it is logged in to again,
// and it is closed at the end. Never are there more than two requests at a time.
func TestRedfishSession(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	plan, err := planOf(t, m.entry("r01-a"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := plan.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wantText(t, read(t, d), pduReadings)
	}
	if m.logins != 1 {
		t.Errorf("%d logins for three reads", m.logins)
	}
	m.with(func() { clear(m.tokens) })
	wantText(t, read(t, d), pduReadings)
	if m.logins != 2 || m.most > redfishParallel {
		t.Errorf("%d logins, %d requests at a time", m.logins, m.most)
	}
	if err := d.Close(); err != nil || m.logouts != 1 {
		t.Errorf("%d logouts, %v", m.logouts, err)
	}
	m.with(func() { m.sessions = false })
	wantText(t, read(t, openOf(t, m.entry("r01-a"))), pduReadings)
}

// A fault in one resource costs no other; one that vanished is looked for again.
func TestRedfishFaults(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	d := openOf(t, m.entry("r01-a"))
	fail := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := d.Read(ctx)
		wantErr(t, err, want)
		if !strings.Contains(show(list), " power 6974.4\n") {
			t.Errorf("the other values are lost: %s", show(list))
		}
	}
	const branch = "/redfish/v1/PowerEquipment/RackPDUs/left/Branches/B1"
	m.set(branch, `{"Id": "B1", "CurrentAmps": {"Reading"`)
	m.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == branch {
			_, _ = w.Write([]byte(`{"Id": "B1", "CurrentAmps": {"Reading"`))
		}
		return r.URL.Path == branch
	}
	fail("redfish GET " + branch + ": unexpected end of JSON input")
	m.with(func() {
		m.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != branch {
				return false
			}
			_, _ = w.Write(make([]byte, maxRedfishBody+1))
			return true
		}
	})
	fail("larger than 4 MiB")
	m.with(func() {
		m.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == branch {
				http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
			}
			return r.URL.Path == branch
		}
	})
	fail("redirected to elsewhere.example")
	m.with(func() { m.before = nil })
	m.set(branch, "null")
	m.set("/redfish/v1/PowerEquipment/RackPDUs/left/Branches", `{"Members": []}`)
	fail("redfish GET " + branch + ": 404 Not Found")
	if got := read(t, d); strings.Contains(got, "branch") {
		t.Errorf("a removed branch is still there: %s", got)
	}
	m.CloseClientConnections()
	m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	list, err := d.Read(ctx)
	wantErr(t, err, "connection refused")
	if len(list) > 0 {
		t.Errorf("values of a dead service: %s", show(list))
	}
}

// A service that hangs is left at the deadline.
func TestRedfishHangs(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	d := openOf(t, m.entry("r01-a"))
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	m.with(func() { m.before = func(http.ResponseWriter, *http.Request) bool { <-stop; return true } })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := d.Read(ctx)
	wantErr(t, err, "no answer in time")
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestRedfishLogin(t *testing.T) {
	m := newRedfishMock(t, "pdu.json")
	open := func(text string) error {
		p, err := planOf(t, text)
		if err != nil {
			return err
		}
		d, err := p.Open(t.Context())
		if err == nil {
			t.Error("opened")
			_ = d.Close()
		}
		return err
	}
	good := m.entry("r01-a")
	ca := "    ca_file: " + filepath.Join(m.dir, "ca.pem") + "\n"
	wantErr(t, open(strings.Replace(good, "user: mon", "user: eve", 1)), "redfish login: 401 Unauthorized")
	wantErr(t, open(strings.Replace(good, ca, "", 1)), "certificate")
	wantErr(t, open(strings.Replace(good, "/password", "/nopassword", 1)), "password_file: ", "no such file")
	wantErr(t, open(strings.Replace(good, "https://", "http://", 1)), "insecure_skip_verify")
	wantErr(t, open(strings.Replace(good, "    user: mon\n", "", 1)), "belong together")
	if d := openOf(t, strings.Replace(good, ca, "    insecure_skip_verify: true\n", 1)); read(t, d) != pduReadings {
		t.Error("insecure_skip_verify")
	}
}

func TestRedfishConfigErrors(t *testing.T) {
	for block, want := range map[string]string{
		"{bogus: 1}":                "agent.yml:5: unknown key \"bogus\"",
		"{resource: RackPDUs/1}":    "does not begin with /redfish/v1/",
		"{user: a, user_file: b}":   "both given",
		"{sensors: [{uri: /x}]}":    "sensors[0] (/x): uri does not begin",
		"{leak_sensors: {a: tor1}}": "belongs to a sensor or cooling_unit, not to a switch",
		"{sensors: [{uri: /redfish/v1/a, device: tor1, quantity: port_up, part: a}]}":        "is not what a Redfish sensor measures",
		"{sensors: [{uri: /redfish/v1/a, device: tor1, quantity: inlet_temperature}]}":       "belongs to a sensor, not to a switch",
		"{sensors: [{uri: /redfish/v1/a, device: r01-a, quantity: phase_current, part: 4}]}": "unknown phase",
	} {
		_, err := planOf(t, "facility:\n- device: r01-a\n  driver: redfish\n  address: pdu1\n  redfish: "+block+"\n")
		wantErr(t, err, want)
	}
	for _, address := range []string{"", "ftp://a", "https://a/b", "https://u:p@a"} {
		_, err := planOf(t, "facility:\n- {device: r01-a, driver: redfish, address: '"+address+"'}\n")
		wantErr(t, err, "address")
	}
}

// FuzzRedfish: no body that a service may send makes the parsers fail badly, and
// every reading that they make is a finite number of the quantity table.
func FuzzRedfish(f *testing.F) {
	for _, seed := range []string{
		`{"Id": "1", "CurrentAmps": {"Reading": 1.5}, "PolyPhaseCurrentAmps": {"Line1": 2, "Neutral": {"Reading": "3"}}}`,
		`{"PowerWatts": {"Reading": 1e999}, "Temperatures": [{"PhysicalContext": "Intake", "ReadingCelsius": 21}]}`,
		`{"LeakDetectorGroups": [{"Detectors": [{"DetectorState": "OK"}]}], "Members": [{"Id": 3}]}`, `[]`, `null`, `{"Status": []}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		temperature, err := lookup("inlet_temperature")
		if err != nil {
			t.Fatal(err)
		}
		var p redfishPoll
		for _, parse := range []func([]byte) error{
			p.pduMetrics, p.mainsCircuit, p.branchCircuit, p.outlet, p.coolingUnit, p.secondaryConnector, p.primaryConnector,
			p.pump, p.thermalMetrics, p.thermal, p.environmentMetrics, p.oldPower, p.supplyMetrics,
			func(b []byte) error { return p.leakDetector(b, nil) },
			func(b []byte) error { return p.leakGroups(b, map[string]string{"a": "row-a-leak"}) },
			func(b []byte) error {
				return p.sensor(b, redfishSensor{Quantity: temperature.Name, quantity: temperature})
			},
			func(b []byte) error { return (redfishItem{members: true, parse: (*redfishPoll).outlet}).take(&p, b) },
		} {
			_ = parse(body)
		}
		p.finishPDU("")
		p.finishCooling()
		p.finishNode("gpu001")
		for _, r := range p.out {
			if _, err := lookup(r.Quantity); err != nil || !finite(r.Value) {
				t.Fatalf("%+v: %v", r, err)
			}
		}
	})
}
