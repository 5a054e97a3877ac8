// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// metricNames returns the metric names in an expression, sorted; none where it
// does not parse.
func metricNames(expr string) []string {
	parsed, err := promql.ParseExpr(expr)
	if err != nil {
		return nil
	}
	var out []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if vs, ok := node.(*parser.VectorSelector); ok && vs.Name != "" && !slices.Contains(out, vs.Name) {
			out = append(out, vs.Name)
		}
		return nil
	})
	slices.Sort(out)
	return out
}
