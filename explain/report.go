// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math"
	"slices"
	"time"
)

// Report is the answer to one question.
type Report struct {
	Question string    `json:"question"`
	Job      *Job      `json:"job,omitempty"`
	Site     string    `json:"site"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	// Path is what the entity hangs on, nearest first.
	Path []string `json:"path"`
	// Named says that the first candidate is good enough to be called the cause.
	Named bool `json:"named"`
	// Fault says that the named cause is a fault; load is none.
	Fault      bool        `json:"fault"`
	Conclusion string      `json:"conclusion"`
	Candidates []Candidate `json:"candidates"`
	// Common are the shared parents of what fails together.
	Common []Common `json:"common,omitempty"`
	// Missing is the data without which causes stay unknown.
	Missing []string     `json:"missing,omitempty"`
	Changes []Change     `json:"changes,omitempty"`
	Alerts  []FiredAlert `json:"alerts,omitempty"`
	// NextSteps are those of the named cause, or what to do without one.
	NextSteps []string `json:"next_steps"`
	Queries   []string `json:"queries"`
	// Begin and StepSeconds are the start and step of the queries.
	Begin       time.Time `json:"queries_begin"`
	StepSeconds float64   `json:"queries_step_seconds"`
}

// Candidate is one possible cause.
type Candidate struct {
	Rank   int    `json:"rank"`
	Cause  string `json:"cause"`
	Entity Entity `json:"entity"`
	// Correlation is the rule it comes from, or the fact without a rule.
	Correlation string  `json:"correlation"`
	Verdict     string  `json:"verdict,omitempty"`
	NoFault     bool    `json:"no_fault,omitempty"`
	Score       float64 `json:"score"`
	// Factors multiply to Score.
	Factors []Factor `json:"factors"`
	// Onset is when it began; Before: at this time or earlier, before the data.
	Onset       time.Time  `json:"onset,omitzero"`
	Before      bool       `json:"onset_before,omitempty"`
	LeadSeconds *float64   `json:"lead_seconds,omitempty"`
	Evidence    []Evidence `json:"evidence,omitempty"`
	Counter     []Evidence `json:"counter_evidence,omitempty"`
	Missing     []string   `json:"missing,omitempty"`
	NextSteps   []string   `json:"next_steps,omitempty"`
	// Orders are commands that fit; people give them, nothing does by itself.
	Orders  []string `json:"orders,omitempty"`
	Runbook string   `json:"runbook,omitempty"`

	alerts []string // its own alerts and those of its symptoms
	domain func(Entity) bool
	parent bool // of the entities that its correlation affects
}

// Factor is one multiplier of a score.
type Factor struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Why   string  `json:"why"`
}

// Evidence is one observation for or against a candidate.
type Evidence struct {
	Text   string    `json:"text"`
	Entity string    `json:"entity"`
	At     time.Time `json:"at,omitzero"`
	Value  *float64  `json:"value,omitempty"`
	Unit   string    `json:"unit,omitempty"`
	Signal string    `json:"signal"`
}

// Change is the step of one measurement of what is asked for.
type Change struct {
	What   string    `json:"what"`
	At     time.Time `json:"at"`
	Before float64   `json:"before"`
	After  float64   `json:"after"`
	Unit   string    `json:"unit"`
}

// Common is one parent that failing entities share.
type Common struct {
	Entity      Entity  `json:"entity"`
	What        string  `json:"what"` // what fails: "heat", "silence"
	Failing     int     `json:"failing"`
	All         int     `json:"failing_all"`
	Of          int     `json:"of"`
	Coverage    float64 `json:"coverage"`
	Specificity float64 `json:"specificity"`
	Score       float64 `json:"score"`
	// Telemetry says that signals of the parent itself were seen.
	Telemetry bool `json:"telemetry"`
	// Faulty says that the parent itself shows a fault; it raises the score.
	Faulty bool `json:"faulty,omitempty"`
	// Answers says whether a device answers its poller; nil: it is not polled.
	Answers *bool `json:"answers,omitempty"`

	of string // level of what fails
}

// finish multiplies the factors.
func (c *Candidate) finish() {
	c.Score = 1
	for _, f := range c.Factors {
		c.Score *= f.Value
	}
}

// report ranks the candidates and draws the conclusion.
func (c *casebook) report(req Request, all []Candidate, common []Common) *Report {
	c.explainAway(all)
	slices.SortStableFunc(all, func(a, b Candidate) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		case a.NoFault != b.NoFault: // a fault is worth the first look
			if a.NoFault {
				return 1
			}
			return -1
		}
		return a.Onset.Compare(b.Onset)
	})
	r := &Report{
		Question: req.question(), Job: req.Job, Site: c.Site.ID, From: c.window.from, To: c.window.to,
		Common: common, Changes: c.changes(), Alerts: c.alerts,
		Queries: c.queries, Begin: c.window.begin, StepSeconds: c.window.step.Seconds(),
	}
	for _, e := range c.graph.above(c.focus[0]) {
		if e.Level != "site" && len(c.focus) == 1 {
			r.Path = append(r.Path, e.String())
		}
	}
	for _, one := range all {
		for _, m := range one.Missing {
			if !slices.Contains(r.Missing, m) {
				r.Missing = append(r.Missing, m)
			}
		}
	}
	if len(all) > maxCandidates {
		all = all[:maxCandidates]
	}
	for i := range all {
		all[i].Rank = i + 1
	}
	r.Candidates = all
	r.conclude()
	if !r.Named && !c.heard() {
		r.Conclusion = "unknown: the store has no signals of " + r.Question + " in the window"
		r.NextSteps = []string{"Check the time, that --prometheus.url is the store of site " + r.Site + ", and that the rules of rackpulse run there."}
	}
	c.mute(r)
	return r
}

// conclude names a cause, or says why none is named.
func (r *Report) conclude() {
	if len(r.Candidates) > 0 && r.Candidates[0].Score >= NamedScore {
		top := r.Candidates[0]
		r.Named, r.Fault = true, !top.NoFault
		r.Conclusion = top.Cause
		if top.NoFault {
			r.Conclusion = "no fault: " + top.Cause
		}
		r.NextSteps = top.NextSteps
		return
	}
	switch {
	case len(r.Missing) > 0:
		r.Conclusion = "unknown: data is missing that would decide it"
		for _, m := range r.Missing {
			r.NextSteps = append(r.NextSteps, "Bring back "+m+".")
		}
	case len(r.Candidates) > 0:
		r.Conclusion = "unknown: no candidate explains enough of what is seen"
		r.NextSteps = []string{"Look at the candidates below and at what they miss; widen the window with --from."}
	case len(r.Alerts) > 0:
		r.Conclusion = "unknown: alerts fire, but no known cause is seen in the window"
		r.NextSteps = []string{"Follow the runbooks of the alerts; widen the window with --from."}
	case len(r.Changes) > 0:
		r.Conclusion = "no symptom is seen in the window, but measurements changed"
		r.NextSteps = []string{"Look at the changes below, ask again in a few minutes, or widen the window with --from."}
	default:
		r.Conclusion = "nothing wrong is seen in the window"
		r.NextSteps = []string{"Check the time, and widen the window with --from."}
	}
}

// explained is the factor of a candidate that a better one explains: it stays
// visible, but cannot outrank it by accident.
const explained = 0.2

// explainAway lowers the candidates that are symptoms of a better one.
func (c *casebook) explainAway(all []Candidate) {
	for i := range all {
		for k := range all {
			better := &all[k]
			if i != k && better.explains(&all[i]) {
				all[i].Factors = append(all[i].Factors, Factor{"explained", explained, "part of " + better.Cause})
				all[i].finish()
				break
			}
		}
	}
}

// explains says that one candidate is a symptom of this one, or an entity of
// this parent.
func (c *Candidate) explains(one *Candidate) bool {
	if c.Score < NamedScore || c.Score < one.Score || c.NoFault || len(one.alerts) == 0 || !c.domain(one.Entity) {
		return false
	}
	part := c.parent && !one.parent && c.Correlation == one.Correlation
	return part || slices.Contains(c.alerts, one.alerts[0])
}

// mute marks the alerts that are symptoms of the named cause.
func (c *casebook) mute(r *Report) {
	if !r.Named || r.Candidates[0].domain == nil || len(r.Candidates[0].alerts) == 0 {
		return
	}
	top := r.Candidates[0]
	for i, a := range r.Alerts {
		if a.correlation != top.Correlation && slices.Contains(top.alerts[1:], a.Name) && top.domain(a.of) {
			r.Alerts[i].MutedBy = top.Correlation
		}
	}
}

func (req Request) question() string {
	switch {
	case req.Node != "":
		return "node " + req.Node
	case req.GPU != "":
		return "GPU " + req.GPU
	case req.Rack != "":
		return "rack " + req.Rack
	case req.Job != nil:
		return req.Job.question()
	}
	return "alert " + req.Alert
}

// changes lists the steps of what is measured at the racks and PDUs of the focus.
func (c *casebook) changes() []Change {
	var out []Change
	for _, name := range measured {
		for _, e := range c.entities(name) {
			points := c.data[name][e].points
			if !c.onPath(e) {
				continue
			}
			s := c.signals[name]
			if ch, ok := changeOf(points); ok && worthTelling(ch, s.Unit) && len(out) < maxListed {
				out = append(out, Change{c.graph.show(e) + ": " + s.Description, ch.at, ch.before, ch.after, s.Unit})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int { return a.At.Compare(b.At) })
	return out
}

// worthTelling leaves out steps within the noise of daily work: below 1 K, and
// below a tenth for all else. Own choice: what a person would call a step.
func worthTelling(ch change, unit string) bool {
	step := math.Abs(ch.after - ch.before)
	if unit == "celsius" {
		return step >= 1
	}
	return step >= 0.1*math.Abs(ch.before)
}

// heard says that the rules recorded anything of what is asked for.
func (c *casebook) heard() bool {
	for name := range c.signals {
		if slices.ContainsFunc(c.entities(name), func(e Entity) bool { return c.onPath(e) || c.nearFocus(e) }) {
			return true
		}
	}
	return false
}

// onPath says that an entity is what is asked for or something it hangs on.
func (c *casebook) onPath(e Entity) bool {
	return slices.ContainsFunc(c.focus, func(f Entity) bool { return f == e || slices.Contains(c.graph.above(f), e) })
}
