// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// writer collects the first error of many prints.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) linef(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format+"\n", args...)
	}
}

func (w *writer) list(title string, items []string) {
	if len(items) == 0 {
		return
	}
	w.linef("\n%s", title)
	for _, item := range items {
		w.linef("  - %s", item)
	}
}

// Brief writes the answer as one line, such as the epilog of a job prints.
func (r *Report) Brief(out io.Writer) error {
	w := &writer{w: out}
	w.linef("%s", r.brief())
	return w.err
}

// maxTold bounds the lines of Because and Next, which stand in messages.
const maxTold = 6

// Because is the evidence for the named cause; nil without one.
func (r *Report) Because() []string {
	if !r.Named {
		return nil
	}
	var out []string
	for _, e := range r.Candidates[0].Evidence[:min(len(r.Candidates[0].Evidence), maxTold)] {
		out = append(out, e.String())
	}
	return out
}

// Next is what to do.
func (r *Report) Next() []string { return r.NextSteps[:min(len(r.NextSteps), maxTold)] }

func (r *Report) brief() string {
	s := r.Question + ": " + r.Conclusion
	if r.Named {
		top := r.Candidates[0]
		s += fmt.Sprintf(" (score %.2f, since %s)", top.Score, top.since())
	}
	if len(r.NextSteps) > 0 {
		s += "; next: " + r.NextSteps[0]
	}
	return strings.Join(strings.Fields(s), " ")
}

// Text writes the whole report for a terminal.
func (r *Report) Text(out io.Writer) error {
	w := &writer{w: out}
	w.linef("%s", r.headline())
	if r.Named {
		top := r.Candidates[0]
		if top.Verdict != "" {
			w.linef("  %s", top.Verdict)
		}
		w.linef("  since %s, score %.2f", top.since(), top.Score)
	}
	w.linef("\nasked     %s, %s to %s, site %s", r.Question, stamp(r.From), stamp(r.To), r.Site)
	if len(r.Path) > 0 {
		w.linef("hangs on  %s", strings.Join(r.Path, ", "))
	}
	w.list("what the scheduler says", r.jobNotes())
	w.list("do next", r.NextSteps)
	if r.Named && r.Candidates[0].Runbook != "" {
		w.linef("  - Runbook: %s", r.Candidates[0].Runbook)
	}
	w.list("orders that fit", r.orders())
	for i := range r.Candidates {
		r.Candidates[i].text(w)
	}
	w.list("unknown for lack of data", r.Missing)
	w.list("changes measured", r.changeLines())
	w.list("common cause of what fails together (score = coverage x specificity)", r.commonLines())
	w.list("alerts that fired", r.alertLines())
	w.list(fmt.Sprintf("queries, for promtool query range --start=%s --end=%s --step=%gs URL QUERY", stamp(r.Begin), stamp(r.To), r.StepSeconds), r.Queries)
	return w.err
}

// orders are those of the named cause.
func (r *Report) orders() []string {
	if !r.Named {
		return nil
	}
	return r.Candidates[0].Orders
}

func (r *Report) headline() string {
	switch {
	case r.Named && r.Fault:
		return "CAUSE: " + r.Conclusion
	case r.Named:
		return "NO FAULT: " + strings.TrimPrefix(r.Conclusion, "no fault: ")
	}
	return strings.ToUpper(r.Conclusion[:1]) + r.Conclusion[1:]
}

func (c *Candidate) since() string {
	if c.Onset.IsZero() {
		return "an unknown time"
	}
	if c.Before {
		return stamp(c.Onset) + " or earlier"
	}
	return stamp(c.Onset)
}

func (c *Candidate) text(w *writer) {
	w.linef("\n%d. %.2f  %s  [%s]", c.Rank, c.Score, c.Cause, c.Correlation)
	for _, f := range c.Factors {
		w.linef("     %-12s %.2f  %s", f.Name, f.Value, f.Why)
	}
	for _, e := range c.Evidence {
		w.linef("     + %s", e)
	}
	for _, e := range c.Counter {
		w.linef("     - %s", e)
	}
	for _, m := range c.Missing {
		w.linef("     ? no data: %s", m)
	}
}

