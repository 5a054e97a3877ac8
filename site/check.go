// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strconv"
	"strings"
)

// deviceScope is the scope of ids of all facility devices: an agent knows a
// device by its id alone.
const deviceScope = "device"

// scopeOf is the set in which ids of a kind are unique.
func scopeOf(kind string) string {
	switch kind {
	case KindPDU, KindUPS, KindCooling, KindSwitch, KindSensor, KindMeter:
		return deviceScope
	default:
		return kind
	}
}

// register enters one entity, checks its id and its own values.
func (p *parser) register(s spot, n noun) {
	id := *n.ident()
	if !p.checkID(s, id) {
		return
	}
	scope := scopeOf(n.kind())
	if p.ids[scope] == nil {
		p.ids[scope] = map[string]item{}
	}
	if first, twice := p.ids[scope][id]; twice {
		p.add(s.line("id"), join(s.path, "id"), "duplicate id %s (first in %s at line %d)",
			quote(id), first.path, first.line("id"))
		return
	}
	one := item{s, n}
	p.ids[scope][id] = one
	p.items = append(p.items, one)
	if s.broken {
		return
	}
	n.check(func(key, format string, args ...any) {
		p.add(s.keyLine(key), s.path+"."+key, format, args...)
	})
}

func (p *parser) checkID(s spot, id string) bool {
	if isID(id) {
		return true
	}
	if id == "" {
		p.add(s.line("id"), join(s.path, "id"), "missing")
	} else {
		p.add(s.line("id"), join(s.path, "id"),
			"%s; want a letter or digit, then letters, digits, . _ - (at most 253)", quote(id))
	}
	return false
}

// find returns the entity of a kind with an id.
func (p *parser) find(kind, id string) (item, bool) {
	one, ok := p.ids[scopeOf(kind)][id]
	return one, ok && one.noun.kind() == kind
}

// classHeight is the height of a node class, at least one rack unit.
func (p *parser) classHeight(id string) int {
	if one, ok := p.find(KindClass, id); ok {
		return max(one.noun.(*NodeClass).HeightU, 1)
	}
	return 1
}

// label names a kind in a message.
func label(kind string) string { return strings.ReplaceAll(kind, "_", " ") }

// checkRefs checks that every reference names an entity of the file.
func (p *parser) checkRefs() {
	for _, one := range p.items {
		for _, r := range one.noun.refs() {
			switch {
			case r.kind == "":
			case *r.at == "":
				if r.need && !one.broken {
					p.add(one.line(r.key), join(one.path, r.key), "missing")
				}
			default:
				p.checkRef(one.line(r.key), join(one.path, r.key), r.kind, *r.at)
			}
		}
		switch n := one.noun.(type) {
		case *CoolingUnit:
			p.checkServes(one.spot, n)
		case *Node:
			p.checkPlace(one.spot, n)
		}
	}
}

func (p *parser) checkRef(line int, path, kind, id string) bool {
	if _, ok := p.find(kind, id); ok {
		return true
	}
	p.add(line, path, "unknown %s %s", label(kind), quote(id))
	return false
}

// checkServes expands the racks of a cooling unit and checks them.
func (p *parser) checkServes(s spot, c *CoolingUnit) {
	var racks []string
	seen := map[string]bool{}
	for i, expr := range c.Serves {
		line, path := s.itemLine("serves", i), index1(join(s.path, "serves"), i)
		names, _ := p.expand(line, path, expr)
		for _, name := range names {
			if !p.checkRef(line, path, KindRack, name) {
				continue
			}
			if seen[name] {
				p.add(line, path, "rack %s is named twice", quote(name))
				continue
			}
			seen[name] = true
			racks = append(racks, name)
		}
	}
	c.Serves = racks
}

// checkPlace checks that a node stands in a rack unless its class is rackless.
func (p *parser) checkPlace(s spot, n *Node) {
	class, ok := p.find(KindClass, n.Class)
	if !ok || s.broken || class.noun.(*NodeClass).Rackless {
		return
	}
	switch {
	case n.Rack == "" && childOf(s.node, "rack") == nil:
		p.add(s.node.Line, join(s.path, "rack"), "missing; only a class with rackless: true may leave it out")
	case n.U == 0:
		p.add(s.line("u"), join(s.path, "u"), "missing; node %s needs its lowest rack unit", quote(n.ID))
	}
}

