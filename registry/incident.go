// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

const (
	// causeWait is how long an incident with a named cause gathers its alerts
	// before it is told, symptomWait one without: Alertmanager tells groups one by
	// one, and a cause that is on its way makes the message of its symptoms
	// needless.
	causeWait   = 5 * time.Second
	symptomWait = 30 * time.Second
	// changeWait gathers changes, changeEvery is the least time between messages
	// about one incident.
	changeWait  = 30 * time.Second
	changeEvery = 5 * time.Minute
	// clearWait is how long an incident must be over.
	clearWait = 30 * time.Second
	// alertKeep is how long an alert counts without being told again: longer than
	// the repeat_interval of the shipped Alertmanager configuration, 4 h.
	alertKeep = 5 * time.Hour
	// maxIncidents and maxMembers bound the book.
	maxIncidents = 1000
	maxMembers   = 20000
)

// incident is one cause with its domain, or symptoms of one kind in one rack that
// no cause explains.
type incident struct {
	key    string
	cause  bool
	entity site.Entity             // its domain; zero: none that the site knows
	first  webhookAlert            // the worst alert, which gives the texts
	alerts map[string]*memberAlert // that fire, by fingerprint
	muted  map[string]time.Time    // explained by it, by fingerprint
	since  time.Time
	due    time.Time // when there may be something to tell; zero: nothing
	told   *toldState
}

// memberAlert is an alert of an incident.
type memberAlert struct {
	alert webhookAlert
	seen  time.Time
}

// toldState is what the last message said.
type toldState struct {
	at       time.Time
	id       string
	severity string
	racks    []string
	alerts   int
}

// incidentBook groups alerts by incident. It is safe for concurrent use.
type incidentBook struct {
	site     func() *site.Site
	explains map[string][]string // alerts that a correlation explains
	mu       sync.Mutex
	open     map[string]*incident
	members  int
	folded   []Digest // ends to be noted
}

func newIncidentBook(where func() *site.Site, explains map[string][]string) *incidentBook {
	return &incidentBook{site: where, explains: explains, open: map[string]*incident{}}
}