// String is one observation as people read it.
func (e Evidence) String() string {
	s := e.Entity + ": " + e.Text
	if e.Value != nil {
		s += ": " + number(*e.Value)
		if e.Unit != "" {
			s += " " + e.Unit
		}
	}
	if !e.At.IsZero() {
		s += ", since " + clock(e.At)
	}
	return s
}

func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func (r *Report) changeLines() []string {
	var out []string
	for _, c := range r.Changes {
		out = append(out, fmt.Sprintf("%s %s: %s -> %s %s", clock(c.At), c.What, number(c.Before), number(c.After), c.Unit))
	}
	return out
}

func (r *Report) commonLines() []string {
	var out []string
	for _, c := range r.Common {
		line := fmt.Sprintf("%.2f %s: %s, holds %d of the %d that fail (%.2f), %d of its %d fail (%.2f)",
			c.Score, c.What, c.Entity, c.Failing, c.All, c.Coverage, c.Failing, c.Of, c.Specificity)
		switch {
		case c.Faulty:
			line += ", itself faulty"
		case c.Answers != nil && *c.Answers:
			line += ", answers its poller"
		case !c.Telemetry:
			line += ", no telemetry of its own"
		}
		out = append(out, line)
	}
	return out
}

func (r *Report) alertLines() []string {
	var out []string
	for _, a := range r.Alerts {
		line := fmt.Sprintf("%s %s %s", clock(a.Since), a.Name, a.Entity)
		if a.MutedBy != "" {
			line += ", muted by " + a.MutedBy
		}
		if len(out) == maxListed {
			return append(out, fmt.Sprintf("and %d more", len(r.Alerts)-maxListed))
		}
		out = append(out, line)
	}
	return out
}

// Markdown writes the report for a ticket.
func (r *Report) Markdown(out io.Writer) error {
	w := &writer{w: out}
	w.linef("# %s\n", escape(r.headline()))
	w.linef("%s, %s to %s, site %s", escape(r.Question), stamp(r.From), stamp(r.To), escape(r.Site))
	if r.Named {
		top := r.Candidates[0]
		w.linef("\n%s Since %s, score %.2f.", escape(top.Verdict), top.since(), top.Score)
	}
	section := func(title string, items []string, code bool) {
		if len(items) > 0 {
			w.linef("\n## %s\n", title)
		}
		for _, item := range items {
			if code {
				w.linef("- `%s`", item)
			} else {
				w.linef("- %s", escape(item))
			}
		}
	}
	section("What the scheduler says", r.jobNotes(), false)
	section("Do next", r.NextSteps, false)
	section("Orders that fit", r.orders(), true)
	if len(r.Candidates) > 0 {
		w.linef("\n## Candidates\n\n| rank | score | cause | factors |\n|---|---|---|---|")
	}
	for _, c := range r.Candidates {
		var factors []string
		for _, f := range c.Factors {
			factors = append(factors, fmt.Sprintf("%s %.2f: %s", f.Name, f.Value, f.Why))
		}
		w.linef("| %d | %.2f | %s | %s |", c.Rank, c.Score, escape(c.Cause), escape(strings.Join(factors, "; ")))
	}
	for _, c := range r.Candidates {
		var lines []string
		for _, e := range c.Evidence {
			lines = append(lines, "for: "+e.String())
		}
		for _, e := range c.Counter {
			lines = append(lines, "against: "+e.String())
		}
		section(fmt.Sprintf("Evidence %d: %s", c.Rank, escape(c.Cause)), lines, false)
	}
	section("Unknown for lack of data", r.Missing, false)
	section("Changes measured", r.changeLines(), false)
	section("Common cause", r.commonLines(), false)
	section("Alerts that fired", r.alertLines(), false)
	section(fmt.Sprintf("Queries (from %s to %s, step %gs)", stamp(r.Begin), stamp(r.To), r.StepSeconds), r.Queries, true)
	return w.err
}

var escaper = strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "'", "\n", " ")

func escape(s string) string { return escaper.Replace(s) }
