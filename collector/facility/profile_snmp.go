// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// snmpProfile is the section "snmp" of a profile: tables of objects under the
// names that the MIB gives them, and what they mean.
type snmpProfile struct {
	// Match says which devices the profile is for; one of the list suffices.
	Match []snmpMatch `yaml:"match"`
	// Model and Firmware are objects that hold the model and the firmware as text.
	Model    string `yaml:"model"`
	Firmware string `yaml:"firmware"`
	// MaxRepetitions bounds the rows of one GETBULK for agents that fail with
	// more; 0 means the driver's default.
	MaxRepetitions int         `yaml:"max_repetitions"`
	Tables         []snmpTable `yaml:"tables"`
	// Variants correct scales for some makers, models or firmware.
	Variants []snmpVariant `yaml:"variants"`
}

// snmpMatch holds if all that is given holds.
type snmpMatch struct {
	// SysObjectID is a prefix of sysObjectID.0.
	SysObjectID string `yaml:"sys_object_id"`
	// Descr is a regular expression for sysDescr.0, Model one for the object Model.
	Descr string `yaml:"descr"`
	Model string `yaml:"model"`
	// Firmware is a range such as ">=3 <4.1".
	Firmware string `yaml:"firmware"`
	// Has is an object that the device must have.
	Has string `yaml:"has"`

	descr    *regexp.Regexp
	model    *regexp.Regexp
	firmware versionRange
}

// snmpVariant multiplies the scale of some objects where it matches.
type snmpVariant struct {
	About string             `yaml:"about"`
	Match []snmpMatch        `yaml:"match"`
	Scale map[string]float64 `yaml:"scale"`
}

// snmpTable is a set of objects that have the same index. Without an index they
// are scalars.
type snmpTable struct {
	// Entry is the OID that the numbers in Columns stand below.
	Entry string `yaml:"entry"`
	// Index names the parts of the index.
	Index []string `yaml:"index"`
	// Instance is the instance of objects without an index; by default 0, as
	// scalars have it. With another one a row of a table can be read as scalars.
	Instance string `yaml:"instance"`
	// Columns are the objects: name in the MIB -> number below Entry, or the
	// whole OID.
	Columns map[string]string `yaml:"columns"`
	// Where keeps only rows in which an index or object has one of the values;
	// Unless drops rows. Both hold for each value of the table.
	Where  map[string]oneOrMany `yaml:"where"`
	Unless map[string]oneOrMany `yaml:"unless"`
	// Chain is the unit of a daisy chain that a row belongs to, such as "{unit}".
	Chain string `yaml:"chain"`
	// Rows is the object whose instances are the rows of the table; by default
	// the object of the first value.
	Rows string `yaml:"rows"`
	// Sensor is the attached sensor that a row belongs to, such as "{sensor}". Its
	// values belong to the device that the configuration names for it.
	Sensor string `yaml:"sensor"`
	// Part, Parts and Sentinels hold for all values that have none themselves.
	Part      string            `yaml:"part"`
	Parts     map[string]string `yaml:"parts"`
	Sentinels []string          `yaml:"sentinels"`
	Values    []snmpValue       `yaml:"values"`
}

// snmpValue is what one object of a table means.
type snmpValue struct {
	// Object is the name of the object. Of several values of a row that give the
	// same quantity and part, the first that is there counts.
	Object  string `yaml:"object"`
	measure `yaml:",inline"`
	// Parts translates what Part gives; a row that is not listed is left out.
	Parts map[string]string `yaml:"parts"`
	// Digits is an object: the raw value has that many decimal digits.
	Digits string `yaml:"digits"`
	// ScaleFrom and UnitFrom find scale and unit by the value of an object.
	ScaleFrom *snmpScaleFrom `yaml:"scale_from"`
	UnitFrom  *snmpUnitFrom  `yaml:"unit_from"`
	// Signed is the object to read where Object is 0 or missing: devices that
	// have a signed and an unsigned column fill only one of them.
	Signed string `yaml:"signed"`
	// Where and Unless are those of the table, for this value only.
	Where  map[string]oneOrMany `yaml:"where"`
	Unless map[string]oneOrMany `yaml:"unless"`
	// Falls makes a counter of the times that Object left one of the values From.
	Falls *snmpFalls `yaml:"falls"`
}

