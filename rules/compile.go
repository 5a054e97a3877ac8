// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// rule is one compiled rule.
type rule struct {
	record, alert string
	expr          string
	dur, keep     time.Duration
	labels        [][2]string
	annotations   [][2]string
}

// ruleGroup is one compiled group.
type ruleGroup struct {
	name     string
	interval time.Duration
	rules    []rule
}

// builder compiles one pack with one set of limits.
type builder struct {
	pack   *Pack
	limits Limits
}

// groups compiles the two groups: correlations (signals, causes, symptoms, in
// this order, so that one evaluation sees its own signals) and coverage.
func (b *builder) groups() ([]ruleGroup, error) {
	main := ruleGroup{name: "rackpulse-correlations", interval: time.Duration(b.pack.contract.Interval)}
	coverage := ruleGroup{name: "rackpulse-coverage", interval: time.Duration(b.pack.contract.CoverageInterval)}
	ordered, err := b.order()
	if err != nil {
		return nil, err
	}
	var errs []error
	add := func(g *ruleGroup, rules []rule, err error) {
		errs = append(errs, err)
		g.rules = append(g.rules, rules...)
	}
	pick := func(group string) *ruleGroup {
		if group == "coverage" {
			return &coverage
		}
		return &main
	}
	for _, s := range ordered {
		r, err := b.signal(s)
		add(pick(s.Group), []rule{r}, err)
	}
	for _, f := range b.pack.specs() {
		rules, err := b.correlation(f.Correlation)
		add(&main, rules, err)
	}
	for _, f := range b.pack.files {
		for i := range f.Alerts {
			r, err := b.plain(&f.Alerts[i])
			add(pick(f.Alerts[i].Group), []rule{r}, err)
		}
	}
	for _, f := range b.pack.specs() {
		rules, err := b.cannotFire(f.Correlation)
		add(&coverage, rules, err)
	}
	return []ruleGroup{main, coverage}, errors.Join(errs...)
}

