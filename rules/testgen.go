// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// sample is one input series of a generated test.
type sample struct{ series, values string }

// check is one expression with the label sets it must return.
type check struct {
	at   time.Duration
	expr string
	want []labels.Labels
}

// testCase is one generated test.
type testCase struct {
	name   string
	inputs []sample
	checks []check
}

// tests generates the promtool tests of a correlation from its fixtures: the
// faults must fire exactly the expected alerts, and each way in which they must
// not fire, or in which the data is broken, is tried.
func (b *builder) tests(f *file) ([]byte, error) {
	var cases []testCase
	made := 0
	for i := range f.Tests {
		more, err := b.cases(f.Correlation, &f.Tests[i])
		if err != nil {
			return nil, flatten(err)
		}
		cases = append(cases, more...)
		for _, one := range more {
			made += len(one.inputs)
		}
		if made > maxCaseSeries {
			return nil, f.Tests[i].at.errorf("test %q: more than %d series in all cases of %s", f.Tests[i].Name, maxCaseSeries, f.Correlation.ID)
		}
	}
	return renderTests(cases, time.Duration(b.pack.contract.Interval)), nil
}

func (b *builder) cases(c *spec, t *fixture) ([]testCase, error) {
	bad, err := t.expand(t.Over, func(in input) string { return in.Bad })
	if err != nil {
		return nil, err
	}
	firing := b.firing(c, t, t.Expect)
	none := b.firing(c, t, nil)
	out := []testCase{
		{t.Name + ": fires", bad, []check{firing}},
		{t.Name + ": fires once though two exporters report the same", duplicated(bad), []check{firing}},
		{t.Name + ": label missing on both sides", stripped(bad, b.pack.levels[c.At].Join), []check{none}},
	}
	if len(t.Mirror) == 2 {
		out = append(out, b.mirrored(c, t, bad))
	}
	for _, name := range b.necessary(c, t.Branch) {
		inputs, err := t.expand(t.Over, func(in input) string {
			if slices.Contains(in.Of, name) {
				return in.Good
			}
			return in.Bad
		})
		if err != nil {
			return nil, err
		}
		out = append(out, testCase{t.Name + ": quiet without " + name, inputs, []check{none}})
	}
	more, err := b.moreCases(c, t, bad, firing)
	return append(out, more...), err
}

// mirrored is the fault of the other side alone.
func (b *builder) mirrored(c *spec, t *fixture, bad []sample) testCase {
	one, two := "-"+t.Mirror[0], "-"+t.Mirror[1]
	var inputs []sample
	for _, in := range bad {
		inputs = append(inputs, sample{strings.NewReplacer(one+`"`, two+`"`, two+`"`, one+`"`).Replace(in.series), in.values})
	}
	var want []expected
	for _, e := range t.Expect {
		other := expected{Alert: e.Alert, Labels: maps.Clone(e.Labels)}
		for name, value := range e.Labels {
			if rest, ok := strings.CutSuffix(value, one); ok {
				other.Labels[name] = rest + two
			} else if rest, ok := strings.CutSuffix(value, two); ok {
				other.Labels[name] = rest + one
			}
		}
		want = append(want, other)
	}
	return testCase{fmt.Sprintf("%s: fires for %s alone as for %s", t.Name, t.Mirror[1], t.Mirror[0]), inputs, []check{b.firing(c, t, want)}}
}

