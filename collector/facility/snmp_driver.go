// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosnmp/gosnmp"
)

// snmpDriver reads one agent by a profile. The rows of the profile's tables are
// looked up once and then again from time to time; a read is GETs of what is
// known to be there.
type snmpDriver struct {
	session snmpSession
	config  SNMPConfig
	kind    func() string // of the device; empty: not known yet
	fixed   *Profile      // the configured profile; nil: found by what the device says
	sensors map[string]SNMPSensor
	showAll bool // also show rows that belong to no configured device

	profile  *Profile // nil until the device is identified
	id       snmpIdentity
	tables   []*snmpRows
	scale    map[string]float64 // corrections of the profile's variants, by object
	uptime   float64            // sysUpTime in hundredths of a second, NaN: unknown
	counters map[string]*snmpCounter
	static   map[string]cell // objects that are read once after rows were looked up
	absent   map[string]bool // objects that the device has not
	turn     int             // the row to begin with after a read that was cut off
	unit     string          // the device's own number in a daisy chain; empty: not known
}

func newSNMPDriver(address string, c SNMPConfig, profile *Profile, own string) (*snmpDriver, error) {
	host, port, err := hostPort(address)
	if err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	d := &snmpDriver{config: c, fixed: profile, sensors: map[string]SNMPSensor{}, kind: func() string { return "" }}
	for _, s := range c.Sensors {
		d.sensors[s.Sensor] = s
	}
	d.session.host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	d.session.connect = func() (*gosnmp.GoSNMP, error) {
		g, err := c.credentials() // read anew: they may have been changed
		if err != nil {
			return nil, err
		}
		g.Target, g.Port = host, port
		return g, nil
	}
	for unit, id := range c.Chain {
		if id == own {
			return nil, fmt.Errorf("chain: unit %s is this device itself", unit)
		}
	}
	return d, nil
}

// fresh returns a driver that knows nothing of the device yet.
func (d *snmpDriver) fresh() *snmpDriver {
	n := *d
	n.restart()
	n.session.bulk, n.session.oids = orInt(d.config.MaxRepetitions, defaultBulk), orInt(d.config.MaxOIDs, defaultOIDs)
	return &n
}

