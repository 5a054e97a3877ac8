// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"slices"
	"strings"
)

var (
	severities = []string{"critical", "warning", "info"}
	teams      = []string{"facility", "compute", "network"}
	roles      = []string{"required", "supporting", "contradicting"}
	operators  = []string{">", ">=", "<", "<=", "==", "!="}
	aggregates = []string{"max", "min", "avg", "sum", "count", "upper"}
)

// check validates names and references; every error names its place.
func (p *Pack) check() error {
	var errs []error
	for _, f := range p.files {
		for i := range f.Signals {
			s := &f.Signals[i]
			if other, dup := p.signals[s.Name]; dup {
				errs = append(errs, s.at.errorf("signal %q is also at %s", s.Name, other.at))
			}
			p.signals[s.Name] = s
		}
	}
	for _, f := range p.files {
		for i := range f.Signals {
			errs = append(errs, p.checkSignal(&f.Signals[i]))
		}
		for i := range f.Alerts {
			errs = append(errs, p.checkAlert(&f.Alerts[i]))
		}
		if f.Correlation != nil {
			errs = append(errs, p.checkSpec(f.Correlation))
			errs = append(errs, p.checkTests(f))
		}
	}
	return errors.Join(errs...)
}

func (p *Pack) checkSignal(s *signal) error {
	_, known := p.levels[s.Level]
	switch {
	case !namePattern.MatchString(s.Name):
		return s.at.errorf("signal name %q: want lower case letters, digits and _", s.Name)
	case !known:
		return s.at.errorf("signal %s: unknown level %q", s.Name, s.Level)
	case (s.Metric == "") == (s.Expr == ""):
		return s.at.errorf("signal %s: want one of metric and expr", s.Name)
	case s.Description == "" || s.Unit == "":
		return s.at.errorf("signal %s: description and unit are required", s.Name)
	case s.Metric != "" && (s.Aggregate == nil || !slices.Contains(aggregates, s.Aggregate.Fn)):
		return s.at.errorf("signal %s: a metric needs aggregate.fn, one of %s", s.Name, strings.Join(aggregates, " "))
	case s.Expr != "" && (s.Aggregate != nil || s.Window != nil):
		return s.at.errorf("signal %s: aggregate and window belong to a metric", s.Name)
	}
	return errors.Join(p.checkMissing(s), checkThreshold(s))
}

func (p *Pack) checkMissing(s *signal) error {
	_, covered := p.signals[s.CoveredBy]
	switch {
	case s.CoveredBy != "" && !covered:
		return s.at.errorf("signal %s: covered_by names no signal: %q", s.Name, s.CoveredBy)
	case s.Missing != "" && s.Missing != "ok" && s.Missing != "unknown":
		return s.at.errorf("signal %s: missing is %q, want ok or unknown", s.Name, s.Missing)
	case s.Missing == "unknown" && s.Op != "" && s.CoveredBy == "":
		return s.at.errorf("signal %s: has series only while true, so missing: unknown needs covered_by", s.Name)
	}
	return nil
}

func checkThreshold(s *signal) error {
	raise, clear := s.Raise != nil || s.RaiseLimit != "", s.Clear != nil || s.ClearLimit != ""
	switch {
	case s.Op == "" && (raise || clear):
		return s.at.errorf("signal %s: raise and clear need op", s.Name)
	case s.Op != "" && !slices.Contains(operators, s.Op):
		return s.at.errorf("signal %s: unknown op %q", s.Name, s.Op)
	case s.Op != "" && (s.Raise != nil) == (s.RaiseLimit != ""):
		return s.at.errorf("signal %s: want one of raise and raise_limit", s.Name)
	case s.Clear != nil && s.ClearLimit != "":
		return s.at.errorf("signal %s: want one of clear and clear_limit", s.Name)
	}
	return nil
}

func (p *Pack) checkAlert(a *alert) error {
	_, level := p.levels[a.Level]
	_, known := p.signals[a.Signal]
	switch {
	case a.Alert == "":
		return a.at.errorf("alert without a name")
	case !level:
		return a.at.errorf("alert %s: unknown level %q", a.Alert, a.Level)
	case (a.Signal == "") == (a.Expr == ""):
		return a.at.errorf("alert %s: want one of signal and expr", a.Alert)
	case a.Signal != "" && !known:
		return a.at.errorf("alert %s: unknown signal %q", a.Alert, a.Signal)
	case a.Severity != "none" && !slices.Contains(severities, a.Severity):
		return a.at.errorf("alert %s: unknown severity %q", a.Alert, a.Severity)
	case !slices.Contains(teams, a.Team):
		return a.at.errorf("alert %s: unknown team %q", a.Alert, a.Team)
	case a.Summary == "" || a.Cause == "" || a.Description == "":
		return a.at.errorf("alert %s: summary, cause and description are required", a.Alert)
	}
	return nil
}

