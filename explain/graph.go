// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

// Entity is one thing that signals speak of: a level of the rules' contract
// (gpu, node, rack, pdu, feed, cooling_unit, device) or port, and its id.
type Entity struct {
	Level string `json:"level"`
	ID    string `json:"id"`
}

// String is how an entity is shown: "cooling unit crah1".
func (e Entity) String() string {
	name := strings.ReplaceAll(e.Level, "_", " ")
	switch e.Level {
	case "gpu", "pdu":
		name = strings.ToUpper(name)
	}
	return name + " " + e.ID
}

// idLabels are the labels that name an entity, the most specific first.
var idLabels = []struct{ level, label string }{
	{"gpu", "UUID"}, {"node", "node"}, {"pdu", "pdu_id"}, {"device", "device"},
	{"rack", "rack_id"}, {"cooling_unit", "cooling_unit"}, {"feed", "feed"},
}

// entityOf returns the most specific entity that labels name.
func entityOf(labels map[string]string) (Entity, bool) {
	if sw, port := labels["switch"], labels["port"]; sw != "" && port != "" {
		return Entity{"port", sw + "/" + port}, true
	}
	for _, one := range idLabels {
		if id := labels[one.label]; id != "" {
			return Entity{one.level, id}, true
		}
	}
	return Entity{}, false
}

// entityAt returns the entity of one level that labels name.
func entityAt(level string, labels map[string]string) (Entity, bool) {
	if level == "port" || level == "source" {
		e, ok := entityOf(labels)
		return e, ok
	}
	for _, one := range idLabels {
		if one.level == level {
			return Entity{level, labels[one.label]}, labels[one.label] != ""
		}
	}
	return Entity{}, false
}

// graph is the site's graph with the GPUs that the series speak of.
type graph struct {
	site *site.Site
	gpus map[string]map[string]string // UUID -> labels gpu, node, rack_id
	ups  map[Entity][]Entity
}

func newGraph(s *site.Site) *graph {
	return &graph{site: s, gpus: map[string]map[string]string{}, ups: map[Entity][]Entity{}}
}

// learn remembers where a GPU sits.
func (g *graph) learn(labels map[string]string) {
	if uuid := labels["UUID"]; uuid != "" && labels["node"] != "" {
		g.gpus[uuid] = labels
	}
}

// above returns what e hangs on, nearest first.
func (g *graph) above(e Entity) []Entity {
	if list, ok := g.ups[e]; ok {
		return list
	}
	var out []Entity
	add := func(e Entity) {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	follow := func(e site.Entity) {
		for _, up := range g.site.DependsOn(e) {
			add(Entity{up.Kind, up.ID})
		}
	}
	switch e.Level {
	case "gpu":
		if node := g.gpus[e.ID]["node"]; node != "" {
			add(Entity{"node", node})
			follow(site.Entity{Kind: site.KindNode, ID: node})
		}
	case "device":
		if d, ok := g.site.Device(e.ID); ok {
			add(Entity{d.Kind, d.ID})
			follow(d.Entity)
		}
	case "port":
		sw, _ := site.SplitRef(e.ID)
		add(Entity{site.KindSwitch, sw})
		follow(site.Entity{Kind: site.KindSwitch, ID: sw})
	default:
		follow(site.Entity{Kind: e.Level, ID: e.ID})
	}
	g.ups[e] = out
	return out
}

// portNode is the node behind a switch port, if the site file says so.
func (g *graph) portNode(port string) (string, bool) {
	for i := range g.site.Nodes {
		if slices.Contains(g.site.Nodes[i].Ports, port) {
			return g.site.Nodes[i].ID, true
		}
	}
	return "", false
}

// meets says that two entities lie on one line of dependence.
func (g *graph) meets(a, b Entity) bool {
	if a == b || slices.Contains(g.above(a), b) || slices.Contains(g.above(b), a) {
		return true
	}
	for _, pair := range [][2]Entity{{a, b}, {b, a}} {
		// The node behind a port hangs on the switch, not on its other ports.
		if pair[0].Level == "port" && pair[1].Level != site.KindSwitch {
			node, ok := g.portNode(pair[0].ID)
			if ok && (pair[1] == Entity{"node", node} || slices.Contains(g.above(pair[1]), Entity{"node", node})) {
				return true
			}
		}
	}
	return false
}

// below lists the entities of a level that hang on e.
func (g *graph) below(e Entity, level string) []Entity {
	var out []Entity
	for _, d := range g.site.Dependents(site.Entity{Kind: e.Level, ID: e.ID}) {
		if d.Kind == level {
			out = append(out, Entity{d.Kind, d.ID})
		}
	}
	return out
}

// racks are the racks of entities, sorted; "" stands for entities without one.
func (g *graph) racks(list []Entity) []string {
	var out []string
	for _, e := range list {
		found := false
		if e.Level == "rack" {
			out, found = append(out, e.ID), true
		}
		for _, up := range g.above(e) {
			if up.Level == "rack" {
				out, found = append(out, up.ID), true
			}
		}
		for _, r := range g.below(e, "rack") {
			out, found = append(out, r.ID), true
		}
		if !found {
			out = append(out, "")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// labels are what texts may ask of an entity.
func (g *graph) labels(e Entity) map[string]string {
	out := map[string]string{"site": g.site.ID}
	for k, v := range g.gpus[e.ID] {
		out[k] = v
	}
	for _, one := range append([]Entity{e}, g.above(e)...) {
		for _, id := range idLabels {
			if id.level == one.Level && out[id.label] == "" {
				out[id.label] = one.ID
			}
		}
	}
	return out
}

// show is how an entity is named to people: with the node of a GPU.
func (g *graph) show(e Entity) string {
	if l := g.gpus[e.ID]; e.Level == "gpu" && l != nil {
		return "GPU " + l["gpu"] + " of " + l["node"]
	}
	if e.Level == "port" {
		if node, ok := g.portNode(e.ID); ok {
			return e.String() + " (" + node + ")"
		}
	}
	return e.String()
}
