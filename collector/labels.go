// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// identity is an Identity as label pairs, in the order in which they are shown.
type identity struct {
	source  Identity // own copy
	origin  string
	node    []*dto.LabelPair
	devices map[string][]*dto.LabelPair
}

// noIdentity adds no labels at all.
var noIdentity = newIdentity(Identity{})

func newIdentity(id Identity) *identity {
	in := &identity{
		source:  Identity{Node: maps.Clone(id.Node), Devices: make(map[string]map[string]string, len(id.Devices))},
		origin:  id.Origin,
		node:    identityPairs(id.Node),
		devices: make(map[string][]*dto.LabelPair, len(id.Devices)),
	}
	for device, labels := range id.Devices {
		in.source.Devices[device] = maps.Clone(labels)
		in.devices[device] = identityPairs(labels)
	}
	return in
}

// of returns the labels of a Point's subject, and whether it is known. The own
// node is always known: its series are shown before its name is.
func (in *identity) of(subject string) ([]*dto.LabelPair, bool) {
	if subject == "" {
		return in.node, true
	}
	pairs, ok := in.devices[subject]
	return pairs, ok
}

func (in *identity) equal(id Identity) bool {
	return maps.Equal(in.source.Node, id.Node) &&
		maps.EqualFunc(in.source.Devices, id.Devices, maps.Equal[map[string]string])
}

// identityPairs orders labels by name, but node and rack_id come last.
func identityPairs(labels map[string]string) []*dto.LabelPair {
	var pairs []*dto.LabelPair
	add := func(name string) {
		if labels[name] != "" {
			pairs = append(pairs, newPair(name, labels[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name != "node" && name != "rack_id" {
			add(name)
		}
	}
	add("node")
	add("rack_id")
	return pairs
}
