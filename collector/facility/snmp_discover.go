// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxRows bounds the rows of one table: a switch with 512 ports and their
// subinterfaces has fewer.
const maxRows = 4096

// snmpRows are the rows of one table of the profile.
type snmpRows struct {
	table *snmpTable
	rows  []snmpRow
	known bool      // the rows were looked up once
	due   time.Time // when they are looked up again

	found []snmpRow // of a walk that was cut off
	from  string    // where it goes on
}

// snmpRow is one row.
type snmpRow struct {
	instance string   // the index as the agent writes it
	index    []string // its parts, as many as the table's Index has
	needs    []string // the objects that are read for it
	fixed    []string // those of them that do not change: digits and units of a chain
}

const (
	sysDescr    = "1.3.6.1.2.1.1.1.0"
	sysObjectID = "1.3.6.1.2.1.1.2.0"
)

// identify finds out what the device is and chooses the profile.
func (d *snmpDriver) identify(ctx context.Context) error {
	cells := map[string]cell{}
	if err := d.session.get(ctx, []string{sysObjectID, sysDescr}, cells); err != nil && !isObjectError(err) {
		return err
	}
	d.id = snmpIdentity{SysObjectID: cells[sysObjectID].text, SysDescr: cells[sysDescr].text}
	profile := d.fixed
	if profile == nil {
		var err error
		if profile, err = d.findProfile(ctx); err != nil {
			return err
		}
	}
	if err := d.ask(ctx, profile); err != nil {
		return err
	}
	d.scale = map[string]float64{}
	for _, v := range profile.SNMP.Variants {
		ok, err := d.matches(ctx, profile, v.Match)
		if err != nil {
			return err
		}
		for object, f := range v.Scale {
			if ok {
				d.scale[object] = f
			}
		}
	}
	if n := profile.SNMP.MaxRepetitions; n > 0 {
		d.session.bulk = min(d.session.bulk, n)
	}
	d.tables = d.tablesOf(profile)
	d.profile = profile
	return nil
}

// tablesOf lists the tables that are read; those of attached sensors only where
// the configuration names one.
func (d *snmpDriver) tablesOf(p *Profile) []*snmpRows {
	var list []*snmpRows
	for i := range p.SNMP.Tables {
		if t := &p.SNMP.Tables[i]; len(t.Values) > 0 && (t.Sensor == "" || d.showAll || len(d.sensors) > 0) {
			list = append(list, &snmpRows{table: t})
		}
	}
	return list
}

// findProfile chooses the profile that fits the device most closely.
func (d *snmpDriver) findProfile(ctx context.Context) (*Profile, error) {
	all, err := Profiles()
	if err != nil {
		return nil, err
	}
	type candidate struct {
		profile *Profile
		match   *snmpMatch
	}
	var list []candidate
	kind := d.kind()
	for _, p := range all {
		if p.SNMP == nil || kind != "" && kind != p.Kind {
			continue
		}
		for i := range p.SNMP.Match {
			if m := &p.SNMP.Match[i]; m.fitsObjectID(d.id.SysObjectID) {
				list = append(list, candidate{p, m})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.match.weight(), a.match.weight()) })
	for _, c := range list {
		ok, err := d.matches(ctx, c.profile, []snmpMatch{*c.match})
		if err != nil {
			return nil, err
		}
		if ok {
			return c.profile, nil
		}
	}
	return nil, fmt.Errorf("no profile fits a device with sysObjectID %s (%s); name one with profile", orDefault(d.id.SysObjectID, "missing"), clip(d.id.SysDescr, 80))
}

