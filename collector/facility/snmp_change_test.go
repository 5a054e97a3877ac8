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

const ifTable = "1.3.6.1.2.1.2.2.1."

// TestSNMPCounterWrap: a counter of 32 bits goes on over its wrap; a step back
// that is no wrap is a reset, and so is a restart of the device.
func TestSNMPCounterWrap(t *testing.T) {
	a := newAgent(t, walkFile(t, "if-mib"))
	d := openSNMP(t, "tor1", "if-mib", a.address())
	read := func(raw uint32, want float64) {
		t.Helper()
		a.set(t, fmt.Sprintf("%s10.10|65|%d", ifTable, raw))
		wantValue(t, mustRead(t, d), "port_receive_bytes", "mgmt0", want)
	}
	read(4294960010, 4294960010)
	read(5000, 4294967296+5000)
	read(4000000000, 4294967296+4000000000)
	read(17, 2*4294967296+17)
	read(1000, 2*4294967296+1000)
	read(3, 3) // cleared by hand
	a.set(t, sysUpTime+"|67|100")
	read(4294960000, 4294960000)
	a.set(t, sysUpTime+"|67|50") // restarted: no wrap
	read(7, 7)
	// Counters of 64 bits are shown as they are.
	a.set(t, "1.3.6.1.2.1.31.1.1.1.6.1|70|12")
	wantValue(t, mustRead(t, d), "port_receive_bytes", "Ethernet1", 12)
}

// TestSNMPFlaps counts how often a port went down, also between two reads.
func TestSNMPFlaps(t *testing.T) {
	a := newAgent(t, walkFile(t, "if-mib"))
	d := openSNMP(t, "tor1", "if-mib", a.address())
	read := func(oper, changed int, want float64) {
		t.Helper()
		a.set(t, fmt.Sprintf("%s8.1|2|%d", ifTable, oper))
		a.set(t, fmt.Sprintf("%s9.1|67|%d", ifTable, changed))
		wantValue(t, mustRead(t, d), "port_flaps", "Ethernet1", want)
	}
	read(1, 5000, 0)
	read(2, 6000, 1) // down
	read(2, 6000, 1)
	read(1, 7000, 1) // up again
	read(1, 9000, 2) // down and up between two reads
	read(1, 9000, 2)
	read(7, 9500, 3) // lower layer down
	read(2, 9600, 3)
}

// TestSNMPReshuffle: after a restart the ports have other indexes. Series stay
// with the names.
func TestSNMPReshuffle(t *testing.T) {
	walk := walkFile(t, "if-mib")
	a := newAgent(t, walk)
	d := openSNMP(t, "tor1", "if-mib", a.address())
	wantValue(t, mustRead(t, d), "port_receive_bytes", "Ethernet2", 1e15+2)
	const names = "1.3.6.1.2.1.31.1.1.1.1."
	a.set(t, names+"1|4|Ethernet2")
	a.set(t, names+"2|4|Ethernet1")
	// Even before the restart is noticed no port gets the values of another.
	list := mustRead(t, d)
	wantValue(t, list, "port_receive_bytes", "Ethernet2", 1e15+1)
	wantValue(t, list, "port_up", "Ethernet1", 0)

	moved := strings.NewReplacer(".1|", ".101|", ".2|", ".102|").Replace(walk)
	moved = strings.ReplaceAll(moved, "1.3.6.1.2.1.1.3.0|67|100000", "1.3.6.1.2.1.1.3.0|67|10")
	a.load(t, moved)
	list = mustRead(t, d)
	wantValue(t, list, "port_receive_bytes", "Ethernet2", 1e15+2)
	wantValue(t, list, "port_receive_bytes", "mgmt0", 4294960010)
}

// TestSNMPRediscover: rows that come and go are found when rows are looked up
// again, one table a read.
func TestSNMPRediscover(t *testing.T) {
	a := newAgent(t, walkFile(t, "apc-rpdu2"))
	d := openSNMP(t, "r01-a", "apc-rpdu2", a.address())
	mustRead(t, d)
	a.set(t, "1.3.6.1.4.1.318.1.1.26.8.3.1.2.2|2|1")
	a.set(t, "1.3.6.1.4.1.318.1.1.26.8.3.1.3.2|2|2")
	a.set(t, "1.3.6.1.4.1.318.1.1.26.8.3.1.5.2|2|80")
	if _, there := valueOf(t, mustRead(t, d), "branch_current", "2"); there {
		t.Error("the rows are looked up at each read")
	}
	for _, table := range d.tables {
		table.due = time.Now().Add(-time.Second)
	}
	for range d.tables {
		a.traffic()
		mustRead(t, d)
	}
	if requests, _ := a.traffic(); len(requests) > 4 {
		t.Errorf("%d requests in one read: all tables at once?", len(requests))
	}
	wantValue(t, mustRead(t, d), "branch_current", "2", 8)
}

// TestSNMPChainUnit: in a chain the lowest unit is the device itself, or the one
// that is configured.
func TestSNMPChainUnit(t *testing.T) {
	walk := strings.ReplaceAll(walkFile(t, "apc-rpdu2"), ".4.3.1.2.1|2|1", ".4.3.1.2.1|2|3")
	for unit, want := range map[string]float64{"": 1000, "3": 8290} {
		d := openSNMP(t, "r01-a", "apc-rpdu2", newAgent(t, walk).address(), "unit: '"+unit+"'")
		list := mustRead(t, d)
		got, ok := valueOf(t, list, "power", "")
		if unit == "" {
			// phases of unit 1 are there, its total is not: the total of unit 2 must
			// not be taken for it
			if ok {
				t.Errorf("power is %v", got)
			}
			continue
		}
		if got != want {
			t.Errorf("unit %q: power is %v, want %v", unit, got, want)
		}
	}
}

