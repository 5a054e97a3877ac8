// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
)

// FuzzSNMPResponse: whatever an agent answers, a read ends with readings that
// are finite numbers or with an error.
func FuzzSNMPResponse(f *testing.F) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	var answer atomic.Value
	answer.Store([]byte{})
	go func() {
		codec := &gosnmp.GoSNMP{Version: gosnmp.Version2c}
		buf := make([]byte, 65536)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q, err := codec.SnmpDecodePacket(buf[:n])
			if err != nil {
				continue
			}
			_, _ = conn.WriteTo(replyBytes(q, answer.Load().([]byte)), from)
		}
	}()
	for _, body := range []string{"\x02\x01\x1b", "\x04\x06broken", "\x02\x00", "\x42\x05\x00\xff\xff\xff\xff", "\x80\x00", "\x44\x07\x9f\x78\x04\x7f\x80\x00\x00", "\x30\x82\xff\xff"} {
		f.Add([]byte(body))
	}
	plan, err := newSNMPDriver(conn.LocalAddr().String(), SNMPConfig{CommunityFile: communityFile(f), Timeout: 50 * time.Millisecond, Retries: new(int)}, nil, "")
	if err != nil {
		f.Fatal(err)
	}
	profile, err := loadProfile("apc-rpdu2")
	if err != nil {
		f.Fatal(err)
	}
	plan.fixed = profile
	f.Fuzz(func(t *testing.T, value []byte) {
		answer.Store(value)
		d := plan.fresh()
		defer d.Close() //nolint:errcheck // nothing is lost
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		list, err := d.Read(ctx)
		if err != nil && len(err.Error()) > 20*maxText {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		for _, r := range list {
			if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
				t.Fatalf("%s is %v", r.Quantity, r.Value)
			}
		}
	})
}

// replyBytes answers every object that was asked for with the same bytes as the
// value; GETNEXT and GETBULK are answered with the object's first row.
func replyBytes(q *gosnmp.SnmpPacket, value []byte) []byte {
	const mark = "0123456789abcdef"
	r := &gosnmp.SnmpPacket{Version: q.Version, Community: q.Community, PDUType: gosnmp.GetResponse, RequestID: q.RequestID}
	for _, v := range q.Variables {
		name := v.Name
		if q.PDUType != gosnmp.GetRequest {
			name += ".1"
		}
		r.Variables = append(r.Variables, gosnmp.SnmpPDU{Name: name, Type: gosnmp.OctetString, Value: mark})
	}
	out, err := r.MarshalMsg()
	if err != nil {
		return nil
	}
	if len(value) <= 2+len(mark) {
		// keep all lengths: only the value's own bytes change
		pad := append(append([]byte{}, value...), make([]byte, 2+len(mark)-len(value))...)
		return []byte(strings.ReplaceAll(string(out), "\x04\x10"+mark, string(pad)))
	}
	return value // not even a packet
}

// FuzzProfile: a profile is loaded or refused, and one that is loaded can be
// used on a device.
func FuzzProfile(f *testing.F) {
	f.Add([]byte(sound))
	for _, name := range []string{"apc-rpdu2", "raritan-pdu2", "if-mib", "ups-mib"} {
		data, err := profileFiles.ReadFile("profiles/" + name + ".yml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProfile("fuzz.yml", data)
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz.yml") {
				t.Fatalf("%v does not name the file", err)
			}
			return
		}
		if p.SNMP == nil {
			return
		}
		d := &snmpDriver{fixed: p, profile: p, sensors: map[string]SNMPSensor{}, showAll: true}
		d.restart()
		d.profile = p
		cells := map[string]cell{}
		for i := range p.SNMP.Tables {
			table := &snmpRows{table: &p.SNMP.Tables[i], found: []snmpRow{{instance: "1", index: make([]string, len(p.SNMP.Tables[i].Index))}}}
			for j := range table.found[0].index {
				table.found[0].index[j] = "1"
			}
			d.tables = append(d.tables, table)
			d.adopt(table)
			for _, oid := range table.rows[0].needs {
				cells[oid] = cell{kind: gosnmp.Integer, text: "1", num: 1}
			}
		}
		d.findUnit(cells)
		for _, table := range d.tables {
			list, _ := d.evaluate(table, cells)
			for _, v := range list {
				if _, err := lookup(v.Quantity); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
