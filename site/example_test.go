// SPDX-License-Identifier: Apache-2.0

package site

import (
	"testing"
)

func TestExample(t *testing.T) {
	s, err := Example()
	if err != nil {
		t.Fatal(err)
	}
	if got := []int{len(s.Rooms), len(s.Rows), len(s.Feeds), len(s.Racks), len(s.PDUs), len(s.CoolingUnits),
		len(s.Switches), len(s.Sensors), len(s.Meters), len(s.NodeClasses), len(s.Nodes)}; !equal(got,
		[]int{1, 2, 2, 4, 8, 2, 4, 22, 3, 3, 17}) {
		t.Errorf("sizes: %v", got)
	}
	n, ok := s.Node("gpu007")
	if !ok {
		t.Fatal("no gpu007")
	}
	// gpu007 is the third node of the second rack: units 17-24 of 8 each from 1.
	if n.Rack != "r02" || n.U != 17 || !equal(n.Outlets, []string{"r02-a/3", "r02-b/3"}) ||
		!equal(n.Ports, []string{"tor02/Ethernet3"}) {
		t.Errorf("gpu007: %+v", *n)
	}
	if c, ok := s.Class("gpu007"); !ok || c.GPUs != 8 || !equal(c.Baseline.Driver, Versions{">=570.124 <571"}) {
		t.Errorf("class: %+v", c)
	}
	if ws, ok := s.Node("ws01"); !ok || ws.Rack != "" {
		t.Errorf("ws01: %+v", ws)
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestHall(t *testing.T) {
	s, err := Hall(64, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Racks) != 64 || len(s.Nodes) != 512 || s.Nodes[511].ID != "gpu00512" || s.Nodes[511].Rack != "r064" {
		t.Errorf("%d racks, %d nodes, last %+v", len(s.Racks), len(s.Nodes), s.Nodes[len(s.Nodes)-1])
	}
	if _, err := Hall(1, 40, 1); err != nil {
		t.Error(err)
	}
}
