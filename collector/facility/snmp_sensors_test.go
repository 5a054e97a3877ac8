// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"slices"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"
)

// TestSensorsOfSwitch: a switch or a UPS is read by its own profile and its
// sensors by the one that this includes. Only those that have a name are asked
// for.
func TestSensorsOfSwitch(t *testing.T) {
	for _, c := range []struct {
		device, walk, sensors, below string
		want                         []string
		objects                      int // of sensors asked for in one read
	}{
		{"tor1", "entity-sensor", `sensors: [{sensor: "12", device: r01-in-top}]`, "1.3.6.1.2.1.99.", []string{"r01-in-top inlet_temperature 23.5"}, 4},
		{"tor1", "entity-sensor", "", "1.3.6.1.2.1.99.", nil, 0},
		{"ups1", "apc-env", `sensors: [{sensor: uio1.1, device: r01-in-top}]`, "1.3.6.1.4.1.318.1.1.25.", []string{"r01-in-top inlet_humidity 0.41", "r01-in-top inlet_temperature 24"}, 3},
	} {
		profile := map[string]string{"tor1": "if-mib", "ups1": "ups-mib"}[c.device]
		a := newAgent(t, walkFile(t, profile)+walkFile(t, c.walk))
		var asked []string
		a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
			for _, v := range q.Variables {
				if oid := strings.TrimPrefix(v.Name, "."); q.PDUType == gosnmp.GetRequest && strings.HasPrefix(oid, c.below) {
					asked = append(asked, oid)
				}
			}
			return a.normal(q)
		})
		var more []string
		if c.sensors != "" {
			more = append(more, c.sensors)
		}
		d := openOf(t, snmpEntry(t, c.device, profile, a.address(), more...))
		if _, err := d.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		asked = nil
		a.mu.Unlock()
		list, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range strings.Split(show(list), "\n") {
			if line != "" && line[0] != ' ' {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s with %q: got %q, want %q", c.device, c.sensors, got, c.want)
		}
		a.mu.Lock()
		if len(asked) < c.objects || len(asked) > c.objects+1 {
			t.Errorf("%s with %q: asked for %q, want about %d objects", c.device, c.sensors, asked, c.objects)
		}
		a.mu.Unlock()
	}
}
