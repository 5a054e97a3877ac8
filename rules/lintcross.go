// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

// inhibitNode is one inhibition rule of an Alertmanager file.
type inhibitNode struct {
	file           string
	node           *yaml.Node
	source, target []*labels.Matcher
	bad            error // a matcher that does not parse
	equal          []*yaml.Node
}

func readInhibit(file string, node *yaml.Node) inhibitNode {
	in := inhibitNode{file: file, node: node}
	parse := func(key string) []*labels.Matcher {
		var out []*labels.Matcher
		list := child(node, key)
		for i := 0; list != nil && i < len(list.Content); i++ {
			matchers, err := promParser.ParseMetricSelector("{" + list.Content[i].Value + "}")
			if err != nil {
				in.bad = err
			}
			out = append(out, matchers...)
		}
		return out
	}
	in.source, in.target = parse("source_matchers"), parse("target_matchers")
	if list := child(node, "equal"); list != nil {
		in.equal = list.Content
	}
	return in
}

// name is that of a named inhibition.
func (in inhibitNode) name() string {
	if n := child(in.node, "name"); n != nil {
		return n.Value
	}
	return ""
}

// nonEmpty says whether matchers require a label.
func nonEmpty(matchers []*labels.Matcher, name string) bool {
	return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == name && !m.Matches("") })
}

// matching returns the alerts that matchers select by name and static labels.
func (l *linter) matching(matchers []*labels.Matcher) []*linted {
	var out []*linted
	for i := range l.rules {
		r := &l.rules[i]
		fits := r.alert != "" && !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
			value, static := r.labels[m.Name]
			if m.Name == "alertname" {
				value, static = r.alert, true
			}
			return static && !m.Matches(value)
		})
		if fits {
			out = append(out, r)
		}
	}
	return out
}

// inhibitions finds C010 and C011.
func (l *linter) inhibitions() {
	for _, in := range l.inhibits {
		l.at = in.name()
		if in.bad != nil {
			l.add(in.file, in.node.Line, in.node.Column, "C000", "%v", in.bad)
			continue
		}
		sources, targets := l.matching(in.source), l.matching(in.target)
		for _, label := range in.equal {
			l.equalLabel(in, label, sources)
		}
		l.race(in, sources, targets)
	}
}

// equalLabel finds C010. The site is a target label and exempt.
func (l *linter) equalLabel(in inhibitNode, label *yaml.Node, sources []*linted) {
	if label.Value == "site" {
		return
	}
	if !nonEmpty(in.target, label.Value) {
		l.add(in.file, label.Line, label.Column, "C010", "target_matchers lack %s!=\"\": a target without %s counts as equal to a source without it", label.Value, label.Value)
	}
	if nonEmpty(in.source, label.Value) {
		return
	}
	for _, r := range sources {
		if r.expr != nil && r.labels[label.Value] == "" && !guaranteed(r.expr, label.Value) {
			l.add(in.file, label.Line, label.Column, "C010", "source %s may lack %s, and then mutes every target without it", r.alert, label.Value)
		}
	}
}

// guaranteed says whether an expression's result always has a label.
func guaranteed(expr parser.Expr, label string) bool {
	list := providers(expr, label)
	return len(list) > 0 && !slices.ContainsFunc(list, func(p provider) bool { return p.gone || !p.guarded() })
}

// race finds C011: Alertmanager notifies of a symptom group_wait after it came,
// so a cause must be there by then, though both began together.
func (l *linter) race(in inhibitNode, sources, targets []*linted) {
	margin := time.Duration(l.pack.contract.Interval + l.pack.contract.GroupWait)
	for _, target := range targets {
		for _, source := range sources {
			if source == target || target.dur >= source.dur+margin {
				continue
			}
			l.add(target.file, target.name.Line, target.name.Column, "C011",
				"symptom %s is for %s; its cause %s is for %s, so it needs at least %s (evaluation and group_wait)", target.alert, target.dur, source.alert, source.dur, source.dur+margin)
		}
	}
}

// targetLabels come from the scrape, not from the exporter.
var targetLabels = []string{"site", "instance", "job"}

// metrics finds C013.
func (l *linter) metrics(metrics map[string][]string) {
	recorded := map[string]bool{"ALERTS": true, "ALERTS_FOR_STATE": true, "up": true}
	for _, r := range l.rules {
		recorded[r.record] = true
	}
	for i := range l.rules {
		r := &l.rules[i]
		if r.expr == nil {
			continue
		}
		l.at = r.record + r.alert
		parser.Inspect(r.expr, func(node parser.Node, _ []parser.Node) error {
			vs, ok := node.(*parser.VectorSelector)
			if !ok || vs.Name == "" || recorded[vs.Name] {
				return nil
			}
			have, ok := metrics[vs.Name]
			if !ok {
				l.problem(r, vs, "C013", "no exporter has the metric %s", vs.Name)
				return nil
			}
			for _, m := range vs.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(have, m.Name) && !slices.Contains(targetLabels, m.Name) {
					l.problem(r, vs, "C013", "metric %s has no label %s, only %s", vs.Name, m.Name, strings.Join(have, ", "))
				}
			}
			return nil
		})
	}
}
