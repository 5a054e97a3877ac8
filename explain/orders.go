// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	"github.com/rackpulse/rackpulse/rules"
)

// maxOrders bounds the commands that one candidate proposes.
const maxOrders = 8

// orders are the commands for the actions that a correlation names: for the nodes
// of what it affects. Nobody but the reader runs them.
func (c *casebook) orders(r rules.Evidence, list []affected) []string {
	var out []string
	for _, action := range r.Actions {
		if action == "hold" {
			out = append(out, "rackpulse breaker hold --reason="+r.ID)
			continue
		}
		nodes := c.nodesOf(list)
		for _, node := range nodes[:min(len(nodes), maxOrders)] {
			out = append(out, fmt.Sprintf("rackpulse %s --reason=%s %s", action, r.ID, node))
		}
		if more := len(nodes) - maxOrders; more > 0 {
			out = append(out, fmt.Sprintf("and so for %d more nodes", more))
		}
	}
	return out
}

// nodesOf lists the nodes that are affected, are under what is, or hold it; sorted.
func (c *casebook) nodesOf(list []affected) []string {
	var out []string
	for _, a := range list {
		for _, e := range slices.Concat([]Entity{a.of}, c.graph.above(a.of), c.graph.below(a.of, "node")) {
			if e.Level == "node" {
				out = append(out, e.ID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
