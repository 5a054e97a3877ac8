// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strings"
	"sync"
)

// index holds the look-up tables of a Site, built once after validation.
type index struct {
	rooms    map[string]*Room
	rows     map[string]*Row
	feeds    map[string]*Feed
	racks    map[string]*Rack
	pdus     map[string]*PDU
	cooling  map[string]*CoolingUnit
	switches map[string]*Switch
	sensors  map[string]*Sensor
	classes  map[string]*NodeClass
	nodes    map[string]*Node
	devices  map[string]Device
	order    []string // device ids

	nodesIn    map[string][]*Node
	pdusOf     map[string][]*PDU
	coolingOf  map[string][]*CoolingUnit
	switchesIn map[string][]*Switch
	sensorsIn  map[string][]*Sensor
	outletsOf  map[string][]OutletUse

	dependents func() map[Entity][]Entity
}

// OutletUse is one outlet of a PDU with the node that is plugged into it.
type OutletUse struct{ Node, Outlet string }

func newIndex(s *Site) *index {
	x := &index{
		rooms:      byID[Room](s.Rooms),
		rows:       byID[Row](s.Rows),
		feeds:      byID[Feed](s.Feeds),
		racks:      byID[Rack](s.Racks),
		pdus:       byID[PDU](s.PDUs),
		cooling:    byID[CoolingUnit](s.CoolingUnits),
		switches:   byID[Switch](s.Switches),
		sensors:    byID[Sensor](s.Sensors),
		classes:    byID[NodeClass](s.NodeClasses),
		nodes:      byID[Node](s.Nodes),
		devices:    map[string]Device{},
		nodesIn:    byRack(s.Nodes, func(n *Node) string { return n.Rack }),
		pdusOf:     byRack(s.PDUs, func(p *PDU) string { return p.Rack }),
		switchesIn: byRack(s.Switches, func(w *Switch) string { return w.Rack }),
		sensorsIn:  byRack(s.Sensors, func(n *Sensor) string { return n.Rack }),
		coolingOf:  map[string][]*CoolingUnit{},
		outletsOf:  map[string][]OutletUse{},
	}
	for i := range s.CoolingUnits {
		for _, rack := range s.CoolingUnits[i].Serves {
			x.coolingOf[rack] = append(x.coolingOf[rack], &s.CoolingUnits[i])
		}
	}
	for _, n := range s.Nodes {
		for _, ref := range n.Outlets {
			pdu, outlet := SplitRef(ref)
			x.outletsOf[pdu] = append(x.outletsOf[pdu], OutletUse{n.ID, outlet})
		}
	}
	x.addDevices(s)
	x.dependents = sync.OnceValue(s.invert)
	return x
}

func byID[T any, P interface {
	*T
	noun
}](list []T) map[string]*T {
	m := make(map[string]*T, len(list))
	for i := range list {
		m[*P(&list[i]).ident()] = &list[i]
	}
	return m
}

func byRack[T any](list []T, rack func(*T) string) map[string][]*T {
	m := map[string][]*T{}
	for i := range list {
		if id := rack(&list[i]); id != "" {
			m[id] = append(m[id], &list[i])
		}
	}
	return m
}

func (x *index) addDevices(s *Site) {
	for _, d := range s.PDUs {
		x.addDevice(KindPDU, d.ID, d.Rack, d.Exporters, "pdu_id", d.ID, "rack_id", d.Rack)
	}
	for _, d := range s.UPSs {
		x.addDevice(KindUPS, d.ID, d.Rack, nil, "ups", d.ID, "rack_id", d.Rack)
	}
	for _, d := range s.CoolingUnits {
		x.addDevice(KindCooling, d.ID, "", d.Exporters, "cooling_unit", d.ID)
	}
	for _, d := range s.Switches {
		x.addDevice(KindSwitch, d.ID, d.Rack, d.Exporters, "switch", d.ID, "rack_id", d.Rack)
	}
	for _, d := range s.Sensors {
		x.addDevice(KindSensor, d.ID, d.Rack, nil, "sensor", d.ID, "rack_id", d.Rack, "position", d.Position)
	}
	for _, d := range s.Meters {
		x.addDevice(KindMeter, d.ID, "", nil, "meter", d.ID, "role", d.Role)
	}
}

