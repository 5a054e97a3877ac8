// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// correlation compiles one correlation: the set of affected entities, and the
// alerts over it.
func (b *builder) correlation(c *spec) ([]rule, error) {
	at := b.pack.levels[c.At]
	set := series(c.At, c.ID)
	expr, err := b.set(c, at, set)
	if err != nil {
		return nil, c.at.errorf("correlation %s: %v", c.ID, err)
	}
	first, err := b.record(set, expr, c.at)
	if err != nil {
		return nil, err
	}
	out := []rule{first}
	if c.Group == nil {
		r, err := b.alertRule(b.pack.ruleOf(c), guarded(set, at.Join...), c.at)
		return append(out, r), err
	}
	more, err := b.group(c, at, set)
	return append(out, more...), err
}

// set returns the entities for which a branch holds, or held before while the
// hold signal is still there.
func (b *builder) set(c *spec, at level, own string) (string, error) {
	var parts []string
	var errs []error
	for _, br := range c.Branches {
		guards, join := []string{}, ""
		for _, cause := range br.Causes {
			word := map[string]string{"required": "and", "contradicting": "unless"}[cause.Role]
			if word == "" {
				continue
			}
			labels, err := joinLabels(at, b.pack.levels[b.pack.signals[cause.Signal].Level])
			errs = append(errs, err)
			sel, err := b.pack.selector(cause.Signal, labels...)
			errs = append(errs, err)
			join += " " + on("", word, labels, sel)
			guards = union(guards, labels...)
		}
		sel, err := b.pack.selector(br.Symptom, without(guards, "site")...)
		errs = append(errs, err)
		parts = append(parts, "("+sel+join+")")
	}
	if c.Hold != "" {
		hold, err := b.pack.selector(c.Hold, at.Join...)
		errs = append(errs, err)
		parts = append(parts, "("+on(guarded(own, at.Join...), "and", at.Join, hold)+")")
	}
	return strings.Join(parts, " or "), errors.Join(errs...)
}

func without(list []string, name string) []string {
	var out []string
	for _, s := range list {
		if s != name {
			out = append(out, s)
		}
	}
	return out
}

// group compiles the lift to the parent: pairs of parent and affected entity,
// the pairs whose parent is to blame, the parents that fire, and three alerts.
func (b *builder) group(c *spec, at level, set string) ([]rule, error) {
	parent, g := b.pack.levels[c.Level], c.Group
	pairLabels := union(at.Labels, parent.Labels...)
	e, _ := b.pack.edge(c.At, c.Level)
	of, err := b.pack.selector(g.Of, at.Join...)
	if err != nil {
		return nil, c.at.errorf("%v", err)
	}
	pairs, all := guarded(set, union(at.Join, parent.Join...)...), guarded(series(c.At, g.Of), union(at.Join, parent.Join...)...)
	if e.Info != "" {
		info := by("max", pairLabels, guarded(e.Info, union(at.Join, parent.Join...)...))
		pairs = on(info, "and", at.Join, guarded(set, at.Join...))
		all = on(info, "and", at.Join, of)
	}
	affected, blamed := set+"_pairs", set+"_blamed"
	var out []rule
	var errs []error
	add := func(r rule, err error) { out, errs = append(out, r), append(errs, err) }
	add(b.record(affected, pairs, c.at))
	blame, support, err := b.blame(c, at, parent, guarded(affected, union(at.Join, parent.Join...)...))
	errs = append(errs, err)
	add(b.record(blamed, blame, c.at))
	pair := guarded(blamed, union(at.Join, parent.Join...)...)
	fires, err := b.fires(c, parent, pair, all, support)
	if err != nil {
		return nil, err
	}
	top := series(c.Level, c.ID)
	add(b.record(top, fires, c.at))

	part := on(pair, "and", parent.Join, guarded(top, parent.Join...))
	if g.Spread != "" {
		also, err := b.pack.selector(g.Spread, union(at.Join[1:], parent.Join[1:]...)...)
		if err != nil {
			return nil, c.at.errorf("%v", err)
		}
		part = fmt.Sprintf("(%s) or (%s)", part, on(also, "and", parent.Join, guarded(top, parent.Join...)))
	}
	add(b.record(set+"_part", part, c.at))
	companion := guarded(set+"_part", union(at.Join, parent.Join...)...)
	// What was part of a parent's fault a short while ago recovers from that.
	lone := on(guarded(set, at.Join...), "unless", at.Join, fmt.Sprintf("max_over_time(%s[%s])", companion, recovery))
	if g.Device != "" {
		companion, lone = asDevice(companion, g.Device), asDevice(lone, g.Device)
	}
	add(b.alertRule(b.pack.ruleOf(c), guarded(top, parent.Join...), c.at))
	add(b.alertRule(companionOf(c), companion, c.at))
	add(b.alertRule(aloneOf(c), lone, c.at.key("group", "alone")))
	return out, errors.Join(errs...)
}

// blame returns the pairs whose parent may be the cause: those of parents that
// show the supporting signal, and, where no such parent has the entity, those
// without the contradicting one.
func (b *builder) blame(c *spec, at, parent level, pairs string) (expr, support string, err error) {
	g, rest := c.Group, pairs
	if g.Contradicting != nil {
		sel, err := b.pack.selector(g.Contradicting.Signal, at.Join[1:]...)
		if err != nil {
			return "", "", err
		}
		rest = on(pairs, "unless", at.Join, sel)
	}
	if g.Supporting == nil {
		return rest, "", nil
	}
	if support, err = b.pack.selector(g.Supporting.Signal, parent.Join...); err != nil {
		return "", "", err
	}
	known := "(" + on(pairs, "and", parent.Join, support) + ")"
	return known + " or (" + on(rest, "unless", at.Join, known) + ")", support, nil
}