// take files one alert of Alertmanager's webhook. It is an error when the book is
// full.
func (b *incidentBook) take(a *webhookAlert, now time.Time) error {
	if s := a.Labels["severity"]; s == "none" || s == "info" || a.Labels["role"] == roleInhibitor {
		return nil // to be seen on the pages, told to nobody
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key, cause, entity := b.place(a.Labels)
	print := a.print()
	if a.Status != "firing" {
		b.drop(key, print, now)
		for _, one := range b.open {
			delete(one.muted, print)
		}
		return nil
	}
	if by := b.explainer(a.Labels, key); by != nil {
		b.drop(key, print, now)
		if _, had := by.muted[print]; had || len(by.muted) < maxMembers {
			by.muted[print] = now
		}
		return nil
	}
	one := b.open[key]
	if one == nil {
		if len(b.open) >= maxIncidents {
			return fmt.Errorf("%d incidents are open, no more are taken", len(b.open))
		}
		one = &incident{key: key, cause: cause, entity: entity, alerts: map[string]*memberAlert{}, muted: map[string]time.Time{}, since: a.since(now)}
		b.open[key] = one
	}
	b.join(one, print, a, now)
	if len(b.explains[a.Labels["correlation"]]) > 0 {
		b.fold(one, now)
	}
	return nil
}

// join adds a firing alert to its incident.
func (b *incidentBook) join(one *incident, print string, a *webhookAlert, now time.Time) {
	if one.alerts[""] != nil { // stood for those told before a restart
		delete(one.alerts, "")
		b.members--
		one.first = *a
	}
	if m := one.alerts[print]; m != nil {
		m.seen, m.alert = now, *a
	} else if b.members < maxMembers {
		one.alerts[print] = &memberAlert{alert: *a, seen: now}
		b.members++
	}
	if one.first.Labels == nil || severityRank(a.Labels["severity"]) < severityRank(one.first.Labels["severity"]) || a.print() == one.first.print() {
		one.first = *a
	}
	if s := a.since(now); s.Before(one.since) {
		one.since = s
	}
	wait := symptomWait
	if one.cause {
		wait = causeWait
	}
	switch {
	case one.told == nil && one.due.IsZero():
		one.due = now.Add(wait)
	case one.told != nil && len(one.changes()) > 0 && one.due.IsZero():
		if one.due = now.Add(changeWait); one.due.Before(one.told.at.Add(changeEvery)) {
			one.due = one.told.at.Add(changeEvery)
		}
	}
}

// drop takes an alert out of its incident.
func (b *incidentBook) drop(key, print string, now time.Time) {
	one := b.open[key]
	if one == nil {
		return
	}
	for _, p := range []string{print, ""} {
		if one.alerts[p] != nil {
			delete(one.alerts, p)
			b.members--
		}
	}
	switch {
	case len(one.alerts) > 0:
	case one.told == nil:
		delete(b.open, key) // over before it was told
	default:
		one.due = now.Add(clearWait)
	}
}

// fold takes what an incident explains out of the others. One that was told
// already ends without a message of its own: this incident's says so.
func (b *incidentBook) fold(by *incident, now time.Time) {
	for key, other := range b.open {
		if other == by {
			continue
		}
		for print, m := range other.alerts {
			if b.explainer(m.alert.Labels, key) != by {
				continue
			}
			delete(other.alerts, print)
			b.members--
			by.muted[print] = now
		}
		if len(other.alerts) > 0 {
			continue
		}
		delete(b.open, key)
		if other.told != nil {
			d := other.digest(now)
			d.Phase = phaseFolded
			b.folded = append(b.folded, d)
		}
	}
}

// explainer is the open incident whose correlation explains an alert and whose
// domain holds what the alert is about; nil: there is none.
func (b *incidentBook) explainer(labels map[string]string, own string) *incident {
	for _, key := range slices.Sorted(maps.Keys(b.open)) {
		if one := b.open[key]; key != own && len(one.alerts) > 0 && b.covers(one, labels) {
			return one
		}
	}
	return nil
}

// covers says that an incident explains an alert.
func (b *incidentBook) covers(one *incident, labels map[string]string) bool {
	if one.first.Labels["site"] != labels["site"] || !slices.Contains(b.explains[one.first.Labels["correlation"]], labels["alertname"]) {
		return false
	}
	if one.first.Labels["UUID"] != "" { // one GPU explains nothing of the GPU beside it
		for _, m := range one.alerts {
			if m.alert.Labels["UUID"] == labels["UUID"] {
				return true
			}
		}
		return false
	}
	of, ok := entityOf(b.site(), labels)
	if !ok || one.entity == (site.Entity{}) {
		return false
	}
	return of == one.entity || slices.Contains(b.site().DependsOn(of), one.entity)
}

// place says which incident an alert belongs to.
func (b *incidentBook) place(labels map[string]string) (key string, cause bool, entity site.Entity) {
	entity, _ = entityOf(b.site(), labels)
	correlation := labels["correlation"]
	if correlation != "" && correlation != "symptom" && correlation != "coverage" {
		return strings.Join([]string{labels["site"], correlation, entity.Kind, cmp.Or(entity.ID, labels["alertname"])}, "|"), true, entity
	}
	// Symptoms are told by rack, not one by one.
	where := labels["rack_id"]
	if where == "" {
		where = entity.Kind + " " + entity.ID
	}
	return strings.Join([]string{labels["site"], correlation, labels["alertname"], where}, "|"), false, entity
}

// entityOf is what labels are about: the most specific entity of the site.
func entityOf(s *site.Site, labels map[string]string) (site.Entity, bool) {
	if id := labels["device"]; id != "" && labels["pdu_id"] == "" {
		if d, ok := s.Device(id); ok {
			return d.Entity, true
		}
	}
	for _, one := range []struct{ label, kind string }{
		{"node", site.KindNode}, {"switch", site.KindSwitch}, {"pdu_id", site.KindPDU}, {"rack_id", site.KindRack},
		{"cooling_unit", site.KindCooling}, {"feed", site.KindFeed},
	} {
		if id := labels[one.label]; id != "" {
			return site.Entity{Kind: one.kind, ID: id}, true
		}
	}
	return site.Entity{}, false
}

// print tells an alert from all others.
func (a *webhookAlert) print() string {
	if a.Fingerprint != "" {
		return a.Fingerprint
	}
	return fmt.Sprint(a.Labels)
}

// since is when it began to fire, on the sender's clock; now where it says none.
func (a *webhookAlert) since(now time.Time) time.Time {
	if a.StartsAt.IsZero() || a.StartsAt.After(now) {
		return now
	}
	return a.StartsAt
}

// racks are those that the firing alerts of an incident are about, sorted.
func (one *incident) racks() []string {
	var out []string
	for _, m := range one.alerts {
		list := m.alert.Annotations["racks"]
		if list == "" {
			list = m.alert.Labels["rack_id"]
		}
		out = append(out, splitList(list)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// severity is the worst of the firing alerts.
func (one *incident) severity() string {
	worst := ""
	for _, m := range one.alerts {
		if s := m.alert.Labels["severity"]; worst == "" || severityRank(s) < severityRank(worst) {
			worst = s
		}
	}
	return worst
}

// changes says what is different from the last message, as far as it matters to
// who read it: a worse severity, more racks, twice as many alerts.
func (one *incident) changes() []string {
	var out []string
	if s := one.severity(); severityRank(s) < severityRank(one.told.severity) {
		out = append(out, fmt.Sprintf("severity was %s, is %s", cmp.Or(one.told.severity, "unknown"), s))
	}
	var more []string
	for _, id := range one.racks() {
		if !slices.Contains(one.told.racks, id) {
			more = append(more, id)
		}
	}
	if len(more) > 0 {
		out = append(out, "more racks: "+strings.Join(more, ", "))
	}
	if n := len(one.alerts); n >= 2*one.told.alerts && n >= one.told.alerts+5 {
		out = append(out, fmt.Sprintf("%d alerts, were %d", n, one.told.alerts))
	}
	return out
}