// order sorts the signals so that each stands after those it refers to.
func (b *builder) order() ([]*signal, error) {
	var out []*signal
	state := map[string]int{} // 1: being visited, 2: done
	var visit func(s *signal) error
	visit = func(s *signal) error {
		switch state[s.Name] {
		case 1:
			return s.source().errorf("signal %s refers to itself", s.Name)
		case 2:
			return nil
		}
		state[s.Name] = 1
		needs := refs(s.Expr)
		if s.Missing == "bad" {
			needs = append(needs, s.CoveredBy)
		}
		for _, name := range needs {
			next := b.pack.signals[name]
			if next == nil {
				return s.source().errorf("signal %s: unknown signal %q%s", s.Name, name, near(name, keysOf(b.pack.signals)))
			}
			if err := visit(next); err != nil {
				return err
			}
		}
		state[s.Name] = 2
		out = append(out, s)
		return nil
	}
	for _, f := range b.pack.files {
		for i := range f.Signals {
			if err := visit(&f.Signals[i]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// signal compiles one signal to its recording rule.
func (b *builder) signal(s *signal) (rule, error) {
	base, err := b.base(s)
	if err == nil {
		base, err = b.latch(s, base)
	}
	if err == nil && s.Missing == "bad" {
		base, err = b.orMissing(s, base)
	}
	if err != nil {
		return rule{}, s.source().errorf("signal %s: %v", s.Name, err)
	}
	return b.record(series(s.Level, s.Name), base, s.source())
}

// source is the place of the signal's metric or expression.
func (s *signal) source() position {
	if s.Expr != "" {
		return s.at.key("expr")
	}
	return s.at.key("metric")
}

// base returns the signal's values, before the threshold where that cannot be
// applied to the raw series.
func (b *builder) base(s *signal) (string, error) {
	l := b.pack.levels[s.Level]
	if s.Expr != "" {
		text, err := b.expand(s.Expr)
		if err != nil {
			return "", err
		}
		if m := anyCall.FindString(text); m != "" {
			return "", fmt.Errorf(`%s: want {{signal "NAME"}}, with guarded labels after the name, or {{limit "KEY"}}`, m)
		}
		expr, err := promParser.ParseExpr(text)
		if err != nil {
			return "", errors.New(faultIn(text, err))
		}
		if hasRaw(expr) {
			return by("max", l.Labels, text), nil
		}
		if _, plain := expr.(*parser.VectorSelector); plain {
			return text, nil
		}
		return "(" + text + ")", nil
	}
	return b.metric(s, l)
}

// metric collapses the signal's metric to its level.
func (b *builder) metric(s *signal, l level) (string, error) {
	guards := l.Join
	if l.Bare || s.Bare {
		guards = nil
	}
	sel, err := addGuards(s.Metric, guards)
	if err != nil {
		return "", err
	}
	enough := ""
	if n := s.Aggregate.MinSensors; n > 1 {
		enough = fmt.Sprintf("%s >= %d", by("count", l.Join, sel), n)
	}
	if s.Window != nil {
		sel = fmt.Sprintf("%s_over_time(%s[%s])", s.Window.Fn, sel, s.Window.Range)
	}
	if b.early(s) { // drops most series before the aggregation has to group them
		if sel, err = b.raised(s, sel); err != nil {
			return "", err
		}
	}
	if s.Aggregate.Fn == "upper" {
		share, err := b.limit(s.Aggregate.ShareLimit)
		if err != nil {
			return "", err
		}
		sel = fmt.Sprintf("quantile by (%s) (%s, %s)", strings.Join(l.Labels, ", "), number(1-share), sel)
	} else {
		sel = by(s.Aggregate.Fn, l.Labels, sel)
	}
	if enough != "" {
		sel = "(" + on(sel, "and", l.Join, "("+enough+")") + ")"
	}
	return sel, nil
}

// early says that filtering the raw series gives what filtering the aggregate
// gives.
func (b *builder) early(s *signal) bool {
	if s.Metric == "" || s.Clear != nil || s.ClearLimit != "" {
		return false
	}
	rising := s.Op == ">" || s.Op == ">="
	falling := s.Op == "<" || s.Op == "<="
	return rising && s.Aggregate.Fn == "max" || falling && s.Aggregate.Fn == "min"
}

// raised compares an expression with the signal's limit. A limit key with "*"
// stands for the default and the models that have their own.
func (b *builder) raised(s *signal, expr string) (string, error) {
	if s.Raise != nil {
		return expr + " " + s.Op + " " + number(*s.Raise), nil
	}
	prefix, field, models := strings.Cut(s.RaiseLimit, "*")
	if !models {
		v, err := b.limit(s.RaiseLimit)
		return expr + " " + s.Op + " " + number(v), err
	}
	def, err := b.limit(prefix + "default" + field)
	if err != nil {
		return "", err
	}
	var names, parts []string
	for _, key := range b.limits.Keys() {
		name, ok := strings.CutSuffix(strings.TrimPrefix(key, prefix), field)
		if !ok || !strings.HasPrefix(key, prefix) || name == "default" {
			continue
		}
		v, _ := b.limits.Value(key)
		names = append(names, name)
		parts = append(parts, fmt.Sprintf("%s %s %s", withMatcher(expr, fmt.Sprintf("modelName=%q", name)), s.Op, number(v)))
	}
	rest := expr
	for _, name := range names {
		rest = withMatcher(rest, fmt.Sprintf("modelName!=%q", name))
	}
	parts = append(parts, rest+" "+s.Op+" "+number(def))
	return strings.Join(parts, " or "), nil
}

// withMatcher adds a matcher to a selector.
func withMatcher(selector, matcher string) string {
	if rest, ok := strings.CutSuffix(selector, "}"); ok {
		return rest + "," + matcher + "}"
	}
	return selector + "{" + matcher + "}"
}

// latch applies the threshold: raised, or raised before and not yet cleared.
func (b *builder) latch(s *signal, base string) (string, error) {
	if s.Op == "" || b.early(s) {
		return base, nil
	}
	up, err := b.raised(s, base)
	if err != nil || s.Clear == nil && s.ClearLimit == "" {
		return up, err
	}
	clear := s.Clear
	if s.ClearLimit != "" {
		v, err := b.limit(s.ClearLimit)
		if err != nil {
			return "", err
		}
		clear = &v
	}
	join := b.pack.levels[s.Level].Join
	own, err := b.pack.selector(s.Name, join...)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s or (%s %s %s %s)", up, base, s.Op, number(*clear), on("", "and", join, own)), nil
}

// orMissing adds the entities that should have the signal's input and do not; they
// show the value of the signal that says so.
func (b *builder) orMissing(s *signal, up string) (string, error) {
	join := b.pack.levels[s.Level].Join
	want, err := b.pack.selector(s.CoveredBy, join...)
	if err != nil {
		return "", err
	}
	have := s.Metric
	if s.Expr != "" {
		if have, err = b.base(s); err != nil {
			return "", err
		}
	} else if have, err = addGuards(s.Metric, join); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s or (%s)", up, on(want, "unless", join, have)), nil
}

// record makes a recording rule and checks that its expression parses.
func (b *builder) record(name, expr string, at position) (rule, error) {
	pretty, err := format(expr)
	if err != nil {
		return rule{}, at.errorf("%s: %s", name, faultIn(expr, err))
	}
	return rule{record: name, expr: pretty}, nil
}

// faultIn says what is wrong with an expression and where in its text, which is
// that of the file with signals and limits written out.
func faultIn(expr string, err error) string {
	list, ok := err.(parser.ParseErrors)
	if !ok || len(list) == 0 {
		return err.Error()
	}
	at := min(max(int(list[0].PositionRange.Start), 0), len(expr))
	before, after := expr[max(at-30, 0):at], expr[at:min(at+30, len(expr))]
	return fmt.Sprintf("%v, here: %q", list[0].Err, strings.Join(strings.Fields(before+" <!> "+after), " "))
}

// format parses an expression and prints it in the canonical layout.
func format(expr string) (string, error) {
	parsed, err := promParser.ParseExpr(expr)
	if err != nil {
		return "", err
	}
	if nesting(parsed) > maxPretty {
		return parsed.String(), nil
	}
	return parser.Prettify(parsed), nil
}

// maxPretty is the depth up to which expressions are laid out over lines: the time
// that takes grows with the square of the depth, and beyond nobody reads them.
const maxPretty = 40

// nesting returns how deep an expression is.
func nesting(expr parser.Expr) int {
	deepest := 0
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		if node != nil {
			deepest = max(deepest, len(path)+1)
		}
		return nil
	})
	return deepest
}

// closure returns the signals that the named ones are computed from, and these
// themselves, sorted by name.
func (p *Pack) closure(names []string) []string {
	var out []string
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if slices.Contains(out, name) || p.signals[name] == nil {
			continue
		}
		out = append(out, name)
		s := p.signals[name]
		names = append(names, refs(s.Expr)...)
		if s.CoveredBy != "" {
			names = append(names, s.CoveredBy)
		}
	}
	slices.Sort(out)
	return out
}