func (p *Pack) checkSpec(c *spec) error {
	at, okAt := p.levels[c.At]
	_, okLevel := p.levels[c.Level]
	switch {
	case c.ID == "" || c.Alert == "" || c.Title == "":
		return c.at.errorf("a correlation needs id, title and alert")
	case !okAt || !okLevel:
		return c.at.errorf("correlation %s: unknown level %q or %q", c.ID, c.At, c.Level)
	case !slices.Contains(severities, c.Severity) || !slices.Contains(teams, c.Team):
		return c.at.errorf("correlation %s: severity %q or team %q is unknown", c.ID, c.Severity, c.Team)
	case c.Summary == "" || c.Cause == "" || c.Description == "" || c.Explain.Verdict == "":
		return c.at.errorf("correlation %s: summary, cause, description and explain.verdict are required", c.ID)
	case len(c.Branches) == 0:
		return c.at.errorf("correlation %s: no branches", c.ID)
	}
	return errors.Join(p.checkBranches(c, at), p.checkGroup(c))
}

func (p *Pack) checkBranches(c *spec, at level) error {
	spread := ""
	if c.Group != nil {
		spread = c.Group.Spread
	}
	for key, name := range map[string]string{"hold": c.Hold, "group.spread": spread} {
		if s := p.signals[name]; name != "" && (s == nil || s.Level != c.At) {
			return c.at.errorf("correlation %s: %s %q is no signal of level %s", c.ID, key, name, c.At)
		}
	}
	for _, b := range c.Branches {
		if s := p.signals[b.Symptom]; s == nil || s.Level != c.At {
			return c.at.errorf("correlation %s, branch %s: symptom %q is no signal of level %s", c.ID, b.Name, b.Symptom, c.At)
		}
		for _, cause := range b.Causes {
			if err := p.checkCause(c, cause, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Pack) checkCause(c *spec, cause cause, at level) error {
	s := p.signals[cause.Signal]
	switch {
	case s == nil:
		return c.at.errorf("correlation %s: unknown signal %q", c.ID, cause.Signal)
	case !slices.Contains(roles, cause.Role):
		return c.at.errorf("correlation %s, cause %s: unknown role %q", c.ID, cause.Signal, cause.Role)
	case cause.Weight <= 0 || cause.Weight > 1:
		return c.at.errorf("correlation %s, cause %s: weight %g is not in 0..1", c.ID, cause.Signal, cause.Weight)
	}
	if _, err := joinLabels(at, p.levels[s.Level]); err != nil {
		return c.at.errorf("correlation %s, cause %s: %v", c.ID, cause.Signal, err)
	}
	return nil
}

func (p *Pack) checkGroup(c *spec) error {
	g := c.Group
	if g == nil {
		if c.Level != c.At {
			return c.at.errorf("correlation %s: level %s differs from at %s, so it needs group", c.ID, c.Level, c.At)
		}
		return nil
	}
	if _, ok := p.edge(c.At, c.Level); !ok {
		return c.at.errorf("correlation %s: no edge from %s to %s", c.ID, c.At, c.Level)
	}
	switch {
	case p.signals[g.Of] == nil || p.signals[g.Of].Level != c.At:
		return c.at.errorf("correlation %s: group.of %q is no signal of level %s", c.ID, g.Of, c.At)
	case g.Supporting != nil && (p.signals[g.Supporting.Signal] == nil || p.signals[g.Supporting.Signal].Level != c.Level):
		return c.at.errorf("correlation %s: group.supporting is no signal of level %s", c.ID, c.Level)
	case g.Contradicting != nil && (p.signals[g.Contradicting.Signal] == nil || p.signals[g.Contradicting.Signal].Level != c.At):
		return c.at.errorf("correlation %s: group.contradicting is no signal of level %s", c.ID, c.At)
	case g.Alone.Alert == "" || g.Companion == "":
		return c.at.errorf("correlation %s: group.alone.alert and group.companion are required", c.ID)
	}
	return nil
}

func (p *Pack) checkTests(f *file) error {
	c := f.Correlation
	for _, b := range c.Branches {
		if !slices.ContainsFunc(f.Tests, func(t fixture) bool { return t.Branch == b.Name }) {
			return c.at.errorf("correlation %s: branch %s has no test", c.ID, b.Name)
		}
	}
	for _, t := range f.Tests {
		if !slices.ContainsFunc(c.Branches, func(b branch) bool { return b.Name == t.Branch }) {
			return t.at.errorf("test %q: unknown branch %q", t.Name, t.Branch)
		}
		for _, in := range t.Inputs {
			for _, name := range in.Of {
				if p.signals[name] == nil {
					return t.at.errorf("test %q: unknown signal %q", t.Name, name)
				}
			}
		}
	}
	return nil
}
