// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/config"
)

// A profile is one YAML file that says how a family of devices is read. What
// all drivers share is here: the Profile itself, measure (quantity, part, unit,
// scale, sentinels, states) and derived quantities. Each driver has a section of
// its own in the file with types in its own Go file: "snmp" (tables of objects,
// profile_snmp.go) and "modbus" (registers, profile_modbus.go). A section has a
// method check(profile *Profile, note func(where []any, err error)), which finds
// what is wrong; where is the path of keys and list positions in the file, so
// that the message gets its line. loadProfile finds an embedded profile by its
// name, readProfile a user's own file.

//go:embed profiles/*.yml
var profileFiles embed.FS

// maxProfile bounds a profile's file, in bytes.
const maxProfile = 256 << 10

// Profile is a checked profile. It is shared by all devices of its family and
// never changed.
type Profile struct {
	// Name is the name of the file without .yml.
	Name string `yaml:"-"`
	// About is one line for lists: the makers and models.
	About string `yaml:"about"`
	// Kind is the kind of the device (site.Kind...).
	Kind string `yaml:"kind"`
	// Sources are the documents that the objects and units were taken from.
	Sources []string `yaml:"sources"`
	// Include are names of embedded profiles whose sections are read as well.
	Include []string       `yaml:"include"`
	SNMP    *snmpProfile   `yaml:"snmp"`
	Modbus  *modbusProfile `yaml:"modbus"`
	// Derived are quantities that the device does not report itself.
	Derived []derivedQuantity `yaml:"derived"`
}

// measure says what a raw number of a device means. The reading is raw * scale,
// converted from unit into the base unit of the quantity.
type measure struct {
	Quantity string `yaml:"quantity"`
	// Part is the phase, line, outlet, branch or port. In tables it may refer to
	// an index or an object in braces: "{outlet}".
	Part string `yaml:"part"`
	// Unit is a name of the table of units, Scale the factor from the raw number
	// to it. Both must be given, but for states.
	Unit  string   `yaml:"unit"`
	Scale *float64 `yaml:"scale"`
	// Sentinels are raw values that mean "no value".
	Sentinels []string `yaml:"sentinels"`
	// States gives raw values of a state a number: {2: 0, 3: 1}. A raw value
	// that is not listed is no value.
	States map[string]float64 `yaml:"states"`
}

// derivedQuantity is made of readings of the same device where the device does
// not report it itself. Exactly one of Highest and Sum is the quantity of those.
type derivedQuantity struct {
	Quantity string `yaml:"quantity"`
	Highest  string `yaml:"highest"`
	Sum      string `yaml:"sum"`
}

// profileNote takes a fault; where is the path to it in the file.
type profileNote func(where []any, err error)

// embeddedProfiles reads the profiles of this binary once.
var embeddedProfiles = sync.OnceValues(func() (map[string]*Profile, error) {
	files, err := profileFiles.ReadDir("profiles")
	if err != nil {
		return nil, err
	}
	all := map[string]*Profile{}
	for _, f := range files {
		data, err := profileFiles.ReadFile("profiles/" + f.Name())
		if err != nil {
			return nil, err
		}
		p, err := parseProfile(f.Name(), data)
		if err != nil {
			return nil, err
		}
		all[p.Name] = p
	}
	for _, p := range all {
		if err := p.include(all); err != nil {
			return nil, fmt.Errorf("%s.yml: %w", p.Name, err)
		}
	}
	return all, nil
})

