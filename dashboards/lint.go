// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Problem is one fault of a dashboard. Rules that dashboard-linter has, too, bear
// its names.
type Problem struct {
	File, Panel, Rule, Text string
}

// String is one line for people.
func (p Problem) String() string {
	where := p.File
	if p.Panel != "" {
		where += fmt.Sprintf(": panel %q", p.Panel)
	}
	return where + ": " + p.Rule + ": " + p.Text
}

// Known are the metrics that expressions may ask for, each with its labels.
type Known map[string][]string

// builtin are the series that Prometheus writes itself.
var builtin = []string{"up", "scrape_duration_seconds", "scrape_samples_scraped", "ALERTS", "ALERTS_FOR_STATE"}

// has tells whether a metric is known. node_exporter's are not listed anywhere of
// ours, so that its prefix is enough.
func (k Known) has(metric string) bool {
	_, ok := k[metric]
	return ok || slices.Contains(builtin, metric) || strings.HasPrefix(metric, "node_")
}

// Lint checks dashboards, by file name, each for itself and as a set whose links
// lead to one another. Links may also lead to our own dashboards. The problems
// come in the order of the files and panels.
func Lint(boards map[string][]byte, known Known) []Problem {
	l := &linter{known: known, uids: map[string]string{}, boards: map[string]*board{}}
	parsed := map[string]*board{}
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		l.file, l.panel = name, ""
		b, err := parse(boards[name])
		if err != nil {
			l.add("json", "%v", err)
			continue
		}
		parsed[name] = b
		if other, taken := l.uids[b.UID]; taken {
			l.add("uid-unique", "uid %q is also that of %s", b.UID, other)
		}
		l.uids[b.UID], l.boards[b.UID] = name, b
	}
	for _, name := range slices.Sorted(maps.Keys(parsed)) {
		l.file, l.panel = name, ""
		if n := len(parsed[name].panels()); n > maxPanels {
			l.add("panels", "%d panels, at most %d are looked at", n, maxPanels)
			continue
		}
		l.board(parsed[name], boards[name])
	}
	return l.problems
}

// target is the dashboard with a uid, among those given or ours; nil: there is none.
func (l *linter) target(uid string) *board {
	if b := l.boards[uid]; b != nil {
		return b
	}
	names, _ := files.ReadDir(".") // embedded: it is there
	for _, name := range names {
		data, _ := files.ReadFile(name.Name())
		if b, err := parse(data); err == nil && b.UID == uid {
			l.boards[uid] = b
			return b
		}
	}
	return nil
}

// maxPanels bounds a dashboard; nobody reads one of more.
const maxPanels = 500

type linter struct {
	known    Known
	uids     map[string]string // file by uid
	boards   map[string]*board // by uid
	problems []Problem
	// where it looks at the moment
	file, panel string
}

func (l *linter) add(rule, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: l.file, Panel: l.panel, Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// uidForm keeps uids stable and short: Grafana allows 40 characters.
var uidForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*-v[0-9]+$`)

func (l *linter) board(b *board, raw []byte) {
	if !uidForm.MatchString(b.UID) || len(b.UID) > 40 {
		l.add("uid", "uid %q is not like rackpulse-NAME-v1, at most 40 characters", b.UID)
	}
	if b.Inputs != nil || strings.Contains(string(raw), "${DS_") {
		l.add("no-inputs", "it has import-time inputs (__inputs, ${DS_...}); use a data source variable")
	}
	if b.Editable == nil || *b.Editable {
		l.add("uneditable", "it is editable, so that changes in Grafana get lost at the next provisioning")
	}
	l.variables(b)
	for _, a := range b.Annotations.List {
		if a.Expr == "" {
			continue
		}
		if !b.chosen(a.Datasource) {
			l.add("panel-datasource", "annotation %s has the fixed data source %q", a.Name, a.Datasource.UID)
		}
		l.expr(b, a.Expr)
	}
	l.links(b.Links, false)
	l.grid(b)
	for _, p := range b.panels() {
		l.panel = p.Title
		l.onePanel(b, p)
	}
	l.panel = ""
}

// labelValues is the form of a query variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), *([a-zA-Z_][a-zA-Z0-9_]*)\)$`)

func (l *linter) variables(b *board) {
	vars := b.Templating.List
	if len(vars) == 0 || vars[0].Name != "datasource" || vars[0].Type != "datasource" || vars[0].text() != "prometheus" {
		l.add("template-datasource", "the first variable is not the data source: name datasource, type datasource, query prometheus")
	}
	for _, v := range vars {
		if v.Type != "query" {
			continue
		}
		if v.Refresh != 2 {
			l.add("template-on-time-change-reload", "variable %s does not refresh with the time range (refresh 2)", v.Name)
		}
		if !b.chosen(v.Datasource) {
			l.add("template-datasource", "variable %s has the fixed data source %q", v.Name, v.Datasource.UID)
		}
		if v.IncludeAll && v.AllValue != ".+" && v.AllValue != ".*" {
			l.add("template-all-value", "variable %s: the value of All is %q; write .+, or .* where what has no such label belongs to all", v.Name, v.AllValue)
		}
		m := labelValues.FindStringSubmatch(v.text())
		if m == nil {
			l.add("template-label-promql", "variable %s: %q is not label_values(SELECTOR, LABEL)", v.Name, v.text())
			continue
		}
		tree, err := parsePromQL(b.substitute(m[1], rateStandIn, rangeStandIn))
		if err != nil {
			l.add("template-label-promql", "variable %s: %v", v.Name, err)
			continue
		}
		l.metrics(tree)
	}
}

