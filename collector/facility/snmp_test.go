// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"
)

// impatient is for tests in which requests stay without answer.
const impatient = "timeout: 200ms"

// openSNMP opens the device of an entry as the driver's own type.
func openSNMP(t testing.TB, device, profile, address string, more ...string) *snmpDriver {
	t.Helper()
	d, ok := openOf(t, snmpEntry(t, device, profile, address, more...)).(*snmpDriver)
	if !ok {
		t.Fatal("another driver")
	}
	return d
}

// valueOf finds one reading.
func valueOf(t testing.TB, list []Reading, quantity, part string) (float64, bool) {
	t.Helper()
	for _, r := range list {
		if r.Device == "" && r.Quantity == quantity && r.Part == part {
			return r.Value, true
		}
	}
	return 0, false
}

func wantValue(t testing.TB, list []Reading, quantity, part string, want float64) {
	t.Helper()
	if got, ok := valueOf(t, list, quantity, part); !ok || got != want {
		t.Errorf("%s[%s] is %v (there: %v), want %v", quantity, part, got, ok, want)
	}
}

func mustRead(t testing.TB, d Driver) []Reading {
	t.Helper()
	list, err := d.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestSNMPPollIsGets: once rows are known a read is GETs and nothing else, and
// asks for digits no more.
func TestSNMPPollIsGets(t *testing.T) {
	a := newAgent(t, walkFile(t, "raritan-pdu2"))
	d := openSNMP(t, "r01-a", "raritan-pdu2", a.address())
	first := show(mustRead(t, d))
	a.traffic()
	if again := show(mustRead(t, d)); again != first {
		t.Errorf("the second read differs:\n%s", again)
	}
	requests, objects := a.traffic()
	if n := (objects + defaultOIDs - 1) / defaultOIDs; len(requests) != n {
		t.Errorf("%d requests for %d objects, want %d", len(requests), objects, n)
	}
	for _, r := range requests {
		if r != gosnmp.GetRequest {
			t.Errorf("a %v in a read of known rows", r)
		}
	}
	for oid := range d.static {
		if !strings.Contains(oid, ".6.3.") {
			t.Errorf("object %s counts as one that does not change", oid)
		}
	}
	if len(d.static) == 0 {
		t.Error("digits are read each time")
	}
}

// TestSNMPVersion1 reads all families from agents that know neither GETBULK nor
// missing objects in an answer.
func TestSNMPVersion1(t *testing.T) {
	for _, f := range families {
		a := newAgent(t, walkFile(t, f.walkName()))
		d := openSNMP(t, f.device, f.profile, a.address(), append(f.more, "version: 1")...)
		for range 2 {
			if got := show(mustRead(t, d)); got != strings.TrimPrefix(f.want, "\n") {
				t.Errorf("%s: got\n%s\nwant%s", f.profile, got, f.want)
			}
		}
		requests, _ := a.traffic()
		if slices.Contains(requests, gosnmp.GetBulkRequest) {
			t.Errorf("%s: a GETBULK in version 1", f.profile)
		}
	}
}

// TestSNMPBulkHalving: agents that fail with many rows at once are asked for
// fewer, down to GETNEXT. A zero-length integer is what Sentry3 firmware sends.
func TestSNMPBulkHalving(t *testing.T) {
	f := families[0]
	for name, c := range map[string]struct {
		fault  func(a *agent, most int) func(*gosnmp.SnmpPacket) *gosnmp.SnmpPacket
		mangle bool
	}{
		"silence": {fault: func(a *agent, most int) func(*gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
			return func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				if q.PDUType == gosnmp.GetBulkRequest && int(q.MaxRepetitions) > most {
					return nil
				}
				return a.normal(q)
			}
		}},
		"tooBig": {fault: func(a *agent, most int) func(*gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
			return func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				if q.PDUType == gosnmp.GetBulkRequest && int(q.MaxRepetitions) > most {
					return refusal(q, gosnmp.TooBig, -1)
				}
				return a.normal(q)
			}
		}},
		"zero-length integers": {mangle: true, fault: func(a *agent, most int) func(*gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
			return func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				r := a.normal(q)
				if q.PDUType == gosnmp.GetBulkRequest && int(q.MaxRepetitions) > most {
					r.Variables[0].Type, r.Variables[0].Value = gosnmp.OctetString, ""
				}
				return r
			}
		}},
	} {
		for most, left := range map[int]int{4: 3, 0: 0} {
			a := newAgent(t, walkFile(t, f.walkName()))
			a.breakWith(c.fault(a, most))
			if c.mangle {
				a.mangleWith(func(b []byte) []byte { return bytes.Replace(b, []byte{4, 0}, []byte{2, 0}, 1) })
			}
			d := openSNMP(t, f.device, f.profile, a.address(), append([]string{impatient, "retries: 0"}, f.more...)...)
			if got := show(mustRead(t, d)); got != strings.TrimPrefix(f.want, "\n") {
				t.Errorf("%s, at most %d: got\n%s", name, most, got)
			}
			if d.session.bulk != left {
				t.Errorf("%s, at most %d: %d rows at once in the end, want %d", name, most, d.session.bulk, left)
			}
		}
	}
}

