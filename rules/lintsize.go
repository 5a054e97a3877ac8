// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// sizes finds C018 in the recording rules. metrics may be nil: then only labels
// that an expression names are known.
func (l *linter) sizes(metrics map[string][]string) {
	for i := range l.rules {
		r := &l.rules[i]
		if r.record == "" || r.expr == nil {
			continue
		}
		l.at = r.record
		for _, label := range l.pack.contract.Unbounded {
			if l.carries(r.expr, label, metrics) {
				l.problem(r, r.expr, "C018", "%s keeps label %s: one series for each value, without bound", r.title(), label)
			}
		}
		if n, names := l.estimate(r, metrics); n > l.pack.contract.SeriesBudget && l.pack.contract.SeriesBudget > 0 {
			l.problem(r, r.expr, "C018", "%s has about %d series (each %s), want at most %d", r.title(), n, strings.Join(names, " with each "), l.pack.contract.SeriesBudget)
		}
	}
}

// carries says whether a result has a label for certain: its series do by the
// list of metrics, or, where that does not know them, an aggregation names it.
func (l *linter) carries(expr parser.Expr, label string, metrics map[string][]string) bool {
	return slices.ContainsFunc(providers(expr, label), func(p provider) bool {
		vs, ok := p.node.(*parser.VectorSelector)
		switch {
		case p.gone:
			return false
		case !ok: // label_replace and label_join write it
			return true
		case l.records[vs.Name] != nil:
			return l.once("carries", vs.Name, p.label, func(own *linted) bool { return l.carries(own.expr, p.label, metrics) })
		}
		have, known := metrics[vs.Name]
		return slices.Contains(have, p.label) || !known && grouped(expr, label)
	})
}

// grouped says whether an aggregation keeps a label by its name.
func grouped(expr parser.Expr, label string) bool {
	found := false
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			found = found || !a.Without && slices.Contains(a.Grouping, label)
		}
		return nil
	})
	return found
}

// estimate multiplies the sizes of the levels whose entities the record's labels
// tell apart. Levels that one metric or level joins count once, as the larger.
func (l *linter) estimate(r *linted, metrics map[string][]string) (int, []string) {
	byOwn := func(a, b level) int { return cmp.Compare(b.Size, a.Size) }
	var taken []level
	for _, lv := range slices.SortedStableFunc(slices.Values(l.pack.contract.Levels), byOwn) {
		told := !slices.ContainsFunc(lv.Join, func(label string) bool {
			return label != "site" && !l.carries(r.expr, label, metrics)
		})
		if told && len(lv.Join) > 1 && !slices.ContainsFunc(taken, func(t level) bool { return l.pack.related(t, lv, metrics) }) {
			taken = append(taken, lv)
		}
	}
	n, names := 1, []string{}
	for _, lv := range taken {
		n *= max(lv.Size, 1)
		names = append(names, lv.Name)
	}
	return n, names
}

// related says whether an entity of one level has few of the other: the labels of
// one level or metric hold both.
func (p *Pack) related(a, b level, metrics map[string][]string) bool {
	both := union(without(a.Join, "site"), without(b.Join, "site")...)
	for _, lv := range p.contract.Levels {
		if contains(lv.Labels, both) {
			return true
		}
	}
	for _, have := range metrics {
		if contains(have, both) {
			return true
		}
	}
	return false
}