// angular are panel types that Grafana does not show any more.
var angular = []string{"graph", "singlestat", "table-old", "grafana-worldmap-panel", "worldmap", "heatmap-old"}

func (l *linter) onePanel(b *board, p panel) {
	if p.Title == "" || p.Description == "" {
		l.add("panel-title-description", "panel %d has no title or no description", p.ID)
	}
	if slices.Contains(angular, p.Type) {
		l.add("no-angular", "panel type %s needs Angular, which Grafana 12 does not have", p.Type)
	}
	if p.Type == "text" {
		return
	}
	if !b.chosen(p.Datasource) {
		l.add("panel-datasource", "the data source is fixed to %q", p.Datasource.UID)
	}
	if p.FieldConfig.Defaults.Unit == "" {
		l.add("panel-units", "it has no unit; none and short are units, too")
	}
	if len(p.Targets) == 0 {
		l.add("panel-no-targets", "it asks for nothing")
	}
	l.targets(b, p)
	l.links(p.Links, false)
	l.links(p.FieldConfig.Defaults.Links, true)
	for _, o := range p.FieldConfig.Overrides {
		for _, prop := range o.Properties {
			var list []link
			if prop.ID == "links" && json.Unmarshal(prop.Value, &list) == nil {
				l.links(list, true)
			}
		}
	}
}

// targets checks what a panel asks for, and the unit it is shown in.
func (l *linter) targets(b *board, p panel) {
	for _, t := range p.Targets {
		if t.Datasource.UID != "" && !b.chosen(t.Datasource) { // without one it has the panel's
			l.add("panel-datasource", "target %s has the fixed data source %q", t.RefID, t.Datasource.UID)
		}
		unit := p.unitOf(t.RefID)
		if unit != "" && !knownUnit(unit) {
			l.add("unit-known", "target %s has the unit %q, which Grafana does not have", t.RefID, unit)
		} else if tree := l.expr(b, t.Expr); tree != nil {
			l.unit(tree, unit)
		}
	}
}

// unitOf is the unit in which a target is shown.
func (p panel) unitOf(ref string) string {
	unit := p.FieldConfig.Defaults.Unit
	for _, o := range p.FieldConfig.Overrides {
		if !p.fits(o, ref) {
			continue
		}
		for _, prop := range o.Properties {
			if prop.ID == "unit" {
				_ = json.Unmarshal(prop.Value, &unit) // no string: as the panel
			}
		}
	}
	return unit
}

// links checks that links to dashboards lead somewhere, and that those of data
// carry what they are about and the time.
func (l *linter) links(list []link, data bool) {
	for _, k := range list {
		path, ok := strings.CutPrefix(k.URL, "/d/")
		if !ok {
			continue
		}
		path, query, _ := strings.Cut(path, "?")
		uid, _, _ := strings.Cut(path, "/")
		to := l.target(uid)
		if to == nil {
			l.add("link-dead", "link %q leads to dashboard %q, which is not there", k.Title, uid)
			continue
		}
		if data && !strings.Contains(query, "${__url_time_range}") {
			l.add("link-time", "link %q does not carry the time range (${__url_time_range})", k.Title)
		}
		for _, pair := range strings.Split(query, "&") {
			name, _, _ := strings.Cut(pair, "=")
			name, err := url.QueryUnescape(name)
			if v, ok := strings.CutPrefix(name, "var-"); err != nil || ok && to.variable(v) == nil {
				l.add("link-dead", "link %q sets variable %q, which dashboard %s does not have", k.Title, v, uid)
			}
		}
	}
}

// grid holds that every panel is on the page and covers no other, and that ids
// are used once.
func (l *linter) grid(b *board) {
	all := slices.Clone(b.Panels)
	for _, p := range b.Panels {
		all = append(all, p.Panels...)
	}
	ids := map[int]string{}
	for _, p := range all {
		if other, taken := ids[p.ID]; taken {
			l.add("panel-id", "panels %q and %q have the same id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > 24 {
			l.add("grid", "panel %q at x %d, y %d, width %d, height %d is not within 24 columns", p.Title, g.X, g.Y, g.W, g.H)
		}
	}
	top := slices.SortedFunc(slices.Values(b.Panels), func(p, q panel) int {
		return cmp.Or(p.GridPos.Y-q.GridPos.Y, p.GridPos.X-q.GridPos.X)
	})
	for i, p := range top {
		for _, q := range top[i+1:] {
			if overlap(p.GridPos, q.GridPos) {
				l.add("grid", "panels %q and %q overlap", p.Title, q.Title)
			}
		}
	}
}

func overlap(a, b grid) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}
