// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"math"
	"math/cmplx"
	"strings"
	"testing"

	"github.com/gosnmp/gosnmp"
)

// TestFamiliesElectrical holds the readings of each family against what
// electricity says, worked out from phasors: lines and neutral from the
// currents of the phases, and the total from volts and amperes.
func TestFamiliesElectrical(t *testing.T) {
	compared := map[string]int{}
	for _, f := range families {
		t.Run(f.walkName(), func(t *testing.T) {
			d := openOf(t, snmpEntry(t, f.device, f.profile, newAgent(t, walkFile(t, f.walkName())).address(), f.more...))
			list, err := d.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			devices := map[string]readingSet{}
			for _, r := range list {
				v := devices[r.Device]
				if v == nil {
					v = readingSet{}
					devices[r.Device] = v
				}
				if v[r.Quantity] == nil {
					v[r.Quantity] = map[string]float64{}
				}
				if _, twice := v[r.Quantity][r.Part]; twice {
					t.Errorf("%s: %s %s came twice", r.Device, r.Quantity, r.Part)
				}
				v[r.Quantity][r.Part] = r.Value
			}
			for id, v := range devices {
				for what, pair := range electrical(v) {
					compared[what]++
					if slack := 0.03*math.Abs(pair[1]) + pair[2]; math.Abs(pair[0]-pair[1]) > slack {
						t.Errorf("%s: %s is %g, from the phases it is %g", id, what, pair[0], pair[1])
					}
				}
			}
		})
	}
	for _, what := range []string{"line 1", "line 2", "line 3", "neutral", "watts"} {
		if compared[what] == 0 {
			t.Errorf("no family has %s to compare", what)
		}
	}
}

// electrical returns pairs of a reading and what it must be, with an absolute
// slack, for what a device shows.
func electrical(v readingSet) map[string][3]float64 {
	out := map[string][3]float64{}
	phase := v["phase_current"]
	lines, neutral := phasors(phase)
	for i, want := range lines {
		if got, ok := v.of("line_current", fmt.Sprint(i+1)); ok && len(phase) >= 3 {
			out[fmt.Sprintf("line %d", i+1)] = [3]float64{got, cmplx.Abs(want), 0.1}
		}
	}
	if got, ok := v.of("neutral_current", ""); ok && len(phase) >= 3 {
		out["neutral"] = [3]float64{got, cmplx.Abs(neutral), 0.1}
	}
	watts, ok := v.of("power", "")
	va := 0.0
	for part, amps := range phase {
		volts, known := v.of("phase_voltage", part)
		if !known {
			volts = averageVolts(v) / math.Sqrt(3)
		}
		pf, known := v.of("phase_power_factor", part)
		if !known {
			if pf, known = v.of("power_factor", ""); !known {
				pf = 1
			}
		}
		va += volts * amps * math.Abs(pf)
	}
	if ok && va > 0 {
		out["watts"] = [3]float64{watts, va, 60}
	}
	return out
}

// averageVolts is the mean of the voltages between lines.
func averageVolts(v readingSet) float64 {
	sum, n := 0.0, 0.0
	for part, volts := range v["phase_voltage"] {
		if strings.Contains(part, "-") {
			sum, n = sum+volts, n+1
		}
	}
	return sum / max(n, 1)
}

// phasors adds up the currents of loads to neutral (1, 2, 3) and between lines
// (1-2, 2-3, 3-1) at unity power factor. Voltages to neutral lie at 0, -120 and
// -240 degrees, those between lines 30 degrees before the first of the two.
func phasors(phase map[string]float64) (lines [3]complex128, neutral complex128) {
	for i := range lines {
		at := -2 * math.Pi / 3 * float64(i)
		own := cmplx.Rect(phase[fmt.Sprint(i+1)], at)
		next := (i + 1) % 3
		between := cmplx.Rect(phase[fmt.Sprintf("%d-%d", i+1, next+1)], at+math.Pi/6)
		lines[i] += own + between
		lines[next] -= between
		neutral += own
	}
	return lines, neutral
}

// TestSentry3Bulk: some of its firmware answers a GETBULK of more than four rows
// with integers of no length, which cannot be read.
func TestSentry3Bulk(t *testing.T) {
	a := newAgent(t, walkFile(t, "sentry3"))
	var most uint32
	a.breakWith(func(q *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
		if q.PDUType == gosnmp.GetBulkRequest {
			most = max(most, q.MaxRepetitions)
		}
		return a.normal(q)
	})
	d := openOf(t, snmpEntry(t, "r01-a", "auto", a.address()))
	if _, err := d.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if most == 0 || most > 4 {
		t.Errorf("a GETBULK asked for %d rows, want 1 to 4", most)
	}
}