// fires returns the parents that are the cause: enough of their entities are to
// be blamed on them, or any while they show the supporting signal.
func (b *builder) fires(c *spec, parent level, pair, all, support string) (string, error) {
	share, err := b.limit(c.Group.ShareLimit)
	if err != nil {
		return "", c.at.key("group", "share_limit").errorf("correlation %s: %v", c.ID, err)
	}
	count := by("count", parent.Labels, pair)
	parts := []string{on(count, ">", parent.Labels, fmt.Sprintf("(%s * %s)", number(share), by("count", parent.Labels, all)))}
	if c.Group.MinCount > 0 {
		parts = append(parts, fmt.Sprintf("%s >= %d", count, c.Group.MinCount))
	}
	if support != "" {
		parts = append(parts, on(count, "and", parent.Join, support))
	}
	return "(" + strings.Join(parts, ") or (") + ")", nil
}

// recovery is how long after a parent's fault an entity that still shows it is no
// fault of its own: the longest lead from a cause to its symptom.
const recovery = "10m"

func asDevice(expr, label string) string {
	return fmt.Sprintf(`label_replace(%s, "device", "$1", %q, "(.+)")`, expr, label)
}

func common(c *spec, severity string) [][2]string {
	return [][2]string{{"correlation", c.ID}, {"severity", severity}, {"team", c.Team}}
}

// ruleOf is the alert of a correlation.
func (p *Pack) ruleOf(c *spec) rule {
	r := rule{
		alert: c.Alert, dur: time.Duration(c.For), keep: time.Duration(c.KeepFiringFor),
		labels:      common(c, c.Severity),
		annotations: [][2]string{{"summary", c.Summary}, {"description", c.Description}, {"cause", c.Cause}, {"racks", racks(c)}, {"runbook_url", docPath(c.ID)}},
	}
	if text := p.muted(c); text != "" {
		r.annotations = append(r.annotations, [2]string{"muted", text})
	}
	r.annotations = append(r.annotations, ordersOf(c)...)
	return r
}

// ordersOf is the annotation with the actions that a correlation names.
func ordersOf(c *spec) [][2]string {
	if len(c.Actions) == 0 {
		return nil
	}
	return [][2]string{{"actions", strings.Join(c.Actions, ",")}}
}

// aloneOf is the alert of an entity whose parent is not to blame.
func aloneOf(c *spec) rule {
	a := c.Group.Alone
	severity := a.Severity
	if severity == "" {
		severity = c.Severity
	}
	return rule{
		alert: a.Alert, dur: time.Duration(a.For), keep: time.Duration(c.KeepFiringFor),
		labels: common(c, severity),
		annotations: append([][2]string{{"summary", a.Summary}, {"description", a.Description}, {"cause", a.Cause}, {"racks", "{{ $labels.rack_id }}"}, {"runbook_url", docPath(c.ID)}},
			ordersOf(c)...),
	}
}

// companionOf is the alert that only mutes: Alertmanager compares equal labels of
// one name, so the parent's alert cannot mute an entity's symptoms itself.
func companionOf(c *spec) rule {
	return rule{
		alert: c.Group.Companion, dur: time.Duration(c.For), keep: time.Duration(c.KeepFiringFor),
		labels: append(common(c, "info"), [2]string{"role", "inhibitor"}),
		annotations: [][2]string{
			{"summary", "Mutes the symptoms of " + c.Alert + "; sent to nobody"},
			{"description", "Only there so that Alertmanager can mute symptoms by the labels of the affected entity."},
			{"cause", c.Cause}, {"racks", "{{ $labels.rack_id }}"}, {"runbook_url", docPath(c.ID)},
		},
	}
}

// racks is the annotation that lists the affected racks: the alert's own label,
// or those of the set that the parent's labels select.
func racks(c *spec) string {
	if c.Group == nil {
		return "{{ $labels.rack_id }}"
	}
	label := snake(c.Level)
	return fmt.Sprintf(`{{ with printf "count by (rack_id) (%s_part{site=%%q,%s=%%q})" $labels.site $labels.%s | query }}`+
		`{{ range $i, $r := sortByLabel "rack_id" . }}{{ if $i }},{{ end }}{{ $r.Labels.rack_id }}{{ end }}{{ end }}`, series(c.At, c.ID), label, label)
}

// muted is the annotation that counts the firing alerts which Alertmanager mutes
// for this one, or those of its companions: it tells nobody of them itself. It is
// empty for a correlation that mutes nothing.
func (p *Pack) muted(c *spec) string {
	var labels, args []string
	for i, l := range p.levels[c.Level].Join {
		labels = append(labels, fmt.Sprintf("%s=%%[%d]q", l, i+1))
		args = append(args, "$labels."+l)
	}
	var parts []string
	for _, in := range p.inhibitions() {
		source := c.Alert
		if c.Group != nil && slices.Contains(in.sources, c.Group.Companion) {
			source = c.Group.Companion
		}
		if !slices.Contains(in.sources, source) {
			continue
		}
		target := []string{`alertstate="firing"`, fmt.Sprintf("alertname=%q", in.target)}
		for _, l := range in.equal {
			if l != "site" {
				target = append(target, l+`!=""`)
			}
		}
		parts = append(parts, fmt.Sprintf(`ALERTS{%s} and on (%s) ALERTS{alertstate="firing",alertname=%q,%s}`,
			strings.Join(target, ","), strings.Join(in.equal, ", "), source, strings.Join(labels, ",")))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("{{ with printf `count(%s)` %s | query }}{{ . | first | value | printf \"%%.0f\" }}{{ else }}0{{ end }}", strings.Join(parts, " or "), strings.Join(args, " "))
}
