// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

var updateRack = flag.Bool("update-rack", false, "write testdata/golden/rack.prom anew")

// rackHall is a rack with two PDUs, four inlet sensors, a leak sensor, its
// cooling unit and its switch.
func rackHall() (func(string) (site.Device, bool), collector.Identity) {
	all := []site.Device{
		device1(site.KindPDU, "r01-a", "pdu_id", "r01-a", "rack_id", "r01"),
		device1(site.KindPDU, "r01-b", "pdu_id", "r01-b", "rack_id", "r01"),
		device1(site.KindSensor, "row-a-leak", "sensor", "row-a-leak"),
		device1(site.KindCooling, "cdu1", "cooling_unit", "cdu1"),
		device1(site.KindSwitch, "tor1", "switch", "tor1", "rack_id", "r01"),
	}
	for _, position := range []string{"top", "middle", "bottom", "front"} {
		all = append(all, device1(site.KindSensor, "r01-in-"+position, "sensor", "r01-in-"+position, "rack_id", "r01", "position", position))
	}
	id := collector.Identity{Devices: map[string]map[string]string{}, Origin: collector.OriginRegistry}
	for _, d := range all {
		id.Devices[d.ID] = d.Labels
	}
	return func(id string) (site.Device, bool) {
		i := slices.IndexFunc(all, func(d site.Device) bool { return d.ID == id })
		if i < 0 {
			return site.Device{}, false
		}
		return all[i], true
	}, id
}

// TestWholeRack reads a whole rack at once: PDU A and B and a switch by SNMP,
// four inlet sensors on one Modbus line, a leak sensor on a serial line, and a
// cooling unit by Redfish. The page is as the golden one says, promtool finds
// nothing, and it has the series that the dashboards' facility panels ask for.
func TestWholeRack(t *testing.T) {
	device, identity := rackHall()
	text := "facility:\n"
	for _, d := range [][3]string{{"r01-a", "apc-rpdu2", "apc-rpdu2"}, {"r01-b", "raritan-pdu2", "raritan-pdu2"}, {"tor1", "if-mib", "if-mib"}} {
		lines := strings.SplitAfter(snmpEntry(t, d[0], d[1], newAgent(t, walkFile(t, d[2])).address()), "\n")
		text += strings.Join(lines[1:], "") + "  interval: 1s\n"
	}
	slave := newModbusSlave()
	line, _ := slave.onPTY(t)
	for i, position := range []string{"top", "middle", "bottom", "front"} {
		slave.set(byte(i+1), 4, 1, 240-10*uint16(i), 410)
		text += fmt.Sprintf("- {device: r01-in-%s, driver: modbus, profile: xy-md02, address: %s, interval: 1s, modbus: {unit: %d, timeout: 300ms}}\n", position, line, i+1)
	}
	rope := plug(t, filepath.Join(t.TempDir(), "tty"))
	text += "- device: row-a-leak\n  driver: serial\n  interval: 1s\n  serial: {path: " + rope.link + ", format: keyvalue, fields: [{name: zone, quantity: leak, states: {wet: 1, dry: 0}}]}\n"
	cdu := strings.SplitAfter(newRedfishMock(t, "cdu.json").entry("cdu1"), "\n")
	text += strings.Join(cdu[1:], "")

	store := collector.NewStore()
	store.SetIdentity(identity)
	r, err := New(entries(t, text), Deps{Store: store, Logger: log.NewNopLogger(), Device: device})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		rope.say(t, "zone=dry\n")
		if n := len(regexp.MustCompile(`(?m)^facility_device_up\{.*\} 1$`).FindAllString(page(t, store), -1)); n == 9 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all devices are up:\n%s", page(t, store))
		}
	}
	got := page(t, store)
	checkRackGolden(t, got)
	promtool := exec.Command(testtool.Binary(t, "promtool"), "check", "metrics")
	promtool.Stdin = strings.NewReader(got)
	if out, err := promtool.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	for panel, metrics := range facilityPanels(t) {
		if !slices.ContainsFunc(metrics, func(name string) bool { return strings.Contains("\n"+got, "\n"+name+"{") }) {
			t.Errorf("panel %q asks for %q, the page has none", panel, metrics)
		}
	}
}

// checkRackGolden compares the page, without what depends on the time and on
// ports.
func checkRackGolden(t *testing.T, got string) {
	t.Helper()
	got = regexp.MustCompile(`(?m)^(facility_last_sample_timestamp_seconds\{.*\}) .*$`).ReplaceAllString(got, "$1 TIME")
	got = regexp.MustCompile(`(?m)^(#.*|rackpulse_(source|rejected)_.*)\n`).ReplaceAllString(got, "")
	path := filepath.Join(testtool.Root(), "testdata", "golden", "rack.prom")
	if *updateRack {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the page is not as %s says (-update-rack writes it):\n%s", path, got)
	}
}

// facilityPanels are, by title, the names of the rack layer that each panel of the
// boards of a rack and its layers asks for, but those of fast samples.
func facilityPanels(t *testing.T) map[string][]string {
	t.Helper()
	word := regexp.MustCompile(`\b(rack_(inlet|outlet)|(pdu|switch|cooling_unit|facility)_[a-z]+)_[a-z_]*[a-z]\b`)
	panels := map[string][]string{}
	for _, name := range []string{"unified", "power", "cooling", "network"} {
		data, err := fs.ReadFile(dashboards.Files(), name+".json")
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(data, &board); err != nil {
			t.Fatal(err)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				for _, metric := range word.FindAllString(target.Expr, -1) {
					if !regexp.MustCompile(`_(peak|trough)_|_transients_`).MatchString(metric) {
						panels[name+": "+panel.Title] = append(panels[name+": "+panel.Title], metric)
					}
				}
			}
		}
	}
	if len(panels) < 15 {
		t.Fatalf("only %d panels ask for the rack layer", len(panels))
	}
	return panels
}
