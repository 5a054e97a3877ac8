// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// joins finds C001 to C004 in one rule.
func (l *linter) joins(r *linted) {
	parser.Inspect(r.expr, func(node parser.Node, _ []parser.Node) error {
		b, ok := node.(*parser.BinaryExpr)
		if !ok || !bothVectors(b) {
			return nil
		}
		m := b.VectorMatching
		if !m.On && len(m.MatchingLabels) > 0 {
			l.problem(r, b, "C004", "ignoring() joins whatever labels come along later; use on()")
		}
		for _, label := range m.MatchingLabels {
			if m.On {
				l.joinLabel(r, b, label)
			}
		}
		if !b.Op.IsSetOperator() {
			l.arithmetic(r, b)
		}
		return nil
	})
}

func bothVectors(b *parser.BinaryExpr) bool {
	return b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector
}

// joinLabel finds C001 and C002 for one label of an on().
func (l *linter) joinLabel(r *linted, b *parser.BinaryExpr, label string) {
	if !l.pack.hasLabel(label) {
		l.problem(r, b, "C001", "on(%s): no label of the contract", label)
		return
	}
	if label == "site" { // a target label, the same on all series of a site
		return
	}
	enough := b.Op == parser.LAND && l.pack.bare(label) && (allGuarded(b.LHS, label) || allGuarded(b.RHS, label))
	for _, side := range []parser.Expr{b.LHS, b.RHS} {
		for _, p := range providers(side, label) {
			if p.gone {
				l.problem(r, p.node, "C002", "on(%s): the label is aggregated away here, so all series match", label)
			} else if !p.guarded() && !enough {
				l.problem(r, p.node, "C002", "on(%s): %s lacks {%s!=\"\"}; series without the label match each other", label, p.node, p.label)
			}
		}
	}
}

// hasLabel says whether a label belongs to some level.
func (p *Pack) hasLabel(name string) bool {
	return slices.ContainsFunc(p.contract.Levels, func(l level) bool { return slices.Contains(l.Labels, name) })
}

// bare says whether a label identifies entities of a level whose metrics are read
// without guards. An "and" is safe when one side has them: the other's series
// without the label match nothing.
func (p *Pack) bare(label string) bool {
	return slices.ContainsFunc(p.contract.Levels, func(l level) bool { return l.Bare && l.Join[len(l.Join)-1] == label })
}

// allGuarded says that every series of a result has the label.
func allGuarded(e parser.Expr, label string) bool {
	return !slices.ContainsFunc(providers(e, label), func(p provider) bool { return p.gone || !p.guarded() })
}

// provider is a selector that a label of a result comes from, or the place where
// the label is lost.
type provider struct {
	node  parser.Node
	label string
	gone  bool
}

func (p provider) guarded() bool {
	vs, ok := p.node.(*parser.VectorSelector)
	if !ok {
		return false
	}
	for _, m := range vs.LabelMatchers {
		if m.Name == p.label && !m.Matches("") {
			return true
		}
	}
	return false
}

// providers follows a label of an expression's result back to its selectors.
func providers(node parser.Node, label string) []provider {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return []provider{{node: n, label: label}}
	case *parser.AggregateExpr:
		picks := n.Op == parser.TOPK || n.Op == parser.BOTTOMK // they keep all labels
		if !picks && slices.Contains(n.Grouping, label) == n.Without {
			return []provider{{node: n, label: label, gone: true}}
		}
		return providers(n.Expr, label)
	case *parser.Call:
		return callProviders(n, label)
	case *parser.BinaryExpr:
		return binaryProviders(n, label)
	}
	var out []provider
	for _, c := range parser.Children(node) {
		out = append(out, providers(c, label)...)
	}
	return out
}

func callProviders(n *parser.Call, label string) []provider {
	if n.Func.Name == "label_replace" && literal(n.Args[1]) == label {
		// A pattern that needs a character makes the label non-empty where its
		// source is. The second takes the host out of a domain name.
		if pattern := literal(n.Args[4]); pattern == "(.+)" || pattern == "([^.]+).*" {
			return providers(n.Args[0], literal(n.Args[3]))
		}
		return []provider{{node: n, label: label}}
	}
	if n.Func.Name == "label_join" && literal(n.Args[1]) == label {
		return []provider{{node: n, label: label}}
	}
	var out []provider
	for _, arg := range n.Args {
		if t := arg.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			out = append(out, providers(arg, label)...)
		}
	}
	return out
}