type snmpScaleFrom struct {
	Object string             `yaml:"object"`
	Values map[string]float64 `yaml:"values"`
}

type snmpUnitFrom struct {
	Object string            `yaml:"object"`
	Values map[string]string `yaml:"values"`
}

type snmpFalls struct {
	From oneOrMany `yaml:"from"`
	// SeenBy is an object that changes with each change, so that one between two
	// reads is seen.
	SeenBy string `yaml:"seen_by"`
}

// oneOrMany is a text or a list of texts.
type oneOrMany []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (o *oneOrMany) UnmarshalYAML(decode func(any) error) error {
	var one string
	if decode(&one) == nil {
		*o = oneOrMany{one}
		return nil
	}
	return decode((*[]string)(o))
}

// Forms of names and numbers in a profile.
var (
	oidForm    = regexp.MustCompile(`^[012](\.(0|[1-9][0-9]{0,9}))+$`)
	columnForm = regexp.MustCompile(`^[1-9][0-9]{0,4}(\.[1-9][0-9]{0,4})*$`)
	objectForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9]*$`)
	refForm    = regexp.MustCompile(`\{([^{}]*)\}`)
)

// maxTables bounds a profile, maxIndex the parts of an index.
const (
	maxTables = 64
	maxIndex  = 8
	// maxBulk is the most rows asked for in one GETBULK.
	maxBulk = 50
)

// oid returns the OID of an object, without instance.
func (t *snmpTable) oid(name string) string {
	c := t.Columns[name]
	if strings.HasPrefix(c, "1.3.") || strings.HasPrefix(c, "1.0.") {
		return c
	}
	return t.Entry + "." + c
}

// scalar returns the instance of the objects of a table without an index.
func (t *snmpTable) scalar() string {
	if t.Instance == "" {
		return "0"
	}
	return t.Instance
}

// table finds the table of an object, nil if there is none.
func (s *snmpProfile) table(object string) *snmpTable {
	for i := range s.Tables {
		if _, ok := s.Tables[i].Columns[object]; ok {
			return &s.Tables[i]
		}
	}
	return nil
}

// with returns s with the tables of o.
func (s *snmpProfile) with(o *snmpProfile) *snmpProfile {
	if s == nil {
		s = &snmpProfile{}
	}
	if o == nil {
		return s
	}
	both := *s
	both.Tables = slices.Concat(s.Tables, o.Tables)
	both.Variants = slices.Concat(s.Variants, o.Variants)
	return &both
}

// series tells values of a table apart.
func (v *snmpValue) series(t *snmpTable) string {
	part, parts := v.partOf(t)
	return fmt.Sprint(v.Object, v.Quantity, part, parts, v.Where, v.Unless)
}

// partOf returns the rule for the part of a value.
func (v *snmpValue) partOf(t *snmpTable) (part string, parts map[string]string) {
	part, parts = v.Part, v.Parts
	if part == "" {
		part = t.Part
	}
	if parts == nil {
		parts = t.Parts
	}
	if q := byName[v.Quantity]; q != nil && q.PartLabel == "" {
		return "", nil
	}
	return part, parts
}

// objects lists the objects that the number of a value is made of.
func (v *snmpValue) objects() []string {
	names := []string{v.Object, v.Digits, v.Signed}
	if v.ScaleFrom != nil {
		names = append(names, v.ScaleFrom.Object)
	}
	if v.UnitFrom != nil {
		names = append(names, v.UnitFrom.Object)
	}
	if v.Falls != nil {
		names = append(names, v.Falls.SeenBy)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}
