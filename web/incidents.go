// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

// Evidence is what speaks for and against the cause that an alert names, as
// sentences.
type Evidence struct {
	For, Against []string
	Missing      []string // what is not known
	Next         []string // what to do
}

const (
	// evidenceTimeout bounds how long a page waits for the evidence of all its
	// incidents.
	evidenceTimeout = 5 * time.Second
	// evidenceAge is how old evidence may be that is shown again: it costs about as
	// much as a dashboard, and the page asks every few seconds.
	evidenceAge = 30 * time.Second
	// maxEvidence is how many incidents of a page, the worst first, get evidence.
	maxEvidence = 5
)

// incident is a cause that fires, with what hangs on it.
type incident struct {
	Alert      registry.AlertView
	Racks      []string
	Affected   string
	MutedNames string
	Muts       []registry.AlertView
	Evidence   *Evidence
	NoEvidence string

	extent extent
}

// extent is what an incident reaches: racks, nodes and GPUs by name.
type extent struct{ racks, nodes, gpus map[string]bool }

func newExtent() extent {
	return extent{racks: map[string]bool{}, nodes: map[string]bool{}, gpus: map[string]bool{}}
}

func (e extent) add(o extent) {
	maps.Copy(e.racks, o.racks)
	maps.Copy(e.nodes, o.nodes)
	maps.Copy(e.gpus, o.gpus)
}

// String is like "2 racks, 8 nodes, 64 GPUs".
func (e extent) String() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{len(e.racks), "rack"}, {len(e.nodes), "node"}, {len(e.gpus), "GPU"}} {
		if part.n == 1 {
			parts = append(parts, "1 "+part.what)
		} else if part.n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", part.n, part.what))
		}
	}
	if len(parts) == 0 {
		return "nothing of the site file"
	}
	return strings.Join(parts, ", ")
}

// incidentPage is what the template of incidents shows.
type incidentPage struct {
	page
	Incidents []incident
	Affected  string
	Muted     int
}

// incidents serves the causes that fire.
func (h *handler) incidents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	defer cancel()
	p := incidentPage{page: page{Title: h.cfg.Title, Links: h.cfg.Links, Explain: h.cfg.Explain}}
	code := http.StatusOK
	if view, err := h.cfg.View(ctx); err != nil {
		code = http.StatusServiceUnavailable
		p.Failure = fmt.Sprintf("The state of the hall cannot be read: %v", err)
	} else {
		p.page.fill(view, h.heat)
		p.fill(view)
		h.addEvidence(ctx, p.Incidents)
	}
	h.write(w, code, "incidents.html.tmpl", &p)
}

// fill makes an incident of each cause, and counts what they reach and mute.
func (p *incidentPage) fill(v *registry.View) {
	all, muted := newExtent(), map[int]bool{}
	for _, cause := range p.Causes {
		in := incident{Alert: cause, Racks: racksOf(cause), extent: reach(v, cause)}
		in.Affected = in.extent.String()
		for i, a := range p.Symptoms {
			if explains(cause, a) {
				in.Muts = append(in.Muts, a)
				muted[i] = true
			}
		}
		in.MutedNames = tally(in.Muts)
		all.add(in.extent)
		p.Incidents = append(p.Incidents, in)
	}
	p.Affected, p.Muted = "nothing", len(muted)
	if len(p.Incidents) > 0 {
		p.Affected = all.String()
	}
}

// reach is what of the hall an alert is about: one GPU, one node, or all of its
// racks.
func reach(v *registry.View, a registry.AlertView) extent {
	out := newExtent()
	take := func(n registry.NodeView) {
		if only := a.Labels["node"]; only != "" && only != n.ID {
			return
		}
		out.nodes[n.ID] = true
		for _, g := range n.GPUs {
			if only := a.Labels["UUID"]; only == "" || only == g.UUID {
				out.gpus[n.ID+"/"+g.UUID+"/"+g.Index] = true
			}
		}
	}
	of := racksOf(a)
	for _, r := range v.Racks {
		if slices.Contains(of, r.ID) {
			out.racks[r.ID] = true
			for _, n := range r.Nodes {
				take(n)
			}
		}
	}
	for _, n := range v.Rackless {
		if a.Labels["node"] == n.ID {
			take(n)
		}
	}
	return out
}

// evidenceBook remembers evidence for a short while.
type evidenceBook struct {
	mu sync.Mutex
	of map[string]noted
}

type noted struct {
	evidence *Evidence
	at       time.Time
}

// addEvidence asks for the evidence of the worst incidents, all at once.
func (h *handler) addEvidence(ctx context.Context, list []incident) {
	if h.cfg.Evidence == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range list[:min(len(list), maxEvidence)] {
		in := &list[i]
		wg.Go(func() {
			var err error
			if in.Evidence, err = h.evidence.get(ctx, h.cfg.Evidence, &in.Alert); err != nil {
				in.NoEvidence = err.Error()
			}
		})
	}
	wg.Wait()
}

// get returns what is remembered of an alert, or asks. Only answers are
// remembered: a failure may be over at the next page.
func (b *evidenceBook) get(ctx context.Context, ask func(context.Context, registry.AlertView) (*Evidence, error), a *registry.AlertView) (*Evidence, error) {
	key := fmt.Sprintf("%s %q", a.Name, a.Labels)
	b.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(b.of, func(_ string, n noted) bool { return now.Sub(n.at) >= evidenceAge })
	known, ok := b.of[key]
	b.mu.Unlock()
	if ok {
		return known.evidence, nil
	}
	got, err := ask(ctx, *a)
	if err == nil {
		b.mu.Lock()
		if b.of == nil {
			b.of = map[string]noted{}
		}
		b.of[key] = noted{evidence: got, at: now}
		b.mu.Unlock()
	}
	return got, err
}
