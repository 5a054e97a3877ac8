// SPDX-License-Identifier: Apache-2.0

// Package rules compiles the correlations (correlations/*.yml) into Prometheus
// rules, Alertmanager inhibition rules, promtool tests and one page of
// documentation each, and lints rule files for the faults that joins of two
// layers invite. It is pure: no network, no clock.
package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Limits are the thresholds by dotted key; *site.Limits is one.
type Limits interface {
	Value(key string) (float64, bool)
	// Keys lists the keys, sorted; the compiler looks for limits of single GPU
	// models there ("gpu.MODEL.hot_celsius").
	Keys() []string
}

// contract is correlations/contract.yml: what all correlations share.
type contract struct {
	Interval         duration           `yaml:"interval"`
	CoverageInterval duration           `yaml:"coverage_interval"`
	GroupWait        duration           `yaml:"group_wait"`
	Levels           []level            `yaml:"levels"`
	Edges            []edge             `yaml:"edges"`
	Limits           map[string]float64 `yaml:"limits"`
	// SeriesBudget is how many series one record may have in a hall with Size
	// entities of each level; Unbounded are labels that have no size at all.
	SeriesBudget int      `yaml:"series_budget"`
	Unbounded    []string `yaml:"unbounded"`
}

// check validates the contract by itself.
func (c *contract) check(pos positions) error {
	var errs []error
	for key, d := range map[string]duration{"interval": c.Interval, "coverage_interval": c.CoverageInterval, "group_wait": c.GroupWait} {
		if time.Duration(d) < time.Second {
			errs = append(errs, pos.find(key).errorf("%s is %s, want a second or more", key, time.Duration(d)))
		}
	}
	known := map[string]bool{}
	for i, l := range c.Levels {
		where := pos.find("levels", i)
		switch {
		case !namePattern.MatchString(l.Name) || known[l.Name]:
			errs = append(errs, where.key("name").errorf("level %q: want a name of its own in lower case letters, digits and _", l.Name))
		case len(l.Join) == 0 || l.Join[0] != "site":
			errs = append(errs, where.key("join").errorf("level %s: join must begin with site, as ids repeat in other sites", l.Name))
		case !contains(l.Labels, l.Join):
			errs = append(errs, where.key("join").errorf("level %s: join [%s] has a label that labels [%s] lacks", l.Name, strings.Join(l.Join, ", "), strings.Join(l.Labels, ", ")))
		}
		for j, label := range l.Labels {
			if !namePattern.MatchString(strings.ToLower(label)) {
				errs = append(errs, where.key("labels", j).errorf("level %s: %q is no label name", l.Name, label))
			}
		}
		known[l.Name] = true
	}
	for i, e := range c.Edges {
		if !known[e.From] || !known[e.To] {
			errs = append(errs, pos.find("edges", i).errorf("edge from %q to %q: no such levels", e.From, e.To))
		}
	}
	return errors.Join(errs...)
}

// level is a kind of entity. Labels are all labels its series keep, Join those
// that identify one entity. Bare leaves the guards out of the level's own metrics:
// each costs a look-up of all values of the label. They stand where signals are
// joined, and lint wants them on one side of an "and" only.
type level struct {
	Name   string   `yaml:"name"`
	Labels []string `yaml:"labels"`
	Join   []string `yaml:"join"`
	Bare   bool     `yaml:"bare"`
	Size   int      `yaml:"size"`
}

// edge leads from a level to the one above it, by the labels of the lower one or
// by an info metric that carries the labels of both.
type edge struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
	Info string `yaml:"info"`
}

// file is one file of correlations/.
type file struct {
	Signals     []signal  `yaml:"signals"`
	Correlation *spec     `yaml:"correlation"`
	Alerts      []alert   `yaml:"alerts"`
	Tests       []fixture `yaml:"tests"`

	name string
	pos  positions
}

// signal becomes one recording rule "rackpulse:LEVEL:NAME".
type signal struct {
	Name        string     `yaml:"name"`
	Level       string     `yaml:"level"`
	Description string     `yaml:"description"`
	Unit        string     `yaml:"unit"`
	Metric      string     `yaml:"metric"` // a selector; or
	Expr        string     `yaml:"expr"`   // an expression
	Window      *window    `yaml:"window"`
	Aggregate   *aggregate `yaml:"aggregate"`
	Op          string     `yaml:"op"`
	Raise       *float64   `yaml:"raise"`
	RaiseLimit  string     `yaml:"raise_limit"`
	Clear       *float64   `yaml:"clear"`
	ClearLimit  string     `yaml:"clear_limit"`
	// Bare leaves the guards out of the metric, where they would cost as much as
	// reading it: those that read the signal have them.
	Bare bool `yaml:"bare"`
	// Missing says what no series means: "ok" (default), "unknown", which adds the
	// coverage alert, "optional", which adds it as information: the data needs
	// equipment or settings that not every site has, or "bad": it holds then.
	Missing string `yaml:"missing"`
	// CoveredBy names the signal whose series prove that this one has input, for
	// signals that have series only while they are true; with Missing "bad", that
	// it should have some.
	CoveredBy string `yaml:"covered_by"`
	// Group is "coverage" for signals that are evaluated with the coverage alerts,
	// each minute: what only those read, what changes when equipment does, and
	// what may be a minute old.
	Group string `yaml:"group"`

	at position
}

// covered tells whether its absence everywhere is an alert.
func (s *signal) covered() bool { return s.Missing == "unknown" || s.Missing == "optional" }

// window is a function over a range of the metric, such as max over 5m.
type window struct {
	Fn    string `yaml:"fn"`
	Range string `yaml:"range"`
}

