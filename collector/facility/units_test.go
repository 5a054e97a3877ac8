// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"math"
	"testing"
)

// TestUnits checks each unit by a figure from a reference book, not by the
// factor in the table.
func TestUnits(t *testing.T) {
	figures := map[string][2]float64{ // raw, base
		"celsius": {21.5, 21.5}, "decicelsius": {214, 21.4}, "millicelsius": {21500, 21.5},
		"fahrenheit": {98.6, 37}, "kelvin": {300, 26.85},
		"ampere": {16, 16}, "deciampere": {28, 2.8}, "centiampere": {111, 1.11}, "milliampere": {7467, 7.467},
		"volt": {230, 230}, "decivolt": {2300, 230}, "millivolt": {229500, 229.5}, "kilovolt": {0.4, 400},
		"watt": {750, 750}, "milliwatt": {1500, 1.5}, "kilowatt": {0.27, 270}, "megawatt": {1.2, 1.2e6},
		"joule": {5, 5}, "kilojoule": {4.184, 4184}, "megajoule": {3.6, 3.6e6},
		"watt_hour": {1, 3600}, "kilowatt_hour": {1, 3.6e6}, "megawatt_hour": {0.001, 3.6e6},
		"ratio": {0.97, 0.97}, "percent": {41.3, 0.413},
		"second": {90, 90}, "millisecond": {1500, 1.5}, "minute": {17, 1020}, "hour": {2, 7200},
		"byte": {1500, 1500}, "bit": {8, 1}, "kilobyte": {1, 1000}, "kibibyte": {1, 1024},
		"byte_per_second": {125, 125}, "bit_per_second": {1e9, 1.25e8},
		"megabit_per_second": {100, 12.5e6}, "gigabit_per_second": {400, 50e9},
		"count": {3, 3}, "state": {1, 1},
	}
	for name, u := range units {
		f, ok := figures[name]
		if !ok {
			t.Errorf("unit %s has no figure in this test", name)
			continue
		}
		if got := u.convert(f[0]); math.Abs(got-f[1]) > 1e-9*math.Abs(f[1]) {
			t.Errorf("%g %s = %g %s, want %g", f[0], name, got, u.base, f[1])
		}
	}
	// Two fixed points tell a shift from a factor.
	for f, c := range map[float64]float64{-40: -40, 212: 100} {
		if got := units["fahrenheit"].convert(f); math.Abs(got-c) > 1e-9 {
			t.Errorf("%g F = %g C, want %g", f, got, c)
		}
	}
}

func TestUnitMustFit(t *testing.T) {
	q, _ := lookup("inlet_temperature")
	_, err := unitFor("kilowatt", q)
	wantErr(t, err, `unit "kilowatt" does not measure celsius`, "quantity inlet_temperature takes celsius, decicelsius, fahrenheit, kelvin, millicelsius")
	_, err = unitFor("degC", q)
	wantErr(t, err, `unit "degC" is unknown`)
	if u, err := unitFor("", q); err != nil || u.base != UnitCelsius || u.convert(20) != 20 {
		t.Errorf("default unit: %v %v", u, err)
	}
}

// TestEveryQuantityHasUnits finds a base unit that no unit leads to.
func TestEveryQuantityHasUnits(t *testing.T) {
	for _, q := range Quantities() {
		if u, ok := units[q.Base]; q.Base != UnitInfo && (!ok || u.base != q.Base || u.factor != 1 || u.shift != 0) {
			t.Errorf("quantity %s: base unit %q is not in the table of units as itself", q.Name, q.Base)
		}
	}
}

// TestScaled: scaled numbers are what a person writes down.
func TestScaled(t *testing.T) {
	for _, c := range []struct {
		unit             string
		raw, scale, want float64
	}{
		{"ampere", 53, 0.1, 5.3}, {"kilowatt", 829, 0.01, 8290}, {"milliampere", 7467, 1, 7.467}, {"percent", 41, 1, 0.41},
		{"kilowatt_hour", 19677, 0.1, 7083720000}, {"volt", 230, 1, 230}, {"ratio", -946, 0.001, -0.946}, {"fahrenheit", 770, 0.1, 25},
	} {
		if got := units[c.unit].scaled(c.raw, c.scale); got != c.want {
			t.Errorf("%v x %v %s is %v, want %v", c.raw, c.scale, c.unit, got, c.want)
		}
	}
}
