// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/pkg/labels"
	"github.com/prometheus/common/model"
	"gopkg.in/yaml.v3"
)

// route and inhibition are the parts of an Alertmanager configuration that decide
// who hears of what.
type route struct {
	Receiver string         `yaml:"receiver"`
	GroupBy  []string       `yaml:"group_by"`
	Wait     model.Duration `yaml:"group_wait"`
	Interval model.Duration `yaml:"group_interval"`
	Matchers []string       `yaml:"matchers"`
	Routes   []*route       `yaml:"routes"`

	matchers labels.Matchers
}

type inhibition struct {
	Name   string   `yaml:"name"`
	Source []string `yaml:"source_matchers"`
	Target []string `yaml:"target_matchers"`
	Equal  []string `yaml:"equal"`

	source, target labels.Matchers
}

// pager is Alertmanager in virtual time: routes, groups with their waits, and
// inhibition, as its documentation describes them.
type pager struct {
	root    *route
	inhibit []*inhibition
	groups  map[string]*group
	sent    []notification
}

type group struct {
	route *route
	next  time.Time
	told  map[string]bool // by the latest notification
	here  bool            // has alerts in the present round
}

// notification is one message that tells of alerts not told before.
type notification struct {
	at       time.Time
	receiver string
	alerts   []map[string]string // those that are new in it
}

// page says that a notification wakes somebody.
func (n *notification) page() bool { return strings.HasSuffix(n.receiver, "-page") }

func newPager(config string) (*pager, error) {
	var c struct {
		Route   *route        `yaml:"route"`
		Inhibit []*inhibition `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		return nil, err
	}
	var errs []error
	parse := func(list []string) labels.Matchers {
		var out labels.Matchers
		for _, s := range list {
			m, err := labels.ParseMatcher(s)
			errs = append(errs, err)
			out = append(out, m)
		}
		return out
	}
	var inherit func(r, from *route)
	inherit = func(r, from *route) {
		r.matchers = parse(r.Matchers)
		if from != nil {
			if r.Receiver == "" {
				r.Receiver = from.Receiver
			}
			if r.GroupBy == nil {
				r.GroupBy = from.GroupBy
			}
			if r.Wait == 0 {
				r.Wait = from.Wait
			}
			if r.Interval == 0 {
				r.Interval = from.Interval
			}
		}
		for _, child := range r.Routes {
			inherit(child, r)
		}
	}
	inherit(c.Route, nil)
	for _, i := range c.Inhibit {
		i.source, i.target = parse(i.Source), parse(i.Target)
	}
	return &pager{root: c.Route, inhibit: c.Inhibit, groups: map[string]*group{}}, errors.Join(errs...)
}

func matches(m labels.Matchers, l map[string]string) bool {
	return !slices.ContainsFunc(m, func(one *labels.Matcher) bool { return !one.Matches(l[one.Name]) })
}

// of is the deepest first route that takes an alert.
func (r *route) of(l map[string]string) *route {
	for _, child := range r.Routes {
		if matches(child.matchers, l) {
			return child.of(l)
		}
	}
	return r
}

// muted says that a firing alert is inhibited by another. One that is source and
// target of a rule is not inhibited by alerts that are both too.
func (p *pager) muted(l map[string]string, firing []map[string]string) bool {
	for _, rule := range p.inhibit {
		if !matches(rule.target, l) {
			continue
		}
		both := matches(rule.source, l)
		for _, s := range firing {
			if !matches(rule.source, s) || both && matches(rule.target, s) {
				continue
			}
			if !slices.ContainsFunc(rule.Equal, func(name string) bool { return l[name] != s[name] }) {
				return true
			}
		}
	}
	return false
}

func key(l map[string]string) string {
	names := make([]string, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(name + "=" + l[name] + "\xff")
	}
	return b.String()
}

// step gives the pager the firing alerts of one evaluation, sends what is due,
// and returns which of the alerts are muted.
func (p *pager) step(now time.Time, firing []map[string]string) []bool {
	muted := make([]bool, len(firing))
	members := map[*group][]int{}
	for _, g := range p.groups {
		g.here = false
	}
	for i, l := range firing {
		muted[i] = p.muted(l, firing)
		r := p.root.of(l)
		id := r.Receiver + "\xff" + strings.Join(r.Matchers, ",")
		for _, name := range r.GroupBy {
			if name == "..." {
				id += key(l)
			}
			id += "\xff" + l[name]
		}
		g := p.groups[id]
		if g == nil {
			g = &group{route: r, next: now.Add(time.Duration(r.Wait)), told: map[string]bool{}}
			p.groups[id] = g
		}
		g.here = true
		members[g] = append(members[g], i)
	}
	for id, g := range p.groups {
		if now.Before(g.next) {
			continue
		}
		for !now.Before(g.next) {
			g.next = g.next.Add(time.Duration(g.route.Interval))
		}
		n := notification{at: now, receiver: g.route.Receiver}
		told := map[string]bool{}
		for _, i := range members[g] {
			if muted[i] {
				continue
			}
			k := key(firing[i])
			told[k] = true
			if !g.told[k] {
				n.alerts = append(n.alerts, firing[i])
			}
		}
		g.told = told
		if len(n.alerts) > 0 {
			p.sent = append(p.sent, n)
		}
		if !g.here {
			delete(p.groups, id)
		}
	}
	return muted
}
