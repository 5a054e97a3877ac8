// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rackpulse/rackpulse/alerting"
	"github.com/rackpulse/rackpulse/engine"
	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/testtool/hall"
)

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// bench is what all plays share.
type bench struct {
	*draw
	files  map[string][]byte
	pack   *rules.Pack
	xid    func(int) (explain.XID, bool)
	config string // of Alertmanager
}

// fired is one alert over a play.
type fired struct {
	labels, annotations map[string]string
	since, last         time.Duration // first and last evaluation at which it fired
	seen                time.Duration // first at which it fired unmuted; -1: never
}

// outcome is what was seen of a play.
type outcome struct {
	*play
	ours, plain    []*fired
	asked          []*explain.Report // by truth
	sent           []notification    // ours
	plainSent      []notification    // the plain thresholds, each alert by itself
	groupedSent    []notification    // the same, grouped by rack
	elapsed, rules time.Duration
}

var errLost = errors.New("scrape lost")

// world is a play under way.
type world struct {
	*bench
	play  *play
	hall  *sim.Hall
	view  *hall.View
	rand  *rand.Rand
	at    time.Duration // since the epoch
	store *engine.Engine
}

func (b *bench) run(ctx context.Context, p *play) (_ *outcome, err error) {
	began := time.Now()
	h, err := sim.New(sim.Spec{Site: b.site, Seed: p.seed, Epoch: epoch, Events: p.events})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	e, err := engine.New(engine.Config{RuleFiles: b.files})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	w := &world{bench: b, play: p, hall: h, view: hall.New(b.site), rand: stream(p.seed, "noise "+p.name), store: e}
	w.view.Maintenance = func(node string) bool {
		return slices.ContainsFunc(p.maintenance[node], func(i interval) bool { return i.has(w.at) })
	}
	w.view.Skew = func(node string) float64 { return p.skew[node] }
	w.view.Noise = func(what hall.Noise) float64 {
		return w.rand.NormFloat64() * [...]float64{hall.GPUKelvin: b.Noise.GPUKelvin, hall.InletKelvin: b.Noise.InletKelvin, hall.PDURatio: b.Noise.PDURatio}[what]
	}
	out := &outcome{play: p, asked: make([]*explain.Report, len(p.truths))}
	ours, err := newPager(b.config)
	if err != nil {
		return nil, err
	}
	plain, err := newPager(plainConfig)
	if err != nil {
		return nil, err
	}
	grouped, err := newPager(groupedConfig)
	if err != nil {
		return nil, err
	}

	active := map[string]*fired{}
	step := seconds(b.Time.Scrape)
	for w.at = step; w.at <= p.end; w.at += step {
		now := epoch.Add(w.at)
		if err := w.scrape(ctx, now, step); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", p, w.at, err)
		}
		t := time.Now()
		if err := e.EvalAt(ctx, now); err != nil {
			return nil, fmt.Errorf("%s at %s: %w", p, w.at, err)
		}
		out.rules += time.Since(t)
		if err := w.alerts(ctx, out, active, ours, plain, grouped); err != nil {
			return nil, err
		}
		if err := w.asks(ctx, out); err != nil {
			return nil, err
		}
	}
	out.sent, out.plainSent, out.groupedSent = ours.sent, plain.sent, grouped.sent
	out.elapsed = time.Since(began)
	return out, nil
}

// scrape advances the hall second by second and writes one round of all targets.
func (w *world) scrape(ctx context.Context, now time.Time, step time.Duration) error {
	var st *sim.State
	for t := now.Add(-step + time.Second); !t.After(now); t = t.Add(time.Second) {
		st = w.hall.At(t)
		w.view.Beat(st)
	}
	w.learn(st)
	lost := func() bool { return w.rand.Float64() < w.Noise.ScrapeLoss }
	registry, facility := hall.Page{}, hall.Page{}
	w.view.Registry(registry, st)
	w.view.Facility(facility, st)
	targets := []engine.Target{w.target("registry", registry, false), w.target("facility", facility, lost())}
	for i := range w.site.Nodes {
		n := &w.site.Nodes[i]
		page := hall.Page{}
		gone := lost() || !st.Nodes[n.ID].Up || n.Rack == w.play.unscraped && hall.Cut(st, n)
		if !gone {
			w.view.Node(page, n, st)
		}
		targets = append(targets, w.target(n.ID, page, gone),
			// What a fleet has beside us: node_exporter and SNMP, for the baselines.
			foreign("node", n.ID, n.Rack, w.site.ID, gone))
	}
	for _, d := range w.site.PDUs {
		targets = append(targets, foreign("snmp", d.ID, d.Rack, w.site.ID, !st.PDUs[d.ID].Manageable))
	}
	err := w.store.Ingest(ctx, now, targets)
	if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), errLost.Error(), ""), "samples refused") {
		return err
	}
	return ctx.Err()
}

