// SPDX-License-Identifier: Apache-2.0

package site

import (
	"slices"
	"strings"
	"testing"
)

// smallHall has what the example lacks: a UPS, a node without outlets, one that
// is plugged into another rack's PDU, a rack without a row.
const smallHall = `
site: {id: s1}
rooms: [{id: h1}]
rows: [{id: a, room: h1}]
feeds: [{id: fa}, {id: fb}]
racks: [{id: r1, row: a}, {id: r2}]
pdus:
- {id: r1-a, rack: r1, feed: fa, phases: 3}
- {id: r1-b, rack: r1, feed: fb, phases: 3}
- {id: r2-a, rack: r2, phases: 1}
upss: [{id: ups1, rack: r2, feed: fa}]
cooling_units: [{id: crac1, room: h1, serves: [r1]}]
switches: [{id: t1, rack: r1}, {id: core}]
sensors: [{id: in1, rack: r1, measures: inlet_temperature}, {id: leak1, row: a, measures: leak}]
meters: [{id: m1, role: it}]
node_classes: [{id: c, height_u: 1, gpus: 1}, {id: ws, rackless: true}]
nodes:
- {id: n1, rack: r1, u: 1, class: c, outlets: [r1-a/1], ports: [t1/1, core/1]}
- {id: n2, rack: r1, u: 2, class: c}
- {id: n3, rack: r2, u: 1, class: c, outlets: [r2-a/1, r1-b/9]}
- {id: w1, class: ws}
`

func parse(t *testing.T, text string) *Site {
	t.Helper()
	s, err := Parse("site.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func entities(list []Entity) string {
	var out []string
	for _, e := range list {
		out = append(out, e.Kind+":"+e.ID)
	}
	return strings.Join(out, " ")
}

func TestDependsOn(t *testing.T) {
	s := parse(t, smallHall)
	for _, tt := range []struct{ kind, id, want string }{
		{"node", "n1", "rack:r1 pdu:r1-a feed:fa ups:ups1 cooling_unit:crac1 switch:t1 switch:core row:a room:h1 site:s1"},
		{"node", "n2", "rack:r1 pdu:r1-a pdu:r1-b feed:fa feed:fb ups:ups1 cooling_unit:crac1 row:a room:h1 site:s1"},
		{"node", "n3", "rack:r2 pdu:r2-a pdu:r1-b feed:fb site:s1"},
		{"node", "w1", "site:s1"},
		{"rack", "r1", "pdu:r1-a pdu:r1-b feed:fa feed:fb ups:ups1 cooling_unit:crac1 row:a room:h1 site:s1"},
		{"rack", "r2", "pdu:r2-a site:s1"},
		{"pdu", "r1-a", "rack:r1 feed:fa ups:ups1 row:a room:h1 site:s1"},
		{"ups", "ups1", "rack:r2 site:s1"},
		{"feed", "fa", "ups:ups1 site:s1"},
		{"feed", "fb", "site:s1"},
		{"cooling_unit", "crac1", "room:h1 site:s1"},
		{"switch", "t1", "rack:r1 pdu:r1-a pdu:r1-b feed:fa feed:fb ups:ups1 cooling_unit:crac1 row:a room:h1 site:s1"},
		{"switch", "core", "site:s1"},
		{"sensor", "in1", "rack:r1 row:a room:h1 site:s1"},
		{"sensor", "leak1", "row:a room:h1 site:s1"},
		{"meter", "m1", "site:s1"},
		{"row", "a", "room:h1 site:s1"},
		{"room", "h1", "site:s1"},
		{"site", "s1", ""},
		{"node", "none", ""},
		{"pdu", "ups1", ""},
	} {
		if got := entities(s.DependsOn(Entity{tt.kind, tt.id})); got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.kind, tt.id, got, tt.want)
		}
	}
}

