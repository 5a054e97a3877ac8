// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"slices"
	"strings"
)

// checkTests holds that each branch has a test, and that tests are such.
func (p *Pack) checkTests(f *file) error {
	c := f.Correlation
	for i, b := range c.Branches {
		if !slices.ContainsFunc(f.Tests, func(t fixture) bool { return t.Branch == b.Name }) {
			return c.at.key("branches", i, "name").errorf("correlation %s: branch %s has no test", c.ID, b.Name)
		}
	}
	for _, t := range f.Tests {
		if !slices.ContainsFunc(c.Branches, func(b branch) bool { return b.Name == t.Branch }) {
			return t.at.key("branch").errorf("test %q: unknown branch %q", t.Name, t.Branch)
		}
		if len(t.Mirror) != 0 && len(t.Mirror) != 2 {
			return t.at.key("mirror").errorf("test %q: mirror has %d endings, want the two that change places", t.Name, len(t.Mirror))
		}
		if t.At <= 0 {
			return t.at.errorf("test %q: at must say when the alert is there, like 10m", t.Name)
		}
		if err := p.checkFixture(c, &t); err != nil {
			return err
		}
	}
	return nil
}

// checkFixture holds that the series and values of a test are such, and that what
// it expects can come.
func (p *Pack) checkFixture(c *spec, t *fixture) error {
	for i, in := range t.Inputs {
		where := t.at.key("inputs", i)
		for j, name := range in.Of {
			if p.signals[name] == nil {
				return where.key("of", j).errorf("test %q: unknown signal %q%s", t.Name, name, near(name, keysOf(p.signals)))
			}
		}
		series := placeholder.ReplaceAllString(in.Series, "x")
		if _, err := promParser.ParseMetric(series); err != nil {
			return where.key("series").errorf("test %q: %s", t.Name, faultIn(series, err))
		}
		for key, values := range map[string]string{"bad": in.Bad, "good": in.Good, "flap": in.Flap} {
			if !seriesValues.MatchString(values) {
				return where.key(key).errorf("test %q: %q: want values as promtool has them, like 1x40, 22+0.4x16, _x5 or stale", t.Name, values)
			}
		}
	}
	names := strings.Split(alertNames(c), "|")
	for i, e := range t.Expect {
		if !slices.Contains(names, e.Alert) {
			return t.at.key("expect", i, "alert").errorf("test %q: %s has no alert %q%s", t.Name, c.ID, e.Alert, near(e.Alert, names))
		}
	}
	return nil
}

// seriesValues are values in promtool's notation.
var seriesValues = regexp.MustCompile(`^\s*((_(x\d+)?|stale|[-+]?[0-9.]+(e[-+]?\d+)?([-+][0-9.]+(e[-+]?\d+)?)?(x\d+)?|[-+]?Inf(x\d+)?|NaN(x\d+)?)(\s+|$))*$`)
