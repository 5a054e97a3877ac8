// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

func (m *snmpMatch) check(s *snmpProfile) (err error) {
	if m.SysObjectID != "" && !oidForm.MatchString(m.SysObjectID) {
		return fmt.Errorf("sys_object_id %q is no OID", m.SysObjectID)
	}
	if m.SysObjectID == "" && m.Has == "" {
		return errors.New("match: sys_object_id or has is needed")
	}
	if m.Has != "" && s.table(m.Has) == nil {
		return fmt.Errorf("has: unknown object %q", m.Has)
	}
	if m.Descr != "" {
		if m.descr, err = regexp.Compile(m.Descr); err != nil {
			return fmt.Errorf("descr: %w", err)
		}
	}
	if m.Model != "" {
		if s.Model == "" {
			return errors.New("match on model needs the object model")
		}
		if m.model, err = regexp.Compile(m.Model); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	if m.Firmware != "" {
		if s.Firmware == "" {
			return errors.New("match on firmware needs the object firmware")
		}
		if m.firmware, err = parseVersionRange(m.Firmware); err != nil {
			return fmt.Errorf("firmware: %w", err)
		}
	}
	return nil
}

func (v *snmpVariant) check(s *snmpProfile) error {
	if v.About == "" || len(v.Match) == 0 || len(v.Scale) == 0 {
		return errors.New("variant: want about, match and scale")
	}
	for i := range v.Match {
		if err := v.Match[i].check(s); err != nil {
			return err
		}
	}
	for object, f := range v.Scale {
		if s.table(object) == nil {
			return fmt.Errorf("unknown object %q", object)
		}
		if !finite(f) || f == 0 {
			return fmt.Errorf("scale %v of %s is not a finite number other than 0", f, object)
		}
	}
	return nil
}

// identity is what a device says about itself.
type snmpIdentity struct {
	SysObjectID, SysDescr, Model, Firmware string
}

// fits reports whether a device matches; has tells whether it has an object.
func (m *snmpMatch) fits(id snmpIdentity, has func(object string) bool) bool {
	return m.fitsObjectID(id.SysObjectID) &&
		(m.descr == nil || m.descr.MatchString(id.SysDescr)) &&
		(m.model == nil || m.model.MatchString(id.Model)) &&
		(m.firmware == nil || m.firmware.holds(id.Firmware)) &&
		(m.Has == "" || has(m.Has))
}

func (m *snmpMatch) fitsObjectID(oid string) bool {
	return m.SysObjectID == "" || oid == m.SysObjectID || strings.HasPrefix(oid, m.SysObjectID+".")
}

// weight orders matches: the more specific, the heavier.
func (m *snmpMatch) weight() int {
	w := 10 * len(m.SysObjectID)
	for _, text := range []string{m.Descr, m.Model, m.Firmware, m.Has} {
		if text != "" {
			w++
		}
	}
	return w
}

// versionRange is a list of bounds that hold together.
type versionRange []versionBound

type versionBound struct {
	op      string
	version []int
}

var (
	boundForm   = regexp.MustCompile(`^(>=|<=|>|<|=)([0-9]+(?:\.[0-9]+)*)$`)
	versionForm = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)*`)
)

// parseVersionRange reads bounds such as ">=3 <4.1".
func parseVersionRange(text string) (versionRange, error) {
	var r versionRange
	for _, word := range strings.Fields(text) {
		m := boundForm.FindStringSubmatch(word)
		if m == nil {
			return nil, fmt.Errorf("%q is no bound such as >=3.1", word)
		}
		r = append(r, versionBound{m[1], versionNumbers(m[2])})
	}
	return r, nil
}

// holds takes the first number of a text such as "v6.5.0 (build 7)".
func (r versionRange) holds(text string) bool {
	have := versionForm.FindString(text)
	if have == "" {
		return false
	}
	numbers := versionNumbers(have)
	for _, b := range r {
		c := compareVersions(numbers, b.version)
		if !(b.op == ">=" && c >= 0 || b.op == "<=" && c <= 0 || b.op == ">" && c > 0 || b.op == "<" && c < 0 || b.op == "=" && c == 0) {
			return false
		}
	}
	return true
}

func versionNumbers(text string) []int {
	var out []int
	for _, part := range strings.Split(text, ".") {
		n, _ := strconv.Atoi(part) // a number beyond int counts as the largest
		out = append(out, n)
	}
	return out
}

// compareVersions compares number by number; missing ones are 0.
func compareVersions(a, b []int) int {
	for i := range max(len(a), len(b)) {
		var x, y int
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}
