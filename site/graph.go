// SPDX-License-Identifier: Apache-2.0

package site

import "slices"

// DependsOn returns everything that e hangs on, nearest first: its rack, its
// PDUs and their feeds, the UPSs behind the feeds, the cooling units of its
// rack, its switches, its row, room and site. A node hangs on the PDUs that its
// outlets name, without outlets on all PDUs of its rack; a switch on those of
// its rack. It is nil for an entity that is not in the site.
func (s *Site) DependsOn(e Entity) []Entity {
	x := s.index
	u := upstream{site: s}
	switch e.Kind {
	case KindNode:
		if n, ok := x.nodes[e.ID]; ok {
			u.node(n)
		}
	case KindRack:
		if r, ok := x.racks[e.ID]; ok {
			u.rack(r.ID, s.PDUsOf(r.ID))
		}
	case KindSwitch:
		if w, ok := x.switches[e.ID]; ok {
			u.add(KindRack, w.Rack)
			u.rack(w.Rack, s.PDUsOf(w.Rack))
		}
	case KindRow:
		if r, ok := x.rows[e.ID]; ok {
			u.place("", "", r.Room)
		}
	case KindRoom:
		if _, ok := x.rooms[e.ID]; ok {
			u.place("", "", "")
		}
	case KindFeed:
		if _, ok := x.feeds[e.ID]; ok {
			u.ups(e.ID)
			u.place("", "", "")
		}
	default:
		u.device(e)
	}
	return u.list
}

// upstream collects entities, each once.
type upstream struct {
	site *Site
	list []Entity
}

func (u *upstream) add(kind, id string) {
	if e := (Entity{kind, id}); id != "" && !slices.Contains(u.list, e) {
		u.list = append(u.list, e)
	}
}

// node adds what a node hangs on.
func (u *upstream) node(n *Node) {
	u.add(KindRack, n.Rack)
	pdus := u.site.PDUsOf(n.Rack)
	if len(n.Outlets) > 0 {
		pdus = nil
	}
	for _, ref := range n.Outlets {
		id, _ := SplitRef(ref)
		pdus = append(pdus, u.site.index.pdus[id])
	}
	for _, p := range pdus {
		u.add(KindPDU, p.ID)
	}
	u.feeds(pdus)
	u.cooling(n.Rack)
	for _, ref := range n.Ports {
		id, _ := SplitRef(ref)
		u.add(KindSwitch, id)
	}
	u.place(n.Rack, "", "")
}

// rack adds what anything that stands in a rack and is fed by pdus hangs on.
func (u *upstream) rack(rack string, pdus []*PDU) {
	for _, p := range pdus {
		u.add(KindPDU, p.ID)
	}
	u.feeds(pdus)
	u.cooling(rack)
	u.place(rack, "", "")
}

// device adds what a PDU, UPS, cooling unit, sensor or meter hangs on.
func (u *upstream) device(e Entity) {
	d, ok := u.site.Device(e.ID)
	if !ok || d.Kind != e.Kind {
		return
	}
	u.add(KindRack, d.Rack)
	row, room := "", ""
	switch e.Kind {
	case KindPDU:
		u.feeds([]*PDU{u.site.index.pdus[e.ID]})
	case KindSensor:
		row = u.site.index.sensors[e.ID].Row
	case KindCooling:
		room = u.site.index.cooling[e.ID].Room
	}
	u.place(d.Rack, row, room)
}

func (u *upstream) feeds(pdus []*PDU) {
	for _, p := range pdus {
		u.add(KindFeed, p.Feed)
	}
	for _, p := range pdus {
		u.ups(p.Feed)
	}
}

// ups adds the UPSs that back a feed.
func (u *upstream) ups(feed string) {
	for _, one := range u.site.UPSs {
		if feed != "" && one.Feed == feed {
			u.add(KindUPS, one.ID)
		}
	}
}

func (u *upstream) cooling(rack string) {
	for _, c := range u.site.CoolingOf(rack) {
		u.add(KindCooling, c.ID)
	}
}

// place adds row, room and site, as far as they are known.
func (u *upstream) place(rack, row, room string) {
	if r, ok := u.site.Rack(rack); ok {
		row = r.Row
	}
	if r, ok := u.site.Row(row); ok {
		u.add(KindRow, row)
		room = r.Room
	}
	u.add(KindRoom, room)
	u.add(KindSite, u.site.ID)
}

// Dependents returns everything that hangs on e, in the order of Entities: the
// exact reverse of DependsOn. The slice is shared: do not change it.
func (s *Site) Dependents(e Entity) []Entity {
	return s.index.dependents()[e]
}

// invert turns DependsOn round for all entities.
func (s *Site) invert() map[Entity][]Entity {
	out := map[Entity][]Entity{}
	for _, e := range s.Entities() {
		for _, up := range s.DependsOn(e) {
			out[up] = append(out[up], e)
		}
	}
	return out
}

// Entities returns everything of the site but the site itself and the node
// classes, by kind (rooms, rows, feeds, racks, devices, nodes), each in file order.
func (s *Site) Entities() []Entity {
	var out []Entity
	for _, n := range s.nouns() {
		if n.kind() != KindClass {
			out = append(out, entityOf(n))
		}
	}
	return out
}

func entityOf(n noun) Entity { return Entity{n.kind(), *n.ident()} }

// nouns returns all entities and node classes.
func (s *Site) nouns() []noun {
	var out []noun
	out = appendNouns[Room](out, s.Rooms)
	out = appendNouns[Row](out, s.Rows)
	out = appendNouns[Feed](out, s.Feeds)
	out = appendNouns[Rack](out, s.Racks)
	out = appendNouns[PDU](out, s.PDUs)
	out = appendNouns[UPS](out, s.UPSs)
	out = appendNouns[CoolingUnit](out, s.CoolingUnits)
	out = appendNouns[Switch](out, s.Switches)
	out = appendNouns[Sensor](out, s.Sensors)
	out = appendNouns[Meter](out, s.Meters)
	out = appendNouns[NodeClass](out, s.NodeClasses)
	return appendNouns[Node](out, s.Nodes)
}

func appendNouns[T any, P interface {
	*T
	noun
}](out []noun, list []T) []noun {
	for i := range list {
		out = append(out, P(&list[i]))
	}
	return out
}
