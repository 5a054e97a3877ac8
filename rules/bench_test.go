// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
)

// wideSelectors are the distinct selectors of a pack that read a series for each
// GPU, with their ranges.
func wideSelectors(tb testing.TB, groups ...*promrules.Group) []string {
	tb.Helper()
	var out []string
	for _, g := range groups {
		for _, r := range g.Rules() {
			text := r.Query().String()
			expr, err := promParser.ParseExpr(text)
			if err != nil {
				tb.Fatal(err)
			}
			parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
				vs, ok := node.(*parser.VectorSelector)
				if !ok || !strings.HasPrefix(vs.Name, "DCGM_") && !strings.HasPrefix(vs.Name, "rackpulse_gpu_") {
					return nil
				}
				sel := vs.String()
				if len(path) > 0 {
					if m, ok := path[len(path)-1].(*parser.MatrixSelector); ok {
						sel = m.String()
					}
				}
				if !slices.Contains(out, sel) {
					out = append(out, sel)
				}
				return nil
			})
		}
	}
	return out
}

// TestWideSelectors holds the cost budget of the pack: what decides its cost is
// how many selectors read every GPU.
func TestWideSelectors(t *testing.T) {
	wide := wideSelectors(t, newStore(t, time.Unix(0, 0)).groups...)
	t.Log(wide)
	if len(wide) == 0 || len(wide) > 12 {
		t.Errorf("%d distinct selectors read every GPU, want at most 12", len(wide))
	}
}

// fleet is a scrape of a fleet of racks with 8 nodes of 8 GPUs; one rack in a
// hundred is hot.
func fleet(racks, step int) page {
	p := page{}
	for r := range racks {
		where := fmt.Sprintf("site=\"ams1\",rack_id=\"r%03d\"", r)
		heat := float64(step % 3)
		if r%100 == 1 {
			heat += 30
		}
		p["rackpulse_rack_info{"+where+"}"] = 1
		p[fmt.Sprintf("rackpulse_rack_cooling_info{%s,cooling_unit=\"crah%d\"}", where, r/4)] = 1
		for i, side := range []string{"a", "b"} {
			p[fmt.Sprintf("rackpulse_rack_feed_info{%s,pdu_id=\"r%03d-%s\",feed=\"feed-%s\"}", where, r, side, side)] = 1
			p[fmt.Sprintf("pdu_current_ampere{%s,pdu_id=\"r%03d-%s\"}", where, r, side)] = 20 + float64(i)
			p[fmt.Sprintf("facility_device_up{%s,device=\"r%03d-%s\",driver=\"snmp\"}", where, r, side)] = 1
		}
		for _, at := range []string{"top", "middle", "bottom"} {
			p[fmt.Sprintf("rack_inlet_temperature_celsius{%s,sensor=\"r%03d-%s\",position=%q}", where, r, at, at)] = 22 + heat/4
		}
		for n := range 8 {
			node := fmt.Sprintf("%s,node=\"n%03d%d\"", where, r, n)
			p["rackpulse_lease_up{"+node+"}"] = 1
			p["rackpulse_lease_state{"+node+",state=\"READY\"}"] = 1
			p["rackpulse_lease_last_beat_timestamp_seconds{"+node+"}"] = float64(step * 15)
			for g := range 8 {
				id := fmt.Sprintf("%s,instance=\"n%03d%d\",job=\"rackpulse\",gpu=\"%d\",UUID=\"GPU-%03d%d%d\"", node, r, n, g, r, n, g)
				full := id + fmt.Sprintf(",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",pci_bus_id=\"00000000:%02X:00.0\"", g, g)
				p["rackpulse_gpu_up{"+id+"}"] = 1
				p["rackpulse_gpu_xid_errors_total{"+id+",xid=\"79\"}"] = 0
				p["DCGM_FI_DEV_GPU_TEMP{"+full+"}"] = 60 + heat
				p["DCGM_FI_DEV_POWER_USAGE{"+full+"}"] = 600 + heat
				p["DCGM_FI_DEV_GPU_UTIL{"+full+"}"] = 90
			}
		}
	}
	return p
}

// BenchmarkPack measures one evaluation of the pack at 1,024 GPUs (16
// racks, 128 nodes) after a quarter of an hour of data, and, for comparison in
// the same run, one reading of each distinct wide selector of its
// 15 s group. The coverage group, every minute, is part of every fourth evaluation.
func BenchmarkPack(b *testing.B) {
	start := time.Unix(1_700_000_040, 0)
	s := newStore(b, start)
	step := 0
	next := func() {
		s.now = start.Add(time.Duration(step) * 15 * time.Second)
		s.scrape(fleet(16, step))
		step++
	}
	for range 60 {
		next()
		s.eval()
	}
	s.check()
	if len(s.firing()) == 0 {
		b.Fatal("nothing fires in the hot rack")
	}
	b.Run("evaluate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			next()
			b.StartTimer()
			s.eval()
		}
	})
	b.Run("read-wide-selectors-once", func(b *testing.B) {
		b.ReportAllocs()
		wide := wideSelectors(b, s.groups[0])
		for b.Loop() {
			for _, sel := range wide {
				s.read(sel)
			}
		}
	})
}

// read evaluates a selector as a query of its own; a range is counted.
func (s *store) read(selector string) {
	if strings.HasSuffix(selector, "]") {
		selector = "count_over_time(" + selector + ")"
	}
	q, err := s.engine.NewInstantQuery(s.tb.Context(), s.db, nil, selector, s.now)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(s.tb.Context())
	if v, ok := res.Value.(promql.Vector); res.Err != nil || !ok || len(v) == 0 && !strings.Contains(selector, model.MetricNameLabel) && !strings.HasPrefix(selector, "DCGM_FI_PROF") {
		s.tb.Fatalf("%s: %v, %d series", selector, res.Err, len(v))
	}
}
