// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// KindSite is the kind of the ledger's events about a changed site file.
	KindSite = "site"
	// actorReload is who changes the site: whoever edited the file.
	actorReload = "reload"
	// maxSiteEvents bounds the events of one reload.
	maxSiteEvents = 1000
	// noteTimeout bounds the writing of the site's changes.
	noteTimeout = 10 * time.Second
)

// Deps are what a Registry needs of its surroundings. Site must be set.
type Deps struct {
	// Logger may be nil.
	Logger log.Logger
	// Site is the site to start with; ApplySite replaces it.
	Site *site.Site
	// Querier reads the values of the view; nil: the view has leases only.
	Querier query.Querier
	// Explain answers a question about causes; nil: that is not offered. Its
	// errors are the question's, but for those that wrap ErrStore.
	Explain func(context.Context, Question) (Explanation, error)
	// Notify delivers a message about an incident, at once or later, and calls
	// told once, with whether anybody took it; nil: nobody is told. Explained names
	// the alerts that a correlation explains, by its id.
	Notify    func(d Digest, told func(bool))
	Explained map[string][]string
	// Gatherer is what GET /metrics shows; it should include the Registry
	// itself, which is a prometheus.Collector. Nil: the Registry alone.
	Gatherer prometheus.Gatherer
	// Reload is called by POST /-/reload; nil: that is not enabled.
	Reload func(context.Context) error
}

// Registry is the site, the leases and their ledger. It is a
// prometheus.Collector of the lease metrics and of the site's edges.
type Registry struct {
	cfg   Config
	deps  Deps
	site  atomic.Pointer[site.Site]
	store ledger.Store
	// leader is the other registry that leads; nil: there is only this one.
	leader    func() (ledger.Leader, bool)
	lease     *lease.Server
	guard     *guard
	known     *addressBook
	alerts    alertBook
	act       func(context.Context) error
	ended     atomic.Bool
	views     viewCache
	edges     edgeCache
	explainer *explainer
	incidents *incidentBook
	// lastAlertmanager is the address that the last webhook named, a string.
	lastAlertmanager atomic.Value
	// explainAgain is from when messages are explained; of keepIncidents alone.
	explainAgain time.Time
}

// New checks cfg and opens the ledger; Run starts the rest. Close must be called
// if Run is not.
func New(cfg Config, deps Deps) (*Registry, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.check(keyPath); err != nil {
		return nil, err
	}
	if deps.Site == nil {
		return nil, errors.New("registry: no site")
	}
	if err := cfg.CheckSite(deps.Site); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	r := &Registry{act: untilDone, cfg: cfg, deps: deps, views: newViewCache(), known: newAddressBook(), explainer: newExplainer()}
	r.site.Store(deps.Site)
	r.incidents = newIncidentBook(r.Site, deps.Explained)
	var err error
	if r.guard, err = newGuard(&r.cfg); err != nil {
		return nil, err
	}
	if err := r.openStore(); err != nil {
		return nil, err
	}
	leaseDeps := lease.Deps{
		Site: r.site.Load, Store: r.store, Logger: deps.Logger, Identity: r.identity,
		Authorize: r.guard.authorizeBeat, Credentials: r.guard.credentials(), Lead: r.restoreAddresses,
	}
	if r.leader != nil {
		leaseDeps.Leader = func() string {
			if l, ok := r.leader(); ok {
				return l.Beats
			}
			return ""
		}
	}
	r.lease, err = lease.NewServer(cfg.Lease, leaseDeps)
	if err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	return r, nil
}

// Run takes beats on ln until ctx ends or the leadership is lost. It is one
// actor: what acts stops first, then the book of addresses is written, then the
// leases stop, then the ledger is closed. It closes ln; a Registry runs once.
func (r *Registry) Run(ctx context.Context, ln net.Listener) error {
	if err := r.cfg.checkExposed(ln.Addr().String(), len(r.guard.tokens.Load().nodes) > 0); err != nil && ln.Addr().Network() == "tcp" {
		return errors.Join(err, ln.Close(), r.Close())
	}
	keepCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the leases have stopped
	defer stop()
	var kept sync.WaitGroup
	kept.Go(func() { r.keepAddresses(keepCtx) })
	kept.Go(func() { r.watchCabling(keepCtx) })
	kept.Go(func() { r.keepIncidents(keepCtx) })
	err := r.runLeases(ctx, ln)
	r.ended.Store(true)
	stop()
	kept.Wait()
	return errors.Join(err, r.Close())
}

// Act gives the registry what carries out its outbox, before Run. It is started
// and ended by Run, and ends before the leases do.
func (r *Registry) Act(run func(context.Context) error) { r.act = run }

// untilDone acts on nothing.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// runLeases runs the leases and, within their time, what acts on nodes.
func (r *Registry) runLeases(ctx context.Context, ln net.Listener) error {
	actCtx, stopActing := context.WithCancel(ctx)
	defer stopActing()
	leaseCtx, stopLeases := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLeases()
	acted := make(chan error, 1)
	go func() {
		acted <- r.act(actCtx)
		r.noteAddresses() // a last time
		stopLeases()
	}()
	err := r.lease.Run(leaseCtx, ln)
	stopActing()
	return errors.Join(err, <-acted)
}

// Intents returns the actions asked for and not done, oldest first.
func (r *Registry) Intents() []ledger.Intent { return r.lease.Intents() }

