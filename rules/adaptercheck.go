// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// fault is something that may be wrong with a file.
type fault struct {
	is   bool
	at   position
	text string
}

// firstFault returns the first of the faults that are, as an error that starts
// with prefix.
func firstFault(prefix string, faults []fault) error {
	for _, f := range faults {
		if f.is {
			return f.at.errorf("%s%s", prefix, f.text)
		}
	}
	return nil
}

func (a *Adapter) check() error {
	at := func(steps ...any) position { return a.pos.find(steps...) }
	s := a.Scrape
	_, ok := adapterTargets[a.Target]
	if !adapterName.MatchString(a.Name) {
		return at("adapter").errorf("adapter %q: want lower case letters, digits and -", a.Name)
	}
	faults := []fault{
		{a.Title == "" || a.Source == "", at(), "title and source are required"},
		{!ok, at("target"), fmt.Sprintf("unknown target %q, want node, pdu, cooling_unit or switch", a.Target)},
		{!jobPattern.MatchString(a.Job), at("job"), fmt.Sprintf("%q is no job name", a.Job)},
		{len(a.Metrics) == 0 && len(a.Passes) == 0, at(), "neither metrics nor passes"},
		{s.Through != "" && !hostPort.MatchString(s.Through), at("scrape", "through"), fmt.Sprintf("through is %q, want host:port", s.Through)},
		{s.Through == "" && a.Target != "node", at("scrape"), "a facility device is asked through an exporter, so scrape.through is required"},
		{s.Port < 0 || s.Port > 65535, at("scrape", "port"), fmt.Sprintf("port %d", s.Port)},
	}
	for name := range s.Params {
		faults = append(faults, fault{!labelName.MatchString(name), at("scrape", "params"), fmt.Sprintf("%q is no parameter", name)})
	}
	for i, l := range a.Labels {
		bad := !labelName.MatchString(l.Name) || !labelName.MatchString(l.From) || l.Name == l.From
		faults = append(faults, fault{bad, at("labels", i), fmt.Sprintf("labels: %q from %q, want two label names", l.Name, l.From)})
	}
	for i, m := range a.Passes {
		faults = append(faults, fault{!ourMetric.MatchString(m), at("passes", i), m + " is no metric of RackPulse"})
	}
	return firstFault("adapter "+a.Name+": ", faults)
}

func (a *Adapter) checkMetrics() error {
	var errs []error
	seen := map[string]position{}
	for i := range a.Metrics {
		m := &a.Metrics[i]
		key := m.Metric + fmt.Sprint(m.Static)
		if first, twice := seen[key]; twice {
			errs = append(errs, m.at.errorf("metric %s is also at %s with the same static labels", m.Metric, first))
		}
		seen[key] = m.at
		errs = append(errs, a.checkMapping(m))
	}
	return errors.Join(errs...)
}

func (a *Adapter) checkMapping(m *mapping) error {
	if !ourMetric.MatchString(m.Metric) {
		return m.at.errorf("metric %q is none of RackPulse", m.Metric)
	}
	knownFn := slices.Contains([]string{"", "max", "min", "avg", "sum"}, m.Fn)
	faults := []fault{
		{m.From == "", m.at, ": from is required"},
		{m.Scale < 0, m.at, fmt.Sprintf(": scale %g is negative", m.Scale)},
		{m.Scale != 0 && m.Unit == "", m.at, ": scale without unit: say what the raw value is"},
		{m.Is != nil && (m.Scale != 0 || len(m.Range) > 0), m.at, ": a state (is) has neither scale nor range"},
		{len(m.Range) == 1 || len(m.Range) > 2 || len(m.Range) == 2 && m.Range[0] >= m.Range[1], m.at, ": range wants two rising numbers"},
		{!knownFn, m.at, fmt.Sprintf(": unknown fn %q, want max, min, avg or sum", m.Fn)},
		{m.Served != "" && !ourMetric.MatchString(m.Served), m.at, fmt.Sprintf(": served: %q is no metric of RackPulse", m.Served)},
	}
	for name := range m.Static {
		bad := !labelName.MatchString(name) || name == "adapter" || name == "site"
		faults = append(faults, fault{bad, m.at, fmt.Sprintf(": %q cannot be a static label", name)})
	}
	faults = append(faults, a.labelFaults(m)...)
	if err := firstFault("metric "+m.Metric, faults); err != nil {
		return err
	}
	return checkFrom(m)
}

// labelFaults are those of the labels that a mapping makes.
func (a *Adapter) labelFaults(m *mapping) []fault {
	var faults []fault
	for _, l := range m.Label {
		made := !labelName.MatchString(l.Name) || slices.Contains([]string{adapterTargets[a.Target], "site", "rack_id"}, l.Name)
		faults = append(faults,
			fault{made, m.at, fmt.Sprintf(": label %q cannot be made", l.Name)},
			fault{len(l.From) == 0 && l.Value == "", m.at, ", label " + l.Name + ": want from or value"},
			fault{len(l.From) > 1 && l.Value != "", m.at, ", label " + l.Name + ": value goes with one label of from only"})
	}
	return faults
}

// checkFrom parses a mapping's expression.
func checkFrom(m *mapping) error {
	expr, err := promParser.ParseExpr(m.From)
	if err != nil {
		return m.at.errorf("metric %s: from: %v", m.Metric, err)
	}
	if expr.Type() != parser.ValueTypeVector {
		return m.at.errorf("metric %s: from gives a %s, want an instant vector", m.Metric, expr.Type())
	}
	return nil
}
