// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/rackpulse/rackpulse/testtool"
)

// agent is an SNMP agent for versions 1 and 2c on gosnmp's codec. It serves the
// lines OID|type|value of a walk; type is the number of the ASN.1 type, as in
// snmpsim's files, and a type with an x has its value in hexadecimal.
type agent struct {
	conn net.PacketConn
	done chan struct{}

	mu       sync.Mutex
	rows     []gosnmp.SnmpPDU
	fault    func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket // nil: answer; returns nil: silence
	mangle   func(answer []byte) []byte                    // changes the bytes of an answer
	delay    time.Duration                                 // before each answer
	maxReply int                                           // objects in one answer before tooBig; 0: no limit
	requests []gosnmp.PDUType
	asked    int // objects
}

// walkFile reads a walk of testdata/walks.
func walkFile(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "testdata", "walks", name+".walk"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// newAgent serves a walk until the test ends.
func newAgent(t testing.TB, walk string) *agent {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{conn: conn, done: make(chan struct{})}
	a.load(t, walk)
	go a.serve()
	t.Cleanup(a.stop)
	return a
}

func (a *agent) stop() {
	a.conn.Close()
	<-a.done
}

func (a *agent) address() string { return a.conn.LocalAddr().String() }

// load replaces what the agent has.
func (a *agent) load(t testing.TB, walk string) {
	t.Helper()
	rows, err := parseWalk(walk)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = rows
}

// set changes one object.
func (a *agent) set(t testing.TB, line string) {
	t.Helper()
	rows, err := parseWalk(line)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := a.find(rows[0].Name)
	if found {
		a.rows[i] = rows[0]
	} else {
		a.rows = slices.Insert(a.rows, i, rows[0])
	}
}

// breakWith makes the agent answer as f says; nil ends that.
func (a *agent) breakWith(f func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = f
}

// slow makes the agent wait before each answer.
func (a *agent) slow(delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay = delay
}

// mangleWith changes the bytes of answers.
func (a *agent) mangleWith(f func(answer []byte) []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mangle = f
}

// limit bounds the objects of an answer.
func (a *agent) limit(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maxReply = n
}

// traffic returns the requests since the last call and how many objects they
// asked for.
func (a *agent) traffic() (requests []gosnmp.PDUType, objects int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	requests, objects = a.requests, a.asked
	a.requests, a.asked = nil, 0
	return requests, objects
}

func parseWalk(walk string) ([]gosnmp.SnmpPDU, error) {
	var rows []gosnmp.SnmpPDU
	for n, line := range strings.Split(walk, "\n") {
		if line = strings.TrimRight(line, "\r"); line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, "|", 3)
		if len(f) < 3 {
			return nil, fmt.Errorf("line %d: %q is not OID|type|value", n+1, line)
		}
		pdu, err := walkValue(f[1], f[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		pdu.Name = strings.TrimPrefix(f[0], ".")
		rows = append(rows, pdu)
	}
	slices.SortStableFunc(rows, func(a, b gosnmp.SnmpPDU) int { return compareOIDs(a.Name, b.Name) })
	return slices.CompactFunc(rows, func(a, b gosnmp.SnmpPDU) bool { return a.Name == b.Name }), nil
}

func walkValue(kind, text string) (pdu gosnmp.SnmpPDU, err error) {
	hex := strings.HasSuffix(kind, "x")
	kind, _, _ = strings.Cut(strings.TrimSuffix(kind, "x"), ":") // "65:numeric": a variation of snmpsim
	n, err := strconv.Atoi(kind)
	if err != nil {
		return pdu, err
	}
	pdu.Type = gosnmp.Asn1BER(n)
	if hex {
		var b []byte
		_, err = fmt.Sscanf(text, "%x", &b)
		text = string(b)
		if text == "" {
			err = nil
		}
	}
	switch pdu.Type {
	case gosnmp.Integer:
		var v int
		v, err = strconv.Atoi(text)
		pdu.Value = v
	case gosnmp.OctetString, gosnmp.ObjectIdentifier, gosnmp.IPAddress, gosnmp.Opaque:
		pdu.Value = text
		if pdu.Type == gosnmp.IPAddress || pdu.Type == gosnmp.Opaque {
			pdu.Type = gosnmp.OctetString // not of interest here
		}
	case gosnmp.Counter64:
		var v uint64
		v, err = strconv.ParseUint(text, 10, 64)
		pdu.Value = v
	case gosnmp.Counter32, gosnmp.Gauge32, gosnmp.TimeTicks, gosnmp.Uinteger32:
		var v uint64
		v, err = strconv.ParseUint(text, 10, 32)
		pdu.Value = uint32(v)
	default:
		err = fmt.Errorf("type %s is not served", kind)
	}
	return pdu, err
}

func (a *agent) serve() {
	defer close(a.done)
	codec := &gosnmp.GoSNMP{Version: gosnmp.Version2c}
	buf := make([]byte, 65536)
	for {
		n, from, err := a.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		q, err := codec.SnmpDecodePacket(buf[:n])
		if err != nil {
			continue
		}
		reply := a.answer(q)
		if reply == nil {
			continue
		}
		out, err := reply.MarshalMsg()
		if err != nil {
			continue
		}
		a.mu.Lock()
		mangle, delay := a.mangle, a.delay
		a.mu.Unlock()
		if mangle != nil {
			out = mangle(out)
		}
		time.Sleep(delay)
		_, _ = a.conn.WriteTo(out, from)
	}
}

func (a *agent) answer(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, q.PDUType)
	a.asked += len(q.Variables)
	if a.fault != nil {
		return a.fault(q)
	}
	return a.normal(q)
}

// normal answers as a sound agent does.
func (a *agent) normal(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
	r := &gosnmp.SnmpPacket{Version: q.Version, Community: q.Community, PDUType: gosnmp.GetResponse, RequestID: q.RequestID}
	for i, v := range q.Variables {
		name := strings.TrimPrefix(v.Name, ".")
		at, found := a.find(name)
		switch {
		case q.PDUType == gosnmp.GetRequest && found:
			r.Variables = append(r.Variables, a.rows[at])
		case q.PDUType == gosnmp.GetRequest && q.Version == gosnmp.Version1:
			return refusal(q, gosnmp.NoSuchName, i)
		case q.PDUType == gosnmp.GetRequest:
			r.Variables = append(r.Variables, gosnmp.SnmpPDU{Name: name, Type: gosnmp.NoSuchInstance})
		default:
			if found {
				at++
			}
			n := 1
			if q.PDUType == gosnmp.GetBulkRequest {
				n = int(q.MaxRepetitions)
			}
			list := a.rows[min(at, len(a.rows)):min(at+n, len(a.rows))]
			if len(list) == 0 && q.Version == gosnmp.Version1 {
				return refusal(q, gosnmp.NoSuchName, i)
			}
			r.Variables = append(r.Variables, list...)
			if len(list) < n {
				r.Variables = append(r.Variables, gosnmp.SnmpPDU{Name: name, Type: gosnmp.EndOfMibView})
			}
		}
	}
	if a.maxReply > 0 && len(r.Variables) > a.maxReply {
		return refusal(q, gosnmp.TooBig, -1)
	}
	return r
}

func refusal(q *gosnmp.SnmpPacket, why gosnmp.SNMPError, index int) *gosnmp.SnmpPacket {
	return &gosnmp.SnmpPacket{
		Version: q.Version, Community: q.Community, PDUType: gosnmp.GetResponse, RequestID: q.RequestID,
		Error: why, ErrorIndex: uint8(index + 1), Variables: q.Variables,
	}
}

func (a *agent) find(name string) (int, bool) {
	return slices.BinarySearchFunc(a.rows, name, func(r gosnmp.SnmpPDU, name string) int { return compareOIDs(r.Name, name) })
}

// communityFile writes a community.
func communityFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "community")
	if err := os.WriteFile(path, []byte("public\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// snmpEntry is a configuration of one device behind an agent; more are lines of
// the block snmp.
func snmpEntry(t testing.TB, device, profile, address string, more ...string) string {
	t.Helper()
	text := fmt.Sprintf("facility:\n- device: %s\n  driver: snmp\n  profile: %s\n  address: %s\n  snmp:\n    community_file: %s\n", device, profile, address, communityFile(t))
	for _, line := range more {
		text += "    " + line + "\n"
	}
	return text
}
