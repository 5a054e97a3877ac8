// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"io/fs"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/engine"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool/hall"
)

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// onsetAfter is when the fault of every scenario sets in.
const onsetAfter = 6 * time.Minute

// played is a scenario that was played into an engine in virtual time.
type played struct {
	site   *site.Site
	engine *engine.Engine
	pack   *rules.Pack
	end    time.Time
}

// play runs a scenario until minutes after its onset; spoil may take series away.
func play(t *testing.T, scenario string, after time.Duration, spoil func(hall.Page, time.Duration)) *played {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"correlations.rules.yml", "coverage.rules.yml"} {
		if files[name], err = fs.ReadFile(rules.Generated(), name); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.New(engine.Config{RuleFiles: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	world, err := sim.New(sim.Spec{Site: s, Scenario: scenario, Seed: 1, Epoch: epoch, Onset: onsetAfter})
	if err != nil {
		t.Fatal(err)
	}
	h := &played{site: s, engine: e, pack: pack, end: epoch.Add(onsetAfter + after)}
	view := hall.New(s)
	for now := epoch; !now.After(h.end); now = now.Add(15 * time.Second) {
		p, st := hall.Page{}, world.At(now)
		view.Beat(st)
		view.Registry(p, st)
		view.Facility(p, st)
		for i := range s.Nodes {
			if n := &s.Nodes[i]; st.Nodes[n.ID].Up {
				view.Node(p, n, st)
			}
		}
		if spoil != nil {
			spoil(p, now.Sub(epoch)-onsetAfter)
		}
		target := engine.Target{Instance: "hall", Labels: map[string]string{"site": s.ID}, Gatherer: p}
		if err := e.Ingest(t.Context(), now, []engine.Target{target}); err != nil {
			t.Fatal(err)
		}
		if err := e.EvalAt(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// ask explains over the played hall, with a catalogue of one code.
func (h *played) ask(t *testing.T, req Request) *Report {
	t.Helper()
	if req.To.IsZero() {
		req.To = h.end
	}
	r, err := Explain(t.Context(), Deps{Querier: h.engine, Site: h.site, Pack: h.pack, XID: func(code int) (XID, bool) {
		return XID{Name: "GPU has fallen off the bus", Severity: "critical", Do: []string{"Reset the GPU."}}, code == 79
	}}, req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