// moreCases are the tests of healthy neighbours, dead inputs and flaps.
func (b *builder) moreCases(c *spec, t *fixture, bad []sample, firing check) ([]testCase, error) {
	over := maps.Clone(t.Over)
	maps.Copy(over, t.Other)
	good, err := t.expand(over, func(in input) string { return in.Good })
	if err != nil {
		return nil, err
	}
	flap, err := t.expand(t.Over, func(in input) string {
		if in.Flap != "" {
			return in.Flap
		}
		return in.Bad
	})
	if err != nil {
		return nil, err
	}
	out := []testCase{
		{t.Name + ": a flap shorter than for stays pending", flap, b.flapChecks(c, t)},
	}
	before, err := b.before(t)
	if err != nil {
		return nil, err
	}
	if len(before) > 0 {
		out = append(out, testCase{t.Name + ": nodes that moved here left series in their rack of before", append(slices.Clone(bad), before...), []check{firing}})
	}
	if len(t.Other) > 0 {
		out = append([]testCase{{t.Name + ": healthy neighbours stay quiet", append(slices.Clone(bad), good...), []check{firing}}}, out...)
	}
	for _, name := range b.pack.inputs(c) {
		s := b.pack.signals[name]
		if !s.covered() || len(out)*len(bad) > maxCaseSeries {
			continue
		}
		metrics := b.pack.metrics(name)
		var rest []sample
		for _, in := range bad {
			metric, _, _ := strings.Cut(in.series, "{")
			if !slices.Contains(metrics, metric) {
				rest = append(rest, in)
			}
		}
		if len(rest) == len(bad) || !slices.ContainsFunc(rest, func(s sample) bool { return strings.HasPrefix(s.series, "rackpulse_rack_info") }) {
			continue
		}
		out = append(out, testCase{t.Name + ": without any " + name + " a coverage alert fires", rest, []check{{
			at:   time.Duration(t.At),
			expr: fmt.Sprintf("count by (alertname, correlation, signal) (ALERTS{alertname=\"CorrelationCannotFire\",alertstate=\"firing\",correlation=%q,signal=%q})", c.ID, name),
			want: []labels.Labels{labels.FromStrings("alertname", "CorrelationCannotFire", "correlation", c.ID, "signal", name)},
		}}})
	}
	return out, nil
}

var (
	rackLabel = regexp.MustCompile(`rack_id="([^"]*)"`)
	constant  = regexp.MustCompile(`^(\S+)x\d+$`)
)

