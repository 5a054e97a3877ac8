// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// What happened to an entity.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one difference between two versions of a site.
type Change struct {
	Entity Entity
	Action string // Added, Removed or Changed
	// Field is the YAML key that changed, such as "rack", "outlets" or
	// "baseline.driver"; Old and New are its values as text, empty when absent.
	// All three are empty for Added and Removed.
	Field, Old, New string
}

// String says the change in one line.
func (c Change) String() string {
	if c.Action != Changed {
		return fmt.Sprintf("%s %s %s", label(c.Entity.Kind), c.Entity.ID, c.Action)
	}
	return fmt.Sprintf("%s %s %s: %q to %q", label(c.Entity.Kind), c.Entity.ID, c.Field, c.Old, c.New)
}

// Diff returns what changed from old to next: by kind, in next's file order, one
// Change for each field; then what was removed, in old's order; then changed
// limits, as fields "limits.KEY" of the site. A nil site has nothing.
func Diff(old, next *Site) []Change {
	var out []Change
	before := map[Entity]noun{}
	for _, n := range nounsOf(old) {
		before[entityOf(n)] = n
	}
	after := map[Entity]bool{}
	for _, n := range nounsOf(next) {
		e := entityOf(n)
		after[e] = true
		if was, ok := before[e]; ok {
			out = append(out, diffFields(e, "", reflect.ValueOf(was).Elem(), reflect.ValueOf(n).Elem())...)
		} else {
			out = append(out, Change{Entity: e, Action: Added})
		}
	}
	for _, n := range nounsOf(old) {
		if e := entityOf(n); !after[e] {
			out = append(out, Change{Entity: e, Action: Removed})
		}
	}
	if old == nil || next == nil {
		return out
	}
	if old.ID != next.ID {
		out = append(out, Change{Entity{KindSite, next.ID}, Changed, "id", old.ID, next.ID})
	}
	return append(out, diffLimits(next.ID, old.Limits, next.Limits)...)
}

func nounsOf(s *Site) []noun {
	if s == nil {
		return nil
	}
	return s.nouns()
}

// diffFields compares two structs key by key.
func diffFields(e Entity, prefix string, old, next reflect.Value) []Change {
	var out []Change
	for i := range old.NumField() {
		key, _, _ := strings.Cut(old.Type().Field(i).Tag.Get("yaml"), ",")
		key = prefix + key
		if old.Field(i).Kind() == reflect.Struct {
			out = append(out, diffFields(e, key+".", old.Field(i), next.Field(i))...)
			continue
		}
		if was, is := textOf(old.Field(i)), textOf(next.Field(i)); was != is {
			out = append(out, Change{e, Changed, key, was, is})
		}
	}
	return out
}

// textOf writes a field; zero is nothing.
func textOf(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch one := v.Interface().(type) {
	case []string:
		return strings.Join(one, ", ")
	case Versions:
		return strings.Join(one, ", ")
	case Names:
		return strings.Join(one, ", ")
	case map[string]string:
		pairs := make([]string, 0, len(one))
		for _, key := range slices.Sorted(maps.Keys(one)) {
			pairs = append(pairs, key+"="+one[key])
		}
		return strings.Join(pairs, ", ")
	default:
		return fmt.Sprint(one)
	}
}

func diffLimits(site string, old, next *Limits) []Change {
	keys := maps.Clone(old.values)
	maps.Copy(keys, next.values)
	var out []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, is := limitText(old, key), limitText(next, key)
		if was != is {
			out = append(out, Change{Entity{KindSite, site}, Changed, "limits." + key, was, is})
		}
	}
	return out
}

func limitText(l *Limits, key string) string {
	if v, ok := l.Value(key); ok {
		return fmt.Sprint(v)
	}
	return ""
}
