// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// LintPack checks the pack's own files and what they compile to, built (see Build),
// with the findings of Lint at the places in the pack's files that they come from.
// The problems are sorted by file and place.
func (p *Pack) LintPack(built map[string][]byte, metrics []byte) []Problem {
	out := p.sources()
	places := p.places()
	for _, one := range p.Lint(built, metrics) {
		if at, ok := places[one.rule]; ok {
			one = at.problem(one.ID, "%s: %s", one.rule, one.Message)
		}
		out = append(out, one)
	}
	return sorted(out)
}

// places are where records, alerts and inhibitions come from, by name.
func (p *Pack) places() map[string]position {
	out := map[string]position{}
	for name, s := range p.signals {
		out[series(s.Level, name)] = s.source()
	}
	for _, f := range p.files {
		for i := range f.Alerts {
			out[f.Alerts[i].Alert] = f.Alerts[i].at.key("expr")
		}
		c := f.Correlation
		if c == nil {
			continue
		}
		set := series(c.At, c.ID)
		for _, name := range []string{set, set + "_pairs", set + "_blamed", set + "_part", series(c.Level, c.ID)} {
			out[name] = c.at.key("branches")
		}
		for _, name := range strings.Split(alertNames(c), "|") {
			out[name] = c.at.key("alert")
		}
	}
	for _, in := range p.inhibitions() {
		out[in.name] = in.at
	}
	return out
}

// sources finds in the pack's own files what its rules do not show: C012 and C020.
func (p *Pack) sources() []Problem {
	var out []Problem
	for _, f := range p.files {
		if f.Correlation != nil {
			out = append(out, p.silence(f.Correlation)...)
		}
		for i := range f.Signals {
			s := &f.Signals[i]
			out = append(out, literals(s.source(), s.Expr)...)
		}
		for i := range f.Alerts {
			out = append(out, literals(f.Alerts[i].at.key("expr"), f.Alerts[i].Expr)...)
		}
	}
	for key := range p.contract.Limits {
		if !unitSuffix.MatchString(key) {
			out = append(out, p.contractAt.key("limits", key).problem("C020", "limit %s does not end in its unit, like _celsius or _ratio", key))
		}
	}
	return out
}

// silence finds C012: a signal without which a branch cannot hold, when neither
// it nor any that it is made of says what its absence means.
func (p *Pack) silence(c *spec) []Problem {
	var out []Problem
	check := func(where position, name string) {
		said := slices.ContainsFunc(p.closure([]string{name}), func(n string) bool { return p.signals[n].Missing != "" })
		if !said {
			out = append(out, where.problem("C012", "without data for signal %s correlation %s stays silent, and nothing says whether that is right: give it missing: unknown, which adds an alert, or missing: ok", name, c.ID))
		}
	}
	for i, b := range c.Branches {
		where := c.at.key("branches", i)
		check(where.key("symptom"), b.Symptom)
		for j, cause := range b.Causes {
			if cause.Role == "required" {
				check(where.key("causes", j, "signal"), cause.Signal)
			}
		}
	}
	return out
}

// unitSuffix ends the name of a limit; the units are those of site/limits.yml.
var unitSuffix = regexp.MustCompile(`_(celsius|kelvin|ratio|percent|seconds|amperes|volts|watts|hours|days|nodes|gpus|pages|devices)$|_per_[a-z0-9]+$`)

// literals finds C020 in an expression: comparisons with a number that is neither
// a state nor a count of samples.
func literals(at position, expr string) []Problem {
	if expr == "" {
		return nil
	}
	text := signalCall.ReplaceAllString(limitCall.ReplaceAllString(expr, "scalar(limit)"), "rackpulse:x:y")
	parsed, err := promParser.ParseExpr(text)
	if err != nil {
		return nil // the compiler says so
	}
	var out []Problem
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		b, ok := node.(*parser.BinaryExpr)
		if !ok || !b.Op.IsComparisonOperator() {
			return nil
		}
		for _, pair := range [][2]parser.Expr{{b.LHS, b.RHS}, {b.RHS, b.LHS}} {
			n, ok := core(pair[1]).(*parser.NumberLiteral)
			if ok && n.Val != 0 && n.Val != 1 && !counts(pair[0]) {
				out = append(out, at.problem("C020", "threshold %s has no unit and no source: make it a limit and write {{limit \"...\"}}", number(n.Val)))
			}
		}
		return nil
	})
	return out
}

// counts says that an expression counts series or samples, whose number has no
// other unit.
func counts(expr parser.Expr) bool {
	switch n := expr.(type) {
	case *parser.ParenExpr:
		return counts(n.Expr)
	case *parser.AggregateExpr:
		return n.Op == parser.COUNT
	case *parser.Call:
		return strings.HasPrefix(n.Func.Name, "count_over_time") || n.Func.Name == "changes" || n.Func.Name == "resets"
	}
	return false
}