// aggregate collapses the metric to the level's labels. Fn is max, min, avg,
// sum, count, or upper: the value that the given share of the series reaches. With
// fewer series than MinSensors there is no result.
type aggregate struct {
	Fn         string `yaml:"fn"`
	ShareLimit string `yaml:"share_limit"`
	MinSensors int    `yaml:"min_sensors"`
}

// spec is one correlation.
type spec struct {
	ID            string     `yaml:"id"`
	Title         string     `yaml:"title"`
	Alert         string     `yaml:"alert"`
	Level         string     `yaml:"level"` // where the alert is emitted
	At            string     `yaml:"at"`    // where symptom and causes meet
	Severity      string     `yaml:"severity"`
	Team          string     `yaml:"team"`
	Branches      []branch   `yaml:"branches"`
	Unless        []string   `yaml:"unless"` // signals that rule out every branch
	Hold          string     `yaml:"hold"`   // the signal that keeps it up once raised
	Group         *grouping  `yaml:"group"`
	For           duration   `yaml:"for"`
	KeepFiringFor duration   `yaml:"keep_firing_for"`
	Summary       string     `yaml:"summary"`
	Cause         string     `yaml:"cause"`
	Description   string     `yaml:"description"`
	Suppresses    []suppress `yaml:"suppresses"`
	Explain       texts      `yaml:"explain"`
	// Actions are the orders to the registry that fit the cause. People give them:
	// no rule does.
	Actions []string `yaml:"actions"`

	at position
}

// branch is one way for a correlation to hold: its symptom, all required causes
// and no contradicting one. Supporting causes only count in explanations.
type branch struct {
	Name    string  `yaml:"name"`
	Symptom string  `yaml:"symptom"`
	Causes  []cause `yaml:"causes"`
}

// cause is a signal with its role: required, supporting or contradicting.
type cause struct {
	Signal string   `yaml:"signal"`
	Role   string   `yaml:"role"`
	Weight float64  `yaml:"weight"` // 0..1
	Lead   duration `yaml:"lead"`   // longest time before the symptom
	Lag    duration `yaml:"lag"`    // longest time after it; 0: correlation.lag_seconds
}

// grouping lifts a correlation to the parent that its entities share: one alert
// for the parent when more than a share of its entities (or a count of them) is
// affected or the parent itself shows the supporting signal, else one for each
// entity alone. Companion names the alert that mutes symptoms of each entity.
type grouping struct {
	ShareLimit    string `yaml:"share_limit"`
	MinCount      int    `yaml:"min_count"`
	Of            string `yaml:"of"` // the signal that all observed entities have
	Supporting    *cause `yaml:"supporting"`
	Contradicting *cause `yaml:"contradicting"`
	Alone         alone  `yaml:"alone"`
	Companion     string `yaml:"companion"`
	// Spread is the signal by which further entities of a faulty parent count as
	// affected, although they do not show the whole fault themselves.
	Spread string `yaml:"spread"`
	Device string `yaml:"device"` // the label that is also a device id
}

// alone is the alert of an entity that its parent does not explain.
type alone struct {
	Alert       string   `yaml:"alert"`
	Severity    string   `yaml:"severity"` // default: the correlation's
	For         duration `yaml:"for"`
	Summary     string   `yaml:"summary"`
	Cause       string   `yaml:"cause"`
	Description string   `yaml:"description"`
}

// suppress mutes a symptom alert whose labels in Equal are those of the cause.
type suppress struct {
	Alert string   `yaml:"alert"`
	Equal []string `yaml:"equal"`
}

// texts is what explanations and the documentation say.
type texts struct {
	Verdict    string   `yaml:"verdict"`
	Because    []string `yaml:"because"`
	NotBecause []string `yaml:"not_because"`
	NextSteps  []string `yaml:"next_steps"`
}

// alert is a plain alert: a symptom or a coverage alert.
type alert struct {
	Alert       string   `yaml:"alert"`
	Group       string   `yaml:"group"` // "" or "coverage"
	Level       string   `yaml:"level"`
	Severity    string   `yaml:"severity"`
	Team        string   `yaml:"team"`
	For         duration `yaml:"for"`
	Keep        duration `yaml:"keep_firing_for"`
	Signal      string   `yaml:"signal"` // or
	Expr        string   `yaml:"expr"`
	Summary     string   `yaml:"summary"`
	Cause       string   `yaml:"cause"`
	Description string   `yaml:"description"`

	at position
}

// fixture is the data of the generated tests of one branch.
type fixture struct {
	Name   string              `yaml:"name"`
	Branch string              `yaml:"branch"`
	At     duration            `yaml:"at"`
	Over   map[string][]string `yaml:"over"`  // placeholder -> values
	Other  map[string][]string `yaml:"other"` // the same for entities that stay healthy
	// Mirror are two endings of label values, such as a and b: the fault is tried on
	// the other side alone, too, with "-a" and "-b" in each other's place.
	Mirror []string   `yaml:"mirror"`
	Inputs []input    `yaml:"inputs"`
	Expect []expected `yaml:"expect"`

	at position
}

// input is one input series (promtool notation, with <placeholders>). Of lists
// the signals it drives; the others are context. Good and Flap default to none
// and to Bad.
type input struct {
	Series string   `yaml:"series"`
	Of     []string `yaml:"of"`
	Bad    string   `yaml:"bad"`
	Good   string   `yaml:"good"`
	Flap   string   `yaml:"flap"`
}

// expected is an alert that must fire.
type expected struct {
	Alert  string            `yaml:"alert"`
	Labels map[string]string `yaml:"labels"`
}

// duration is a Go duration, written like 90s or 5m.
type duration time.Duration

// UnmarshalYAML parses a duration.
func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want a duration such as 90s or 5m, got %q", node.Line, node.Value)}}
	}
	*d = duration(v)
	return nil
}