// loadProfile finds an embedded profile by its name.
func loadProfile(name string) (*Profile, error) {
	all, err := embeddedProfiles()
	if err != nil {
		return nil, err
	}
	if p := all[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("unknown profile %q; known are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// readProfile reads a user's own profile.
func readProfile(file string) (*Profile, error) {
	data, err := config.ReadFile(file, maxProfile)
	if err != nil {
		return nil, err
	}
	p, err := parseProfile(file, data)
	if err != nil {
		return nil, err
	}
	all, err := embeddedProfiles()
	if err != nil {
		return nil, err
	}
	if err := p.include(all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// Profiles lists the embedded profiles by name.
func Profiles() ([]*Profile, error) {
	all, err := embeddedProfiles()
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *Profile) int { return strings.Compare(a.Name, b.Name) }), nil
}

// parseProfile decodes and checks one file; the error names each fault with its
// line.
func parseProfile(file string, data []byte) (*Profile, error) {
	p := &Profile{Name: strings.TrimSuffix(path.Base(file), ".yml")}
	if err := config.Strict(file, data, p); err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var errs []error
	p.check(func(where []any, err error) {
		errs = append(errs, fmt.Errorf("%s:%d: %w", file, lineOf(&root, where), err))
	})
	if len(errs) > maxProblems {
		errs = append(errs[:maxProblems], fmt.Errorf("%s: and %d more", file, len(errs)-maxProblems))
	}
	return p, errors.Join(errs...)
}

// maxProblems bounds what is said about one file.
const maxProblems = 20

var profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

func (p *Profile) check(note profileNote) {
	if !profileName.MatchString(p.Name) {
		note(nil, fmt.Errorf("profile name %q is not made of small letters, digits and dashes", p.Name))
	}
	if p.About == "" {
		note(nil, errors.New("about is missing"))
	}
	if !knownKind(p.Kind) {
		note([]any{"kind"}, fmt.Errorf("kind %q is none of %s", p.Kind, strings.Join(kinds(), ", ")))
	}
	if p.SNMP == nil && p.Modbus == nil && len(p.Include) == 0 {
		note(nil, errors.New("neither snmp nor modbus says what to read"))
	}
	if p.SNMP != nil {
		p.SNMP.check(p, note)
	}
	if p.Modbus != nil {
		p.Modbus.check(p, note)
	}
	seen := map[string]bool{}
	for i, d := range p.Derived {
		if err := d.check(); err != nil {
			note([]any{"derived", i}, err)
		} else if seen[d.Quantity] {
			note([]any{"derived", i}, fmt.Errorf("quantity %s is derived twice", d.Quantity))
		}
		seen[d.Quantity] = true
	}
}

// include adds the sections of the profiles that p includes.
func (p *Profile) include(all map[string]*Profile) error {
	for _, name := range p.Include {
		o := all[name]
		switch {
		case o == nil:
			return fmt.Errorf("include: unknown profile %q", name)
		case len(o.Include) > 0:
			return fmt.Errorf("include: profile %q includes others itself", name)
		}
		p.SNMP = p.SNMP.with(o.SNMP)
		for _, d := range o.Derived {
			if !slices.ContainsFunc(p.Derived, func(own derivedQuantity) bool { return own.Quantity == d.Quantity }) {
				p.Derived = append(p.Derived, d)
			}
		}
	}
	return nil
}

func (d derivedQuantity) check() error {
	q, err := lookup(d.Quantity)
	if err != nil {
		return err
	}
	if (d.Highest == "") == (d.Sum == "") {
		return errors.New("want one of highest and sum")
	}
	of, err := lookup(d.Highest + d.Sum)
	if err != nil {
		return err
	}
	if q.PartLabel != "" || of.PartLabel == "" || q.Base != of.Base {
		return fmt.Errorf("%s (%s) cannot be made of the parts of %s (%s)", q.Name, q.Base, of.Name, of.Base)
	}
	return nil
}

// check finds what is wrong with a measure. dynamicUnit and dynamicScale say
// that the unit or the scale come from the device.
func (m *measure) check(dynamicUnit, dynamicScale bool) error {
	q, err := lookup(m.Quantity)
	if err != nil {
		return err
	}
	if q.PartLabel == "" && m.Part != "" {
		return fmt.Errorf("quantity %s has no parts, got part %q", q.Name, m.Part)
	}
	if q.PartLabel != "" && m.Part == "" {
		return fmt.Errorf("quantity %s needs a part (its %s)", q.Name, q.PartLabel)
	}
	if q.Base == UnitState && len(m.States) == 0 {
		return errors.New("states is missing, such as {1: 1, 2: 0}")
	}
	if q.Base == UnitState || q.Base == UnitInfo {
		if m.Unit != "" || m.Scale != nil || dynamicUnit || dynamicScale {
			return fmt.Errorf("quantity %s has neither unit nor scale", q.Name)
		}
		return nil
	}
	if len(m.States) > 0 {
		return fmt.Errorf("quantity %s is no state", q.Name)
	}
	return m.checkUnit(q, dynamicUnit, dynamicScale)
}

func (m *measure) checkUnit(q *Quantity, dynamicUnit, dynamicScale bool) error {
	switch {
	case m.Unit == "" && !dynamicUnit:
		return errors.New("unit is missing")
	case m.Scale == nil && !dynamicScale:
		return fmt.Errorf("scale is missing: the factor from the raw number to %s", m.Unit)
	case m.Scale != nil && (!finite(*m.Scale) || *m.Scale == 0):
		return fmt.Errorf("scale %v is not a finite number other than 0", *m.Scale)
	case m.Unit == "":
		return nil
	}
	_, err := unitFor(m.Unit, q)
	return err
}

// lineOf finds the line of a path of keys and list positions, or of as much of
// it as there is.
func lineOf(node *yaml.Node, where []any) int {
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(node.Line, 1)
	for _, step := range where {
		var next *yaml.Node
		switch s := step.(type) {
		case int:
			if node.Kind == yaml.SequenceNode && s < len(node.Content) {
				next = node.Content[s]
			}
		case string:
			for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == s {
					line, next = node.Content[i].Line, node.Content[i+1]
				}
			}
		}
		if next == nil {
			return line
		}
		node, line = next, next.Line
	}
	return line
}
