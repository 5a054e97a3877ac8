// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/ledger"
)

// KindNotification is the kind of the ledger's events about messages.
const KindNotification = "notification"

// phaseFolded ends an incident that another one explains; nothing is sent.
const phaseFolded = "folded"

const (
	// notifyTick is how often the incidents are looked at.
	notifyTick = time.Second
	// notifyExplain bounds the explanation of a message: people wait for it.
	notifyExplain = 8 * time.Second
	// notifyPause is how long no explanation is tried after one that took too
	// long, so that a store that hangs does not hold the messages up.
	notifyPause = time.Minute
	// notifyHistory is how far back the ledger is read after a restart.
	notifyHistory = 48 * time.Hour
	// maxLabels bounds the labels of an incident in the ledger, bytes.
	maxLabels = 4 << 10
)

// keepIncidents tells of incidents until ctx ends. Only the leader has any.
func (r *Registry) keepIncidents(ctx context.Context) {
	if r.deps.Notify == nil {
		return
	}
	tick := time.NewTicker(notifyTick)
	defer tick.Stop()
	restored := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !r.Ready() {
			continue
		}
		if !restored {
			if err := r.restoreIncidents(ctx, time.Now()); err != nil {
				level.Warn(r.deps.Logger).Log("msg", "incidents told before are not known yet", "err", err)
				continue
			}
			restored = true
		}
		r.tellDue(ctx, time.Now())
	}
}

// tellDue hands the due messages to those who deliver them.
func (r *Registry) tellDue(ctx context.Context, now time.Time) {
	due, folded := r.incidents.due(now, r.cfg.ExternalURL, r.cfg.GrafanaURL, r.alertmanager())
	for _, d := range folded {
		r.noteDigest(d)
	}
	for _, d := range due {
		r.enrich(ctx, &d)
		level.Info(r.deps.Logger).Log("msg", "incident", "phase", d.Phase, "incident", d.key, "alerts", d.Alerts, "muted", d.Muted, "title", d.Title())
		r.deps.Notify(d, func(told bool) {
			if told {
				r.noteDigest(d)
			}
		})
	}
}

// enrich adds what the store knows: symptoms that Alertmanager mutes, which it
// tells nobody, and the explanation.
func (r *Registry) enrich(ctx context.Context, d *Digest) {
	if r.deps.Querier == nil || time.Now().Before(r.explainAgain) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyExplain)
	defer cancel()
	if alerts, err := r.deps.Querier.Alerts(ctx); err == nil {
		n := 0
		for i := range alerts {
			if a := &alerts[i]; a.State == "firing" && a.Labels["role"] != roleInhibitor && r.incidents.mutes(d.key, a.Labels) {
				n++
			}
		}
		d.Muted = max(d.Muted, n)
	}
	if d.Phase == PhaseClear || r.deps.Explain == nil || d.question.Alert == "" {
		return
	}
	q := d.question
	q.To = d.At.Truncate(explainGrain).Add(explainGrain)
	got, err := r.Explain(ctx, q)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			r.explainAgain = time.Now().Add(notifyPause)
		}
		level.Warn(r.deps.Logger).Log("msg", "incident not explained", "incident", d.key, "err", err)
		return
	}
	var line strings.Builder
	if err := got.Brief(&line); err == nil {
		d.Explanation = strings.TrimSpace(line.String())
	}
	d.Because, d.Next = got.Because(), got.Next()
}

// alertmanager is the address under which the last message said that its sender
// is reached; empty: none came yet.
func (r *Registry) alertmanager() string {
	if s, ok := r.lastAlertmanager.Load().(string); ok {
		return s
	}
	return ""
}

// noteDigest writes that a message was delivered, which is what a restart goes by.
func (r *Registry) noteDigest(d Digest) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	racks := strings.Join(d.Racks[:min(len(d.Racks), 100)], ",")
	labels, err := json.Marshal(d.labels)
	if err != nil || len(labels) > maxLabels {
		labels = nil // it is known by its key alone
	}
	err = r.lease.Note(ctx, []ledger.Event{{
		Time: d.At.UTC().Round(0), Kind: KindNotification, Reason: d.Title(), Actor: "registry",
		Evidence: map[string]string{"incident": d.key, "id": d.ID, "phase": d.Phase, "severity": d.Severity, "racks": racks,
			"alerts": strconv.Itoa(d.Alerts), "since": d.Since.UTC().Format(time.RFC3339),
			"labels": string(labels)},
	}})
	if err != nil {
		level.Error(r.deps.Logger).Log("msg", "message is not in the ledger; a restart may send it again", "incident", d.key, "err", err)
	}
}