// ask reads model and firmware where the profile says.
func (d *snmpDriver) ask(ctx context.Context, p *Profile) (err error) {
	for object, text := range map[string]*string{p.SNMP.Model: &d.id.Model, p.SNMP.Firmware: &d.id.Firmware} {
		*text = ""
		if object != "" {
			if *text, _, err = d.first(ctx, p, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// first returns the first instance of an object.
func (d *snmpDriver) first(ctx context.Context, p *Profile, object string) (string, bool, error) {
	column := p.SNMP.table(object).oid(object)
	name, c, err := d.session.next(ctx, column)
	if err != nil || !strings.HasPrefix(name, column+".") {
		return "", false, err
	}
	return c.text, true, nil
}

// matches tells whether one of the matches fits the device.
func (d *snmpDriver) matches(ctx context.Context, p *Profile, list []snmpMatch) (bool, error) {
	var failed error
	for i := range list {
		m := &list[i]
		if !m.fitsObjectID(d.id.SysObjectID) {
			continue
		}
		if m.Model != "" || m.Firmware != "" {
			if err := d.ask(ctx, p); err != nil {
				return false, err
			}
		}
		fits := m.fits(d.id, func(object string) bool {
			_, ok, err := d.first(ctx, p, object)
			failed = errors.Join(failed, err)
			return ok
		})
		if fits || failed != nil {
			return fits, failed
		}
	}
	return false, nil
}

func (d *snmpDriver) knownTables() []*snmpRows {
	var known []*snmpRows
	for _, t := range d.tables {
		if t.known {
			known = append(known, t)
		}
	}
	return known
}

// discover looks up the rows of tables that are not known or due again, and
// returns those that were not known before. It leaves a third of the time to
// reading them; what does not fit goes on in the next read.
func (d *snmpDriver) discover(ctx context.Context, now time.Time) ([]*snmpRows, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline.Sub(now)*2/3)
		defer cancel()
	}
	var found []*snmpRows
	var errs error
	for _, t := range d.tables {
		if t.known && now.Before(t.due) {
			continue
		}
		again := t.known
		if err := d.lookUp(ctx, t); err != nil {
			errs = errors.Join(errs, fmt.Errorf("looking up the rows of %s: %w", t.table.rowObject(), err))
		}
		if t.known && !again {
			found = append(found, t)
		}
		if ctx.Err() != nil || again {
			break // one table a read, once all are known
		}
	}
	return found, errs
}

// rowObject is the object whose instances are the rows.
func (t *snmpTable) rowObject() string {
	if t.Rows != "" {
		return t.Rows
	}
	return t.Values[0].Object
}

// lookUp finds the rows of one table.
func (d *snmpDriver) lookUp(ctx context.Context, t *snmpRows) error {
	if len(t.table.Index) == 0 {
		t.found = []snmpRow{{instance: t.table.scalar()}}
		d.adopt(t)
		return nil
	}
	var tooMany error
	column := t.table.oid(t.table.rowObject())
	from, err := d.session.walk(ctx, column, t.from, func(instance string, _ cell) bool {
		if len(t.found) >= maxRows {
			tooMany = fmt.Errorf("more than %d rows, the rest is left out", maxRows)
			return false
		}
		if index, ok := t.table.split(instance); ok && t.table.wants(index) && d.named(t.table, index) {
			t.found = append(t.found, snmpRow{instance: instance, index: index})
		}
		return true
	})
	if err != nil && !errors.Is(err, errRepeats) {
		t.from = from
		return err
	}
	d.adopt(t)
	return errors.Join(err, tooMany)
}

// adopt puts the rows that were found in the place of the old ones.
func (d *snmpDriver) adopt(t *snmpRows) {
	for _, r := range t.rows {
		for _, oid := range r.needs {
			delete(d.static, oid)
			delete(d.absent, oid)
		}
	}
	t.rows, t.found, t.from, t.known = t.found, nil, "", true
	t.due = time.Now().Add(d.config.Rediscover)
	for i := range t.rows {
		r := &t.rows[i]
		r.needs = d.needs(t.table, r)
		r.fixed = d.fixedOf(t.table, r)
	}
}

// fixedOf lists the objects of a row that need not be read each time.
func (d *snmpDriver) fixedOf(t *snmpTable, r *snmpRow) []string {
	var oids []string
	for _, m := range refForm.FindAllStringSubmatch(t.Chain, -1) {
		oids = append(oids, d.profile.SNMP.instanceOf(t, r, m[1]))
	}
	for _, v := range t.Values {
		if v.Digits != "" {
			oids = append(oids, d.profile.SNMP.instanceOf(t, r, v.Digits))
		}
	}
	return oids
}

// split takes an instance apart into the parts of the index; a last part may be
// of several numbers.
func (t *snmpTable) split(instance string) ([]string, bool) {
	parts := strings.SplitN(instance, ".", len(t.Index))
	return parts, len(parts) == len(t.Index)
}

// wants tells whether any value is to be had in a row, as far as its index says.
func (t *snmpTable) wants(index []string) bool {
	fits := func(where, unless map[string]oneOrMany) bool {
		for i, name := range t.Index {
			if values, ok := where[name]; ok && !slices.Contains(values, index[i]) {
				return false
			}
			if slices.Contains(unless[name], index[i]) {
				return false
			}
		}
		return true
	}
	return fits(t.Where, t.Unless) && slices.ContainsFunc(t.Values, func(v snmpValue) bool { return fits(v.Where, v.Unless) })
}

// named tells whether a row can be that of an attached sensor of the
// configuration. Where the sensor's number is not made of indexes only, it can.
func (d *snmpDriver) named(t *snmpTable, index []string) bool {
	if t.Sensor == "" || d.showAll {
		return true
	}
	open := false
	number := refForm.ReplaceAllStringFunc(t.Sensor, func(ref string) string {
		i := slices.Index(t.Index, ref[1:len(ref)-1])
		if i < 0 {
			open = true
			return ""
		}
		return index[i]
	})
	_, known := d.sensors[number]
	return known || open
}

// needs lists the objects of a row that are read for its values.
func (d *snmpDriver) needs(t *snmpTable, r *snmpRow) []string {
	var oids []string
	need := func(names ...string) {
		for _, name := range names {
			if oid := d.profile.SNMP.instanceOf(t, r, name); oid != "" && !slices.Contains(oids, oid) {
				oids = append(oids, oid)
			}
		}
	}
	refs := func(texts ...string) {
		for _, text := range texts {
			for _, m := range refForm.FindAllStringSubmatch(text, -1) {
				need(m[1])
			}
		}
	}
	refs(t.Chain, t.Sensor)
	for i := range t.Values {
		v := &t.Values[i]
		part, _ := v.partOf(t)
		refs(part)
		need(v.objects()...)
		for _, conditions := range []map[string]oneOrMany{t.Where, t.Unless, v.Where, v.Unless} {
			for name := range conditions {
				need(name)
			}
		}
	}
	slices.SortFunc(oids, compareOIDs)
	return oids
}

// instanceOf returns the OID of an object as seen from a row: the instance of
// the object's own index. Empty for an index of the row.
func (s *snmpProfile) instanceOf(t *snmpTable, r *snmpRow, name string) string {
	if slices.Contains(t.Index, name) {
		return ""
	}
	o := s.table(name)
	oid := o.oid(name)
	if len(o.Index) == 0 {
		return oid + "." + o.scalar()
	}
	for _, part := range o.Index {
		oid += "." + r.index[slices.Index(t.Index, part)]
	}
	return oid
}
