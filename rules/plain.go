// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// coverageFor is how long an input must be missing before it is an alert: longer
// than the five minutes for which Prometheus still shows a vanished series.
const coverageFor = 5 * time.Minute

// runbookBase is put in front of a documentation path.
const runbookBase = "https://github.com/rackpulse/rackpulse/blob/main/"

// alertRule completes an alert: formatted expression, expanded texts, links. at is
// the place of the element that it comes from.
func (b *builder) alertRule(r rule, expr string, at position) (rule, error) {
	pretty, err := format(expr)
	if err != nil {
		return rule{}, at.key("expr").errorf("alert %s: %s", r.alert, faultIn(expr, err))
	}
	r.expr = pretty
	var errs []error
	for i, a := range r.annotations {
		text, err := b.expand(strings.TrimSpace(a[1]))
		if err == nil {
			err = checkTemplate(text)
		}
		if err != nil {
			errs = append(errs, at.key(a[0]).errorf("alert %s: %s: %v", r.alert, a[0], err))
		}
		if a[0] == "runbook_url" {
			text = runbookBase + text
		}
		r.annotations[i][1] = text
	}
	return r, errors.Join(errs...)
}

// plain compiles a symptom or coverage alert.
func (b *builder) plain(a *alert) (rule, error) {
	expr := a.Expr
	if a.Signal != "" {
		sel, err := b.pack.selector(a.Signal, b.pack.levels[a.Level].Join...)
		if err != nil {
			return rule{}, a.at.key("expr").errorf("alert %s: %v", a.Alert, err)
		}
		expr = sel
	}
	expr, err := b.expand(expr)
	if err != nil {
		return rule{}, a.at.key("expr").errorf("alert %s: %v", a.Alert, err)
	}
	rackID := ""
	if slices.Contains(b.pack.levels[a.Level].Labels, "rack_id") && mayHave(expr, "rack_id") {
		rackID = "{{ $labels.rack_id }}"
	}
	id := "symptom"
	if a.Group != "" {
		id = a.Group
	}
	r := rule{
		alert: a.Alert, dur: time.Duration(a.For), keep: time.Duration(a.Keep),
		labels:      [][2]string{{"correlation", id}, {"severity", a.Severity}, {"team", a.Team}},
		annotations: [][2]string{{"summary", a.Summary}, {"description", a.Description}, {"cause", a.Cause}, {"racks", rackID}, {"runbook_url", "docs/correlations.md#" + strings.ToLower(a.Alert)}},
	}
	return b.alertRule(r, expr, a.at)
}

// mayHave says whether the result of an expression may have a label.
func mayHave(expr, label string) bool {
	parsed, err := promParser.ParseExpr(expr)
	return err == nil && slices.ContainsFunc(providers(parsed, label), func(p provider) bool { return !p.gone })
}

// inputs returns all signals that a correlation reads, sorted.
func (p *Pack) inputs(c *spec) []string {
	var names []string
	for _, br := range c.Branches {
		names = append(names, br.Symptom)
		for _, cause := range br.Causes {
			names = append(names, cause.Signal)
		}
	}
	if c.Group != nil {
		names = append(names, c.Group.Of)
	}
	return p.closure(names)
}

// cannotFire makes the coverage alerts of a correlation: one for each signal
// whose absence means unknown, per site that has racks.
func (b *builder) cannotFire(c *spec) ([]rule, error) {
	var out []rule
	var errs []error
	for _, name := range b.pack.inputs(c) {
		s := b.pack.signals[name]
		if !s.covered() {
			continue
		}
		proof := name
		if s.CoveredBy != "" {
			proof = s.CoveredBy
		}
		sel, err := b.pack.selector(proof, b.pack.levels[b.pack.signals[proof].Level].Join...)
		errs = append(errs, err)
		racks, err := b.pack.selector("racks")
		errs = append(errs, err)
		expr := on(racks, "unless", []string{"site"}, by("count", []string{"site"}, sel))
		severity := "warning"
		if s.Missing == "optional" {
			severity = "info"
		}
		r, err := b.alertRule(rule{
			alert: "CorrelationCannotFire", dur: coverageFor,
			labels: [][2]string{{"correlation", c.ID}, {"signal", name}, {"severity", severity}, {"team", c.Team}},
			annotations: [][2]string{
				{"summary", "Correlation " + c.ID + " cannot fire: no data for " + name},
				{"description", "No series for " + s.Description + ". Until they are there, " + c.Alert + " stays silent whatever happens."},
				{"cause", "missing data: " + name}, {"racks", ""}, {"runbook_url", "docs/correlations.md#correlationcannotfire"},
			},
		}, expr, c.at)
		out, errs = append(out, r), append(errs, err)
	}
	return out, errors.Join(errs...)
}