// checkSpace checks that what stands in a rack fits and does not overlap.
func (p *parser) checkSpace() {
	type unit struct {
		rack string
		u    int
	}
	taken := map[unit]item{}
	for _, one := range p.items {
		rackID, u, height := "", 0, 1
		switch n := one.noun.(type) {
		case *Node:
			rackID, u, height = n.Rack, n.U, p.classHeight(n.Class)
		case *Switch:
			rackID, u = n.Rack, n.U
		}
		rack, ok := p.find(KindRack, rackID)
		if u == 0 || !ok {
			continue
		}
		if top := rack.noun.(*Rack).HeightU; u+height-1 > top {
			p.add(one.line("u"), join(one.path, "u"), "%s %s takes units %s, but rack %s has %d",
				one.noun.kind(), quote(*one.noun.ident()), units(u, height), quote(rackID), top)
			continue
		}
		for i := u; i < u+height; i++ {
			if other, hit := taken[unit{rackID, i}]; hit {
				p.add(one.line("u"), join(one.path, "u"), "%s %s overlaps %s %s (line %d) at unit %d of rack %s",
					one.noun.kind(), quote(*one.noun.ident()), other.noun.kind(), quote(*other.noun.ident()),
					other.line("u"), i, quote(rackID))
				break
			}
			taken[unit{rackID, i}] = one
		}
	}
}

func units(u, height int) string {
	if height == 1 {
		return strconv.Itoa(u)
	}
	return strconv.Itoa(u) + "-" + strconv.Itoa(u+height-1)
}

// cable is the place in the file that uses a socket.
type cable struct {
	path string
	line int
}

// checkCabling checks that every outlet and port is used once and exists.
func (p *parser) checkCabling() {
	used := map[string]cable{}
	count := map[string]int{} // PDU -> outlets in use
	for _, one := range p.items {
		n, ok := one.noun.(*Node)
		if !ok {
			continue
		}
		for i, ref := range n.Outlets {
			at := p.socketAt(one.spot, n.ID, "outlets", i)
			if p.checkSocket(at, used, KindPDU, "outlet", ref) {
				p.checkOutlet(at, ref, count)
			}
		}
		for i, ref := range n.Ports {
			p.checkSocket(p.socketAt(one.spot, n.ID, "ports", i), used, KindSwitch, "port", ref)
		}
	}
}

// socketAt is the place of a node's outlet or port i in the file.
func (p *parser) socketAt(s spot, node, key string, i int) cable {
	if exprs := p.exprs[key+"/"+node]; i < len(exprs) {
		i = exprs[i]
	}
	return cable{index1(join(s.path, key), i), s.itemLine(key, i)}
}

// checkSocket checks one "DEVICE/PART" reference; what is its name in messages.
func (p *parser) checkSocket(at cable, used map[string]cable, kind, what, ref string) bool {
	device, part := SplitRef(ref)
	if !isPart(part) {
		p.add(at.line, at.path, "%s; want %s/%s", quote(ref), label(kind), what)
		return false
	}
	if !p.checkRef(at.line, at.path, kind, device) {
		return false
	}
	if first, twice := used[what+ref]; twice {
		p.add(at.line, at.path, "%s %s is used twice (first by %s at line %d)",
			what, quote(ref), first.path, first.line)
		return false
	}
	used[what+ref] = at
	return true
}

// checkOutlet checks an outlet against the number that its PDU declares.
func (p *parser) checkOutlet(at cable, ref string, count map[string]int) {
	id, part := SplitRef(ref)
	one, _ := p.find(KindPDU, id)
	declared := one.noun.(*PDU).Outlets
	count[id]++
	number, err := strconv.Atoi(part)
	switch {
	case declared == 0:
	case err == nil && (number < 1 || number > declared):
		p.add(at.line, at.path, "outlet %s, but pdu %s has %d outlets", quote(ref), quote(id), declared)
	case count[id] == declared+1:
		p.add(at.line, at.path, "more outlets of pdu %s in use than the %d it has", quote(id), declared)
	}
}
