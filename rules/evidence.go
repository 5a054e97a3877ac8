// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"time"
)

// Signal is one recorded series of the pack, as explanations read it: it has a
// sample for an entity while it holds there, and none otherwise.
type Signal struct {
	Name, Series       string // Series is the recorded metric's name
	Level, Description string
	Unit               string
	// Needs are the signals that must have data for an entity before the
	// absence of this one means anything; without them it is unknown.
	Needs []string
}

// Cause is a signal with its part in a branch.
type Cause struct {
	Signal string
	Role   string        // "required", "supporting" or "contradicting"
	Weight float64       // 0..1
	Lead   time.Duration // longest time before the symptom
	Lag    time.Duration // longest time after it; 0: the site's correlation.lag_seconds
}

// Branch is one way for a correlation to hold.
type Branch struct {
	Name, Symptom string
	Causes        []Cause
}

// Group lifts a correlation to the parent that its entities share.
type Group struct {
	Of         string // the signal that all observed entities have
	Supporting []Cause
	// Contradicting speaks against the parent, for each entity.
	Contradicting []Cause
	// Alone is the alert of an entity that its parent does not explain, and
	// AloneCause what it names, with {{ $labels.NAME }} as in annotations.
	Alone, AloneCause string
	// AloneSummary and AloneText are that alert's annotations.
	AloneSummary, AloneText string
}

// Evidence is what a correlation reads and what it says of its entities.
type Evidence struct {
	Correlation
	At       string // level where symptom and causes meet
	Branches []Branch
	Group    *Group
	Mutes    []string // alerts that are its symptoms
	Cause    string   // what it names, with {{ $labels.NAME }} as in annotations
	Level    string   // level of the entity that it names
}

// Evidence describes all correlations of the pack, in order of their files.
func (p *Pack) Evidence() []Evidence {
	texts := p.Correlations()
	var out []Evidence
	for i, f := range p.specs() {
		c := f.Correlation
		e := Evidence{Correlation: texts[i], At: c.At, Cause: c.Cause, Level: c.Level}
		for _, b := range c.Branches {
			one := Branch{Name: b.Name, Symptom: b.Symptom}
			for _, k := range b.Causes {
				one.Causes = append(one.Causes, causeOf(&k)...)
			}
			e.Branches = append(e.Branches, one)
		}
		if g := c.Group; g != nil {
			e.Group = &Group{
				Of: g.Of, Alone: g.Alone.Alert, AloneCause: g.Alone.Cause,
				AloneSummary: g.Alone.Summary, AloneText: g.Alone.Description,
				Supporting: causeOf(g.Supporting), Contradicting: causeOf(g.Contradicting),
			}
		}
		for _, s := range c.Suppresses {
			if !slices.Contains(e.Mutes, s.Alert) {
				e.Mutes = append(e.Mutes, s.Alert)
			}
		}
		out = append(out, e)
	}
	return out
}

func causeOf(c *cause) []Cause {
	if c == nil {
		return nil
	}
	return []Cause{{Signal: c.Signal, Role: c.Role, Weight: c.Weight, Lead: time.Duration(c.Lead), Lag: time.Duration(c.Lag)}}
}

// Signals lists all signals, by name.
func (p *Pack) Signals() map[string]Signal {
	out := make(map[string]Signal, len(p.signals))
	for name, s := range p.signals {
		one := Signal{Name: name, Series: series(s.Level, name), Level: s.Level, Description: s.Description, Unit: s.Unit}
		for _, base := range p.closure([]string{name}) {
			b := p.signals[base]
			switch {
			case b.CoveredBy != "":
				one.Needs = append(one.Needs, b.CoveredBy)
			case b.covered() && base != name:
				one.Needs = append(one.Needs, base)
			}
		}
		slices.Sort(one.Needs)
		one.Needs = slices.Compact(one.Needs)
		out[name] = one
	}
	return out
}