func orInt(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// restart forgets the device: it may be another one now, with other firmware.
func (d *snmpDriver) restart() {
	d.profile, d.tables, d.scale, d.turn = nil, nil, nil, 0
	d.uptime, d.unit = math.NaN(), d.config.Unit
	d.counters, d.static, d.absent = map[string]*snmpCounter{}, map[string]cell{}, map[string]bool{}
}

// serves lists the devices behind the device own.
func (d *snmpDriver) serves(own string) []string {
	ids := slices.Collect(maps.Values(d.config.Chain))
	for _, s := range d.config.Sensors {
		if s.Device != own {
			ids = append(ids, s.Device)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Close gives the socket back.
func (d *snmpDriver) Close() error { return d.session.close() }

// Read returns what the device shows now. A read that the deadline cuts off
// returns what it has; the next one begins where it ended.
func (d *snmpDriver) Read(ctx context.Context) ([]Reading, error) {
	values, err := d.read(ctx)
	var list []Reading
	for _, v := range values {
		if v.Absent == "" {
			list = append(list, v.Reading)
		}
	}
	if d.profile != nil {
		list = derive(d.profile.Derived, list)
	}
	if err != nil {
		if len(list) == 0 {
			d.session.close() //nolint:errcheck // the error of the read says more
		}
		err = fmt.Errorf("%s: %w", d.session.host, err)
	}
	return list, err
}

// read does one read in three steps: what is known, then rows to look up, then
// what was found.
func (d *snmpDriver) read(ctx context.Context) ([]SNMPValue, error) {
	if d.profile == nil {
		if err := d.identify(ctx); err != nil {
			return nil, err
		}
	}
	cells := map[string]cell{}
	known := d.knownTables()
	err := d.poll(ctx, known, cells)
	if d.restarted(cells) {
		d.restart()
		return d.read(ctx)
	}
	if err == nil || isObjectError(err) {
		found, findErr := d.discover(ctx, time.Now())
		err = errors.Join(err, findErr)
		if len(found) > 0 {
			known = append(known, found...)
			err = errors.Join(err, d.poll(ctx, found, cells))
		}
	}
	d.findUnit(cells)
	var values []SNMPValue
	for _, t := range known {
		got, rowErr := d.evaluate(t, cells)
		values = append(values, got...)
		err = errors.Join(err, rowErr)
	}
	return values, firstErrors(err)
}

// findUnit finds the lowest number in a daisy chain. It waits until all rows
// are known: a part of them may be those of the other units.
func (d *snmpDriver) findUnit(cells map[string]cell) {
	lowest := math.Inf(1)
	for _, t := range d.tables {
		if d.unit != "" || !t.known {
			return
		}
		for i := range t.rows {
			if t.table.Chain == "" {
				break
			}
			w := rowView{d, t.table, &t.rows[i], cells}
			unit, ok := w.render(t.table.Chain)
			if !ok && !d.complete(&t.rows[i], cells) {
				return
			}
			if n, err := strconv.ParseFloat(unit, 64); err == nil && n < lowest {
				lowest = n
			}
		}
	}
	if finite(lowest) {
		d.unit = strconv.FormatFloat(lowest, 'f', -1, 64)
	}
}

func isObjectError(err error) bool {
	var object *objectError
	return errors.As(err, &object)
}

// maxErrors bounds what is said about one read.
const maxErrors = 5

// firstErrors bounds a joined error.
func firstErrors(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) <= maxErrors {
		return err
	}
	return fmt.Errorf("%s\nand %d more", strings.Join(lines[:maxErrors], "\n"), len(lines)-maxErrors)
}

// restarted tells whether the device has restarted since the last read.
func (d *snmpDriver) restarted(cells map[string]cell) bool {
	up, ok := cells[sysUpTime]
	if !ok || math.IsNaN(up.num) {
		return false
	}
	before := d.uptime
	d.uptime = up.num
	return up.num < before
}

// poll reads all objects of the rows of some tables, in rows from the one where
// the last read was cut off.
func (d *snmpDriver) poll(ctx context.Context, tables []*snmpRows, cells map[string]cell) error {
	var rows []*snmpRow
	for _, t := range tables {
		for i := range t.rows {
			rows = append(rows, &t.rows[i])
		}
	}
	if len(rows) > 0 {
		d.turn %= len(rows)
		rows = append(slices.Clone(rows[d.turn:]), rows[:d.turn]...)
	}
	oids := d.wanted(rows, cells)
	err := d.session.get(ctx, oids, cells)
	d.learn(rows, oids, cells)
	if err == nil || isObjectError(err) {
		return err
	}
	done := 0
	for done < len(rows) && d.complete(rows[done], cells) {
		done++
	}
	d.turn += done
	if len(cells) > 0 {
		err = fmt.Errorf("%d of %d objects were read: %w", len(cells), len(oids), err)
	}
	return err
}

// wanted lists the objects to read for some rows, with sysUpTime the first.
func (d *snmpDriver) wanted(rows []*snmpRow, cells map[string]cell) []string {
	queued := map[string]bool{}
	var oids []string
	want := func(oid string) {
		_, have := cells[oid]
		if _, known := d.static[oid]; !have && !known && !d.absent[oid] && !queued[oid] {
			oids, queued[oid] = append(oids, oid), true
		}
	}
	want(sysUpTime)
	for _, r := range rows {
		for _, oid := range r.needs {
			want(oid)
		}
	}
	return oids
}

// learn remembers what the device has not, and what does not change.
func (d *snmpDriver) learn(rows []*snmpRow, oids []string, cells map[string]cell) {
	for _, oid := range oids {
		if c, ok := cells[oid]; ok && !c.exists() {
			d.absent[oid] = true
		}
	}
	for _, r := range rows {
		for _, oid := range r.fixed {
			if c, ok := cells[oid]; ok && c.exists() {
				d.static[oid] = c
			}
		}
	}
}

// complete tells whether all objects of a row are at hand.
func (d *snmpDriver) complete(r *snmpRow, cells map[string]cell) bool {
	for _, oid := range r.needs {
		_, read := cells[oid]
		_, known := d.static[oid]
		if !read && !known && !d.absent[oid] {
			return false
		}
	}
	return true
}

// derive adds what a device does not report itself.
func derive(rules []derivedQuantity, list []Reading) []Reading {
	own := len(list)
	for _, rule := range rules {
		sums := map[string]float64{}
		for _, r := range list[:own] {
			switch {
			case r.Quantity == rule.Quantity:
				sums[r.Device] = math.Inf(1)
			case r.Quantity == rule.Sum:
				sums[r.Device] += r.Value
			case r.Quantity == rule.Highest:
				sums[r.Device] = max(sums[r.Device], r.Value)
			}
		}
		for _, device := range slices.Sorted(maps.Keys(sums)) {
			if v := sums[device]; finite(v) {
				list = append(list, Reading{Device: device, Quantity: rule.Quantity, Value: v})
			}
		}
	}
	return list
}