// TestSNMPGetHalving: agents that cannot answer many objects at once, and say so
// or not.
func TestSNMPGetHalving(t *testing.T) {
	for _, silent := range []bool{false, true} {
		a := newAgent(t, walkFile(t, "apc-rpdu2"))
		a.limit(6)
		if silent {
			a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				if r := a.normal(q); r.Error != gosnmp.TooBig {
					return r
				}
				return nil
			})
		}
		d := openSNMP(t, "r01-a", "apc-rpdu2", a.address(), impatient, "retries: 0")
		wantValue(t, mustRead(t, d), "power", "", 8290)
		if n := d.session.oids; n < 3 || n > 6 {
			t.Errorf("%d objects at once in the end, want 3 to 6", n)
		}
	}
}

// TestSNMPGarbage: what a broken agent answers is named, and nothing else is
// lost.
func TestSNMPGarbage(t *testing.T) {
	const watts = "1.3.6.1.4.1.318.1.1.26.4.3.1.5.1"
	change := func(f func(v *gosnmp.SnmpPDU)) func(a *agent) {
		return func(a *agent) {
			a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				r := a.normal(q)
				if q.PDUType == gosnmp.GetRequest {
					for i := range r.Variables {
						if r.Variables[i].Name == watts {
							f(&r.Variables[i])
						}
					}
				}
				return r
			})
		}
	}
	for name, c := range map[string]struct {
		fault func(a *agent)
		want  []string
	}{
		"text for a number": {
			change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.OctetString, "broken" }),
			[]string{"object rPDU2DeviceStatusPower (" + watts + "): want a number, got OctetString \"broken\""},
		},
		"another object": {
			change(func(v *gosnmp.SnmpPDU) { v.Name = "1.3.6.1.2.1.1.7.0" }),
			[]string{"object " + watts + ": the agent answered with object 1.3.6.1.2.1.1.7.0"},
		},
		"genErr": {func(a *agent) {
			a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
				for i, v := range q.Variables {
					if q.PDUType == gosnmp.GetRequest && v.Name == "."+watts {
						return refusal(q, gosnmp.GenErr, i)
					}
				}
				return a.normal(q)
			})
		}, []string{"object " + watts + ": GenErr"}},
	} {
		a := newAgent(t, walkFile(t, "apc-rpdu2"))
		c.fault(a)
		d := openSNMP(t, "r01-a", "apc-rpdu2", a.address())
		list, err := d.Read(t.Context())
		wantErr(t, err, append(c.want, a.address())...)
		if _, there := valueOf(t, list, "power", ""); there {
			t.Errorf("%s: the broken value is shown", name)
		}
		wantValue(t, list, "phase_current", "2", 8)
	}
}

