// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// bigHall answers as the store of a hall does in which every rack warms and
// every node is hot: all series that a question may meet, at all steps.
type bigHall struct{ site *site.Site }

func (h bigHall) Range(_ context.Context, expr string, from, to time.Time, step time.Duration) ([]query.Series, error) {
	var out []query.Series
	add := func(name string, pairs ...string) {
		s := query.Series{Labels: map[string]string{"__name__": name, "site": h.site.ID}}
		for i := 0; i < len(pairs); i += 2 {
			s.Labels[pairs[i]] = pairs[i+1]
		}
		for at := from; !at.After(to); at = at.Add(step) {
			s.Points = append(s.Points, query.Point{At: at, Value: 1})
		}
		out = append(out, s)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(expr, `{__name__=~"`), `"`)
	for _, name := range strings.Split(text, "|") {
		switch {
		case strings.HasPrefix(name, "rackpulse:rack:"):
			for _, r := range h.site.Racks {
				add(name, "rack_id", r.ID)
			}
		case strings.HasPrefix(name, "rackpulse:node:"):
			for _, n := range h.site.Nodes {
				add(name, "node", n.ID, "rack_id", n.Rack)
			}
		case strings.HasPrefix(name, "rackpulse:pdu:"):
			for _, p := range h.site.PDUs {
				add(name, "pdu_id", p.ID, "rack_id", p.Rack, "feed", p.Feed)
			}
		}
	}
	return out, nil
}

func (bigHall) Instant(context.Context, string, time.Time) ([]query.Sample, error) { return nil, nil }
func (bigHall) Alerts(context.Context) ([]query.Alert, error)                      { return nil, nil }

// BenchmarkExplain is one question in a hall of 10,240 GPUs in which everything
// is at fault at once, without the time of the store.
func BenchmarkExplain(b *testing.B) {
	s, err := site.Hall(160, 8, 8)
	if err != nil {
		b.Fatal(err)
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		b.Fatal(err)
	}
	d := Deps{Querier: bigHall{s}, Site: s, Pack: pack}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Explain(b.Context(), d, Request{Rack: "r007", To: epoch}); err != nil {
			b.Fatal(err)
		}
	}
}
