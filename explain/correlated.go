// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/rules"
)

// ownWeight is the strength of a branch without a required cause, such as a lost
// GPU: the symptom is the cause, and only what contradicts it is asked.
const ownWeight = 0.9

// affected is one entity for which a branch of a correlation holds, or could
// not be decided.
type affected struct {
	of       Entity
	strength float64
	factors  []string // of the strength, as text
	symptom  onset
	cause    onset // the earliest required cause; the symptom without one
	caused   bool  // cause is a required one
	evidence []Evidence
	counter  []Evidence
	missing  []string
	// undecided says that a required cause is not known for lack of data.
	undecided bool
}

// entities lists the entities of a signal or fact, sorted. It is for after read.
func (c *casebook) entities(name string) []Entity {
	if list, ok := c.sorted[name]; ok {
		return list
	}
	out := make([]Entity, 0, len(c.data[name]))
	for e := range c.data[name] {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entity) int { return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.ID, b.ID)) })
	c.sorted[name] = out
	return out
}

// seen returns the earliest onset of a signal at an entity, or where it meets
// entities of the signal's own level.
func (c *casebook) seen(signal string, at Entity) (onset, Entity, bool) {
	var best onset
	var where Entity
	found := false
	list := c.entities(signal)
	if c.signals[signal].Level == at.Level { // only its own counts
		list = []Entity{at}
	}
	for _, e := range list {
		if c.data[signal][e] == nil {
			continue
		}
		if !c.joins(at, e) {
			continue
		}
		o, ok := c.window.onsetOf(c.data[signal][e].points, always)
		if ok && (!found || o.at.Before(best.at)) {
			best, where, found = o, e, true
		}
	}
	return best, where, found
}

// joins is meets for the levels of one signal: siblings under a shared parent
// do not join.
func (c *casebook) joins(at, e Entity) bool {
	if at.Level == e.Level {
		return at == e
	}
	return c.graph.meets(at, e)
}

// unknown lists the data that is missing for the absence of a signal at an
// entity, between two times, to mean anything.
func (c *casebook) unknown(signal string, at Entity, from, to time.Time) []string {
	var out []string
	if signal == "cooling_unit_down" || signal == "rack_unit_down" {
		return c.unitUnknown(at, from, to)
	}
	places := []Entity{at}
	if s := c.signals[signal]; s.Level != at.Level {
		for _, up := range c.graph.above(at) {
			if up.Level == s.Level {
				places = append(places, up)
			}
		}
	}
	for _, need := range c.signals[signal].Needs {
		ok := false
		for _, e := range c.entities(need) {
			if slices.ContainsFunc(places, func(p Entity) bool { return c.joins(p, e) }) && c.window.covered(c.data[need][e].points, from, to) {
				ok = true
				break
			}
		}
		if !ok {
			out = append(out, fmt.Sprintf("%s for %s (%s)", need, c.graph.show(at), c.signals[need].Description))
		}
	}
	return out
}

// unitUnknown is unknown for the state of the cooling units above an entity.
func (c *casebook) unitUnknown(at Entity, from, to time.Time) []string {
	var out []string
	for _, up := range append([]Entity{at}, c.graph.above(at)...) {
		if up.Level != "cooling_unit" {
			continue
		}
		if t := c.data[factUnit][up]; t == nil || !c.window.covered(t.points, from, to) {
			out = append(out, "cooling_unit_up for "+up.String()+" (whether the unit runs)")
		}
	}
	return out
}

// branch judges one branch of a correlation at one entity. ok is false where
// the symptom does not hold or a required cause is known not to.
func (c *casebook) branch(b rules.Branch, at Entity) (affected, bool) {
	a := affected{of: at}
	var where Entity
	var ok bool
	if a.symptom, where, ok = c.seen(b.Symptom, at); !ok {
		return a, false
	}
	a.cause = a.symptom
	a.evidence = []Evidence{c.evidence(b.Symptom, where, a.symptom)}
	until := a.symptom.at.Add(quiet)
	if until.After(c.window.to) {
		until = c.window.to
	}
	for _, k := range b.Causes {
		if k.Role != "contradicting" && !c.weigh(&a, k, until) {
			return a, false
		}
	}
	if !slices.ContainsFunc(b.Causes, func(k rules.Cause) bool { return k.Role != "contradicting" }) {
		a.strength = ownWeight
		a.factors = []string{fmt.Sprintf("%s %.2f", b.Symptom, ownWeight)}
	}
	if a.undecided {
		a.strength = 0 // missing data is never evidence
	}
	for _, k := range b.Causes {
		if k.Role == "contradicting" {
			c.contradict(&a, k, until)
		}
	}
	return a, true
}

