// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"slices"
	"strings"
)

const (
	maxIDBytes   = 253 // of a DNS name
	maxPartBytes = 64
)

// isID tells whether s is an id: a letter or digit, then letters, digits, . _ -
func isID(s string) bool { return isWord(s, "._-", maxIDBytes) }

// isPart tells whether s is an outlet or port: "1", "A12", "Ethernet1/1", "ge-0/0/1:0".
func isPart(s string) bool { return isWord(s, "._-:/", maxPartBytes) }

func isWord(s, marks string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || strings.IndexByte(marks, c) < 0) {
			return false
		}
	}
	return true
}

// defaultHeightU is the height of a rack that declares none: the common EIA-310 cabinet.
const defaultHeightU = 42

// defaultDerate is the NEC's share for continuous loads, 210.20(A).
const defaultDerate = 0.8

// noun is what the parser needs to know of each kind of entity.
type noun interface {
	kind() string
	ident() *string
	// refs are its references to other entities.
	refs() []ref
	// check sets defaults and reports faults of its own values; fail's key names
	// the value at fault.
	check(fail func(key, format string, args ...any))
}

// ref is one reference of an entity to another. A text that is no reference but
// spreads over ranges in the same way has kind "".
type ref struct {
	key, kind string
	at        *string
	need      bool
}

func (r *Room) kind() string          { return KindRoom }
func (r *Row) kind() string           { return KindRow }
func (f *Feed) kind() string          { return KindFeed }
func (r *Rack) kind() string          { return KindRack }
func (p *PDU) kind() string           { return KindPDU }
func (u *UPS) kind() string           { return KindUPS }
func (c *CoolingUnit) kind() string   { return KindCooling }
func (s *Switch) kind() string        { return KindSwitch }
func (s *Sensor) kind() string        { return KindSensor }
func (m *Meter) kind() string         { return KindMeter }
func (c *NodeClass) kind() string     { return KindClass }
func (n *Node) kind() string          { return KindNode }
func (r *Room) ident() *string        { return &r.ID }
func (r *Row) ident() *string         { return &r.ID }
func (f *Feed) ident() *string        { return &f.ID }
func (r *Rack) ident() *string        { return &r.ID }
func (p *PDU) ident() *string         { return &p.ID }
func (u *UPS) ident() *string         { return &u.ID }
func (c *CoolingUnit) ident() *string { return &c.ID }
func (s *Switch) ident() *string      { return &s.ID }
func (s *Sensor) ident() *string      { return &s.ID }
func (m *Meter) ident() *string       { return &m.ID }
func (c *NodeClass) ident() *string   { return &c.ID }
func (n *Node) ident() *string        { return &n.ID }

func (p *PDU) exporters() *map[string]string         { return &p.Exporters }
func (c *CoolingUnit) exporters() *map[string]string { return &c.Exporters }
func (s *Switch) exporters() *map[string]string      { return &s.Exporters }
func (n *Node) exporters() *map[string]string        { return &n.Exporters }

func (r *Room) refs() []ref      { return nil }
func (f *Feed) refs() []ref      { return nil }
func (m *Meter) refs() []ref     { return nil }
func (c *NodeClass) refs() []ref { return nil }

func (r *Row) refs() []ref {
	return []ref{{"room", KindRoom, &r.Room, true}}
}

func (r *Rack) refs() []ref {
	return []ref{{"row", KindRow, &r.Row, false}}
}

func (p *PDU) refs() []ref {
	return []ref{{"rack", KindRack, &p.Rack, true}, {"feed", KindFeed, &p.Feed, false}}
}

func (u *UPS) refs() []ref {
	return []ref{{"rack", KindRack, &u.Rack, false}, {"feed", KindFeed, &u.Feed, false}}
}

func (c *CoolingUnit) refs() []ref {
	return []ref{{"room", KindRoom, &c.Room, false}}
}

