// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosnmp/gosnmp"

	"github.com/rackpulse/rackpulse/collector"
)

// SNMPValue is one value of a device with its origin.
type SNMPValue struct {
	Reading
	// Object is the object's name in the MIB and OID its instance.
	Object, OID string
	// Raw is the value as the agent sent it.
	Raw string
	// Factor is what Raw is multiplied with to get Unit.
	Factor float64
	Unit   string
	// Owner is the unit of a daisy chain or the sensor that the value belongs to,
	// as "unit 2" or "sensor 1"; empty for the device itself.
	Owner string
	// Absent is why there is no value; the Reading's Value then means nothing.
	Absent string
}

// rowView is a row with the objects at hand.
type rowView struct {
	driver *snmpDriver
	table  *snmpTable
	row    *snmpRow
	cells  map[string]cell
}

// evaluate makes readings of the rows whose objects were all read.
func (d *snmpDriver) evaluate(t *snmpRows, cells map[string]cell) ([]SNMPValue, error) {
	var out []SNMPValue
	var errs []error
	for i := range t.rows {
		r := &t.rows[i]
		if !d.complete(r, cells) {
			continue
		}
		w := rowView{d, t.table, r, cells}
		first := len(out)
		for j := range t.table.Values {
			v := &t.table.Values[j]
			if !w.holds(t.table.Where, t.table.Unless) || !w.holds(v.Where, v.Unless) {
				continue
			}
			value, err := w.value(v)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			same := slices.IndexFunc(out[first:], func(o SNMPValue) bool {
				return o.Quantity == value.Quantity && o.Part == value.Part && o.Device == value.Device
			})
			switch {
			case value.Object == "": // not a row for this value
			case same < 0:
				out = append(out, value)
			case out[first+same].Absent != "":
				out[first+same] = value
			}
		}
	}
	return out, errors.Join(errs...)
}

// cell finds an object or an index of the row by its name.
func (w *rowView) cell(name string) cell {
	if i := slices.Index(w.table.Index, name); i >= 0 {
		return newCell(gosnmp.SnmpPDU{Type: gosnmp.OctetString, Value: []byte(w.row.index[i])})
	}
	oid := w.driver.profile.SNMP.instanceOf(w.table, w.row, name)
	if c, ok := w.cells[oid]; ok {
		return c
	}
	if c, ok := w.driver.static[oid]; ok {
		return c
	}
	return cell{kind: gosnmp.Null, num: math.NaN()}
}

// holds checks conditions. An object that is not there fulfils no where and no
// unless.
func (w *rowView) holds(where, unless map[string]oneOrMany) bool {
	for name, values := range where {
		if c := w.cell(name); !c.exists() || !slices.Contains(values, c.text) {
			return false
		}
	}
	for name, values := range unless {
		if c := w.cell(name); c.exists() && slices.Contains(values, c.text) {
			return false
		}
	}
	return true
}

// render replaces the names in braces; false if one of them is not there.
func (w *rowView) render(text string) (string, bool) {
	ok := true
	out := refForm.ReplaceAllStringFunc(text, func(ref string) string {
		c := w.cell(ref[1 : len(ref)-1])
		ok = ok && c.exists() && c.text != ""
		return c.text
	})
	return out, ok
}

// owner says whose value a row holds: the id of the device ("" for the device
// itself) and words for it. ok is false where it belongs to nobody.
func (w *rowView) owner(v *snmpValue) (device, quantity, words string, ok bool) {
	quantity = v.Quantity
	if w.table.Sensor != "" {
		number, found := w.render(w.table.Sensor)
		s, mine := w.driver.sensors[number]
		if mine && s.Measures == "outlet_temperature" {
			if quantity == "inlet_humidity" {
				return "", "", "", false // there is no such quantity at the outlet
			}
			quantity = strings.Replace(quantity, "inlet_temperature", s.Measures, 1)
		}
		return s.Device, quantity, "sensor " + number, found && (mine || w.driver.showAll)
	}
	if w.table.Chain == "" {
		return "", quantity, "", true
	}
	unit, found := w.render(w.table.Chain)
	switch w.driver.unit {
	case "":
		return "", "", "", false // it is not known yet which unit this is
	case unit:
		return "", quantity, "", found
	}
	device, mine := w.driver.config.Chain[unit]
	return device, quantity, "unit " + unit, found && (mine || w.driver.showAll)
}

// value makes a reading of one value of the row. Without Object there is none.
func (w *rowView) value(v *snmpValue) (out SNMPValue, err error) {
	device, quantity, words, ok := w.owner(v)
	if !ok {
		return out, nil
	}
	part, parts := v.partOf(w.table)
	part, ok = w.render(part)
	if parts != nil && ok {
		part, ok = parts[part], parts[part] != ""
	}
	if !ok {
		return out, nil
	}
	c, object := w.cell(v.Object), v.Object
	if v.Signed != "" && (!c.exists() || c.num == 0) {
		if signed := w.cell(v.Signed); signed.exists() && signed.num != 0 {
			c, object = signed, v.Signed
		}
	}
	oid := w.driver.profile.SNMP.instanceOf(w.table, w.row, object)
	if !c.exists() {
		return out, nil
	}
	out = SNMPValue{
		Reading: Reading{Device: device, Quantity: quantity, Part: part},
		Object:  object, OID: oid, Raw: c.text, Owner: words, Factor: 1, Unit: v.Unit,
	}
	if out.Absent, err = w.convert(v, c, &out); err != nil {
		err = fmt.Errorf("object %s (%s): %w", object, oid, err)
	}
	return out, err
}

