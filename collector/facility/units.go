// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"math"
	"sort"
	"strings"
)

// unit converts a value into a base unit: base = (value + shift) * factor.
type unit struct {
	base          string
	factor, shift float64
}

// units is the one table of units that a configuration or a profile may name.
var units = map[string]unit{
	"celsius":      {base: UnitCelsius, factor: 1},
	"decicelsius":  {base: UnitCelsius, factor: 0.1},
	"millicelsius": {base: UnitCelsius, factor: 0.001},
	"fahrenheit":   {base: UnitCelsius, factor: 5.0 / 9, shift: -32},
	"kelvin":       {base: UnitCelsius, factor: 1, shift: -273.15},

	"ampere":      {base: UnitAmpere, factor: 1},
	"deciampere":  {base: UnitAmpere, factor: 0.1},
	"centiampere": {base: UnitAmpere, factor: 0.01},
	"milliampere": {base: UnitAmpere, factor: 0.001},

	"volt":      {base: UnitVolt, factor: 1},
	"decivolt":  {base: UnitVolt, factor: 0.1},
	"millivolt": {base: UnitVolt, factor: 0.001},
	"kilovolt":  {base: UnitVolt, factor: 1000},

	"watt":      {base: UnitWatt, factor: 1},
	"milliwatt": {base: UnitWatt, factor: 0.001},
	"kilowatt":  {base: UnitWatt, factor: 1000},
	"megawatt":  {base: UnitWatt, factor: 1e6},

	"joule":         {base: UnitJoule, factor: 1},
	"kilojoule":     {base: UnitJoule, factor: 1000},
	"megajoule":     {base: UnitJoule, factor: 1e6},
	"watt_hour":     {base: UnitJoule, factor: 3600},
	"kilowatt_hour": {base: UnitJoule, factor: 3.6e6},
	"megawatt_hour": {base: UnitJoule, factor: 3.6e9},

	"ratio":   {base: UnitRatio, factor: 1},
	"percent": {base: UnitRatio, factor: 0.01},

	"second":      {base: UnitSecond, factor: 1},
	"millisecond": {base: UnitSecond, factor: 0.001},
	"minute":      {base: UnitSecond, factor: 60},
	"hour":        {base: UnitSecond, factor: 3600},

	"byte":     {base: UnitByte, factor: 1},
	"bit":      {base: UnitByte, factor: 0.125},
	"kilobyte": {base: UnitByte, factor: 1000},
	"kibibyte": {base: UnitByte, factor: 1024},

	"byte_per_second":    {base: UnitBytesPerSecond, factor: 1},
	"bit_per_second":     {base: UnitBytesPerSecond, factor: 0.125},
	"megabit_per_second": {base: UnitBytesPerSecond, factor: 1.25e5},
	"gigabit_per_second": {base: UnitBytesPerSecond, factor: 1.25e8},

	"count": {base: UnitCount, factor: 1},
	"state": {base: UnitState, factor: 1},
}

// convert turns a value of this unit into the base unit.
func (u unit) convert(v float64) float64 { return (v + u.shift) * u.factor }

// scaled turns raw * scale, in this unit, into the base unit. It divides where
// the factor is one over a whole number: 53 tenths are 5.3, not
// 5.300000000000001.
func (u unit) scaled(raw, scale float64) float64 {
	if u.shift != 0 {
		return u.convert(raw * scale)
	}
	factor := scale * u.factor
	if whole := math.Round(1 / factor); math.Abs(whole) > 1 && math.Abs(whole*factor-1) < 1e-12 {
		return raw / whole
	}
	return raw * factor
}

// unitFor finds the unit with this name and checks that it fits the quantity;
// an empty name is the quantity's base unit.
func unitFor(name string, q *Quantity) (unit, error) {
	if name == "" {
		name = q.Base
	}
	u, ok := units[name]
	if !ok || u.base != q.Base {
		problem := "does not measure " + q.Base
		if !ok {
			problem = "is unknown"
		}
		return unit{}, fmt.Errorf("unit %q %s; quantity %s takes %s", name, problem, q.Name, strings.Join(unitNames(q.Base), ", "))
	}
	return u, nil
}

// unitNames lists the units of a base unit, sorted.
func unitNames(base string) []string {
	var names []string
	for name, u := range units {
		if u.base == base {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}