// addDevice enters a device; pairs are label names and values, those without a
// value are left out.
func (x *index) addDevice(kind, id, rack string, exporters map[string]string, pairs ...string) {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			labels[pairs[i]] = pairs[i+1]
		}
	}
	x.devices[id] = Device{Entity: Entity{kind, id}, Rack: rack, Labels: labels, Exporters: exporters}
	x.order = append(x.order, id)
}

// SplitRef cuts "PDU/OUTLET" or "SWITCH/PORT" at its first slash: ports such as
// Ethernet1/1 have slashes of their own. The part is empty when there is none.
func SplitRef(ref string) (device, part string) {
	device, part, _ = strings.Cut(ref, "/")
	return device, part
}

// Node returns the node with this id.
func (s *Site) Node(id string) (*Node, bool) { return get(s.index.nodes, id) }

// Rack returns the rack with this id.
func (s *Site) Rack(id string) (*Rack, bool) { return get(s.index.racks, id) }

// Row returns the row with this id.
func (s *Site) Row(id string) (*Row, bool) { return get(s.index.rows, id) }

// Room returns the room with this id.
func (s *Site) Room(id string) (*Room, bool) { return get(s.index.rooms, id) }

// Feed returns the feed with this id.
func (s *Site) Feed(id string) (*Feed, bool) { return get(s.index.feeds, id) }

// PDU returns the PDU with this id.
func (s *Site) PDU(id string) (*PDU, bool) { return get(s.index.pdus, id) }

// CoolingUnit returns the cooling unit with this id.
func (s *Site) CoolingUnit(id string) (*CoolingUnit, bool) { return get(s.index.cooling, id) }

// Switch returns the switch with this id.
func (s *Site) Switch(id string) (*Switch, bool) { return get(s.index.switches, id) }

// Sensor returns the sensor with this id.
func (s *Site) Sensor(id string) (*Sensor, bool) { return get(s.index.sensors, id) }

func get[T any](m map[string]*T, id string) (*T, bool) {
	one, ok := m[id]
	return one, ok
}

// Class returns the class of the node with this id.
func (s *Site) Class(node string) (*NodeClass, bool) {
	n, ok := s.index.nodes[node]
	if !ok {
		return nil, false
	}
	return get(s.index.classes, n.Class)
}

// Device returns the facility device with this id. Its labels are shared: do
// not change them.
func (s *Site) Device(id string) (Device, bool) {
	d, ok := s.index.devices[id]
	return d, ok
}

// Devices returns all facility devices: PDUs, UPSs, cooling units, switches,
// sensors, meters, each in file order.
func (s *Site) Devices() []Device {
	out := make([]Device, len(s.index.order))
	for i, id := range s.index.order {
		out[i] = s.index.devices[id]
	}
	return out
}

// NodeLabels returns the labels of a node's series: node and, when it stands in
// a rack, rack_id. It is nil for an unknown node.
func (s *Site) NodeLabels(id string) map[string]string {
	n, ok := s.index.nodes[id]
	if !ok {
		return nil
	}
	labels := map[string]string{"node": id}
	if n.Rack != "" {
		labels["rack_id"] = n.Rack
	}
	return labels
}

// NodesIn returns the nodes of a rack in file order.
func (s *Site) NodesIn(rack string) []*Node { return s.index.nodesIn[rack] }

// PDUsOf returns the PDUs of a rack in file order.
func (s *Site) PDUsOf(rack string) []*PDU { return s.index.pdusOf[rack] }

// CoolingOf returns the cooling units that serve a rack, in file order.
func (s *Site) CoolingOf(rack string) []*CoolingUnit { return s.index.coolingOf[rack] }

// SwitchesIn returns the switches of a rack in file order.
func (s *Site) SwitchesIn(rack string) []*Switch { return s.index.switchesIn[rack] }

// SensorsIn returns the sensors of a rack in file order.
func (s *Site) SensorsIn(rack string) []*Sensor { return s.index.sensorsIn[rack] }

// OutletsOf returns the outlets of a PDU that nodes are plugged into, in file order.
func (s *Site) OutletsOf(pdu string) []OutletUse { return s.index.outletsOf[pdu] }

// RoomOf returns the room that a rack stands in, or "" when the file does not say.
func (s *Site) RoomOf(rack string) string {
	r, ok := s.index.racks[rack]
	if !ok {
		return ""
	}
	row, ok := s.index.rows[r.Row]
	if !ok {
		return ""
	}
	return row.Room
}
