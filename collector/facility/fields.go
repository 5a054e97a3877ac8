// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FieldConfig maps one value of a line or file to a quantity. The reading is
// (raw*Scale + Offset) converted from Unit into the quantity's base unit.
type FieldConfig struct {
	// Name is the key, the JSON path ("outlets.0.watts"), the named group of the
	// regular expression or the metric name. Column is used instead for csv and
	// counts from 1.
	Name   string `yaml:"name"`
	Column int    `yaml:"column"`

	Quantity string `yaml:"quantity"`
	// Part is the phase, line, outlet, branch, port or direction.
	Part string `yaml:"part"`
	// Device is another device of the site file that the value belongs to; empty
	// means the device of the entry. One box can so serve several sensors.
	Device string `yaml:"device"`
	// Unit is the unit of the raw value; empty means the base unit.
	Unit   string  `yaml:"unit"`
	Scale  float64 `yaml:"scale"` // 0 means 1
	Offset float64 `yaml:"offset"`
	// Sentinels are raw values that mean "no value", such as -127, 85 or nan.
	Sentinels []string `yaml:"sentinels"`
	// States gives words a number, such as {wet: 1, dry: 0}.
	States map[string]float64 `yaml:"states"`

	// Match selects samples by their labels, and PartLabel is the label whose
	// value is the part; both for the textfile format prometheus only.
	Match     map[string]string `yaml:"match"`
	PartLabel string            `yaml:"part_label"`
}

// words are what devices say for the two states.
var words = map[string]float64{"true": 1, "on": 1, "yes": 1, "false": 0, "off": 0, "no": 0}

// field is a checked FieldConfig.
type field struct {
	FieldConfig
	quantity *Quantity
	unit     unit
	states   map[string]float64
}

// parsed is what one field of a line gave: a reading, or word that the device
// has no value now.
type parsed struct {
	field   int
	absent  bool
	reading Reading
}

// errBadValue marks a value that is there but cannot be read.
var errBadValue = errors.New("bad value")

// newField checks one field; kind tells the kind of a device, empty if unknown.
func newField(c FieldConfig, own string, kind func(id string) string) (field, error) {
	q, err := lookup(c.Quantity)
	if err != nil {
		return field{}, err
	}
	if c.PartLabel == "" {
		c.Part, err = q.part(c.Part)
	} else if q.PartLabel == "" || c.Part != "" {
		err = fmt.Errorf("part_label does not go with quantity %s and part %q", q.Name, c.Part)
	}
	if err != nil {
		return field{}, err
	}
	u, err := unitFor(c.Unit, q)
	if err != nil {
		return field{}, err
	}
	if c.Device == "" {
		c.Device = own
	}
	if err := q.allows(kind(c.Device)); err != nil {
		return field{}, fmt.Errorf("device %s: %w", c.Device, err)
	}
	if c.Scale == 0 {
		c.Scale = 1
	}
	if !finite(c.Scale) || !finite(c.Offset) {
		return field{}, errors.New("scale and offset must be finite numbers")
	}
	f := field{FieldConfig: c, quantity: q, unit: u, states: map[string]float64{}}
	if q.Base == UnitState {
		for w, v := range words {
			f.states[w] = v
		}
	}
	for w, v := range c.States {
		f.states[strings.ToLower(w)] = v
	}
	return f, nil
}

// newFields checks all fields of an entry and that no two give the same series.
func newFields(list []FieldConfig, own string, kind func(id string) string) ([]field, error) {
	if len(list) == 0 {
		return nil, errors.New("fields: at least one is needed")
	}
	seen := map[[3]string]bool{}
	fields := make([]field, 0, len(list))
	for i, c := range list {
		f, err := newField(c, own, kind)
		if err != nil {
			return nil, fmt.Errorf("fields[%d] (%s): %w", i, c.label(), err)
		}
		key := [3]string{f.Device, f.Quantity, f.Part}
		if seen[key] && f.PartLabel == "" && len(f.Match) == 0 {
			return nil, fmt.Errorf("fields[%d] (%s): %s %s of %s is given twice", i, c.label(), f.Quantity, f.Part, f.Device)
		}
		seen[key] = true
		fields = append(fields, f)
	}
	return fields, nil
}

// label names a field in messages.
func (c FieldConfig) label() string {
	if c.Column > 0 {
		return "column " + strconv.Itoa(c.Column)
	}
	return c.Name
}

// parse turns the raw text of the field into a reading.
func (f *field) parse(raw string, decimalComma bool) (parsed, error) {
	raw = strings.TrimSpace(raw)
	if f.sentinel(raw) {
		return parsed{absent: true}, nil
	}
	v, ok := f.states[strings.ToLower(raw)]
	if !ok {
		text := raw
		if decimalComma {
			text = strings.Replace(text, ",", ".", 1)
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !finite(n) {
			return parsed{}, fmt.Errorf("%w: %s: %q is not a number", errBadValue, f.label(), clip(raw, 40))
		}
		if f.sentinelNumber(n) {
			return parsed{absent: true}, nil
		}
		v = n
	}
	return parsed{reading: f.reading(v)}, nil
}

// reading scales a raw number and converts it into the base unit.
func (f *field) reading(raw float64) Reading {
	return Reading{
		Device:   f.Device,
		Quantity: f.Quantity,
		Part:     f.Part,
		Value:    f.unit.convert(raw*f.Scale + f.Offset),
	}
}

func (f *field) sentinel(raw string) bool {
	for _, s := range f.Sentinels {
		if strings.EqualFold(s, raw) {
			return true
		}
	}
	return false
}

// sentinelNumber also knows a sentinel in another spelling: -127 and -127.00.
func (f *field) sentinelNumber(v float64) bool {
	for _, s := range f.Sentinels {
		if n, err := strconv.ParseFloat(s, 64); err == nil && n == v {
			return true
		}
	}
	return false
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