// weigh applies one required or supporting cause to an entity. It is false where
// a required one is known not to hold with the symptom.
func (c *casebook) weigh(a *affected, k rules.Cause, until time.Time) bool {
	required := k.Role == "required"
	o, where, ok := c.seen(k.Signal, a.of)
	if !ok {
		lost := c.unknown(k.Signal, a.of, a.symptom.at, until)
		a.missing = append(a.missing, lost...)
		a.undecided = a.undecided || required && len(lost) > 0
		return !required || len(lost) > 0
	}
	if o.last.Add(c.lagOf(k)).Before(a.symptom.at) {
		return !required // over before the symptom began
	}
	f, why := timing(o, a.symptom, k.Lead, c.lagOf(k))
	a.strength = 1 - (1-a.strength)*(1-k.Weight*f)
	a.factors = append(a.factors, fmt.Sprintf("%s %.2f x timing %.2f (%s)", k.Signal, k.Weight, f, why))
	a.evidence = append(a.evidence, c.evidence(k.Signal, where, o))
	if required && (!a.caused || o.at.Before(a.cause.at)) {
		a.cause, a.caused = o, true
	}
	return true
}

// contradict applies one contradicting cause to an entity.
func (c *casebook) contradict(a *affected, k rules.Cause, until time.Time) {
	if o, where, ok := c.seen(k.Signal, a.of); ok && c.contradicts(k, o, a.symptom) {
		a.strength *= 1 - k.Weight
		a.factors = append(a.factors, fmt.Sprintf("x %.2f against: %s", 1-k.Weight, k.Signal))
		a.counter = append(a.counter, c.evidence(k.Signal, where, o))
		return
	}
	if len(c.unknown(k.Signal, a.of, a.symptom.at, until)) == 0 {
		s := c.signals[k.Signal]
		a.evidence = append(a.evidence, Evidence{Text: "not seen, and would speak against it: " + s.Description, Entity: c.graph.show(a.of), Signal: k.Signal})
	}
}

// contradicts says that a contradicting signal was seen while the symptom came: not
// over for longer than its lead by then, and not begun that much later.
func (c *casebook) contradicts(k rules.Cause, o, symptom onset) bool {
	return k.Lead <= 0 || !o.last.Add(k.Lead+c.lagOf(k)).Before(symptom.at) && !o.at.After(symptom.at.Add(k.Lead+c.lagOf(k)))
}

// lagOf is how much later than its symptom this cause may be seen.
func (c *casebook) lagOf(k rules.Cause) time.Duration { return cmp.Or(k.Lag, c.lag()) }

// lag is how much later than its symptom a cause may be seen that says nothing else.
func (c *casebook) lag() time.Duration {
	if v, ok := c.Site.Limits.Value("correlation.lag_seconds"); ok {
		return time.Duration(v * float64(time.Second))
	}
	return time.Minute
}

func (c *casebook) evidence(signal string, e Entity, o onset) Evidence {
	s, text := c.signals[signal], ""
	if text = s.Description; text == "" {
		text = signal
	}
	value := o.value
	out := Evidence{Text: text, Entity: c.graph.show(e), At: o.at, Value: &value, Unit: s.Unit, Signal: signal}
	if s.Unit == "state" {
		out.Value, out.Unit = nil, ""
	}
	return out
}

// hit returns all entities that a correlation affects, by its best branch, and
// those it cannot decide.
func (c *casebook) hit(r rules.Evidence) []affected {
	best := map[Entity]affected{}
	for _, b := range r.Branches {
		for _, e := range c.symptomatic(b.Symptom, r.At) {
			a, ok := c.branch(b, e)
			if old, had := best[e]; ok && (!had || a.strength > old.strength) {
				best[e] = a
			}
		}
	}
	var out []affected
	for _, a := range best {
		out = append(out, a)
	}
	slices.SortFunc(out, func(x, y affected) int { return strings.Compare(x.of.ID, y.of.ID) })
	return out
}