// convert turns the raw value into the reading's; absent says why there is none.
func (w *rowView) convert(v *snmpValue, c cell, out *SNMPValue) (absent string, err error) {
	q := byName[v.Quantity]
	sentinels := v.Sentinels
	if sentinels == nil {
		sentinels = w.table.Sentinels
	}
	switch {
	case slices.ContainsFunc(sentinels, func(s string) bool { return sameNumber(s, c) }):
		return "the device says " + c.text, nil
	case q.Base == UnitInfo:
		out.Text, out.Value = c.text, 1
		if c.text == "" {
			return "the text is empty", nil
		}
		return "", nil
	case q.Base == UnitState:
		state, ok := v.States[c.text]
		if !ok {
			return "the device says " + c.text, nil
		}
		out.Value = state
		return "", nil
	case math.IsNaN(c.num):
		return "", fmt.Errorf("want a number, got %v %q", c.kind, clip(c.text, 40))
	case v.Falls != nil:
		out.Value = w.driver.counter(out).fall(c.text, w.cell(v.Falls.SeenBy).text, v.Falls.From)
		out.Unit = UnitCount
		return "", nil
	}
	u, err := w.unit(v, out)
	if err != nil {
		return "", err
	}
	raw := c.num
	if c.kind == gosnmp.Counter32 && q.Desc.Type == collector.Counter {
		raw = w.driver.counter(out).unwrap(raw)
	}
	out.Value = u.scaled(raw, out.Factor)
	return "", nil
}

// unit finds scale and unit of a value.
func (w *rowView) unit(v *snmpValue, out *SNMPValue) (unit, error) {
	if v.Scale != nil {
		out.Factor = *v.Scale
	}
	if f, ok := w.driver.scale[v.Object]; ok {
		out.Factor *= f
	}
	if v.Digits != "" {
		c := w.cell(v.Digits)
		if !(c.num >= 0 && c.num <= 18) || c.num != math.Trunc(c.num) {
			return unit{}, fmt.Errorf("its digits, object %s, are %q", v.Digits, c.text)
		}
		out.Factor *= math.Pow(10, -c.num)
	}
	if v.ScaleFrom != nil {
		f, ok := v.ScaleFrom.Values[w.cell(v.ScaleFrom.Object).text]
		if !ok {
			return unit{}, fmt.Errorf("its scale, object %s, is %q", v.ScaleFrom.Object, w.cell(v.ScaleFrom.Object).text)
		}
		out.Factor *= f
	}
	if v.UnitFrom != nil {
		name, ok := v.UnitFrom.Values[w.cell(v.UnitFrom.Object).text]
		if !ok {
			return unit{}, fmt.Errorf("its unit, object %s, is %q", v.UnitFrom.Object, w.cell(v.UnitFrom.Object).text)
		}
		out.Unit = name
	}
	return units[out.Unit], nil
}

// sameNumber tells whether a cell has the value that a profile names.
func sameNumber(text string, c cell) bool {
	if text == c.text {
		return true
	}
	n, err := strconv.ParseFloat(text, 64)
	return err == nil && n == c.num
}

// snmpCounter is what a counter needs to know of the read before.
type snmpCounter struct {
	started     bool
	last, base  float64 // of a counter that wraps
	state, seen string  // of a state whose falls are counted
	count       float64
}

// counter finds the counter of a value. The key has no index in it: indexes of
// interfaces change.
func (d *snmpDriver) counter(v *SNMPValue) *snmpCounter {
	key := v.Device + "\x00" + v.Owner + "\x00" + v.Quantity + "\x00" + v.Part
	c := d.counters[key]
	if c == nil {
		if len(d.counters) >= maxReadings { // names that change all the time
			clear(d.counters)
		}
		c = &snmpCounter{}
		d.counters[key] = c
	}
	return c
}

const wrap32 = 1 << 32

// unwrap makes a 32-bit counter one that goes on: a step back from the upper
// half into the lower half is a wrap. Any other step back is a reset, which is
// shown as it is.
func (c *snmpCounter) unwrap(raw float64) float64 {
	if c.started && raw < c.last {
		if c.last >= wrap32/2 && raw < wrap32/2 {
			c.base += wrap32
		} else {
			c.base = 0
		}
	}
	c.started, c.last = true, raw
	return c.base + raw
}

// fall counts how often a state was left. seen changes with every change of the
// state, so that a fall and a rise between two reads count as one fall.
func (c *snmpCounter) fall(state, seen string, from []string) float64 {
	before, now := slices.Contains(from, c.state), slices.Contains(from, state)
	if c.started && before && (!now || seen != c.seen) {
		c.count++
	}
	c.started, c.state, c.seen = true, state, seen
	return c.count
}