// TestSNMPConfig: what is wrong is found before any device is asked.
func TestSNMPConfig(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	short := filepath.Join(dir, "short")
	for file, text := range map[string]string{secret: "a long passphrase\n", short: "short\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile := filepath.Join(dir, "own.yml")
	if err := os.WriteFile(profile, []byte("about: x\nkind: pdu\nsnmp:\n  tables: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const v3 = "version: 3, user: u, "
	for _, c := range []struct{ entry, snmp, want string }{
		{"", "community_file: " + secret, ""},
		{"", v3 + "auth_file: " + secret, ""},
		{"", v3 + "auth: sha512, auth_file: " + secret + ", privacy: aes256, privacy_file: " + secret, ""},
		{"", "version: 3, user: u", ""},
		{"", "", "community_file is missing"},
		{"", "community_file: " + dir + "/none", "community_file: stat"},
		{"", "version: 4", `version "4" is none of 1, 2c and 3`},
		{"", "version: 3", "user is missing"},
		{"", v3 + "community_file: " + secret, "community_file belongs to versions 1 and 2c"},
		{"", v3 + "privacy_file: " + secret, "auth_file is missing"},
		{"", v3 + "auth: sha256", "auth_file is missing"},
		{"", v3 + "auth: sha1, auth_file: " + secret, `auth "sha1" is none of`},
		{"", v3 + "auth_file: " + secret + ", privacy: rot13, privacy_file: " + secret, `privacy "rot13" is none of`},
		{"", v3 + "auth_file: " + short, "auth_file: the passphrase is shorter than 8 bytes"},
		{"", "community_file: " + secret + ", user: u", "belong to version 3"},
		{"", "community_file: " + secret + ", retries: 11", "retries 11 is not"},
		{"", "community_file: " + secret + ", timeout: 1ms", "timeout 1ms is not"},
		{"", "community_file: " + secret + ", max_repetitions: 99", "max_repetitions 99 is not"},
		{"", "community_file: " + secret + ", rediscover: 1s", "rediscover 1s is shorter"},
		{"", "community_file: " + secret + ", comunity: x", `unknown key "comunity"`},
		{"", "community_file: " + secret + ", chain: {2: r01-a}", "chain: unit 2 is this device itself"},
		{"", "community_file: " + secret + ", sensors: [{sensor: '1'}]", "sensors[0]: want sensor and device"},
		{"", "community_file: " + secret + ", sensors: [{sensor: '1', device: crah1}]", "device crah1 is a cooling_unit"},
		{"", "community_file: " + secret + ", sensors: [{sensor: '1', device: r01-out, measures: heat}]", `measures "heat" is neither`},
		{"profile: apc", "community_file: " + secret, `unknown profile "apc"; known are apc-`},
		{"profile: if-mib", "community_file: " + secret, "profile if-mib is for a switch, the device is a pdu"},
		{"profile_file: " + profile, "community_file: " + secret, profile + ":4: tables: want 1 to 64"},
		{"profile_file: " + profile + ", profile: if-mib", "community_file: " + secret, "profile and profile_file are given"},
		{"address: 'bad host'", "community_file: " + secret, `address "bad host" is not host or host:port`},
	} {
		entry := c.entry
		if !strings.Contains(entry, "address") {
			entry = strings.TrimPrefix(entry+", address: 10.0.0.1", ", ")
		}
		_, err := planOf(t, fmt.Sprintf("facility: [{device: r01-a, driver: snmp, %s, snmp: {%s}}]", entry, c.snmp))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.snmp, err)
			}
			continue
		}
		wantErr(t, err, c.want)
		if err != nil && (strings.Contains(err.Error(), "a long passphrase") || strings.Contains(err.Error(), `"short"`)) {
			t.Errorf("the secret is shown: %v", err)
		}
	}
}

// TestSNMPPage: an agent's page with a sound and a dead device, and a PDU whose
// profile would be wrong by a factor of ten.
func TestSNMPPage(t *testing.T) {
	sound := newAgent(t, walkFile(t, "apc-rpdu2"))
	wrong := newAgent(t, strings.ReplaceAll(walkFile(t, "ups-mib"), "33.1.4.4.1.3.1|2|100", "33.1.4.4.1.3.1|2|1000"))
	text := snmpEntry(t, "r01-a", "auto", sound.address()) +
		strings.TrimPrefix(snmpEntry(t, "ups1", "ups-mib", wrong.address()), "facility:\n") +
		strings.TrimPrefix(snmpEntry(t, "tor1", "if-mib", "127.0.0.1:9", impatient), "facility:\n")
	store, stop := runText(t, text)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p := page(t, store); strings.Contains(p, `device="r01-a",`) && strings.Contains(p, `check="ups_power"`) && strings.Contains(p, `facility_device_up{device="tor1"`) {
			break
		}
	}
	wantLines(t, store,
		`facility_device_up{device="r01-a",driver="snmp",pdu_id="r01-a",rack_id="r01"} 1`,
		`facility_device_up{device="tor1",driver="snmp",switch="tor1",rack_id="r01"} 0`,
		`pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 8290`,
		`pdu_phase_current_ampere{phase="2",pdu_id="r01-a",rack_id="r01"} 8`,
		`rackpulse_facility_implausible{device="r01-a",check="phase_power",pdu_id="r01-a",rack_id="r01"} 0`,
		`rackpulse_facility_implausible{device="ups1",check="ups_power",ups="ups1"} 1`,
	)
	noLines(t, store, `pdu_neutral_current_ampere`, `rackpulse_facility_implausible{device="r01-a",check="ups_power"`)
	stop()
}
