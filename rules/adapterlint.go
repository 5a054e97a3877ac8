// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"github.com/prometheus/prometheus/promql/parser"
)

// LintAdapters checks the rule file that adapters compile to as Lint does.
// Labels of the exporters by which an adapter joins their own series count as
// known.
func (p *Pack) LintAdapters(adapters []*Adapter, built []byte) []Problem {
	foreign := level{Name: "exporters"}
	for _, a := range adapters {
		for _, m := range a.Metrics {
			expr, err := promParser.ParseExpr(m.From)
			if err != nil {
				continue // ReadAdapter says so
			}
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if b, ok := node.(*parser.BinaryExpr); ok && b.VectorMatching != nil {
					foreign.Labels = union(foreign.Labels, b.VectorMatching.MatchingLabels...)
				}
				return nil
			})
		}
	}
	wide := *p
	wide.contract.Levels = append([]level{foreign}, p.contract.Levels...)
	return wide.Lint(map[string][]byte{AdapterRules: built}, nil)
}
