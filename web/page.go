// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

// page is what the template shows.
type page struct {
	Title, Root, Failure string
	Links                []Link
	Single               bool // one rack
	Explain              bool // racks and nodes link to their explanation
	View                 *registry.View
	Heat                 heat
	sorted
	SymptomNames string
	NoticeNames  string
	Counts       []count // alerts by severity
	States       []count // nodes by lease state
	Nodes, GPUs  int
	Rows         []row
	Rackless     []nodeRow
	Map          bool // racks at a glance, where they do not fit one screen
}

// RackLink is what an alert's link to a rack begins with.
func (p *page) RackLink() string {
	if p.Single {
		return p.Root + "rack/"
	}
	return "#rack-"
}

// mapFrom is the number of racks from which on the page starts with a map.
const mapFrom = 6

type count struct {
	Name  string
	Count int
}

type row struct {
	Room, Row string
	Racks     []rack
}

var funcs = template.FuncMap{
	"mark": func(state string) stateMark { return markOf(state) }, "severityMark": severityMark, "severityWord": severityWord,
	"utc": utc, "ago": ago, "racksOf": racksOf, "dict": dict,
}

// AllStates are the known lease states for the legend, in the order of lists.
func (*page) AllStates() []stateMark {
	return slices.SortedFunc(maps.Values(marks), func(a, b stateMark) int { return a.order - b.order })
}

func (p *page) fill(v *registry.View, h heat) {
	p.View, p.Heat = v, h
	p.sorted = sortAlerts(v.Alerts)
	p.SymptomNames, p.NoticeNames = tally(p.Symptoms), tally(p.Notices)
	for _, severity := range severities {
		n := 0
		for _, a := range v.Alerts {
			if severityWord(a.Severity) == severity && a.Severity != severityNone {
				n++
			}
		}
		if n > 0 {
			p.Counts = append(p.Counts, count{severity, n})
		}
	}
	p.States = p.countStates(v)
	firing := map[string]string{} // rack -> most severe severity
	cooling := map[string]bool{}
	for _, a := range v.Alerts {
		cooling[strings.TrimPrefix(a.Cause, "cooling unit ")] = true
		for _, id := range racksOf(a) {
			if old, ok := firing[id]; !ok || rank(a.Severity) < rank(old) {
				firing[id] = severityWord(a.Severity)
			}
		}
	}
	p.Map = len(v.Racks) >= mapFrom
	for _, r := range v.Racks {
		last := len(p.Rows) - 1
		if last < 0 || p.Rows[last].Room != r.Room || p.Rows[last].Row != r.Row {
			p.Rows = append(p.Rows, row{Room: r.Room, Row: r.Row})
			last++
		}
		p.Rows[last].Racks = append(p.Rows[last].Racks, newRack(r, h, firing[r.ID], cooling))
	}
	for _, n := range v.Rackless {
		p.Rackless = append(p.Rackless, newNodeRow(n, h))
	}
}

// countStates counts the nodes by state, what needs attention first.
func (p *page) countStates(v *registry.View) []count {
	by := map[string]int{}
	add := func(nodes []registry.NodeView) {
		for _, n := range nodes {
			by[n.State]++
			p.Nodes++
			p.GPUs += len(n.GPUs)
		}
	}
	for _, r := range v.Racks {
		add(r.Nodes)
	}
	add(v.Rackless)
	var counts []count
	for state, n := range by {
		counts = append(counts, count{state, n})
	}
	slices.SortFunc(counts, func(a, b count) int {
		return cmp.Or(markOf(a.Name).order-markOf(b.Name).order, strings.Compare(a.Name, b.Name))
	})
	return counts
}

// severityNone is the severity of what is no alert to anybody, such as a dead-man's
// switch: it is among the notices and not counted.
const severityNone = "none"

// severities in the order of the page.
var severities = []string{"critical", "warning", "info", "other"}

func rank(severity string) int { return slices.Index(severities, severityWord(severity)) }

func severityWord(severity string) string {
	if slices.Contains(severities, severity) {
		return severity
	}
	return "other"
}

// severityMark tells the severities apart by shape, for those who do not see
// the colours.
func severityMark(severity string) string {
	return map[string]string{"critical": "▲", "warning": "◆", "info": "●", "other": "■"}[severityWord(severity)]
}

// racksOf are the racks an alert is about.
func racksOf(a registry.AlertView) []string {
	if len(a.Racks) == 0 && a.Labels["rack_id"] != "" {
		return []string{a.Labels["rack_id"]}
	}
	return a.Racks
}

// sorted is the alerts as the page shows them, each list the worst first.
type sorted struct {
	Causes []registry.AlertView
	Others []registry.AlertView
	// Symptoms are what a cause explains, Notices what only informs: both are
	// folded away.
	Symptoms, Notices []registry.AlertView
}

// sortAlerts splits alerts into those that name a cause, the rest, the symptoms
// that a cause explains, and notices. All racks of a symptom are the cause's,
// or it names the same cause, and it is less severe, or as severe but not critical: a critical alert is
// never folded away. The correlation label of the shipped rules is the id of a
// correlation, "symptom", or "coverage" for what watches the rules themselves.
func sortAlerts(alerts []registry.AlertView) sorted {
	var out sorted
	ordered := slices.Clone(alerts)
	slices.SortStableFunc(ordered, func(a, b registry.AlertView) int {
		return cmp.Or(rank(a.Severity)-rank(b.Severity), a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	for _, a := range ordered {
		if namesCause(a) {
			out.Causes = append(out.Causes, a)
		}
	}
	for _, a := range ordered {
		switch {
		case namesCause(a):
		case a.Correlation == "coverage" && rank(a.Severity) >= rank("info"):
			out.Notices = append(out.Notices, a)
		case rank(a.Severity) > 0 && slices.ContainsFunc(out.Causes, func(c registry.AlertView) bool { return explains(c, a) }):
			out.Symptoms = append(out.Symptoms, a)
		default:
			out.Others = append(out.Others, a)
		}
	}
	return out
}

func namesCause(a registry.AlertView) bool {
	return a.Cause != "" && a.Correlation != "symptom" && a.Correlation != "coverage"
}

func explains(cause, a registry.AlertView) bool {
	if a.Correlation == "symptom" && a.Cause == cause.Cause {
		return true // both name the same thing
	}
	racks := racksOf(a)
	if len(racks) == 0 || rank(cause.Severity) > rank(a.Severity) {
		return false
	}
	of := racksOf(cause)
	return !slices.ContainsFunc(racks, func(id string) bool { return !slices.Contains(of, id) })
}

// tally names alerts with their number: "GPUHot (12), InletWarm (2)".
func tally(alerts []registry.AlertView) string {
	by := map[string]int{}
	var names []string
	for _, a := range alerts {
		if by[a.Name]++; by[a.Name] == 1 {
			names = append(names, a.Name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%d)", name, by[name])
	}
	return strings.Join(names, ", ")
}

func utc(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// ago is the time from then to now in one unit, "" for a time not known.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	d := now.Sub(then)
	switch {
	case d < 0:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

// dict passes several values to a template.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: name %v is no string", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
