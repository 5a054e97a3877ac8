// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackpulse/rackpulse/site"
)

// parents are the kinds that can be a common cause, by what fails: the likelier
// one first, which decides between parents that explain equally well.
var parents = map[string][]string{
	"heat":    {"cooling_unit", "rack", "row", "room"},
	"silence": {"switch", "rack", "pdu", "feed", "row", "room", "node_class"},
	"network": {"switch", "rack", "row", "room", "node_class"},
	"gpu":     {"node", "pdu", "feed", "rack", "cooling_unit", "row", "room", "node_class"},
}

const (
	maxCommon = 5 // shown of each kind of failure
	// A parent that no rule speaks of is named when it covers this share of
	// three or more, and this share of what hangs on it fails.
	promoteShare = 0.8
	promoteCount = 3
)

// failing lists what fails, by kind and level: racks that warm, nodes and
// devices that are silent, nodes whose links or GPUs fail.
func (c *casebook) failing() map[string][]Entity {
	out := map[string][]Entity{}
	add := func(what string, e Entity) {
		key := what + "/" + e.Level
		if !slices.Contains(out[key], e) {
			out[key] = append(out[key], e)
		}
	}
	holds := func(name string, test func(float64) bool, each func(Entity)) {
		for _, e := range c.entities(name) {
			if _, ok := c.window.onsetOf(c.data[name][e].points, test); ok {
				each(e)
			}
		}
	}
	for _, signal := range []string{"gpus_up", "inlet_up", "gpus_hot_idle"} {
		holds(signal, always, func(e Entity) { add("heat", e) })
	}
	holds(factNodeLost, always, func(e Entity) { add("silence", e) })
	holds(factDevice, isZero, func(e Entity) {
		if d, ok := c.Site.Device(e.ID); ok {
			add("silence", Entity{d.Kind, d.ID})
		}
	})
	holds(factFlaps, always, func(e Entity) {
		if node, ok := c.graph.portNode(e.ID); ok {
			add("network", Entity{"node", node})
		}
	})
	for _, x := range c.events() {
		if !x.what.Benign {
			add("gpu", x.gpu)
		}
	}
	holds("gpu_gone", always, func(e Entity) { add("gpu", e) })
	return out
}

// commonCauses ranks the parents that two or more failing entities share.
func (c *casebook) commonCauses() []Common {
	var out []Common
	failing := c.failing()
	for _, what := range []string{"heat", "silence", "network", "gpu"} {
		for _, level := range []string{"rack", "node", "pdu", "switch", "sensor", "cooling_unit", "gpu"} {
			list := failing[what+"/"+level]
			if len(list) < 2 || !slices.ContainsFunc(list, c.nearFocus) {
				continue
			}
			ranked := c.shareOf(what, level, list)
			for i := range ranked {
				ranked[i].of = level
			}
			out = append(out, ranked[:min(len(ranked), maxCommon)]...)
		}
	}
	return out
}

// shareOf scores the parents of one kind of failure: coverage times specificity,
// raised where the parent itself is seen to be at fault.
func (c *casebook) shareOf(what, level string, list []Entity) []Common {
	under := map[Entity]int{}
	for _, e := range list {
		for _, up := range c.aboveWithClass(e) {
			if slices.Contains(parents[what], up.Level) {
				under[up]++
			}
		}
	}
	var out []Common
	for up, n := range under {
		if n < 2 {
			continue
		}
		of := max(c.size(up, level), n)
		one := Common{
			Entity: up, What: what, Failing: n, All: len(list), Of: of,
			Coverage: float64(n) / float64(len(list)), Specificity: float64(n) / float64(of),
			Telemetry: c.speaks(up), Answers: c.answers(up),
		}
		one.Score = one.Coverage * one.Specificity
		if one.Faulty = c.faulty(up); one.Faulty {
			one.Score = 1 - (1-one.Score)*(1-strengthUnit)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Common) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(health(a), health(b)),
			cmp.Compare(slices.Index(parents[what], a.Entity.Level), slices.Index(parents[what], b.Entity.Level)),
			cmp.Compare(a.Entity.ID, b.Entity.ID))
	})
	return out
}