func (w *world) target(instance string, page hall.Page, gone bool) engine.Target {
	return engine.Target{Instance: instance, Labels: map[string]string{"site": w.site.ID}, Gatherer: unless(gone, page)}
}

func foreign(job, instance, rack, site string, gone bool) engine.Target {
	return engine.Target{
		Instance: instance, Gatherer: unless(gone, hall.Page{}),
		Labels: map[string]string{"site": site, "job": job, "rack_id": rack},
	}
}

func unless(gone bool, page hall.Page) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		if gone {
			return nil, errLost
		}
		return page.Gather()
	})
}

// learn fills in the UUIDs of struck GPUs.
func (w *world) learn(st *sim.State) {
	for i := range w.play.truths {
		if t := &w.play.truths[i]; t.gpu >= 0 && t.entity.ID == "" {
			t.entity.ID = st.Nodes[t.node].GPUs[t.gpu].UUID
		}
	}
}

// alerts reads the firing alerts and gives them to the pagers.
func (w *world) alerts(ctx context.Context, out *outcome, active map[string]*fired, ours, plain, grouped *pager) error {
	list, err := w.store.Alerts(ctx)
	if err != nil {
		return err
	}
	var mine, theirs []*fired
	for _, a := range list {
		if a.State != "firing" || a.Labels["alertname"] == "Watchdog" {
			continue
		}
		k := key(a.Labels)
		f := active[k]
		if f == nil || w.at-f.last > 2*seconds(w.Time.Scrape) {
			f = &fired{labels: a.Labels, annotations: a.Annotations, since: w.at, seen: -1}
			active[k] = f
			if a.Labels["baseline"] != "" {
				out.plain = append(out.plain, f)
			} else {
				out.ours = append(out.ours, f)
			}
		}
		f.last = w.at
		if a.Labels["baseline"] != "" {
			theirs = append(theirs, f)
		} else {
			mine = append(mine, f)
		}
	}
	w.give(mine, ours)
	w.give(theirs, plain, grouped)
	return nil
}

// give hands firing alerts to pagers and notes those that the first does not mute.
func (w *world) give(list []*fired, pagers ...*pager) {
	slices.SortFunc(list, func(a, b *fired) int { return cmp.Compare(key(a.labels), key(b.labels)) })
	firing := make([]map[string]string, len(list))
	for i, f := range list {
		firing[i] = f.labels
	}
	for k, p := range pagers {
		muted := p.step(epoch.Add(w.at), firing)
		for i, f := range list {
			if k == 0 && !muted[i] && f.seen < 0 {
				f.seen = w.at
			}
		}
	}
}

// asks explain about each incident when its time has come.
func (w *world) asks(ctx context.Context, out *outcome) error {
	for i, t := range w.play.truths {
		if out.asked[i] != nil || w.at < t.onset+minutes(w.Time.Ask) {
			continue
		}
		req := t.ask
		req.To = epoch.Add(w.at)
		r, err := explain.Explain(ctx, explain.Deps{Querier: w.store, Site: w.site, Pack: w.pack, XID: w.xid}, req)
		if err != nil {
			return fmt.Errorf("%s: %w", w.play, err)
		}
		out.asked[i] = r
	}
	return nil
}

// ruleFiles are the shipped rules and those of the baselines.
func ruleFiles() (map[string][]byte, error) {
	files := map[string][]byte{"baseline.rules.yml": baselineFile}
	for _, name := range []string{"correlations.rules.yml", "coverage.rules.yml"} {
		data, err := fs.ReadFile(rules.Generated(), name)
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	return files, nil
}

// shippedConfig is the Alertmanager configuration that we ship.
func shippedConfig() (string, error) {
	data, err := fs.ReadFile(alerting.Files(), "alertmanager.yml")
	return string(data), err
}