func (s *Switch) refs() []ref {
	return []ref{{"rack", KindRack, &s.Rack, false}}
}

func (s *Sensor) refs() []ref {
	return []ref{{"rack", KindRack, &s.Rack, s.Measures != "leak"}, {"row", KindRow, &s.Row, false}}
}

func (n *Node) refs() []ref {
	return []ref{
		{"rack", KindRack, &n.Rack, false},
		{"class", KindClass, &n.Class, true},
		{"address", "", &n.Address, false},
	}
}

// ashraeClasses are the classes of limits.yml.
var ashraeClasses = []string{"A1", "A2", "A3", "A4", "H1"}

type failFunc = func(key, format string, args ...any)

func (r *Row) check(failFunc) {}
func (u *UPS) check(failFunc) {}

func (c *CoolingUnit) check(fail failFunc) { checkExporters(c.Exporters, fail) }
func (s *Switch) check(fail failFunc)      { checkExporters(s.Exporters, fail) }

func (r *Room) check(fail failFunc) {
	if r.ASHRAEClass != "" && !slices.Contains(ashraeClasses, r.ASHRAEClass) {
		fail("ashrae_class", "unknown class %s; want one of %s",
			quote(r.ASHRAEClass), strings.Join(ashraeClasses, ", "))
	}
}

func (f *Feed) check(fail failFunc) {
	if f.Derate > 1 {
		fail("derate", "%g is not a share of 0..1", f.Derate)
	}
	if f.Derate == 0 {
		f.Derate = defaultDerate
	}
}

func (r *Rack) check(fail failFunc) {
	if r.HeightU > 100 {
		fail("height_u", "%d rack units; want at most 100", r.HeightU)
	}
	if r.HeightU == 0 {
		r.HeightU = defaultHeightU
	}
}

func (p *PDU) check(fail failFunc) {
	switch p.Phases {
	case 1, 3:
	case 0:
		fail("phases", "missing; want 1 or 3")
	default:
		fail("phases", "%d phases; want 1 or 3", p.Phases)
	}
	if p.Outlets > 1000 {
		fail("outlets", "%d outlets; want at most 1000", p.Outlets)
	}
	checkExporters(p.Exporters, fail)
}

// measures are what a sensor can measure.
var measures = []string{"inlet_temperature", "outlet_temperature", "inlet_humidity", "leak"}

func (s *Sensor) check(fail failFunc) {
	if !slices.Contains(measures, s.Measures) {
		fail("measures", "%s; want one of %s", quote(s.Measures), strings.Join(measures, ", "))
	}
}

func (m *Meter) check(fail failFunc) {
	if !isID(m.Role) {
		fail("role", "%s; want a word such as it, cooling or total", quote(m.Role))
	}
}

func (c *NodeClass) check(fail failFunc) {
	switch {
	case c.HeightU == 0 && !c.Rackless:
		fail("height_u", "missing; only a class with rackless: true may leave it out")
	case c.HeightU > 100:
		fail("height_u", "%d rack units; want at most 100", c.HeightU)
	}
	if c.GPUs > 128 {
		fail("gpus", "%d GPUs; want at most 128", c.GPUs)
	}
	c.Baseline.check(fail)
}

func (n *Node) check(fail failFunc) {
	if strings.ContainsAny(n.Address, " \t/") {
		fail("address", "%s; want a host name or an IP address", quote(n.Address))
	}
	checkExporters(n.Exporters, fail)
}

// checkExporters checks the addresses of foreign exporters by job name.
func checkExporters(exporters map[string]string, fail failFunc) {
	for _, job := range slices.Sorted(maps.Keys(exporters)) {
		switch target := exporters[job]; {
		case !isID(job):
			fail("exporters."+quoteKey(job), "want a job name of letters, digits, . _ -")
		case !isHostPort(target):
			fail("exporters."+job, "%s; want host:port", quote(target))
		}
	}
}
