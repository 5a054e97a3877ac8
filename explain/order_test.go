// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// since is a store in which each named signal holds at one entity of each level,
// all of one line of dependence, from its time on; coverage holds all the time.
type since struct {
	signals map[string]rules.Signal // by record
	from    map[string]time.Time    // by signal
}

var line = map[string][]string{
	"site": {}, "rack": {"rack_id", "r01"}, "node": {"rack_id", "r01", "node", "gpu001"},
	"gpu":          {"rack_id", "r01", "node", "gpu001", "gpu", "0", "UUID", "GPU-1"},
	"pdu":          {"rack_id", "r01", "pdu_id", "r01-a", "feed", "feed-a"},
	"device":       {"rack_id", "r01", "device", "r01-a", "driver", "snmp"},
	"cooling_unit": {"cooling_unit", "crah1"}, "feed": {"feed", "feed-a"},
}

func (h since) Range(_ context.Context, expr string, from, to time.Time, step time.Duration) ([]query.Series, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(expr, `{__name__=~"`), `"`)
	var out []query.Series
	for _, record := range strings.Split(text, "|") {
		s := h.signals[record]
		start, held := h.from[s.Name]
		pairs, known := line[s.Level]
		if !held || !known {
			continue
		}
		one := query.Series{Labels: map[string]string{"__name__": record, "site": "example"}}
		for i := 0; i < len(pairs); i += 2 {
			one.Labels[pairs[i]] = pairs[i+1]
		}
		for at := from; !at.After(to); at = at.Add(step) {
			if !at.Before(start) {
				one.Points = append(one.Points, query.Point{At: at, Value: 1})
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func (since) Instant(context.Context, string, time.Time) ([]query.Sample, error) { return nil, nil }
func (since) Alerts(context.Context) ([]query.Alert, error)                      { return nil, nil }

// asked is the strength of one correlation at rack r01 and its first cause's timing.
func (h since) asked(t *testing.T, pack *rules.Pack, id string) (strength float64, why string) {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Explain(t.Context(), Deps{Querier: h, Site: s, Pack: pack}, Request{Rack: "r01", To: epoch})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Candidates {
		if c.Correlation == id {
			return c.Factors[0].Value, c.Factors[0].Why
		}
	}
	t.Fatalf("no candidate of %s among %+v", id, r.Candidates)
	return 0, ""
}

// TestCauseAfterSymptom goes through every required cause of the shipped pack: one
// that begins with its symptom counts whole, one that begins later than the lag
// allows a fifth.
func TestCauseAfterSymptom(t *testing.T) {
	pack, err := rules.DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	h := since{signals: map[string]rules.Signal{}}
	for _, s := range pack.Signals() {
		h.signals[s.Series] = s
	}
	tried := 0
	for _, r := range pack.Evidence() {
		for _, b := range r.Branches {
			i := slices.IndexFunc(b.Causes, func(k rules.Cause) bool { return k.Role == "required" })
			if i < 0 {
				continue
			}
			tried++
			k := b.Causes[i]
			began := epoch.Add(-8 * time.Minute)
			at := func(late time.Duration) (float64, string) {
				h.from = map[string]time.Time{b.Symptom: began, k.Signal: began.Add(late)}
				for _, n := range append(pack.Signals()[k.Signal].Needs, pack.Signals()[b.Symptom].Needs...) {
					if _, told := h.from[n]; !told {
						h.from[n] = time.Time{}
					}
				}
				return h.asked(t, pack, r.ID)
			}
			if v, why := at(0); v < k.Weight-1e-9 {
				t.Errorf("%s, %s with %s: strength %.2f, want %.2f (%s)", r.ID, k.Signal, b.Symptom, v, k.Weight, why)
			}
			if v, why := at(2 * time.Minute); v > 0.2*k.Weight+1e-9 || !strings.Contains(why, "2m0s after the symptom") {
				t.Errorf("%s, %s after %s: strength %.2f, want %.2f (%s)", r.ID, k.Signal, b.Symptom, v, 0.2*k.Weight, why)
			}
		}
	}
	if tried < 8 {
		t.Errorf("only %d required causes", tried)
	}
}

// TestOrders: the orders that a correlation names stand with its candidate, for the
// nodes that it affects, and in what people read.
func TestOrders(t *testing.T) {
	t.Parallel()
	h := play(t, "gpu-lost", 4*time.Minute, nil)
	r := h.ask(t, Request{Node: "gpu001"})
	want := "rackpulse drain --reason=gpu-lost gpu001"
	if got := r.Candidates[0].Orders; !slices.Equal(got, []string{want}) {
		t.Errorf("orders %q, want %q", got, want)
	}
	for name, write := range map[string]func(*strings.Builder) error{
		"text":     func(b *strings.Builder) error { return r.Text(b) },
		"markdown": func(b *strings.Builder) error { return r.Markdown(b) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil || strings.Count(b.String(), want) != 1 {
			t.Errorf("%s: error %v, %q not once in\n%s", name, err, want, &b)
		}
	}
	c := &casebook{graph: newGraph(h.site)}
	all := c.orders(rules.Evidence{Correlation: rules.Correlation{ID: "x", Actions: []string{"hold", "maintenance"}}}, []affected{{of: Entity{"cooling_unit", "crah1"}}})
	nodes := len(c.graph.below(Entity{"cooling_unit", "crah1"}, "node"))
	if nodes == 0 || len(all) != 1+nodes || all[0] != "rackpulse breaker hold --reason=x" || !strings.HasPrefix(all[1], "rackpulse maintenance --reason=x gpu") {
		t.Errorf("orders of a cooling unit with %d nodes: %q", nodes, all)
	}
}
