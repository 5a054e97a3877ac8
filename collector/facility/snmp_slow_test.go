// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"
)

// TestSNMPDead: an address where nobody is, and one that never answers.
func TestSNMPDead(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, address := range map[string]string{"silent": silent.LocalAddr().String(), "closed": closed.LocalAddr().String()} {
		d := openSNMP(t, "r01-a", "apc-rpdu2", address)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		start := time.Now()
		list, err := d.Read(ctx)
		cancel()
		wantErr(t, err, address)
		if took := time.Since(start); took > time.Second || len(list) > 0 {
			t.Errorf("%s: %d readings after %v", name, len(list), took)
		}
	}
}

// TestSNMPPlugPulled: the device goes silent in the middle of a read. What was
// read is used, and the next read works when it is back.
func TestSNMPPlugPulled(t *testing.T) {
	a := newAgent(t, walkFile(t, "raritan-pdu2"))
	d := openSNMP(t, "r01-a", "raritan-pdu2", a.address(), impatient, "retries: 0", "max_oids: 10")
	whole := show(mustRead(t, d))
	answers := 0
	a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
		if answers++; answers > 3 {
			return nil
		}
		return a.normal(q)
	})
	list, err := d.Read(t.Context())
	wantErr(t, err, "30 of ", "objects were read: no answer")
	if len(list) == 0 || len(list) > 20 {
		t.Errorf("%d readings of half a read", len(list))
	}
	if list, err = d.Read(t.Context()); err == nil || len(list) > 0 {
		t.Errorf("a dead device gave %d readings, error %v", len(list), err)
	}
	a.breakWith(nil)
	if got := show(mustRead(t, d)); got != whole {
		t.Errorf("after the return:\n%s\nwant\n%s", got, whole)
	}
}

// TestSNMPSlow: where a read does not fit in the deadline, reads go on where the
// last one ended, until all was seen.
func TestSNMPSlow(t *testing.T) {
	a := newAgent(t, walkFile(t, "raritan-pdu2"))
	d := openSNMP(t, "r01-a", "raritan-pdu2", a.address(), "max_oids: 5")
	want := map[string]bool{}
	for _, r := range mustRead(t, d) {
		want[r.Quantity+r.Part] = true
	}
	a.slow(10 * time.Millisecond)
	for i := 0; len(want) > 0; i++ {
		if i == 40 {
			t.Fatalf("never read: %v", want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		list, err := d.Read(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for _, r := range list {
			delete(want, r.Quantity+r.Part)
		}
	}
}

// TestSNMPSlowStart: the rows of a slow device are looked up over several reads.
func TestSNMPSlowStart(t *testing.T) {
	a := newAgent(t, walkFile(t, "raritan-pdu2"))
	d := openSNMP(t, "r01-a", "raritan-pdu2", a.address(), "max_oids: 20", "max_repetitions: 2")
	want := show(mustRead(t, openSNMP(t, "r01-a", "raritan-pdu2", a.address())))
	a.slow(5 * time.Millisecond)
	seen := map[string]bool{}
	for i := 0; len(seen) < strings.Count(want, "\n"); i++ {
		if i == 100 {
			t.Fatalf("after 100 reads there are %d of\n%s", len(seen), want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		list, err := d.Read(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for _, line := range strings.SplitAfter(show(list), "\n") {
			switch {
			case line == "":
			case strings.Contains(want, line):
				seen[line] = true
			default:
				t.Fatalf("a reading that is not there: %s", line)
			}
		}
	}
}