// aboveWithClass adds the class of the node, which nodes share without a cable.
func (c *casebook) aboveWithClass(e Entity) []Entity {
	out := c.graph.above(e)
	for _, one := range append([]Entity{e}, out...) {
		if one.Level == "node" {
			if class, ok := c.Site.Class(one.ID); ok {
				return append(slices.Clone(out), Entity{site.KindClass, class.ID})
			}
		}
	}
	return out
}

// size is how many entities of a level hang on a parent.
func (c *casebook) size(parent Entity, level string) int {
	nodes := c.graph.below(parent, "node")
	switch {
	case parent.Level == "node":
		nodes = []Entity{parent}
	case parent.Level == site.KindClass:
		nodes = nil
		for i := range c.Site.Nodes {
			if c.Site.Nodes[i].Class == parent.ID {
				nodes = append(nodes, Entity{"node", c.Site.Nodes[i].ID})
			}
		}
	}
	switch level {
	case "node":
		return len(nodes)
	case "gpu":
		n := 0
		for _, e := range nodes {
			if class, ok := c.Site.Class(e.ID); ok {
				n += class.GPUs
			}
		}
		return n
	}
	return len(c.graph.below(parent, level))
}

// faulty says that a parent itself is down by its own account or its poller's.
func (c *casebook) faulty(e Entity) bool {
	for _, at := range []struct {
		fact string
		of   Entity
	}{{factUnit, e}, {factDevice, Entity{"device", e.ID}}} {
		if t := c.data[at.fact][at.of]; t != nil {
			if _, down := c.window.onsetOf(t.points, isZero); down {
				return true
			}
		}
	}
	return false
}

// answers says whether a device answers its poller, nil for what is not polled.
func (c *casebook) answers(e Entity) *bool {
	t := c.data[factDevice][Entity{"device", e.ID}]
	if t == nil {
		return nil
	}
	_, silent := c.window.onsetOf(t.points, isZero)
	up := !silent
	return &up
}

// health orders parents that explain equally well: a faulty one first, one that
// answers its poller last.
func health(one Common) int {
	switch {
	case one.Faulty:
		return 0
	case one.Answers != nil && *one.Answers:
		return 2
	}
	return 1
}

// speaks says that anything was heard of an entity itself.
func (c *casebook) speaks(e Entity) bool {
	for _, byEntity := range c.data {
		if byEntity[e] != nil || byEntity[Entity{"device", e.ID}] != nil {
			return true
		}
	}
	return false
}

// promoted turns the best shared parent of silence or links into a candidate,
// where no rule names a cause: a switch without telemetry is still the switch.
// Heat is left out: its rules need inlet data, and without it it is unknown.
func (c *casebook) promoted(common []Common, have []Candidate) []Candidate {
	if slices.ContainsFunc(have, func(h Candidate) bool {
		return h.Score >= NamedScore && h.Correlation != "node-down" && h.Correlation != "device-silent"
	}) {
		return nil
	}
	for _, one := range common {
		// Sensors that fall silent hurt nobody: what they no longer show is unknown.
		if one.What == "heat" || one.of == "sensor" || one.Failing < promoteCount || one.Coverage < promoteShare || one.Specificity < promoteShare {
			continue
		}
		cause := Candidate{
			Cause: one.Entity.String(), Entity: one.Entity, Correlation: "common-cause",
			Verdict: "What fails together hangs on one parent.",
			Factors: []Factor{
				{"strength", strengthLink, "shared by what fails together (" + one.What + ")"},
				{"coverage", one.Coverage, fmt.Sprintf("%d of the %d that fail hang on it", one.Failing, one.All)},
				{"specificity", one.Specificity, fmt.Sprintf("%d of the %d that hang on it fail", one.Failing, one.Of)},
			},
			NextSteps: []string{"Look at " + one.Entity.String() + " first; the alternatives are listed under common cause."},
			alerts:    []string{"", "NodeLeaseLost", "FacilityDeviceDown", "SwitchPortFlapping"},
			domain:    func(x Entity) bool { return c.graph.meets(one.Entity, x) },
		}
		for _, h := range have {
			if h.Score > 0 && c.graph.meets(one.Entity, h.Entity) {
				cause.Evidence = merge(cause.Evidence, h.Evidence)
				if cause.Onset.IsZero() || h.Onset.Before(cause.Onset) {
					cause.Onset, cause.Before = h.Onset, h.Before
				}
			}
		}
		cause.finish()
		return []Candidate{cause}
	}
	return nil
}
