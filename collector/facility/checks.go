// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rackpulse/rackpulse/collector"
)

var descImplausible = &collector.Desc{
	Name: "rackpulse_facility_implausible", Labels: []string{"device", "check"}, Max: 1,
	Help: "Whether the device's values contradict each other (1), by check; see docs/facility.md for the tolerances.",
}

// Names of the checks.
const (
	checkPhasePower = "phase_power"
	checkTotalPower = "total_power"
	checkPowerSum   = "power_sum"
	checkOutletSum  = "outlet_sum"
	checkUPSPower   = "ups_power"
)

// Tolerances of the checks. They have to find a wrong factor (10, 1.73, 1000),
// not a bad meter: meters of PDUs are within 1 to 3 %, and their values are
// rounded and not taken at the same moment.
const (
	checkTolerance = 0.15
	// checkSlack is for rounding at low loads: 0.05 A at 240 V, and power in steps
	// of 10 W.
	checkSlack = 40 // watts
	// upsLeast is the least power factor that a UPS is believed to feed.
	upsLeast = 0.3
)

// CheckResult is the outcome of one cross check of a device's values.
type CheckResult struct {
	Device string
	Check  string
	// Implausible says that the values contradict each other.
	Implausible bool
	// Text shows the numbers; of several phases that are wrong, of the first.
	Text string
}

// readingSet holds the readings of one device by quantity and part.
type readingSet map[string]map[string]float64

func (v readingSet) of(quantity, part string) (float64, bool) {
	x, ok := v[quantity][part]
	return x, ok
}

func (v readingSet) sum(quantity string) (total float64, n int) {
	for _, x := range v[quantity] {
		total += x
	}
	return total, len(v[quantity])
}

// crossCheck compares the electrical values of each device with each other. A
// check whose values are not all there gives no result. Readings must have the
// parts of the quantity table.
func crossCheck(list []Reading) []CheckResult {
	devices := map[string]readingSet{}
	for _, r := range list {
		q, err := lookup(r.Quantity)
		if err != nil {
			continue
		}
		part, err := q.part(r.Part)
		if err != nil {
			continue
		}
		v := devices[r.Device]
		if v == nil {
			v = readingSet{}
			devices[r.Device] = v
		}
		if v[r.Quantity] == nil {
			v[r.Quantity] = map[string]float64{}
		}
		v[r.Quantity][part] = r.Value
	}
	var out []CheckResult
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		for _, check := range []func(readingSet) *CheckResult{
			phasePowerCheck, totalPowerCheck, powerSumCheck, outletSumCheck, upsPowerCheck,
		} {
			if r := check(devices[id]); r != nil {
				r.Device = id
				out = append(out, *r)
			}
		}
	}
	return out
}

// near compares two powers.
func near(a, b float64) bool {
	return math.Abs(a-b) <= checkTolerance*max(math.Abs(a), math.Abs(b))+checkSlack
}

// atMost tells whether a power keeps under a bound.
func atMost(a, bound float64) bool { return a <= bound*(1+checkTolerance)+checkSlack }

// apparent compares watts with volt-amperes: equal to their product with the
// power factor where that is known, else not above.
func apparent(watts, va float64, pf float64, known bool) (bool, string) {
	if known && pf != 0 {
		return near(watts, va*math.Abs(pf)), fmt.Sprintf("%.0f W, but V*I*PF is %.0f W", watts, va*math.Abs(pf))
	}
	return atMost(watts, va), fmt.Sprintf("%.0f W, but V*I is %.0f VA", watts, va)
}

// phasePowerCheck: V * I * PF against W of each phase.
func phasePowerCheck(v readingSet) *CheckResult {
	return eachPhase(checkPhasePower, v, "phase_power", "phase_voltage", "phase_current", func(part string, watts, va float64) (bool, string) {
		pf, known := v.of("phase_power_factor", part)
		return apparent(watts, va, pf, known)
	})
}

// upsPowerCheck: V * I of each output phase against W, which must lie between
// 30 % of it and it.
func upsPowerCheck(v readingSet) *CheckResult {
	return eachPhase(checkUPSPower, v, "ups_output_phase_power", "ups_output_voltage", "ups_output_current", func(_ string, watts, va float64) (bool, string) {
		ok := atMost(watts, va) && (watts+checkSlack)*(1+checkTolerance) >= upsLeast*va
		return ok, fmt.Sprintf("%.0f W, but V*I is %.0f VA", watts, va)
	})
}

// eachPhase applies a comparison to all phases that have power, voltage and
// current.
func eachPhase(name string, v readingSet, power, voltage, current string, compare func(part string, watts, va float64) (bool, string)) *CheckResult {
	var out *CheckResult
	for _, part := range slices.Sorted(maps.Keys(v[power])) {
		volts, ok1 := v.of(voltage, part)
		amps, ok2 := v.of(current, part)
		if !ok1 || !ok2 {
			continue
		}
		if out == nil {
			out = &CheckResult{Check: name}
		}
		if ok, text := compare(part, v[power][part], volts*amps); !ok && !out.Implausible {
			out.Implausible, out.Text = true, "phase "+part+": "+text
		}
	}
	return out
}

// totalPowerCheck: V * I * PF of all phases against the total, for devices that
// have no power per phase.
func totalPowerCheck(v readingSet) *CheckResult {
	watts, ok := v.of("power", "")
	if !ok || len(v["phase_power"]) > 0 || len(v["phase_current"]) == 0 {
		return nil
	}
	va := 0.0
	for part, amps := range v["phase_current"] {
		volts, ok := v.of("phase_voltage", part)
		if !ok {
			return nil
		}
		va += volts * amps
	}
	pf, known := v.of("power_factor", "")
	ok, text := apparent(watts, va, pf, known)
	return &CheckResult{Check: checkTotalPower, Implausible: !ok, Text: textIf(!ok, text)}
}

// powerSumCheck: the sum of the phases against the total.
func powerSumCheck(v readingSet) *CheckResult {
	watts, ok := v.of("power", "")
	sum, n := v.sum("phase_power")
	if !ok || n == 0 {
		return nil
	}
	bad := !near(watts, sum)
	return &CheckResult{Check: checkPowerSum, Implausible: bad, Text: textIf(bad, fmt.Sprintf("total %.0f W, phases together %.0f W", watts, sum))}
}

// outletSumCheck: outlets cannot take more than the whole; they may take less,
// where not all are metered.
func outletSumCheck(v readingSet) *CheckResult {
	watts, ok := v.of("power", "")
	sum, n := v.sum("outlet_power")
	if !ok || n == 0 {
		return nil
	}
	bad := !atMost(sum, watts)
	return &CheckResult{Check: checkOutletSum, Implausible: bad, Text: textIf(bad, fmt.Sprintf("total %.0f W, outlets together %.0f W", watts, sum))}
}

func textIf(show bool, text string) string {
	if show {
		return text
	}
	return ""
}
