// SPDX-License-Identifier: Apache-2.0

// Package explain ranks the possible causes of what happened to a node, GPU,
// rack or behind an alert: it walks the site's graph upwards, reads the signals
// of each level, finds their onsets and scores every candidate. It is pure but
// for the Querier it asks; the same data gives the same report.
package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// DefaultWindow is how far back a question without a start looks.
	DefaultWindow = 15 * time.Minute
	// MaxWindow bounds a question.
	MaxWindow = 24 * time.Hour
	// NamedScore is the least score of a cause that is named: below it, even a
	// certain signal explains less than a third of what is seen.
	NamedScore = 0.3

	maxCandidates = 8   // shown
	maxListed     = 12  // entities or alerts in one list
	maxSteps      = 240 // of a range query before the step grows
)

// Request is one question. Exactly one of Node, GPU, Rack, Alert and Job is set.
type Request struct {
	Node, GPU, Rack, Alert string
	// Labels narrow an alert to those of its series that have them.
	Labels map[string]string
	Job    *Job
	// From and To bound what is to be explained. Causes are looked for some
	// time before From too.
	From, To time.Time
}

// XID is what the catalogue says of a code.
type XID struct {
	Name, Meaning, Severity string
	// Do is what to do, as sentences.
	Do []string
	// Benign codes come from the application or follow another code: they are
	// no cause of their own.
	Benign bool
}

// Deps is what an explanation is made from.
type Deps struct {
	Querier query.Querier
	Site    *site.Site
	Pack    *rules.Pack
	// XID looks a code up; nil: codes are shown without a meaning.
	XID func(code int) (XID, bool)
}

// ErrStore marks the errors of the store; all others are the question's.
var ErrStore = errors.New("explain: the store cannot be read")

// Explain answers one question. An error means that no answer was possible:
// an unknown entity, a bad window, a store that fails. That nothing explains
// what is seen is a report too; see Report.Named.
func Explain(ctx context.Context, d Deps, req Request) (*Report, error) {
	if d.Querier == nil || d.Site == nil || d.Pack == nil {
		return nil, errors.New("explain: querier, site and pack are needed")
	}
	w, err := newWindow(req)
	if err != nil {
		return nil, err
	}
	c := &casebook{Deps: d, window: w, graph: newGraph(d.Site), signals: d.Pack.Signals(), rules: d.Pack.Evidence()}
	if err := c.findFocus(ctx, req); err != nil {
		return nil, err
	}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	candidates := append(c.withXIDs(c.correlated()), c.plain()...)
	common := c.commonCauses()
	candidates = append(candidates, c.promoted(common, candidates)...)
	if req.Job != nil {
		req.Job.ofJob(candidates)
	}
	return c.report(req, candidates, common), nil
}

// window is the time of a question and of the data read for it.
type window struct {
	from, to time.Time // to be explained
	begin    time.Time // of the data
	step     time.Duration
}

// leadMargin is how long before the question data is read: twice the longest
// lead of a cause, where its score reaches 0.
const leadMargin = 20 * time.Minute

func newWindow(req Request) (window, error) {
	w := window{from: req.From, to: req.To, step: 15 * time.Second}
	if w.from.IsZero() {
		w.from = w.to.Add(-DefaultWindow)
	}
	span := w.to.Sub(w.from)
	if w.to.IsZero() || span <= 0 || span > MaxWindow {
		return w, fmt.Errorf("window from %s to %s: want more than 0 and at most %s", stamp(w.from), stamp(w.to), MaxWindow)
	}
	for (span+leadMargin)/w.step > maxSteps {
		w.step *= 2
	}
	// The last step falls on the end, so that the newest samples count.
	w.begin = w.to.Add(-(span + leadMargin + w.step - 1).Truncate(w.step))
	return w, nil
}

// casebook is one explanation in the making.
type casebook struct {
	Deps
	window  window
	graph   *graph
	signals map[string]rules.Signal
	rules   []rules.Evidence

	focus   []Entity
	data    map[string]map[Entity]*track // by signal or fact
	sorted  map[string][]Entity          // of data, once all is read
	alerts  []FiredAlert
	queries []string
}

// findFocus resolves the question to entities.
func (c *casebook) findFocus(ctx context.Context, req Request) error {
	given := 0
	for _, s := range []string{req.Node, req.GPU, req.Rack, req.Alert} {
		if s != "" {
			given++
		}
	}
	if req.Job != nil {
		given++
	}
	if given != 1 {
		return errors.New("give one of node, gpu, rack, alert and job")
	}
	switch {
	case req.Job != nil:
		return c.focusJob(ctx, req.Job)
	case req.Node != "":
		if _, ok := c.Site.Node(req.Node); !ok {
			return fmt.Errorf("site %s has no node %q", c.Site.ID, req.Node)
		}
		c.focus = []Entity{{"node", req.Node}}
	case req.Rack != "":
		if _, ok := c.Site.Rack(req.Rack); !ok {
			return fmt.Errorf("site %s has no rack %q", c.Site.ID, req.Rack)
		}
		c.focus = []Entity{{"rack", req.Rack}}
	case req.GPU != "":
		return c.focusGPU(ctx, req.GPU)
	default:
		return c.focusAlert(ctx, req.Alert, req.Labels)
	}
	return nil
}

func (c *casebook) focusGPU(ctx context.Context, uuid string) error {
	list, err := c.ranged(ctx, fmt.Sprintf("max by (UUID, gpu, node, rack_id) (rackpulse_gpu_up{UUID=%q})", uuid))
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("no series of GPU %s between %s and %s", uuid, stamp(c.window.begin), stamp(c.window.to))
	}
	c.graph.learn(list[len(list)-1].Labels)
	c.focus = []Entity{{"gpu", uuid}}
	return nil
}

func (c *casebook) focusAlert(ctx context.Context, name string, labels map[string]string) error {
	where := ""
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		where += fmt.Sprintf(",%s=%q", k, labels[k])
	}
	list, err := c.ranged(ctx, fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"%s}`, name, where))
	if err != nil {
		return err
	}
	for _, s := range list {
		c.graph.learn(s.Labels)
		e, ok := entityOf(s.Labels)
		if ok && s.Points[len(s.Points)-1].At.Before(c.window.from) {
			continue
		}
		if ok && !slices.Contains(c.focus, e) && len(c.focus) < maxListed {
			c.focus = append(c.focus, e)
		}
	}
	if len(c.focus) == 0 {
		return fmt.Errorf("alert %s did not fire for any entity between %s and %s", name, stamp(c.window.from), stamp(c.window.to))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
