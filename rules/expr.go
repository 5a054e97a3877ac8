// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// promParser parses the stable language only: experimental functions such as info()
// and the fill modifiers are syntax errors.
var promParser = parser.NewParser(parser.Options{})

var (
	limitCall  = regexp.MustCompile(`\{\{\s*limit\s+"([^"]+)"\s*\}\}`)
	signalCall = regexp.MustCompile(`\{\{\s*signal((?:\s+"[^"]+")+)\s*\}\}`)
	anyCall    = regexp.MustCompile(`\{\{.*?(\}\}|$)`)
	quoted     = regexp.MustCompile(`"([^"]+)"`)
)

// joinLabels returns the labels on which entities of level at meet those of a
// cause's level: the cause's identity where at carries it, else at's own.
func joinLabels(at, of level) ([]string, error) {
	if contains(at.Labels, of.Join) {
		return of.Join, nil
	}
	if contains(of.Labels, at.Join) {
		return at.Join, nil
	}
	return nil, fmt.Errorf("no labels join level %s to level %s", at.Name, of.Name)
}

func contains(set, subset []string) bool {
	return !slices.ContainsFunc(subset, func(s string) bool { return !slices.Contains(set, s) })
}

func union(a []string, b ...string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// series returns the name of the series that a recording rule writes.
func series(level, name string) string { return "rackpulse:" + level + ":" + snake(name) }

// guarded returns a selector of a recorded series that requires the labels to be
// non-empty: two series that both lack a label would match each other.
func guarded(name string, labelNames ...string) string {
	var guards []string
	for _, l := range labelNames {
		if l != "site" && !slices.Contains(guards, l+`!=""`) {
			guards = append(guards, l+`!=""`)
		}
	}
	if len(guards) == 0 {
		return name
	}
	return name + "{" + strings.Join(guards, ",") + "}"
}

// selector returns the guarded selector of a signal's recorded series. Those of a
// bare level are guarded for the extra labels only.
func (p *Pack) selector(name string, extra ...string) (string, error) {
	s := p.signals[name]
	if s == nil {
		return "", fmt.Errorf("unknown signal %q%s", name, near(name, keysOf(p.signals)))
	}
	l := p.levels[s.Level]
	for _, e := range extra {
		if !slices.Contains(l.Labels, e) {
			return "", fmt.Errorf("signal %q of level %s has no label %q, only %s", name, s.Level, e, strings.Join(l.Labels, ", "))
		}
	}
	if l.Bare {
		return guarded(series(s.Level, name), extra...), nil
	}
	return guarded(series(s.Level, name), union(l.Join, extra...)...), nil
}

// limit returns a threshold: the site's, else the contract's.
func (b *builder) limit(key string) (float64, error) {
	if v, ok := b.limits.Value(key); ok {
		return v, nil
	}
	if v, ok := b.pack.contract.Limits[key]; ok {
		return v, nil
	}
	return 0, fmt.Errorf("unknown limit %q%s", key, near(key, append(b.limits.Keys(), keysOf(b.pack.contract.Limits)...)))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// expand replaces {{limit "key"}} and {{signal "name" "guard"...}}; all other
// braces belong to Prometheus's own templates.
func (b *builder) expand(text string) (string, error) {
	var errs []error
	text = limitCall.ReplaceAllStringFunc(text, func(call string) string {
		v, err := b.limit(limitCall.FindStringSubmatch(call)[1])
		if err != nil && len(errs) == 0 { // one is enough
			errs = append(errs, err)
		}
		return number(v)
	})
	text = signalCall.ReplaceAllStringFunc(text, func(call string) string {
		var args []string
		for _, m := range quoted.FindAllStringSubmatch(call, -1) {
			args = append(args, m[1])
		}
		sel, err := b.pack.selector(args[0], args[1:]...)
		if err != nil && len(errs) == 0 {
			errs = append(errs, err)
		}
		return sel
	})
	return text, errors.Join(errs...)
}

// refs returns the signals that a text refers to, in order.
func refs(text string) []string {
	var out []string
	for _, m := range signalCall.FindAllStringSubmatch(text, -1) {
		out = append(out, quoted.FindStringSubmatch(m[1])[1])
	}
	return out
}

// addGuards adds label!="" to a metric's selector for each label that it does
// not match already.
func addGuards(selector string, labelNames []string) (string, error) {
	expr, err := promParser.ParseExpr(selector)
	if err != nil {
		return "", errors.New(faultIn(selector, err))
	}
	vs, ok := expr.(*parser.VectorSelector)
	if !ok {
		return "", fmt.Errorf("%q is not a selector", selector)
	}
	for _, l := range labelNames {
		has := slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == l })
		if l != "site" && !has {
			vs.LabelMatchers = append(vs.LabelMatchers, parser.MustLabelMatcher(labels.MatchNotEqual, l, ""))
		}
	}
	return vs.String(), nil
}

// by returns "fn by (labels) (expr)".
func by(fn string, labelNames []string, expr string) string {
	return fmt.Sprintf("%s by (%s) (%s)", fn, strings.Join(labelNames, ", "), expr)
}

// on returns "left op on (labels) right".
func on(left, op string, labelNames []string, right string) string {
	return fmt.Sprintf("%s %s on (%s) %s", left, op, strings.Join(labelNames, ", "), right)
}

// hasRaw says whether series that are not recorded by us reach the result
// without an aggregation, so that labels such as instance would come along.
func hasRaw(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		return false
	case *parser.VectorSelector:
		return !strings.Contains(n.Name, ":")
	case *parser.BinaryExpr:
		if n.Op == parser.LAND || n.Op == parser.LUNLESS {
			return hasRaw(n.LHS)
		}
	}
	for _, c := range parser.Children(node) {
		if hasRaw(c) {
			return true
		}
	}
	return false
}