// TestSNMPTooMuch: answers beyond what was asked for are refused.
func TestSNMPTooMuch(t *testing.T) {
	a := newAgent(t, walkFile(t, "apc-rpdu2"))
	a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
		r := a.normal(q)
		for range 300 {
			r.Variables = append(r.Variables, r.Variables[0])
		}
		return r
	})
	_, err := openSNMP(t, "r01-a", "apc-rpdu2", a.address(), "retries: 0").Read(t.Context())
	wantErr(t, err, "at most 2 were asked for", a.address())
}

// TestSNMPEndlessAgent: agents whose objects repeat or go back are found out.
func TestSNMPEndlessAgent(t *testing.T) {
	for name, next := range map[string]func(oid string) string{
		"repeats":   func(oid string) string { return oid },
		"goes back": func(oid string) string { return oid[:strings.LastIndex(oid, ".")] + ".1" },
	} {
		a := newAgent(t, walkFile(t, "apc-rpdu2"))
		a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
			r := a.normal(q)
			if q.PDUType == gosnmp.GetBulkRequest && len(r.Variables) > 2 {
				r.Variables[2].Name = next(r.Variables[1].Name)
			}
			return r
		})
		list, err := openSNMP(t, "r01-a", "apc-rpdu2", a.address()).Read(t.Context())
		wantErr(t, err, errRepeats.Error(), "looking up the rows of rPDU2PhaseStatusCurrent")
		wantValue(t, list, "phase_current", "1", 16)
		if requests, _ := a.traffic(); len(requests) > 40 {
			t.Errorf("%s: %d requests", name, len(requests))
		}
	}
}

// TestSNMPRowLimit: a table with more rows than any device has is cut off.
func TestSNMPRowLimit(t *testing.T) {
	var b strings.Builder
	b.WriteString(walkFile(t, "apc-rpdu2"))
	for i := 10; i < 5010; i++ {
		fmt.Fprintf(&b, "1.3.6.1.4.1.318.1.1.26.9.4.3.1.6.%d|2|1\n", i)
	}
	d := openSNMP(t, "r01-a", "apc-rpdu2", newAgent(t, b.String()).address())
	list, err := d.Read(t.Context())
	wantErr(t, err, "rPDU2OutletMeteredStatusCurrent: more than 4096 rows")
	wantValue(t, list, "power", "", 8290)
}

// TestSNMPBigDevice: 22,000 objects around those that are read cost nothing.
func TestSNMPBigDevice(t *testing.T) {
	var b strings.Builder
	b.WriteString(walkFile(t, "raritan-pdu2"))
	for i := range 22_000 {
		fmt.Fprintf(&b, "1.3.6.1.4.1.13742.6.5.%d.1.%d.%d|66|%d\n", 6+i%50, i%37, i, i)
	}
	a := newAgent(t, b.String())
	d := openSNMP(t, "r01-a", "raritan-pdu2", a.address())
	wantValue(t, mustRead(t, d), "power", "", 5123)
	if requests, _ := a.traffic(); len(requests) > 30 {
		t.Errorf("the first read took %d requests", len(requests))
	}
}

// TestSNMPNewSecret: a community that was changed on the device and in the file
// is found without a restart.
func TestSNMPNewSecret(t *testing.T) {
	a := newAgent(t, walkFile(t, "apc-rpdu2"))
	community := "public"
	a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
		if q.Community != community {
			return nil
		}
		return a.normal(q)
	})
	d := openSNMP(t, "r01-a", "apc-rpdu2", a.address(), impatient, "retries: 0")
	mustRead(t, d)
	a.mu.Lock()
	community = "changed"
	a.mu.Unlock()
	_, err := d.Read(t.Context())
	wantErr(t, err, "no answer")
	if err := os.WriteFile(d.config.CommunityFile, []byte("changed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRead(t, d)
}
