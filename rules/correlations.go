// SPDX-License-Identifier: Apache-2.0

package rules

import "slices"

// Correlation is what pages and explanations say about one correlation.
type Correlation struct {
	ID, Title      string
	Alerts         []string // names of the alerts it emits to people
	Severity, Team string
	// Verdict, Because, NotBecause and NextSteps are plain sentences.
	Verdict                        string
	Because, NotBecause, NextSteps []string
	// Actions are the orders to the registry that fit: "drain", "hold", "maintenance".
	Actions []string
	// Runbook is the path of its page from the repository's root.
	Runbook string
}

// Correlations describes the pack's correlations, in order of their files.
func (p *Pack) Correlations() []Correlation {
	var out []Correlation
	for _, f := range p.specs() {
		c := f.Correlation
		one := Correlation{
			ID: c.ID, Title: c.Title, Alerts: []string{c.Alert}, Severity: c.Severity, Team: c.Team,
			Verdict: c.Explain.Verdict, Because: slices.Clone(c.Explain.Because), NotBecause: slices.Clone(c.Explain.NotBecause),
			NextSteps: slices.Clone(c.Explain.NextSteps), Actions: slices.Clone(c.Actions), Runbook: docPath(c.ID),
		}
		if c.Group != nil {
			one.Alerts = append(one.Alerts, c.Group.Alone.Alert)
		}
		out = append(out, one)
	}
	return out
}
