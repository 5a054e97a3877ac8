// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

// rule finds C006 to C009, C014, C017 and C019 in one rule.
func (l *linter) rule(r *linted) {
	if r.alert != "" {
		l.valueInLabel(r)
		l.lostLabels(r)
		if !l.filters(r.expr) {
			l.problem(r, r.expr, "C007", "alert %s fires whatever the value is: compare it with a threshold", r.alert)
		}
	}
	if r.forNode != nil && r.dur > 0 && r.dur < 2*r.interval {
		l.add(r.file, r.forNode.Line, r.forNode.Column, "C009", "for %s is shorter than two evaluations (%s): it delays nothing, or one", model.Duration(r.dur), model.Duration(2*r.interval))
	}
	parser.Inspect(r.expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.MatrixSelector:
			l.window(r, n, n.Range, l.sampled(n.VectorSelector), caller(path))
		case *parser.SubqueryExpr:
			step := n.Step
			if step == 0 {
				step = r.interval
			}
			l.window(r, n, n.Range, step, caller(path))
		case *parser.BinaryExpr:
			l.absentJoin(r, n)
		}
		return nil
	})
}

var (
	valueRead = regexp.MustCompile(`\{\{[^}]*(\$value|\.Value)\b[^}]*\}\}`)
	labelRead = regexp.MustCompile(`\$labels\.([a-zA-Z_][a-zA-Z0-9_]*)`)
)

// valueInLabel finds C006.
func (l *linter) valueInLabel(r *linted) {
	for i := 1; i < len(r.labelNodes); i += 2 {
		if n := r.labelNodes[i]; valueRead.MatchString(n.Value) {
			l.add(r.file, n.Line, n.Column, "C006", "label %s holds the value: each new value is another alert; put it into an annotation", r.labelNodes[i-1].Value)
		}
	}
}

// lostLabels finds C014.
func (l *linter) lostLabels(r *linted) {
	check := func(what string, nodes []*yaml.Node) {
		for i := 1; i < len(nodes); i += 2 {
			n := nodes[i]
			for _, m := range labelRead.FindAllStringSubmatch(n.Value, -1) {
				_, static := r.labels[m[1]]
				if !static && m[1] != model.AlertNameLabel && !l.keeps(r.expr, m[1]) {
					l.add(r.file, n.Line, n.Column, "C014", "%s %s reads label %s, which the expression does not keep: it will be empty", what, nodes[i-1].Value, m[1])
				}
			}
		}
	}
	check("label", r.labelNodes)
	check("annotation", r.annotations)
}

// keeps says whether the result of an expression may have a label. It follows
// recorded series to their rules.
func (l *linter) keeps(expr parser.Expr, label string) bool {
	return slices.ContainsFunc(providers(expr, label), func(p provider) bool {
		if p.gone {
			return false
		}
		vs, ok := p.node.(*parser.VectorSelector)
		if !ok || l.records[vs.Name] == nil {
			return true
		}
		return l.once("keeps", vs.Name, p.label, func(own *linted) bool {
			_, static := own.labels[p.label]
			return static || l.keeps(own.expr, p.label)
		})
	})
}

// filters says whether an expression has a result only in some cases: it
// compares, joins, tests for absence, or reads what exists only in these cases.
func (l *linter) filters(expr parser.Expr) bool {
	found, selectors := false, 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.BinaryExpr:
			found = found || n.Op.IsComparisonOperator() && !n.ReturnBool || n.Op == parser.LAND || n.Op == parser.LUNLESS
		case *parser.Call:
			found = found || strings.HasPrefix(n.Func.Name, "absent")
		case *parser.VectorSelector:
			selectors++
			found = found || l.conditional(n)
		}
		return nil
	})
	return found || selectors == 0 // a constant is meant: the dead man's switch
}

// conditional says that a series is there only in some cases: an info series,
// whose value says nothing, a series of any name, ALERTS, or one recorded by a
// rule that filters.
func (l *linter) conditional(n *parser.VectorSelector) bool {
	if n.Name == "" || strings.HasSuffix(n.Name, "_info") || strings.HasPrefix(n.Name, "ALERTS") {
		return true
	}
	if l.records[n.Name] != nil {
		return l.once("filters", n.Name, "", func(own *linted) bool { return l.filters(own.expr) })
	}
	return strings.Contains(n.Name, ":") // recorded elsewhere
}

// caller names the function that a range is an argument of.
func caller(path []parser.Node) string {
	for _, node := range slices.Backward(path) {
		if c, ok := node.(*parser.Call); ok {
			return c.Func.Name
		}
	}
	return ""
}

// slopes are functions whose result needs several samples to mean anything.
var slopes = []string{"rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "avg_over_time", "stddev_over_time", "stdvar_over_time", "quantile_over_time"}

// sampled is the time between two samples of a series: the evaluation interval
// of its rule, else that of the contract, at which targets are scraped too.
func (l *linter) sampled(expr parser.Expr) time.Duration {
	if vs, ok := expr.(*parser.VectorSelector); ok && l.records[vs.Name] != nil {
		return l.records[vs.Name].interval
	}
	return time.Duration(l.pack.contract.Interval)
}

// window finds C008 and C017.
func (l *linter) window(r *linted, node parser.Node, length, step time.Duration, fn string) {
	switch {
	case slices.Contains(slopes, fn) && length < 4*step:
		l.problem(r, node, "C008", "%s over %s sees fewer than four samples at one each %s", fn, model.Duration(length), model.Duration(step))
	case length < step+r.interval:
		l.problem(r, node, "C017", "a range of %s may hold no sample: they come each %s and rules run each %s", model.Duration(length), model.Duration(step), model.Duration(r.interval))
	}
}

// absentJoin finds C019.
func (l *linter) absentJoin(r *linted, b *parser.BinaryExpr) {
	if !bothVectors(b) || b.Op != parser.LAND && b.Op != parser.LUNLESS {
		return
	}
	for _, side := range []parser.Expr{b.LHS, b.RHS} {
		call, ok := core(side).(*parser.Call)
		if !ok || call.Func.Name != "absent" && call.Func.Name != "absent_over_time" {
			continue
		}
		m := b.VectorMatching
		if !m.On {
			l.problem(r, side, "C019", "%s() has only the labels that its selector fixes, so without on() nothing matches it; use on () or on (LABEL) with a fixed LABEL", call.Func.Name)
			continue
		}
		have := fixed(call.Args[0])
		for _, label := range m.MatchingLabels {
			if !slices.Contains(have, label) {
				l.problem(r, side, "C019", "on(%s): the result of %s() has no label %s, as its selector fixes none", label, call.Func.Name, label)
			}
		}
	}
}

// fixed lists the labels that a selector fixes to one value: the ones that
// absent() can know.
func fixed(expr parser.Expr) []string {
	var out []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if vs, ok := node.(*parser.VectorSelector); ok {
			for _, m := range vs.LabelMatchers {
				if m.Type == labels.MatchEqual && m.Value != "" {
					out = append(out, m.Name)
				}
			}
		}
		return nil
	})
	return out
}
