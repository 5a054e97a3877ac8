// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeviceExporters: addresses for foreign exporters go to devices in order.
func TestDeviceExporters(t *testing.T) {
	s, err := Parse("s.yml", []byte(`
site: {id: a}
racks: [{id: "r[1-2]"}]
pdus: [{id: "r[1-2]-a", rack: "r[1-2]", phases: 1, rated_amperes: 16, exporters: {snmp-apcups: "10.0.0.[11-12]:161"}}]
cooling_units: [{id: c1, exporters: {crac: "[fd00::1]:161"}}]
switches: [{id: tor1, rack: r1, exporters: {snmp-if-mib: "tor1.example:161"}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range s.Devices() {
		got = append(got, fmt.Sprint(d.ID, d.Exporters))
	}
	want := "r1-amap[snmp-apcups:10.0.0.11:161] r2-amap[snmp-apcups:10.0.0.12:161] c1map[crac:[fd00::1]:161] tor1map[snmp-if-mib:tor1.example:161]"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}