func literal(e parser.Expr) string {
	if s, ok := e.(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}

func binaryProviders(b *parser.BinaryExpr, label string) []provider {
	switch {
	case b.RHS.Type() == parser.ValueTypeScalar || b.Op == parser.LAND || b.Op == parser.LUNLESS:
		return providers(b.LHS, label)
	case b.LHS.Type() == parser.ValueTypeScalar:
		return providers(b.RHS, label)
	case b.Op == parser.LOR:
		return append(providers(b.LHS, label), providers(b.RHS, label)...)
	}
	m := b.VectorMatching
	many, one := b.LHS, b.RHS
	if m.Card == parser.CardOneToMany {
		many, one = b.RHS, b.LHS
	}
	switch {
	case slices.Contains(m.Include, label):
		return providers(one, label)
	case m.Card == parser.CardOneToOne && m.On && !slices.Contains(m.MatchingLabels, label) && !b.Op.IsComparisonOperator():
		return []provider{{node: b, label: label, gone: true}}
	}
	return providers(many, label)
}

// arithmetic finds C003.
func (l *linter) arithmetic(r *linted, b *parser.BinaryExpr) {
	m := b.VectorMatching
	if r.alert != "" {
		l.problem(r, b, "C003", "an arithmetic join belongs in a recording rule: one duplicate series would stop the alert")
		return
	}
	if !m.On {
		if len(m.MatchingLabels) == 0 && sameSeries(b.LHS, b.RHS) {
			return // a series and its own past
		}
		l.problem(r, b, "C003", "an arithmetic join without on() matches on all labels")
		return
	}
	ones := []parser.Expr{b.LHS, b.RHS}
	switch m.Card {
	case parser.CardManyToOne:
		ones = []parser.Expr{b.RHS}
	case parser.CardOneToMany:
		ones = []parser.Expr{b.LHS}
	}
	if !slices.ContainsFunc(ones, func(e parser.Expr) bool { return aggregatedBy(e, m.MatchingLabels) }) {
		l.problem(r, b, "C003", "the one side is not aggregated by exactly (%s): one duplicate series stops the whole rule", strings.Join(m.MatchingLabels, ", "))
	}
}

// core strips parentheses, functions over time and operations with scalars.
func core(e parser.Expr) parser.Expr {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return core(n.Expr)
	case *parser.StepInvariantExpr:
		return core(n.Expr)
	case *parser.UnaryExpr:
		return core(n.Expr)
	case *parser.MatrixSelector:
		return core(n.VectorSelector)
	case *parser.Call:
		if strings.HasSuffix(n.Func.Name, "_over_time") {
			return core(n.Args[len(n.Args)-1])
		}
	case *parser.BinaryExpr:
		switch {
		case n.RHS.Type() == parser.ValueTypeScalar:
			return core(n.LHS)
		case n.LHS.Type() == parser.ValueTypeScalar:
			return core(n.RHS)
		case n.Op.IsComparisonOperator() && sameSeries(n.LHS, n.RHS):
			return core(n.LHS)
		}
	}
	return e
}

// sameSeries says whether two operands read the same selector, at whatever time.
func sameSeries(a, b parser.Expr) bool {
	x, okX := core(a).(*parser.VectorSelector)
	y, okY := core(b).(*parser.VectorSelector)
	if !okX || !okY || len(x.LabelMatchers) != len(y.LabelMatchers) {
		return false
	}
	for _, m := range x.LabelMatchers {
		same := false
		for _, o := range y.LabelMatchers {
			same = same || o.String() == m.String()
		}
		if !same {
			return false
		}
	}
	return true
}

// aggregatedBy says whether a result has one series for each set of values of
// exactly these labels.
func aggregatedBy(e parser.Expr, by []string) bool {
	switch n := core(e).(type) {
	case *parser.AggregateExpr:
		return !n.Without && len(n.Grouping) == len(by) && contains(n.Grouping, by)
	case *parser.BinaryExpr:
		return bothVectors(n) && n.VectorMatching.On && aggregatedBy(n.LHS, by)
	}
	return false
}
