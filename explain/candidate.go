// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rackpulse/rackpulse/rules"
)

var labelCall = regexp.MustCompile(`\{\{\s*\$labels\.(\w+)\s*\}\}`)

// candidate makes the common part of a candidate over affected entities.
func (c *casebook) candidate(r rules.Evidence, e Entity, cause, alert string, list []affected) Candidate {
	one := Candidate{
		Entity: e, Correlation: r.ID, Verdict: r.Verdict, NoFault: r.Severity == "info", Runbook: r.Runbook, NextSteps: r.NextSteps,
		Cause:  c.fill(cause, e),
		Orders: c.orders(r, list),
		alerts: append([]string{alert}, r.Mutes...),
		domain: func(x Entity) bool { return x == e || c.graph.meets(e, x) },
	}
	var sum, lead float64
	for i, a := range list {
		sum += a.strength
		lead += a.symptom.at.Sub(a.cause.at).Seconds()
		if i == 0 || a.cause.at.Before(one.Onset) {
			one.Onset, one.Before = a.cause.at, a.cause.before
		}
		one.Evidence, one.Counter = merge(one.Evidence, a.evidence), merge(one.Counter, a.counter)
		one.Missing = append(one.Missing, a.missing...)
	}
	mean := lead / float64(len(list))
	one.LeadSeconds = &mean
	why := strings.Join(list[0].factors, "; ")
	if len(list) > 1 {
		why = fmt.Sprintf("mean of %d; %s: %s", len(list), c.graph.show(list[0].of), why)
	}
	if sum == 0 && len(one.Missing) > 0 {
		why = "unknown, as data is missing"
	}
	one.Factors = []Factor{{"strength", sum / float64(len(list)), why}}
	return one
}

// merge appends what is new, up to the bound of a list.
func merge(list, more []Evidence) []Evidence {
	for _, e := range more {
		have := slices.ContainsFunc(list, func(x Evidence) bool { return x.Signal == e.Signal && x.Entity == e.Entity })
		if !have && len(list) < maxListed {
			list = append(list, e)
		}
	}
	return list
}

// lonely gives the candidate of an entity that its parent does not explain the
// texts of its own alert, and what speaks against the parent as evidence.
func (c *casebook) lonely(one *Candidate, r rules.Evidence) {
	one.Verdict = c.fill(r.Group.AloneSummary, one.Entity) + "."
	if text := c.fill(r.Group.AloneText, one.Entity); !strings.Contains(text, "{{") {
		one.Verdict += " " + text
	}
	for _, k := range r.Group.Contradicting {
		if o, where, ok := c.seen(k.Signal, one.Entity); ok {
			one.Evidence = merge(one.Evidence, []Evidence{c.evidence(k.Signal, where, o)})
		}
	}
	own := func(s string) bool { return strings.Contains(s, r.Group.Alone) }
	first, rest := slices.DeleteFunc(slices.Clone(r.NextSteps), func(s string) bool { return !own(s) }), slices.DeleteFunc(slices.Clone(r.NextSteps), own)
	one.NextSteps = append(first, rest...)
}

// fill puts the labels of an entity into a text of an annotation.
func (c *casebook) fill(text string, e Entity) string {
	labels := c.graph.labels(e)
	return labelCall.ReplaceAllStringFunc(text, func(call string) string { return labels[labelCall.FindStringSubmatch(call)[1]] })
}
