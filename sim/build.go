// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

// build makes the hall's parts from the site, in file order.
func (h *Hall) build() error {
	h.feeds = map[string]*feed{}
	for _, f := range h.site.Feeds {
		h.feeds[f.ID] = &feed{id: f.ID, lineVolts: cmp.Or(f.LineVolts, 400), sag: 1}
	}
	racks := h.buildRacks()
	if err := h.buildPDUs(racks); err != nil {
		return err
	}
	for _, s := range h.site.Switches {
		h.switches = append(h.switches, &netSwitch{id: s.ID, rack: s.Rack})
	}
	if err := h.buildNodes(racks); err != nil {
		return err
	}
	h.buildGroups()
	h.buildZones(racks)
	for i, s := range h.site.Sensors {
		h.sensors = append(h.sensors, &sensor{
			Sensor: &h.site.Sensors[i], rack: racks[s.Rack], stream: hashName(h.seed, "sensor/"+s.ID),
		})
	}
	for i := range h.site.Meters {
		h.meters = append(h.meters, &meter{Meter: &h.site.Meters[i]})
	}
	return nil
}

func (h *Hall) buildRacks() map[string]*rack {
	racks := map[string]*rack{}
	for i := range h.site.Racks {
		r := newRack(&h.site.Racks[i], h.seed)
		h.racks = append(h.racks, r)
		racks[r.id] = r
	}
	for i, r := range h.racks[:max(0, len(h.racks)-1)] {
		if next := h.racks[i+1]; next.row == r.row {
			r.neighbours = append(r.neighbours, next)
			next.neighbours = append(next.neighbours, r)
		}
	}
	return racks
}

func (h *Hall) buildPDUs(racks map[string]*rack) error {
	for i := range h.site.PDUs {
		p := &h.site.PDUs[i]
		f := h.feeds[p.Feed]
		if f == nil {
			return fmt.Errorf("pdu %s: unknown feed %q", p.ID, p.Feed)
		}
		stream := hashName(h.seed, "pdu/"+p.ID)
		pd := &pdu{
			id: p.ID, rack: racks[p.Rack], feed: f, rated: cmp.Or(p.RatedAmperes, 32),
			stream: stream, watts: make([]float64, max(1, p.Phases)),
			// Power factor of supplies with PFC: .95-.99.
			pf: between(stream, 0, .96, .98),
		}
		for o := 1; o <= p.Outlets; o++ {
			pd.outlet(strconv.Itoa(o))
		}
		h.pdus = append(h.pdus, pd)
	}
	return nil
}

func (h *Hall) buildNodes(racks map[string]*rack) error {
	classes := map[string]*site.NodeClass{}
	total := 0
	for i := range h.site.NodeClasses {
		classes[h.site.NodeClasses[i].ID] = &h.site.NodeClasses[i]
	}
	for _, n := range h.site.Nodes {
		if classes[n.Class] == nil {
			return fmt.Errorf("node %s: unknown class %q", n.ID, n.Class)
		}
		total += classes[n.Class].GPUs
	}
	h.gpus = make([]gpu, total)
	free := h.gpus
	for i := range h.site.Nodes {
		sn := &h.site.Nodes[i]
		class := classes[sn.Class]
		nd := newNode(sn, class, free[:class.GPUs:class.GPUs], h.seed)
		free = free[class.GPUs:]
		if nd.rack = racks[sn.Rack]; nd.rack != nil {
			nd.rack.nodes = append(nd.rack.nodes, nd)
			if nd.rack.heightU > 0 && sn.U > 0 {
				nd.height = (float64(sn.U) + float64(class.HeightU)/2) / float64(nd.rack.heightU)
			}
		}
		if err := h.wire(nd, sn); err != nil {
			return err
		}
		h.nodes = append(h.nodes, nd)
	}
	return nil
}

// wire plugs a node into its outlets and ports.
func (h *Hall) wire(nd *node, sn *site.Node) error {
	for _, ref := range sn.Outlets {
		id, name, _ := strings.Cut(ref, "/")
		i := slices.IndexFunc(h.pdus, func(p *pdu) bool { return p.id == id })
		if i < 0 {
			return fmt.Errorf("node %s: unknown outlet %q", nd.id, ref)
		}
		nd.plugIn(h.pdus[i], name, len(sn.Outlets))
	}
	for _, ref := range sn.Ports {
		id, name, _ := strings.Cut(ref, "/")
		i := slices.IndexFunc(h.switches, func(s *netSwitch) bool { return s.id == id })
		if i < 0 {
			return fmt.Errorf("node %s: unknown port %q", nd.id, ref)
		}
		h.switches[i].plug(name, nd)
	}
	return nil
}

// buildGroups splits the nodes into groups of neighbours of one class, each
// working on one job at a time.
func (h *Hall) buildGroups() {
	sizes := []int{4, 2, 4, 1, 2, 3}
	var class string
	var g *group
	for _, nd := range h.nodes {
		if g == nil || nd.class.ID != class || len(g.nodes) == g.size {
			class = nd.class.ID
			stream := hashName(h.seed, "job/"+nd.id)
			g = &group{
				stream: stream, index: len(h.groups), stall: 1,
				size:   sizes[int(uniform(stream, -1)*float64(len(sizes)))],
				length: int64(between(stream, -2, 1200, 3000)),
			}
			h.groups = append(h.groups, g)
		}
		g.nodes = append(g.nodes, nd)
		nd.group = g
	}
}

// buildZones makes one zone of all racks that the same cooling units serve.
func (h *Hall) buildZones(racks map[string]*rack) {
	serving := map[string][]*unit{} // by rack
	for _, c := range h.site.CoolingUnits {
		u := &unit{id: c.ID, stream: hashName(h.seed, "cooling/"+c.ID)}
		h.units = append(h.units, u)
		for _, id := range c.Serves {
			serving[id] = append(serving[id], u)
		}
	}
	zones := map[string]*zone{}
	for _, sr := range h.site.Racks {
		r, key := racks[sr.ID], ""
		for _, u := range serving[sr.ID] {
			key += u.id + "\n"
		}
		z := zones[key]
		if z == nil {
			z = &zone{units: serving[sr.ID], heat: make([]float64, len(serving[sr.ID]))}
			zones[key] = z
			h.zones = append(h.zones, z)
		}
		z.racks = append(z.racks, r)
		r.zone = z
	}
	for _, z := range h.zones {
		rated := 0.0
		for _, r := range z.racks {
			rated += r.finish()
		}
		for _, u := range z.units {
			// 1.3 times the rated heat, by the units that remain when one stops.
			u.capacity += 1.3 * max(rated, 1000) / float64(max(1, len(z.units)-1))
			u.racks = append(u.racks, z.racks...)
		}
	}
}
