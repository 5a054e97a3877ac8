// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	idPattern    = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	alertPattern = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

var (
	severities = []string{"critical", "warning", "info"}
	teams      = []string{"facility", "compute", "network"}
	roles      = []string{"required", "supporting", "contradicting"}
	actions    = []string{"drain", "hold", "maintenance"} // as cmd/rackpulse names them
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
		return s.at.key("name").errorf("signal name %q: want lower case letters, digits and _", s.Name)
	case !known:
		return s.at.key("level").errorf("signal %s: unknown level %q%s", s.Name, s.Level, near(s.Level, keysOf(p.levels)))
	case (s.Metric == "") == (s.Expr == ""):
		return s.at.errorf("signal %s: want either metric or expr", s.Name)
	case s.Description == "" || s.Unit == "":
		return s.at.errorf("signal %s: %s", s.Name, lacking("description", s.Description, "unit", s.Unit))
	case s.Metric != "" && (s.Aggregate == nil || !slices.Contains(aggregates, s.Aggregate.Fn)):
		return s.at.key("aggregate", "fn").errorf("signal %s: a metric needs aggregate.fn, one of %s", s.Name, strings.Join(aggregates, " "))
	case s.Expr != "" && (s.Aggregate != nil || s.Window != nil):
		return s.at.key("expr").errorf("signal %s: aggregate and window belong to a metric, not to expr", s.Name)
	}
	return errors.Join(p.checkMissing(s), checkThreshold(s))
}

func (p *Pack) checkMissing(s *signal) error {
	_, covered := p.signals[s.CoveredBy]
	switch {
	case s.CoveredBy != "" && !covered:
		return s.at.key("covered_by").errorf("signal %s: covered_by names no signal: %q%s", s.Name, s.CoveredBy, near(s.CoveredBy, keysOf(p.signals)))
	case s.Missing == "bad":
		return p.checkBad(s)
	case s.Missing != "" && s.Missing != "ok" && !s.covered():
		return s.at.key("missing").errorf("signal %s: missing is %q, want ok, unknown, optional or bad", s.Name, s.Missing)
	case s.covered() && s.Op != "" && s.CoveredBy == "":
		return s.at.key("missing").errorf("signal %s: has series only while true, so missing: %s needs covered_by", s.Name, s.Missing)
	}
	return nil
}

// checkBad holds that it can be told where a signal is missing: it has series while
// it does not hold, and another signal says where it should have some.
func (p *Pack) checkBad(s *signal) error {
	switch by := p.signals[s.CoveredBy]; {
	case by == nil:
		return s.at.key("missing").errorf("signal %s: missing: bad needs covered_by, the signal of what must report", s.Name)
	case by.Level != s.Level:
		return s.at.key("covered_by").errorf("signal %s: missing: bad needs covered_by of level %s, %s is of level %s", s.Name, s.Level, by.Name, by.Level)
	case s.Op == "":
		return s.at.key("missing").errorf("signal %s: missing: bad needs op: without, it has no series that do not hold", s.Name)
	}
	return nil
}

func checkThreshold(s *signal) error {
	raise, clear := s.Raise != nil || s.RaiseLimit != "", s.Clear != nil || s.ClearLimit != ""
	switch {
	case s.Op == "" && (raise || clear):
		return s.at.errorf("signal %s: raise and clear need op", s.Name)
	case s.Op != "" && !slices.Contains(operators, s.Op):
		return s.at.key("op").errorf("signal %s: unknown op %q, want one of %s", s.Name, s.Op, strings.Join(operators, " "))
	case s.Op != "" && (s.Raise != nil) == (s.RaiseLimit != ""):
		return s.at.errorf("signal %s: want either raise or raise_limit beside op", s.Name)
	case s.Clear != nil && s.ClearLimit != "":
		return s.at.errorf("signal %s: want either clear or clear_limit", s.Name)
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
		return a.at.key("level").errorf("alert %s: unknown level %q%s", a.Alert, a.Level, near(a.Level, keysOf(p.levels)))
	case (a.Signal == "") == (a.Expr == ""):
		return a.at.errorf("alert %s: want one of signal and expr", a.Alert)
	case a.Signal != "" && !known:
		return a.at.key("signal").errorf("alert %s: unknown signal %q%s", a.Alert, a.Signal, near(a.Signal, keysOf(p.signals)))
	case a.Severity != "none" && !slices.Contains(severities, a.Severity):
		return a.at.key("severity").errorf("alert %s: unknown severity %q, want one of %s none", a.Alert, a.Severity, strings.Join(severities, " "))
	case !slices.Contains(teams, a.Team):
		return a.at.key("team").errorf("alert %s: unknown team %q, want one of %s", a.Alert, a.Team, strings.Join(teams, " "))
	case a.Summary == "" || a.Cause == "" || a.Description == "":
		return a.at.errorf("alert %s: %s", a.Alert, lacking("summary", a.Summary, "cause", a.Cause, "description", a.Description))
	}
	return nil
}