// Permit says what may be done about an intent now; see lease.Server.Permit.
func (r *Registry) Permit(in ledger.Intent, w ledger.Witness) ledger.Verdict {
	return r.lease.Permit(in, w)
}

// Rehearse says what Permit would in mode hard; see lease.Server.Rehearse.
func (r *Registry) Rehearse(in ledger.Intent, w ledger.Witness) (ledger.Verdict, string) {
	return r.lease.Rehearse(in, w)
}

// Report records what was done about an intent.
func (r *Registry) Report(ctx context.Context, in ledger.Intent, e ledger.Event) error {
	return r.lease.Report(ctx, in, e)
}

// Maintain puts a node into maintenance for a scheduler's window. One that an
// operator holds, or that left, stays as it is.
func (r *Registry) Maintain(ctx context.Context, node string, d time.Duration, reason, window string) error {
	if by := r.heldBy(node); by != "" && by != windowActor(window) {
		return fmt.Errorf("node %q is held by %s", node, by)
	}
	return r.lease.Maintenance(ctx, node, d, reason, windowActor(window))
}

// EndMaintenance ends a maintenance that was declared for a scheduler's window.
func (r *Registry) EndMaintenance(ctx context.Context, node, reason, window string) error {
	if by := r.heldBy(node); by != windowActor(window) {
		return fmt.Errorf("node %q is not held for window %s", node, window)
	}
	return r.lease.Resume(ctx, node, reason, windowActor(window))
}

// windowActor is who declares the maintenance of a window.
func windowActor(window string) string { return "window " + window }

// heldBy is the operator, or window, that holds a node; empty: nobody.
func (r *Registry) heldBy(node string) string {
	for _, st := range r.lease.Nodes() {
		if st.Node == node {
			return st.HeldBy
		}
	}
	return ""
}

// Close gives the ledger up. Run does so itself.
func (r *Registry) Close() error { return r.store.Close() }

// Ready says whether this registry leads and has restored the leases.
func (r *Registry) Ready() bool { return r.lease.Leads() && !r.ended.Load() }

// Site returns the site in force.
func (r *Registry) Site() *site.Site { return r.site.Load() }

// ApplySite puts a reloaded site in force: the leases follow, agents learn their
// new labels with the next reply, and each change becomes an event of the
// ledger. The caller has loaded it, so it is valid as such; a site of another id
// is refused, for it would rename every series.
func (r *Registry) ApplySite(next *site.Site) error {
	if err := r.checkSite(next); err != nil {
		return err
	}
	old := r.site.Load()
	changes := site.Diff(old, next)
	r.site.Store(next)
	r.views.forget()
	level.Info(r.deps.Logger).Log("msg", "site in force", "site", next.ID, "changes", len(changes))
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := r.lease.Note(ctx, siteEvents(changes, time.Now())); err != nil {
		// The site is in force all the same; the events wait.
		level.Error(r.deps.Logger).Log("msg", "changes of the site are not in the ledger yet", "err", err)
	}
	return nil
}

// checkSite refuses a site that cannot take the place of the present one.
func (r *Registry) checkSite(next *site.Site) error {
	if next == nil {
		return errors.New("registry: no site")
	}
	if id := r.site.Load().ID; next.ID != id {
		return fmt.Errorf("site id changed from %q to %q: that is another site, restart the registry for it", id, next.ID)
	}
	return r.cfg.CheckSite(next)
}

// siteEvents makes one event of each change, up to a bound.
func siteEvents(changes []site.Change, now time.Time) []ledger.Event {
	now = now.UTC().Round(0)
	more := len(changes) - maxSiteEvents
	if more > 0 {
		changes = changes[:maxSiteEvents]
	}
	events := make([]ledger.Event, 0, len(changes)+1)
	for _, c := range changes {
		e := ledger.Event{
			Time: now, Kind: KindSite, Reason: c.String(), Actor: actorReload, From: c.Old, To: c.New,
			Evidence: map[string]string{"kind": c.Entity.Kind, "id": c.Entity.ID, "action": c.Action},
		}
		if c.Field != "" {
			e.Evidence["field"] = c.Field
		}
		if c.Entity.Kind == site.KindNode {
			e.Node = c.Entity.ID
		}
		events = append(events, e)
	}
	if more > 0 {
		events = append(events, ledger.Event{Time: now, Kind: KindSite, Actor: actorReload, Reason: fmt.Sprintf("and %d more changes of the site file", more)})
	}
	return events
}

// Reload is ReloadAuth and ApplySite together: after an error neither the site
// nor the tokens and TLS files have changed.
func (r *Registry) Reload(next *site.Site) error {
	if err := r.checkSite(next); err != nil {
		return err
	}
	if err := r.ReloadAuth(); err != nil {
		return err
	}
	return r.ApplySite(next)
}

// ReloadAuth reads the tokens and the TLS files again. After an error those read
// before stay in force. Streams that are open stay open.
func (r *Registry) ReloadAuth() error { return r.guard.reload() }

// identity is what the site says of an agent: the labels of its node and of the
// devices it may poll.
func (r *Registry) identity(node string, devices []string) (map[string]string, map[string]map[string]string) {
	s := r.site.Load()
	var labels map[string]string
	if node != "" {
		labels = s.NodeLabels(node)
	}
	var of map[string]map[string]string
	for _, id := range devices {
		if d, ok := s.Device(id); ok {
			if of == nil {
				of = make(map[string]map[string]string, len(devices))
			}
			of[id] = d.Labels
		}
	}
	return labels, of
}
