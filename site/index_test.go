// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func example(t *testing.T) *Site {
	t.Helper()
	s, err := Example()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDevices(t *testing.T) {
	s := example(t)
	want := map[string]map[string]string{
		"r02-a":      {"pdu_id": "r02-a", "rack_id": "r02"},
		"crah1":      {"cooling_unit": "crah1"},
		"tor03":      {"switch": "tor03", "rack_id": "r03"},
		"r01-in-top": {"sensor": "r01-in-top", "rack_id": "r01", "position": "top"},
		"leak-row-a": {"sensor": "leak-row-a", "position": "floor"},
		"meter-it":   {"meter": "meter-it", "role": "it"},
	}
	for id, labels := range want {
		if d, ok := s.Device(id); !ok || d.ID != id || d.Rack != labels["rack_id"] || !maps.Equal(d.Labels, labels) {
			t.Errorf("%s: got %+v", id, d)
		}
	}
	if d, ok := s.Device("gpu001"); ok {
		t.Errorf("a node is no device: %+v", d)
	}
	var kinds []string
	for _, d := range s.Devices() {
		if n := len(kinds); n == 0 || kinds[n-1] != d.Kind {
			kinds = append(kinds, d.Kind)
		}
	}
	if !slices.Equal(kinds, []string{"pdu", "cooling_unit", "switch", "sensor", "meter"}) || len(s.Devices()) != 8+2+4+22+3 {
		t.Errorf("%d devices of kinds %v", len(s.Devices()), kinds)
	}
	if first := s.Devices()[0].ID; first != "r01-a" {
		t.Errorf("first device %s", first)
	}
}

func TestUPSLabels(t *testing.T) {
	s, err := Parse("site.yml", []byte("site: {id: s1}\nracks: [{id: r1}]\nupss: [{id: u1, rack: r1}, {id: u2}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	u1, _ := s.Device("u1")
	u2, _ := s.Device("u2")
	if fmt.Sprint(u1.Labels, u2.Labels) != "map[rack_id:r1 ups:u1] map[ups:u2]" {
		t.Errorf("%v %v", u1.Labels, u2.Labels)
	}
}

func TestNodeLabels(t *testing.T) {
	s := example(t)
	for id, want := range map[string]map[string]string{
		"gpu005": {"node": "gpu005", "rack_id": "r02"},
		"ws01":   {"node": "ws01"},
		"none":   nil,
	} {
		if got := s.NodeLabels(id); !maps.Equal(got, want) {
			t.Errorf("%s: %v", id, got)
		}
	}
}

func TestLookUps(t *testing.T) {
	s := example(t)
	got := strings.TrimSpace(fmt.Sprintln(
		idsOf(s.NodesIn("r02")), idsOf(s.PDUsOf("r02")), idsOf(s.CoolingOf("r02")),
		idsOf(s.SwitchesIn("r02")), idsOf(s.SensorsIn("r02")), s.OutletsOf("r02-b"),
		s.RoomOf("r02"), s.RoomOf("r99"), s.NodesIn("r99")))
	want := "[gpu005 gpu006 gpu007 gpu008] [r02-a r02-b] [crah1] [tor02] " +
		"[r02-in-top r02-in-mid r02-in-bot r02-out r02-rh] " +
		"[{gpu005 1} {gpu006 2} {gpu007 3} {gpu008 4}] hall1  []"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, ok := s.Class("none"); ok {
		t.Error("class of an unknown node")
	}
	if f, ok := s.Feed("feed-a"); !ok || f.LineVolts != 400 {
		t.Errorf("feed %+v", f)
	}
	if p, ok := s.PDU("r04-b"); !ok || p.Feed != "feed-b" || p.Phases != 3 || p.RatedAmperes != 63 {
		t.Errorf("pdu %+v", p)
	}
	if n, ok := s.Sensor("r04-rh"); !ok || n.Measures != "inlet_humidity" {
		t.Errorf("sensor %+v", n)
	}
	if w, ok := s.Switch("tor04"); !ok || w.U != 47 {
		t.Errorf("switch %+v", w)
	}
	if c, ok := s.CoolingUnit("crah2"); !ok || !slices.Equal(c.Serves, []string{"r03", "r04"}) {
		t.Errorf("cooling unit %+v", c)
	}
	if r, ok := s.Row("row-b"); !ok || r.Room != "hall1" {
		t.Errorf("row %+v", r)
	}
	if r, ok := s.Room("hall1"); !ok || r.ASHRAEClass != "A2" {
		t.Errorf("room %+v", r)
	}
}

func idsOf[T any, P interface {
	*T
	noun
}](list []P) []string {
	var out []string
	for _, one := range list {
		out = append(out, *one.ident())
	}
	return out
}

func TestSplitRef(t *testing.T) {
	for _, tt := range [][3]string{{"r01-a/1", "r01-a", "1"}, {"tor1/Ethernet1/1", "tor1", "Ethernet1/1"}, {"x", "x", ""}} {
		if d, p := SplitRef(tt[0]); d != tt[1] || p != tt[2] {
			t.Errorf("%s: %s %s", tt[0], d, p)
		}
	}
}