// symptomatic lists the entities of a level at which a symptom is seen.
func (c *casebook) symptomatic(symptom, level string) []Entity {
	var out []Entity
	for _, e := range c.entities(symptom) {
		if e.Level == level {
			out = append(out, e)
			continue
		}
		for _, up := range c.graph.above(e) {
			if up.Level == level {
				out = append(out, up)
			}
		}
	}
	slices.SortFunc(out, func(a, b Entity) int { return strings.Compare(a.ID, b.ID) })
	return slices.Compact(out)
}

// correlated makes the candidates of the pack's correlations.
func (c *casebook) correlated() []Candidate {
	var out []Candidate
	for _, r := range c.rules {
		hit := c.hit(r)
		sure := slices.DeleteFunc(slices.Clone(hit), func(a affected) bool { return a.strength == 0 })
		done := map[Entity]bool{}
		for _, a := range hit {
			if r.Group != nil {
				for _, up := range c.graph.above(a.of) {
					if up.Level == r.Level && !done[up] && c.nearFocus(up) {
						done[up] = true
						if one, ok := c.shared(r, up, hit, sure); ok {
							out = append(out, one)
						}
					}
				}
			}
			if c.nearFocus(a.of) {
				out = append(out, c.alone(r, a, len(sure)))
			}
		}
	}
	return out
}

// alone is the candidate of one entity.
func (c *casebook) alone(r rules.Evidence, a affected, all int) Candidate {
	cause, alert := r.Cause, r.Alerts[0]
	if r.Group != nil {
		cause, alert = r.Group.AloneCause, r.Group.Alone
	}
	one := c.candidate(r, a.of, cause, alert, []affected{a})
	if r.Group != nil {
		c.lonely(&one, r)
	}
	one.Factors = append(one.Factors, coverage(1, all))
	one.finish()
	return one
}

// shared is the candidate of a parent of several affected entities.
func (c *casebook) shared(r rules.Evidence, parent Entity, hit, sure []affected) (Candidate, bool) {
	under := func(list []affected) (out []affected) {
		for _, a := range list {
			if slices.Contains(c.graph.above(a.of), parent) {
				out = append(out, a)
			}
		}
		return out
	}
	mine := under(sure)
	if len(mine) == 0 {
		if mine = under(hit); len(mine) == 0 {
			return Candidate{}, false
		}
	}
	mine = c.support(r.Group, parent, mine)
	one := c.candidate(r, parent, r.Cause, r.Alerts[0], mine)
	one.parent = true
	observed := 0
	for _, e := range c.graph.below(parent, r.At) {
		if c.data[r.Group.Of][e] != nil {
			observed++
		}
	}
	observed = max(observed, len(mine))
	one.Factors = append(one.Factors, coverage(len(mine), len(sure)),
		Factor{"specificity", float64(len(mine)) / float64(observed), fmt.Sprintf("%d of the %d observed under %s are affected", len(mine), observed, parent)})
	one.finish()
	return one, true
}

func coverage(mine, all int) Factor {
	all = max(all, mine)
	return Factor{"coverage", float64(mine) / float64(all), fmt.Sprintf("holds for %d of the %d affected", mine, all)}
}

// support applies what the parent itself shows to its entities.
func (c *casebook) support(g *rules.Group, parent Entity, list []affected) []affected {
	out := slices.Clone(list)
	for _, k := range g.Supporting {
		o, where, ok := c.seen(k.Signal, parent)
		if !ok {
			continue
		}
		for i := range out {
			f, why := timing(o, out[i].symptom, k.Lead, c.lagOf(k))
			if out[i].strength > 0 {
				out[i].strength = 1 - (1-out[i].strength)*(1-k.Weight*f)
			}
			out[i].factors = append(slices.Clone(out[i].factors), fmt.Sprintf("%s %.2f x timing %.2f (%s)", k.Signal, k.Weight, f, why))
			out[i].evidence = append([]Evidence{c.evidence(k.Signal, where, o)}, out[i].evidence...)
		}
		return out // the parent shows it: what speaks against it does not count
	}
	for _, k := range g.Contradicting {
		for i := range out {
			out[i].factors, out[i].counter, out[i].evidence = slices.Clone(out[i].factors), slices.Clone(out[i].counter), slices.Clone(out[i].evidence)
			c.contradict(&out[i], k, c.window.to)
		}
	}
	return out
}