func (p *Pack) checkSpec(c *spec) error {
	at, okAt := p.levels[c.At]
	_, okLevel := p.levels[c.Level]
	switch {
	case c.ID == "" || c.Alert == "" || c.Title == "":
		return c.at.errorf("correlation %s: %s", c.ID, lacking("id", c.ID, "title", c.Title, "alert", c.Alert))
	case !idPattern.MatchString(c.ID):
		return c.at.key("id").errorf("correlation id %q: want lower case letters, digits and -", c.ID)
	case !alertPattern.MatchString(c.Alert):
		return c.at.key("alert").errorf("correlation %s: alert %q: want letters and digits, like CoolingFault", c.ID, c.Alert)
	case !okAt:
		return c.at.key("at").errorf("correlation %s: unknown level %q%s", c.ID, c.At, near(c.At, keysOf(p.levels)))
	case !okLevel:
		return c.at.key("level").errorf("correlation %s: unknown level %q%s", c.ID, c.Level, near(c.Level, keysOf(p.levels)))
	case !slices.Contains(severities, c.Severity):
		return c.at.key("severity").errorf("correlation %s: unknown severity %q, want one of %s", c.ID, c.Severity, strings.Join(severities, " "))
	case !slices.Contains(teams, c.Team):
		return c.at.key("team").errorf("correlation %s: unknown team %q, want one of %s", c.ID, c.Team, strings.Join(teams, " "))
	case c.Summary == "" || c.Cause == "" || c.Description == "" || c.Explain.Verdict == "":
		return c.at.errorf("correlation %s: %s", c.ID, lacking("summary", c.Summary, "cause", c.Cause, "description", c.Description, "explain.verdict", c.Explain.Verdict))
	case len(c.Branches) == 0:
		return c.at.errorf("correlation %s: no branches", c.ID)
	}
	return errors.Join(checkActions(c), p.checkBranches(c, at), p.checkGroup(c), p.checkSuppresses(c))
}

func checkActions(c *spec) error {
	for i, name := range c.Actions {
		switch where := c.at.key("actions", i); {
		case !slices.Contains(actions, name):
			return where.errorf("correlation %s: unknown action %q, want one of %s%s", c.ID, name, strings.Join(actions, " "), near(name, actions))
		case slices.Contains(c.Actions[:i], name):
			return where.errorf("correlation %s: action %s stands there twice", c.ID, name)
		}
	}
	return nil
}

