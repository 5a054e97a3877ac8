// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
)

// inhibition is one Alertmanager inhibition rule: the target is muted while one
// of the sources fires with the same values of the equal labels.
type inhibition struct {
	name    string
	sources []string
	target  string
	equal   []string
	at      position
}

// inhibitions derives the inhibition rules of all correlations. A parent's alert
// mutes what carries the parent's own labels; its companion and the alert of an
// entity alone mute what carries the entity's.
func (p *Pack) inhibitions() []inhibition {
	var out []inhibition
	for _, f := range p.specs() {
		c := f.Correlation
		at := p.levels[c.At]
		if c.Group != nil {
			out = append(out, inhibition{
				name: "rackpulse/" + c.ID + "/" + c.Group.Alone.Alert, sources: []string{c.Group.Companion},
				target: c.Group.Alone.Alert, equal: at.Join, at: c.at.key("group", "alone", "alert"),
			})
		}
		for i, s := range c.Suppresses {
			sources := []string{c.Alert}
			if c.Group != nil && !contains(p.levels[c.Level].Labels, s.Equal) {
				sources = []string{c.Group.Companion, c.Group.Alone.Alert}
			}
			out = append(out, inhibition{name: "rackpulse/" + c.ID + "/" + s.Alert, sources: sources, target: s.Alert, equal: s.Equal,
				at: c.at.key("suppresses", i, "alert")})
		}
	}
	return out
}

// renderInhibit writes the fragment that alerting joins to its base. Each target
// must have the equal labels: Alertmanager takes two missing labels for equal.
func renderInhibit(list []inhibition) []byte {
	var b strings.Builder
	b.WriteString(generatedHeader + "# Named inhibition rules need Alertmanager 0.30 or later.\ninhibit_rules:\n")
	for _, in := range list {
		source := fmt.Sprintf("alertname=%q", in.sources[0])
		if len(in.sources) > 1 {
			source = fmt.Sprintf("alertname=~%q", strings.Join(in.sources, "|"))
		}
		target := []string{quote(fmt.Sprintf("alertname=%q", in.target))}
		for _, l := range in.equal {
			if l != "site" {
				target = append(target, quote(l+`!=""`))
			}
		}
		fmt.Fprintf(&b, "  - name: %s\n    source_matchers: [%s]\n    target_matchers: [%s]\n    equal: [%s]\n",
			in.name, quote(source), strings.Join(target, ", "), strings.Join(in.equal, ", "))
	}
	return []byte(b.String())
}

// checkInhibitions holds that every suppressed alert exists, and that none comes
// round to mute the alert that mutes it.
func (p *Pack) checkInhibitions(groups []ruleGroup) error {
	exists := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.rules {
			exists[r.alert] = true
		}
	}
	list := p.inhibitions()
	mutes := map[string][]string{}
	for _, in := range list {
		for _, source := range in.sources {
			mutes[source] = append(mutes[source], in.target)
		}
	}
	for _, in := range list {
		for _, name := range append(slices.Clone(in.sources), in.target) {
			if !exists[name] {
				return in.at.errorf("%s: there is no alert %s%s", in.name, name, near(name, keysOf(exists)))
			}
		}
	}
	for _, in := range slices.Backward(list) { // those of a pack's own list last, and told first
		for _, source := range in.sources {
			if source == in.target {
				return in.at.errorf("%s: %s mutes itself", in.name, source)
			}
			if reaches(mutes, in.target, source, map[string]bool{}) {
				return in.at.errorf("%s: %s mutes %s, which mutes it in turn: when both fire nobody is told", in.name, source, in.target)
			}
		}
	}
	return nil
}

// reaches says whether an alert mutes another, by itself or through others.
func reaches(mutes map[string][]string, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(mutes[from], func(next string) bool { return reaches(mutes, next, to, seen) })
}
