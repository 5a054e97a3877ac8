// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/collector/facility"
)

// TestProbeText: the table shows value, raw value, scale and origin; what is
// absent only with --all.
func TestProbeText(t *testing.T) {
	watts, wrong := 270.0, 23e3
	r := &facility.ProbeReport{
		Address: "10.0.0.1:161", SysObjectID: "1.3.6.1.4.1.318", SysDescr: "A PDU", Model: "AP1", Profile: "apc-rpdu2", Kind: "pdu",
		Values: []facility.ProbeValue{
			{Quantity: "power", Value: &watts, BaseUnit: "watt", Raw: "27", Factor: 0.01, Unit: "kilowatt", Object: "status", OID: "1.3.1"},
			{Quantity: "phase_voltage", Part: "1", Value: &wrong, BaseUnit: "volt", Raw: "23000", Factor: 1, Unit: "volt", Object: "volts", OID: "1.3.2", Note: "too much", Implausible: true},
			{Owner: "sensor 1.1", Quantity: "inlet_humidity", BaseUnit: "ratio", Raw: "-1", Object: "rh", OID: "1.3.3", Note: "the device says -1"},
		},
		Checks: []facility.ProbeCheck{{Check: "power_sum"}, {Owner: "unit 2", Check: "phase_power", Implausible: true, Text: "1 W"}},
	}
	for _, all := range []bool{false, true} {
		var b bytes.Buffer
		if err := (&probeVerb{all: all}).write(&b, r); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{
			"10.0.0.1:161: A PDU sysObjectID 1.3.6.1.4.1.318, model AP1, firmware - profile apc-rpdu2 (pdu)",
			"- power - 270 watt 27 0.01 kilowatt status 1.3.1",
			"- phase_voltage 1 23000 volt 23000 1 volt volts 1.3.2 IMPLAUSIBLE: too much",
			"check power_sum -: plausible check phase_power unit 2: IMPLAUSIBLE: 1 W",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
		if got := strings.Contains(text, "sensor 1.1 inlet_humidity - - -1 - rh 1.3.3 the device says -1"); got != all {
			t.Errorf("--all %v: absent values are shown: %v", all, got)
		}
	}
}

// TestProbeRefused: where nobody listens the error names the host.
func TestProbeRefused(t *testing.T) {
	community := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(community, []byte("public\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := execute(context.Background(), []string{"facility", "probe", "127.0.0.1:9", "--community-file", community}, stdio{nil, &out, &errs})
	if code != 1 || !strings.Contains(errs.String(), "127.0.0.1:9: no SNMP agent listens there") {
		t.Errorf("status %d: %s", code, errs.String())
	}
	if code := execute(context.Background(), []string{"facility", "probe", "127.0.0.1:9"}, stdio{nil, &out, &errs}); code != 1 || !strings.Contains(errs.String(), "community_file is missing") {
		t.Errorf("without a community: status %d: %s", code, errs.String())
	}
}
