// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (s *snmpProfile) check(p *Profile, note profileNote) {
	noteIn := func(err error, where ...any) {
		if err != nil {
			note(append([]any{"snmp"}, where...), err)
		}
	}
	if len(s.Tables) == 0 || len(s.Tables) > maxTables {
		noteIn(fmt.Errorf("tables: want 1 to %d", maxTables))
	}
	for i := range s.Match {
		noteIn(s.Match[i].check(s), "match", i)
	}
	for key, object := range map[string]string{"model": s.Model, "firmware": s.Firmware} {
		if object != "" && s.table(object) == nil {
			noteIn(fmt.Errorf("unknown object %q", object), key)
		}
	}
	if s.MaxRepetitions < 0 || s.MaxRepetitions > maxBulk {
		noteIn(fmt.Errorf("max_repetitions %d is not between 1 and %d", s.MaxRepetitions, maxBulk), "max_repetitions")
	}
	for i := range s.Variants {
		noteIn(s.Variants[i].check(s), "variants", i)
	}
	objects := map[string]bool{}
	for i := range s.Tables {
		t := &s.Tables[i]
		noteIn(t.check(s), "tables", i)
		for _, name := range slices.Sorted(maps.Keys(t.Columns)) {
			if objects[name] {
				noteIn(fmt.Errorf("object %s is in two tables", name), "tables", i, "columns", name)
			}
			objects[name] = true
			noteIn(t.checkColumn(name), "tables", i, "columns", name)
		}
		for j, err := range t.checkValues(s, p.Kind) {
			noteIn(err, "tables", i, "values", j)
		}
	}
}

// checkValues returns the fault of each value, nil for a sound one.
func (t *snmpTable) checkValues(s *snmpProfile, kind string) []error {
	errs := make([]error, len(t.Values))
	seen := map[string]bool{}
	for i := range t.Values {
		v := &t.Values[i]
		key := v.series(t)
		if errs[i] = v.check(s, t, kind); errs[i] == nil && seen[key] {
			errs[i] = fmt.Errorf("%s %s is given twice under the same conditions", v.Quantity, v.Part)
		}
		seen[key] = true
	}
	return errs
}

func (t *snmpTable) checkColumn(name string) error {
	c := t.Columns[name]
	switch {
	case !objectForm.MatchString(name):
		return fmt.Errorf("%q is no name of an object", name)
	case slices.Contains(t.Index, name):
		return fmt.Errorf("%s is an index and an object", name)
	case !oidForm.MatchString(t.oid(name)) || !columnForm.MatchString(c) && !oidForm.MatchString(c):
		return fmt.Errorf("object %s: %q is neither a column number nor an OID", name, c)
	case t.oid(name) != c && t.Entry == "":
		return fmt.Errorf("object %s: number %s needs an entry", name, c)
	}
	return nil
}

func (t *snmpTable) check(s *snmpProfile) error {
	if t.Entry != "" && !oidForm.MatchString(t.Entry) {
		return fmt.Errorf("entry %q is no OID", t.Entry)
	}
	if len(t.Columns) == 0 {
		return errors.New("columns: at least one is needed")
	}
	if len(t.Index) > maxIndex {
		return fmt.Errorf("index: more than %d parts", maxIndex)
	}
	if t.Instance != "" && (len(t.Index) > 0 || !columnForm.MatchString(t.Instance)) {
		return fmt.Errorf("instance %q: want numbers such as 1, and no index beside it", t.Instance)
	}
	for i, name := range t.Index {
		if !objectForm.MatchString(name) || slices.Contains(t.Index[:i], name) {
			return fmt.Errorf("index %q is no name or there twice", name)
		}
	}
	if t.Rows != "" && t.Columns[t.Rows] == "" {
		return fmt.Errorf("rows: %q is no object of the table", t.Rows)
	}
	for _, text := range []string{t.Chain, t.Sensor, t.Part} {
		if err := s.checkRefs(t, text); err != nil {
			return err
		}
	}
	return s.checkConditions(t, t.Where, t.Unless)
}

func (v *snmpValue) check(s *snmpProfile, t *snmpTable, kind string) error {
	if v.Object == "" {
		return errors.New("object is missing")
	}
	for _, name := range v.objects() {
		if err := s.checkRef(t, name); err != nil {
			return err
		}
	}
	m := v.measure
	if m.Part == "" {
		m.Part, _ = v.partOf(t)
	}
	if err := s.checkRefs(t, m.Part); err != nil {
		return err
	}
	if err := m.check(v.UnitFrom != nil, v.Digits != "" || v.ScaleFrom != nil); err != nil {
		return err
	}
	if err := v.checkUnits(); err != nil {
		return err
	}
	if err := v.checkKind(t, kind); err != nil {
		return err
	}
	return s.checkConditions(t, v.Where, v.Unless)
}

// checkUnits checks what depends on other objects.
func (v *snmpValue) checkUnits() error {
	q := byName[v.Quantity]
	if v.UnitFrom != nil {
		if v.Unit != "" || len(v.UnitFrom.Values) == 0 {
			return errors.New("unit_from: want values, and no unit beside it")
		}
		for _, name := range v.UnitFrom.Values {
			if _, err := unitFor(name, q); err != nil {
				return fmt.Errorf("unit_from: %w", err)
			}
		}
	}
	if v.ScaleFrom != nil {
		for _, f := range v.ScaleFrom.Values {
			if !finite(f) || f == 0 {
				return errors.New("scale_from: scales must be finite and not 0")
			}
		}
		if len(v.ScaleFrom.Values) == 0 {
			return errors.New("scale_from: values is missing")
		}
	}
	if v.Falls != nil && (q.Base != UnitCount || len(v.Falls.From) == 0) {
		return fmt.Errorf("falls: want from, and a quantity that counts; %s is in %s", q.Name, q.Base)
	}
	return nil
}

// checkKind: values of attached sensors belong to sensors, all others to the
// device itself.
func (v *snmpValue) checkKind(t *snmpTable, kind string) error {
	if t.Sensor != "" {
		kind = sensor[0]
	}
	return byName[v.Quantity].allows(kind)
}

// checkRefs checks the names in braces in a text.
func (s *snmpProfile) checkRefs(t *snmpTable, text string) error {
	if strings.Count(text, "{") != len(refForm.FindAllString(text, -1)) {
		return fmt.Errorf("%q: braces do not match", text)
	}
	for _, m := range refForm.FindAllStringSubmatch(text, -1) {
		if err := s.checkRef(t, m[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkRef checks that a row of t can refer to name: an index of it, or an
// object whose index parts it has all.
func (s *snmpProfile) checkRef(t *snmpTable, name string) error {
	if slices.Contains(t.Index, name) {
		return nil
	}
	o := s.table(name)
	if o == nil {
		return fmt.Errorf("%q is neither an index of the table nor an object of the profile", name)
	}
	for _, part := range o.Index {
		if !slices.Contains(t.Index, part) {
			return fmt.Errorf("object %s has the index %s, which this table has not", name, part)
		}
	}
	return nil
}

func (s *snmpProfile) checkConditions(t *snmpTable, list ...map[string]oneOrMany) error {
	for _, conditions := range list {
		for name, values := range conditions {
			if err := s.checkRef(t, name); err != nil {
				return err
			}
			if len(values) == 0 {
				return fmt.Errorf("condition on %s has no values", name)
			}
		}
	}
	return nil
}
