// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/lease"
)

// BreachAnnotation is what makes a firing alert with a label node change that
// node's state: the name of the breach, as in the beats.
const BreachAnnotation = "rackpulse_breach"

const (
	// alertLife is how long a firing alert counts without being told again:
	// Alertmanager says nothing when it is silenced. It must be told more often,
	// see docs/api.md.
	alertLife = 15 * time.Minute
	// maxAlerts bounds the alerts of one call, and those remembered of a node.
	maxAlerts = 1000
)

// webhookMessage is what Alertmanager's webhook sends (version 4); fields that
// are not needed are left out.
type webhookMessage struct {
	Version     string         `json:"version"`
	ExternalURL string         `json:"externalURL"`
	Alerts      []webhookAlert `json:"alerts"`
}

type webhookAlert struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Fingerprint string            `json:"fingerprint"`
	StartsAt    time.Time         `json:"startsAt"`
}

// alertBook remembers the firing alerts of each node.
type alertBook struct {
	mu    sync.Mutex
	nodes map[string]map[string]heldAlert // by node and fingerprint
}

type heldAlert struct {
	breach string
	at     time.Time
}

// take puts an alert in, or takes it out, and returns the node's breaches.
func (b *alertBook) take(a *webhookAlert, now time.Time) (breaches []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	node := a.Labels["node"]
	held := b.nodes[node]
	for key, h := range held {
		if now.Sub(h.at) > alertLife {
			delete(held, key)
		}
	}
	key := cmp.Or(a.Fingerprint, a.Labels["alertname"])
	switch {
	case a.Status != "firing":
		delete(held, key)
	case held == nil:
		held = map[string]heldAlert{}
		fallthrough
	default:
		if len(held) >= maxAlerts {
			return nil, fmt.Errorf("node %q has %d alerts, no more are taken", node, len(held))
		}
		held[key] = heldAlert{breach: a.Annotations[BreachAnnotation] + " alert " + a.Labels["alertname"], at: now}
	}
	if b.nodes == nil {
		b.nodes = map[string]map[string]heldAlert{}
	}
	b.nodes[node] = held
	if len(held) == 0 {
		delete(b.nodes, node)
	}
	for _, h := range held {
		breaches = append(breaches, h.breach)
	}
	slices.Sort(breaches)
	return slices.Compact(breaches), nil
}

// serveAlerts takes Alertmanager's webhook. Alerts without a label node or the
// annotation are none of ours; one of a node that is not known is said so, and
// loses nothing else.
func (r *Registry) serveAlerts(w http.ResponseWriter, req *http.Request) {
	actor, ok := r.guard.mayOperate(w, req)
	if !ok {
		return
	}
	var m webhookMessage
	if !r.readForeign(w, req, &m) {
		return
	}
	switch {
	case m.Version != "4":
		writeError(w, http.StatusBadRequest, fmt.Errorf("version %q of Alertmanager's webhook, 4 is known", m.Version))
		return
	case len(m.Alerts) > maxAlerts:
		writeError(w, http.StatusBadRequest, fmt.Errorf("%d alerts, at most %d are taken", len(m.Alerts), maxAlerts))
		return
	case !r.Ready():
		writeError(w, http.StatusServiceUnavailable, r.notReady()) // Alertmanager asks again
		return
	}
	if err := r.takeIncidents(&m, time.Now()); err != nil {
		level.Warn(r.deps.Logger).Log("msg", "alerts are in no incident", "actor", actor, "err", err)
	}
	ctx, cancel := context.WithTimeout(req.Context(), operateTimeout)
	defer cancel()
	taken, errs := 0, []error(nil)
	for i := range m.Alerts {
		a := &m.Alerts[i]
		if a.Labels["node"] == "" || a.Annotations[BreachAnnotation] == "" {
			continue
		}
		if err := r.takeAlert(ctx, a); err != nil {
			errs = append(errs, fmt.Errorf("alert %s: %w", a.Labels["alertname"], err))
			continue
		}
		taken++
	}
	if err := errors.Join(errs...); err != nil {
		level.Warn(r.deps.Logger).Log("msg", "alerts refused", "actor", actor, "err", err)
		if errors.Is(err, context.DeadlineExceeded) {
			writeError(w, http.StatusGatewayTimeout, err)
			return
		}
	}
	writeJSON(w, http.StatusOK, map[string]int{"taken": taken, "refused": len(errs), "ignored": len(m.Alerts) - taken - len(errs)})
}

func (r *Registry) takeAlert(ctx context.Context, a *webhookAlert) error {
	if err := checkText("annotation "+BreachAnnotation, a.Annotations[BreachAnnotation]); err != nil {
		return err
	}
	node := a.Labels["node"]
	if _, ok := r.site.Load().Node(node); !ok {
		return fmt.Errorf("node %q: %w", node, lease.ErrUnknownNode)
	}
	breaches, err := r.alerts.take(a, time.Now())
	if err != nil {
		return err
	}
	return r.lease.Alert(ctx, node, breaches, alertLife)
}

// takeIncidents files the alerts of a message by incident, where there is
// somebody to tell. Those that fire come first: what a cause explains is known
// before its symptoms end.
func (r *Registry) takeIncidents(m *webhookMessage, now time.Time) error {
	if r.deps.Notify == nil {
		return nil
	}
	r.lastAlertmanager.Store(m.ExternalURL)
	var last error
	for _, firing := range []bool{true, false} {
		for i := range m.Alerts {
			if a := &m.Alerts[i]; (a.Status == "firing") == firing {
				last = cmp.Or(r.incidents.take(a, now), last)
			}
		}
	}
	return last
}
