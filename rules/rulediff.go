// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// RuleChange is one rule that differs between two sets of rule files.
type RuleChange struct {
	File string
	Kind string // "added", "removed" or "changed"
	Rule string // such as "alert GPUHot"; with its labels where it was added or removed
	// Lines say what changed, for people: "for: 1m to 2m"; for expressions and
	// texts of several lines those that went ("- ") and came ("+ ").
	Lines []string
}

// String is a head line, and below it what changed, indented.
func (c RuleChange) String() string {
	head := fmt.Sprintf("%s: %s %s", c.File, c.Kind, c.Rule)
	return strings.Join(append([]string{head}, c.Lines...), "\n    ")
}

// diffRule is a rule as it stands in a file.
type diffRule struct {
	Record        string            `yaml:"record"`
	Alert         string            `yaml:"alert"`
	Expr          string            `yaml:"expr"`
	For           string            `yaml:"for"`
	KeepFiringFor string            `yaml:"keep_firing_for"`
	Labels        map[string]string `yaml:"labels"`
	Annotations   map[string]string `yaml:"annotations"`
}

func (r *diffRule) title() string {
	if r.Alert != "" {
		return "alert " + r.Alert
	}
	return "record " + r.Record
}

// full is the title with the rule's labels.
func (r *diffRule) full() string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, r.Labels[name]))
	}
	if len(pairs) == 0 {
		return r.title()
	}
	return r.title() + "{" + strings.Join(pairs, ",") + "}"
}

// DiffRules compares the rules of files of the same name, whatever their order
// and layout. Files without rule groups count as empty. The changes are sorted by
// file, and in the order of the files.
func DiffRules(old, next map[string][]byte) ([]RuleChange, error) {
	names := map[string][]byte{}
	maps.Copy(names, old)
	maps.Copy(names, next)
	var out []RuleChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, err := readDiffRules(name, old[name])
		if err != nil {
			return nil, err
		}
		after, err := readDiffRules(name, next[name])
		if err != nil {
			return nil, err
		}
		out = append(out, diffRules(name, before, after)...)
	}
	return out, nil
}

func readDiffRules(name string, data []byte) ([]*diffRule, error) {
	var file struct {
		Groups []struct {
			Rules []*diffRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []*diffRule
	for _, g := range file.Groups {
		out = append(out, slices.DeleteFunc(g.Rules, func(r *diffRule) bool { return r == nil })...)
	}
	return out, nil
}

// diffRules pairs rules of the same name and labels, then what is left by name.
func diffRules(file string, before, after []*diffRule) []RuleChange {
	pairs := map[*diffRule]*diffRule{} // after to before
	used := map[*diffRule]bool{}
	pair := func(same func(a, b *diffRule) bool) {
		for _, a := range after {
			for _, b := range before {
				if pairs[a] == nil && !used[b] && same(a, b) {
					pairs[a], used[b] = b, true
				}
			}
		}
	}
	pair(func(a, b *diffRule) bool { return a.title() == b.title() && maps.Equal(a.Labels, b.Labels) })
	pair(func(a, b *diffRule) bool { return a.title() == b.title() })
	var out []RuleChange
	for _, b := range before {
		if !used[b] {
			out = append(out, RuleChange{File: file, Kind: "removed", Rule: b.full()})
		}
	}
	for _, a := range after {
		if pairs[a] == nil {
			out = append(out, RuleChange{File: file, Kind: "added", Rule: a.full()})
		} else if lines := pairs[a].changes(a); len(lines) > 0 {
			out = append(out, RuleChange{File: file, Kind: "changed", Rule: a.title(), Lines: lines})
		}
	}
	return out
}

// changes says how next differs from r.
func (r *diffRule) changes(next *diffRule) []string {
	out := changed("expr", r.Expr, next.Expr)
	out = append(out, changed("for", r.For, next.For)...)
	out = append(out, changed("keep_firing_for", r.KeepFiringFor, next.KeepFiringFor)...)
	for _, one := range []struct {
		key       string
		old, next map[string]string
	}{{"labels", r.Labels, next.Labels}, {"annotations", r.Annotations, next.Annotations}} {
		keys := map[string]string{}
		maps.Copy(keys, one.old)
		maps.Copy(keys, one.next)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, changed(one.key+"."+key, one.old[key], one.next[key])...)
		}
	}
	return out
}

// changed says how a text differs: on one line where both are short, else line by
// line without what both begin and end with.
func changed(key, old, next string) []string {
	if old == next {
		return nil
	}
	const short = 60
	if len(old)+len(next) <= short && !strings.Contains(old+next, "\n") {
		return []string{fmt.Sprintf("%s: %q to %q", key, old, next)}
	}
	a, b := strings.Split(old, "\n"), strings.Split(next, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out := []string{key + ":"}
	for _, line := range a {
		out = append(out, "- "+line)
	}
	for _, line := range b {
		out = append(out, "+ "+line)
	}
	return out
}