// restoreIncidents reads which incidents were told before and are not over.
func (r *Registry) restoreIncidents(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	events, err := r.store.Events(ctx, ledger.Query{Since: now.Add(-notifyHistory), Limit: maxEvents})
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, e := range events { // newest first
		key := e.Evidence["incident"]
		if e.Kind != KindNotification || key == "" || done[key] {
			continue
		}
		done[key] = true
		if phase := e.Evidence["phase"]; phase != PhaseClear && phase != phaseFolded {
			r.incidents.restore(key, e, now)
		}
	}
	return nil
}

// restore puts an incident back that was told. That its alerts still fire is
// believed until Alertmanager repeats or resolves them, or is silent for long.
func (b *incidentBook) restore(key string, e ledger.Event, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	count, _ := strconv.Atoi(e.Evidence["alerts"])
	told := &toldState{at: e.Time, id: e.Evidence["id"], severity: e.Evidence["severity"], racks: splitList(e.Evidence["racks"]), alerts: count}
	if one := b.open[key]; one != nil {
		if one.told == nil { // its alerts came first
			one.told, one.due = told, time.Time{}
		}
		return
	}
	since, err := time.Parse(time.RFC3339, e.Evidence["since"])
	if err != nil {
		since = e.Time
	}
	_, summary, _ := strings.Cut(e.Reason, "] ")
	first := webhookAlert{Annotations: map[string]string{"summary": summary}}
	if json.Unmarshal([]byte(e.Evidence["labels"]), &first.Labels) != nil || first.Labels == nil {
		first.Labels = map[string]string{"severity": told.severity}
	}
	_, cause, entity := b.place(first.Labels)
	b.open[key] = &incident{
		key: key, cause: cause, entity: entity, first: first, since: since, told: told, muted: map[string]time.Time{},
		alerts: map[string]*memberAlert{"": {alert: first, seen: now}},
	}
	b.members++
}

// mutes says that an incident, if it is still known, explains an alert.
func (b *incidentBook) mutes(key string, labels map[string]string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.open[key]
	if one == nil {
		return false
	}
	own := maps.Clone(labels)
	own["site"] = one.first.Labels["site"] // often a label that Prometheus only adds when it sends
	return b.covers(one, own)
}

// due returns the messages that are due, and the ends of incidents that others
// explain, which are only noted.
func (b *incidentBook) due(now time.Time, base, grafana, alertmanager string) (due, folded []Digest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	folded, b.folded = b.folded, nil
	for _, key := range slices.Sorted(maps.Keys(b.open)) {
		one := b.open[key]
		for print, m := range one.alerts {
			if now.Sub(m.seen) > alertKeep {
				b.drop(key, print, now)
			}
		}
		if one.due.IsZero() || one.due.After(now) {
			continue
		}
		one.due = time.Time{}
		d := one.digest(now)
		switch {
		case len(one.alerts) == 0 && one.told != nil:
			d.Phase, d.Severity, d.Racks, d.Alerts = PhaseClear, one.told.severity, one.told.racks, one.told.alerts
			delete(b.open, key)
		case len(one.alerts) == 0:
			delete(b.open, key)
			continue
		case one.told == nil:
			d.Phase = PhaseOpen
		default:
			if d.Changed = one.changes(); len(d.Changed) == 0 {
				continue
			}
			d.Phase = PhaseChange
		}
		d.Links = one.links(base, grafana, alertmanager)
		if d.Phase != PhaseClear {
			one.told = &toldState{at: now, id: d.ID, severity: d.Severity, racks: d.Racks, alerts: d.Alerts}
		}
		due = append(due, d)
	}
	return due, folded
}

// digest is what an incident says of itself.
func (one *incident) digest(now time.Time) Digest {
	l, a := one.first.Labels, one.first.Annotations
	d := Digest{
		Version: 1, Site: l["site"], Summary: a["summary"], Description: a["description"], Cause: a["cause"], Correlation: l["correlation"],
		Severity: one.severity(), Team: l["team"], Alerts: len(one.alerts), Muted: len(one.muted), Racks: one.racks(), Since: one.since, At: now, key: one.key, labels: l,
	}
	if d.Summary == "" {
		d.Summary = l["alertname"]
	}
	if n := len(one.alerts); n > 1 && !one.cause {
		d.Summary += fmt.Sprintf(" (and %d more %s)", n-1, l["alertname"])
	}
	if one.told != nil {
		d.ID = one.told.id
	} else {
		sum := fnv.New64a()
		fmt.Fprintf(sum, "%s %d", one.key, one.since.UnixNano())
		d.ID = strconv.FormatUint(sum.Sum64(), 16)
	}
	d.question = Question{Alert: l["alertname"], Labels: map[string]string{}}
	for _, name := range []string{"cooling_unit", "feed", "pdu_id", "rack_id", "node"} {
		if v := l[name]; v != "" {
			d.question.Labels[name] = v
		}
	}
	return d
}