func TestDependents(t *testing.T) {
	s := parse(t, smallHall)
	for _, tt := range []struct{ kind, id, want string }{
		{"feed", "fa", "rack:r1 pdu:r1-a switch:t1 node:n1 node:n2"},
		{"feed", "fb", "rack:r1 pdu:r1-b switch:t1 node:n2 node:n3"},
		{"ups", "ups1", "feed:fa rack:r1 pdu:r1-a switch:t1 node:n1 node:n2"},
		{"pdu", "r1-b", "rack:r1 switch:t1 node:n2 node:n3"},
		{"rack", "r1", "pdu:r1-a pdu:r1-b switch:t1 sensor:in1 node:n1 node:n2"},
		{"cooling_unit", "crac1", "rack:r1 switch:t1 node:n1 node:n2"},
		{"switch", "core", "node:n1"},
		{"row", "a", "rack:r1 pdu:r1-a pdu:r1-b switch:t1 sensor:in1 sensor:leak1 node:n1 node:n2"},
		{"node", "n1", ""},
		{"node", "none", ""},
	} {
		if got := entities(s.Dependents(Entity{tt.kind, tt.id})); got != tt.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", tt.kind, tt.id, got, tt.want)
		}
	}
	if got, all := len(s.Dependents(Entity{"site", "s1"})), len(s.Entities()); got != all {
		t.Errorf("%d of %d hang on the site", got, all)
	}
}

func TestExampleGraph(t *testing.T) {
	s := example(t)
	got := s.Dependents(Entity{KindCooling, "crah1"})
	var nodes []string
	for _, e := range got {
		if e.Kind == KindNode {
			nodes = append(nodes, e.ID)
		}
	}
	if CompressHostlist(nodes) != "gpu[001-008]" {
		t.Errorf("nodes of crah1: %v", nodes)
	}
	if !slices.Contains(got, Entity{KindRack, "r02"}) || slices.Contains(got, Entity{KindRack, "r03"}) {
		t.Errorf("racks of crah1: %v", got)
	}
}

func TestDiff(t *testing.T) {
	old := parse(t, smallHall)
	next := strings.NewReplacer(
		"{id: n1, rack: r1, u: 1,", "{id: n1, rack: r2, u: 5,", // moved
		"r2-a/1, r1-b/9", "r2-a/1, r1-b/8", // cable moved
		"- {id: n2, rack: r1, u: 2, class: c}\n", "- {id: n4, rack: r1, u: 2, class: c}\n", // removed, added
		"gpus: 1}", "gpus: 2, baseline: {driver: '>=570'}}",
		"{id: fb}", "{id: fb, derate: 1}",
	).Replace(smallHall) + "limits: {gpu: {default: {hot_celsius: 80}, X1: {hot_celsius: 70}}}\n"
	want := []string{
		`feed fb derate: "0.8" to "1"`,
		`node class c gpus: "1" to "2"`,
		`node class c baseline.driver: "" to ">=570"`,
		`node n1 rack: "r1" to "r2"`,
		`node n1 u: "1" to "5"`,
		`node n4 added`,
		`node n3 outlets: "r2-a/1, r1-b/9" to "r2-a/1, r1-b/8"`,
		`node n2 removed`,
		`site s1 limits.gpu.X1.hot_celsius: "" to "70"`,
		`site s1 limits.gpu.default.hot_celsius: "85" to "80"`,
	}
	var got []string
	for _, c := range Diff(old, parse(t, next)) {
		got = append(got, c.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestDiffEdges(t *testing.T) {
	s := parse(t, smallHall)
	if got := Diff(s, parse(t, "# other layout\n"+smallHall)); len(got) != 0 {
		t.Errorf("equal sites differ: %v", got)
	}
	all := Diff(nil, s)
	if len(all) != len(s.Entities())+2 || all[0] != (Change{Entity: Entity{KindRoom, "h1"}, Action: Added}) {
		t.Errorf("from nothing: %v", all)
	}
	if gone := Diff(s, nil); len(gone) != len(all) || gone[0].Action != Removed {
		t.Errorf("to nothing: %v", gone)
	}
	renamed := Diff(s, parse(t, strings.Replace(smallHall, "site: {id: s1}", "site: {id: s2}", 1)))
	if len(renamed) != 1 || renamed[0] != (Change{Entity{KindSite, "s2"}, Changed, "id", "s1", "s2"}) {
		t.Errorf("renamed: %v", renamed)
	}
}
