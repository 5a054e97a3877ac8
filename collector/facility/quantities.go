// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

// Quantity is one thing that a facility device can measure. The table of
// quantities is the only place where a facility metric gets its name, unit and
// range.
type Quantity struct {
	// Name is what drivers and configurations say, such as "phase_current".
	Name string
	// Desc is the metric family; its one label, if any, is PartLabel.
	Desc *collector.Desc
	// Base is the unit of a Reading's value: see the Unit constants.
	Base string
	// PartLabel is the label of Reading.Part: phase, line, outlet, branch, port
	// or direction; empty when the quantity has no parts.
	PartLabel string
	// TextLabel is the label of Reading.Text, for quantities whose Base is UnitInfo.
	TextLabel string
	// Kinds are the kinds of device (site.Kind...) that can have it.
	Kinds []string
	// Why is the reason for the range gate in Desc.
	Why string
}

// Base units of quantities.
const (
	UnitCelsius        = "celsius"
	UnitAmpere         = "ampere"
	UnitVolt           = "volt"
	UnitWatt           = "watt"
	UnitJoule          = "joule"
	UnitRatio          = "ratio"
	UnitSecond         = "second"
	UnitByte           = "byte"
	UnitBytesPerSecond = "byte_per_second"
	UnitCount          = "count"
	UnitState          = "state"
	UnitInfo           = "info" // the value is 1, the text says it
)

// maxPart bounds a label value that comes from a device, in bytes.
const maxPart = 64

// Reasons of the range gates. Currents, powers and energies are bounded by the
// largest equipment sold with some headroom, so that a value with a wrong scale
// (milliampere taken for ampere) or an all-ones register does not pass.
const (
	whySensor    = "digital sensors measure from -40; 85 is the power-on value of a DS18B20"
	whyRatio     = "a share of the whole"
	whyState     = "0 no, 1 yes"
	whyInfo      = "always 1"
	whyCurrent   = "largest rack PDU inlet is 125 A (IEC 60309), times three"
	whyOutlet    = "largest rack outlet is 63 A (IEC 60309), with headroom"
	whyVoltage   = "480 V line to line plus 10 % is 528 V"
	whyPhase     = "125 A at 277 V is 35 kW, with headroom"
	whyPower     = "125 A at 415 V three-phase is 90 kW, with headroom"
	whyOutletW   = "63 A at 277 V is 17 kW, with headroom"
	whyEnergy    = "90 kW for 20 years is 5.7e13 J; an all-ones register in 0.1 kWh is 1.5e15 J"
	whyMeter     = "1 GW for 20 years is 6.3e17 J"
	whyCounter   = "a 64-bit counter"
	whyNode      = "the largest GPU servers take 15 kW, with headroom"
	whyPortSpeed = "1.6 Tbit/s is 2e11 bytes/s, with headroom"
)

var (
	pdu     = []string{site.KindPDU}
	ups     = []string{site.KindUPS}
	cooling = []string{site.KindCooling}
	swtch   = []string{site.KindSwitch}
	sensor  = []string{site.KindSensor}
	meter   = []string{site.KindMeter}
)

// quantities is the table, in the order of the documentation.
var quantities = slices.Concat(sensorQuantities, pduQuantities, upsQuantities, coolingQuantities, switchQuantities, meterQuantities)

var byName = index(quantities, func(q Quantity) string { return q.Name })

var byMetric = index(quantities, func(q Quantity) string { return q.Desc.Name })

func index(table []Quantity, key func(Quantity) string) map[string]*Quantity {
	m := make(map[string]*Quantity, len(table))
	for i := range table {
		k := key(table[i])
		if m[k] != nil {
			panic("facility: " + k + " is twice in the quantity table")
		}
		m[k] = &table[i]
	}
	return m
}

// Quantities returns the quantity table in documentation order.
func Quantities() []Quantity { return slices.Clone(quantities) }

// lookup finds a quantity by name; the error lists what there is.
func lookup(name string) (*Quantity, error) {
	if q := byName[name]; q != nil {
		return q, nil
	}
	names := make([]string, 0, len(byName))
	for n := range byName {
		names = append(names, n)
	}
	sort.Strings(names)
	return nil, fmt.Errorf("unknown quantity %q; known are %s", name, strings.Join(names, ", "))
}

// allows says whether a device of this kind can have the quantity; an empty
// kind is not known yet and allowed.
func (q *Quantity) allows(kind string) error {
	if kind == "" || slices.Contains(q.Kinds, kind) {
		return nil
	}
	return fmt.Errorf("quantity %s belongs to a %s, not to a %s", q.Name, strings.Join(q.Kinds, " or "), kind)
}

// phases are the spellings that devices use for the three phases. Values are
// the label values: "1" is line 1 to neutral, "1-2" is line 1 to line 2.
var phases = map[string]string{
	"1": "1", "2": "2", "3": "3", "L1": "1", "L2": "2", "L3": "3", "A": "1", "B": "2", "C": "3",
	"1-2": "1-2", "2-3": "2-3", "3-1": "3-1", "L1-L2": "1-2", "L2-L3": "2-3", "L3-L1": "3-1",
	"AB": "1-2", "BC": "2-3", "CA": "3-1",
}

// part returns the label value for a part as a device or configuration names
// it: phases and lines in one spelling, everything else as it is.
func (q *Quantity) part(s string) (string, error) {
	switch {
	case q.PartLabel == "" && s != "":
		return "", fmt.Errorf("quantity %s has no parts, got part %q", q.Name, clip(s, maxPart))
	case q.PartLabel == "":
		return "", nil
	case s == "":
		return "", fmt.Errorf("quantity %s needs a part (its %s)", q.Name, q.PartLabel)
	}
	if err := q.checkLabel(q.PartLabel, s); err != nil {
		return "", err
	}
	switch q.PartLabel {
	case "phase", "line":
		p, ok := phases[strings.ToUpper(s)]
		if !ok || q.PartLabel == "line" && len(p) > 1 {
			return "", fmt.Errorf("quantity %s: unknown %s %q; use 1, 2 or 3 (or L1, A; between phases: 1-2, AB)", q.Name, q.PartLabel, s)
		}
		return p, nil
	case "direction":
		if s != "up" && s != "down" {
			return "", fmt.Errorf("quantity %s: direction %q is neither up nor down", q.Name, s)
		}
	}
	return s, nil
}

// checkLabel bounds a label value that comes from a device.
func (q *Quantity) checkLabel(label, s string) error {
	if len(s) > maxPart || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("quantity %s: %s %q is not printable text of at most %d bytes", q.Name, label, clip(s, maxPart), maxPart)
	}
	return nil
}

// clip bounds text from outside for messages.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