func (p *Pack) checkBranches(c *spec, at level) error {
	if err := p.ofLevel(c.at.key("hold"), c, "hold", c.Hold, c.At); c.Hold != "" && err != nil {
		return err
	}
	names := map[string]bool{}
	for i, name := range c.Unless {
		if p.signals[name] == nil {
			return c.at.key("unless", i).errorf("correlation %s: unless: unknown signal %q%s", c.ID, name, near(name, keysOf(p.signals)))
		}
	}
	for i, b := range c.Branches {
		where := c.at.key("branches", i)
		if b.Name == "" || names[b.Name] {
			return where.key("name").errorf("correlation %s: branch %q needs a name of its own", c.ID, b.Name)
		}
		names[b.Name] = true
		if err := p.ofLevel(where.key("symptom"), c, "symptom of branch "+b.Name, b.Symptom, c.At); err != nil {
			return err
		}
		for j, cause := range b.Causes {
			if err := p.checkCause(where.key("causes", j), c, cause, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofLevel holds that a key names a signal of a level.
func (p *Pack) ofLevel(where position, c *spec, key, name, level string) error {
	switch s := p.signals[name]; {
	case s == nil:
		return where.errorf("correlation %s: %s: unknown signal %q%s", c.ID, key, name, near(name, keysOf(p.signals)))
	case s.Level != level && p.levels[s.Level].Name != "": // else it is told of the signal
		return where.errorf("correlation %s: %s: signal %s is of level %s, want one of level %s", c.ID, key, name, s.Level, level)
	}
	return nil
}

func (p *Pack) checkCause(where position, c *spec, cause cause, at level) error {
	s := p.signals[cause.Signal]
	switch {
	case s == nil:
		return where.key("signal").errorf("correlation %s: unknown signal %q%s", c.ID, cause.Signal, near(cause.Signal, keysOf(p.signals)))
	case !slices.Contains(roles, cause.Role):
		return where.key("role").errorf("correlation %s, cause %s: unknown role %q, want one of %s", c.ID, cause.Signal, cause.Role, strings.Join(roles, " "))
	case cause.Weight <= 0 || cause.Weight > 1:
		return where.key("weight").errorf("correlation %s, cause %s: weight %g is not in 0..1", c.ID, cause.Signal, cause.Weight)
	case cause.Lead < 0:
		return where.key("lead").errorf("correlation %s, cause %s: lead %s is negative", c.ID, cause.Signal, time.Duration(cause.Lead))
	case cause.Lag < 0:
		return where.key("lag").errorf("correlation %s, cause %s: lag %s is negative", c.ID, cause.Signal, time.Duration(cause.Lag))
	}
	if _, err := joinLabels(at, p.levels[s.Level]); err != nil {
		return where.key("signal").errorf("correlation %s, cause %s: %v", c.ID, cause.Signal, err)
	}
	return nil
}

func (p *Pack) checkGroup(c *spec) error {
	g, where := c.Group, c.at.key("group")
	if g == nil {
		if c.Level != c.At {
			return c.at.key("level").errorf("correlation %s: level %s differs from at %s, so it needs group", c.ID, c.Level, c.At)
		}
		return nil
	}
	if _, ok := p.edge(c.At, c.Level); !ok {
		return c.at.key("level").errorf("correlation %s: no edge from %s to %s in %s", c.ID, c.At, c.Level, contractFile)
	}
	if g.Alone.Alert == "" || g.Companion == "" {
		return where.errorf("correlation %s: %s", c.ID, lacking("group.alone.alert", g.Alone.Alert, "group.companion", g.Companion))
	}
	err := p.ofLevel(where.key("of"), c, "group.of", g.Of, c.At)
	if g.Supporting != nil {
		err = errors.Join(err, p.ofLevel(where.key("supporting", "signal"), c, "group.supporting", g.Supporting.Signal, c.Level))
	}
	if g.Contradicting != nil {
		err = errors.Join(err, p.ofLevel(where.key("contradicting", "signal"), c, "group.contradicting", g.Contradicting.Signal, c.At))
	}
	if g.Spread != "" {
		err = errors.Join(err, p.ofLevel(where.key("spread"), c, "group.spread", g.Spread, c.At))
	}
	return err
}

// checkSuppresses holds that each label of equal is one that the correlation's
// alerts have.
func (p *Pack) checkSuppresses(c *spec) error {
	for i, s := range c.Suppresses {
		where := c.at.key("suppresses", i)
		if s.Alert == "" || len(s.Equal) == 0 {
			return where.errorf("correlation %s: suppresses needs alert and equal", c.ID)
		}
		have := p.levels[c.Level].Labels
		if c.Group != nil {
			have = union(have, union(p.levels[c.At].Labels, "device")...)
		}
		for j, l := range s.Equal {
			if !slices.Contains(have, l) {
				return where.key("equal", j).errorf("correlation %s: %s has no label %q to compare, only %s", c.ID, c.Alert, l, strings.Join(have, ", "))
			}
		}
		if !slices.Contains(s.Equal, "site") {
			return where.key("equal").errorf("correlation %s: equal lacks site, so a cause would mute %s of other sites", c.ID, s.Alert)
		}
	}
	return nil
}

// lacking names the keys of the empty values among pairs of both.
func lacking(pairs ...string) string {
	var keys []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			keys = append(keys, pairs[i])
		}
	}
	if len(keys) == 1 {
		return keys[0] + " is missing"
	}
	return strings.Join(keys, ", ") + " are missing"
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// near proposes the known name that is most like a wrong one.
func near(wrong string, known []string) string {
	best, least := "", len(wrong)/2+1
	for _, name := range known {
		if wrong != "" && strings.HasPrefix(name, wrong) && len(wrong) > 3 {
			return fmt.Sprintf("; did you mean %s?", name)
		}
		if d := distance(wrong, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