// before are the series that the nodes of a test had in another rack, where they
// were healthy, without a mark that they ended: Prometheus still shows the last
// value for a while when the fault is there.
func (b *builder) before(t *fixture) ([]sample, error) {
	interval := time.Duration(b.pack.contract.Interval)
	until := max(time.Duration(t.At)-2*time.Minute, interval) / interval
	all, err := t.expand(t.Over, func(in input) string {
		if m := constant.FindStringSubmatch(in.Good); m != nil {
			return fmt.Sprintf("%sx%d", m[1], until)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	var out []sample
	for _, s := range all {
		if rackLabel.MatchString(s.series) && strings.Contains(s.series, `node="`) {
			out = append(out, sample{rackLabel.ReplaceAllString(s.series, `rack_id="$1-before"`), s.values})
		}
	}
	return out, nil
}

// necessary are the signals of a branch without which it must not hold: the
// symptom and the required causes.
func (b *builder) necessary(c *spec, name string) []string {
	var out []string
	for _, br := range c.Branches {
		if br.Name != name {
			continue
		}
		out = append(out, br.Symptom)
		for _, cause := range br.Causes {
			if cause.Role == "required" {
				out = append(out, cause.Signal)
			}
		}
	}
	return out
}

// alertNames are the alerts of a correlation.
func alertNames(c *spec) string {
	names := []string{c.Alert}
	if c.Group != nil {
		names = append(names, c.Group.Companion, c.Group.Alone.Alert)
	}
	return strings.Join(names, "|")
}

// firing checks that exactly the expected alerts of the correlation fire.
func (b *builder) firing(c *spec, t *fixture, want []expected) check {
	out := check{at: time.Duration(t.At)}
	kept := union([]string{"alertname"}, b.pack.levels[c.Level].Labels...)
	kept = union(kept, union(b.pack.levels[c.At].Labels, "device")...)
	out.expr = by("count", kept, fmt.Sprintf("ALERTS{alertname=~%q,alertstate=\"firing\"}", alertNames(c)))
	for _, e := range want {
		all := maps.Clone(e.Labels)
		all["alertname"], all["site"] = e.Alert, "ams1"
		out.want = append(out.want, labels.FromMap(all))
	}
	return out
}

// flapChecks hold that the alert was pending once and never fired.
func (b *builder) flapChecks(c *spec, t *fixture) []check {
	seen := func(state string) string {
		return fmt.Sprintf("count(count_over_time(ALERTS{alertname=~%q,alertstate=%q}[1h])) > 0", alertNames(c), state)
	}
	at := time.Duration(t.At)
	return []check{{at: at, expr: "group(" + seen("pending") + ")", want: []labels.Labels{labels.EmptyLabels()}}, {at: at, expr: seen("firing")}}
}

// metrics are the metric names that a signal and its proof are made of.
func (p *Pack) metrics(name string) []string {
	var out []string
	for _, n := range p.closure([]string{name}) {
		s := p.signals[n]
		// {{limit}} becomes a number and {{signal}} a recorded name, so that the
		// text parses.
		text := s.Metric + signalCall.ReplaceAllString(limitCall.ReplaceAllString(s.Expr, "1"), "rackpulse:x:y")
		for _, m := range metricNames(text) {
			if !strings.Contains(m, ":") {
				out = union(out, m)
			}
		}
	}
	return out
}

var placeholder = regexp.MustCompile(`<([a-z_]+)>`)

// expand writes out the fixture's series for all values of their placeholders.
func (t *fixture) expand(over map[string][]string, values func(input) string) ([]sample, error) {
	var out []sample
	for i, in := range t.Inputs {
		v := values(in)
		if v == "" {
			continue
		}
		list := []string{in.Series}
		for _, m := range placeholder.FindAllStringSubmatch(in.Series, -1) {
			ids, ok := over[m[1]]
			if !ok {
				return nil, t.at.key("inputs", i, "series").errorf("test %q: placeholder <%s> has no values in over", t.Name, m[1])
			}
			var next []string
			for _, s := range list {
				for _, id := range ids {
					if replaced := strings.ReplaceAll(s, m[0], id); !slices.Contains(next, replaced) {
						next = append(next, replaced)
					}
				}
			}
			list = next
		}
		for _, s := range list {
			out = append(out, sample{s, v})
		}
	}
	return out, nil
}

// duplicated adds to each series the same one from another exporter.
func duplicated(in []sample) []sample {
	out := slices.Clone(in)
	for _, s := range in {
		out = append(out, sample{strings.TrimSuffix(s.series, "}") + `,instance="second"}`, s.values})
	}
	return out
}

// stripped removes the identifying labels but the site from all series, and
// drops what becomes equal.
func stripped(in []sample, names []string) []sample {
	var out []sample
	for _, s := range in {
		for _, name := range names {
			if name != "site" {
				s.series = regexp.MustCompile(`([{,])`+name+`="[^"]*",?`).ReplaceAllString(s.series, "$1")
			}
		}
		s.series = strings.Replace(s.series, ",}", "}", 1)
		if !slices.ContainsFunc(out, func(o sample) bool { return o.series == s.series }) {
			out = append(out, s)
		}
	}
	return out
}

// renderTests writes a promtool test file beside the rule files' folder.
func renderTests(cases []testCase, interval time.Duration) []byte {
	var b strings.Builder
	b.WriteString(generatedHeader + "rule_files: [../correlations.rules.yml, ../coverage.rules.yml]\n")
	fmt.Fprintf(&b, "evaluation_interval: %s\ntests:\n", model.Duration(interval))
	for _, c := range cases {
		fmt.Fprintf(&b, "  - name: %s\n    interval: %s\n    input_series:\n", quote(c.name), model.Duration(interval))
		for _, s := range c.inputs {
			fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quote(s.series), quote(s.values))
		}
		b.WriteString("    promql_expr_test:\n")
		for _, ch := range c.checks {
			fmt.Fprintf(&b, "      - expr: %s\n        eval_time: %s\n", quote(ch.expr), model.Duration(ch.at))
			if len(ch.want) == 0 {
				continue
			}
			b.WriteString("        exp_samples:\n")
			for _, l := range ch.want {
				fmt.Fprintf(&b, "          - {labels: %s, value: 1}\n", quote(l.String()))
			}
		}
	}
	return []byte(b.String())
}
