// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
)

// selectors are the distinct selectors of a group's rules, with their ranges.
func selectors(tb testing.TB, g *promrules.Group) []string {
	tb.Helper()
	var out []string
	for _, r := range g.Rules() {
		expr, err := promParser.ParseExpr(r.Query().String())
		if err != nil {
			tb.Fatal(err)
		}
		parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
			vs, ok := node.(*parser.VectorSelector)
			if !ok {
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
	return out
}

// wide says that a selector reads a series for each GPU.
func wide(selector string) bool {
	return strings.HasPrefix(selector, "DCGM_") || strings.HasPrefix(selector, "rackpulse_gpu_")
}

// TestWideSelectors holds the cost budget of the pack: what decides its cost is
// how many selectors read every GPU.
func TestWideSelectors(t *testing.T) {
	var all []string
	for _, g := range newStore(t, time.Unix(0, 0)).groups {
		all = append(all, selectors(t, g)...)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(s string) bool { return !wide(s) })
	t.Log(all)
	if len(all) == 0 || len(all) > 12 {
		t.Errorf("%d distinct selectors read every GPU, want at most 12", len(all))
	}
}

// fleet is a scrape of a fleet of racks with 8 nodes of 8 GPUs; with hot, one rack
// in a hundred is.
func fleet(racks, step int, hot bool) page {
	p := page{}
	for r := range racks {
		where := fmt.Sprintf("site=\"ams1\",rack_id=\"r%03d\"", r)
		heat := float64(step % 3)
		if hot && r%100 == 1 {
			heat += 30
		}
		p["rackpulse_rack_info{"+where+"}"] = 1
		p[fmt.Sprintf("rackpulse_rack_cooling_info{%s,cooling_unit=\"crah%d\"}", where, r/4)] = 1
		for i, side := range []string{"a", "b"} {
			p[fmt.Sprintf("rackpulse_rack_feed_info{%s,pdu_id=\"r%03d-%s\",feed=\"feed-%s\"}", where, r, side, side)] = 1
			p[fmt.Sprintf("pdu_current_ampere{%s,pdu_id=\"r%03d-%s\"}", where, r, side)] = 20 + float64(i)
			p[fmt.Sprintf("rackpulse_pdu_rated_ampere{%s,pdu_id=\"r%03d-%s\",phases=\"3\"}", where, r, side)] = 32
			p[fmt.Sprintf("rackpulse_pdu_usable_ampere{%s,pdu_id=\"r%03d-%s\"}", where, r, side)] = 25.6
			for line := range 3 {
				p[fmt.Sprintf("pdu_line_current_ampere{%s,pdu_id=\"r%03d-%s\",line=\"%d\"}", where, r, side, line+1)] = 12 + float64(i)
			}
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

// BenchmarkPack measures the CPU of one evaluation of the pack, every 15 s for a
// minute, after twelve minutes of data, and beside it that of reading each distinct
// selector of a group once for each evaluation of the group: less no order of rules
// could do. "wide" are only those of the 15 s group that read every GPU.
func BenchmarkPack(b *testing.B) {
	for _, racks := range []int{16, 160} {
		for _, hot := range []bool{false, true} {
			name := fmt.Sprintf("%d-GPUs-quiet", 64*racks)
			if hot {
				name = fmt.Sprintf("%d-GPUs-%d-hot", 64*racks, 64*(1+racks/100))
			}
			b.Run(name, func(b *testing.B) { benchPack(b, racks, hot) })
		}
	}
}

func benchPack(b *testing.B, racks int, hot bool) {
	start := time.Unix(1_700_000_040, 0)
	s := newStore(b, start)
	step := 0
	next := func() {
		s.now = start.Add(time.Duration(step) * 15 * time.Second)
		s.scrape(fleet(racks, step, hot))
		step++
	}
	for range 48 {
		next()
		s.eval()
	}
	s.check()
	if firing := s.firing(); len(firing) > 0 != hot {
		b.Fatal(firing)
	}
	var once [][]string
	for _, g := range s.groups {
		once = append(once, selectors(b, g))
	}
	var pack, each, onlyWide cost
	work := []func(){
		func() { pack.add(s.eval) },
		func() {
			each.add(func() {
				for i, g := range s.groups {
					if s.due(g) {
						s.read(once[i], func(string) bool { return true })
					}
				}
			})
		},
		func() { onlyWide.add(func() { s.read(once[0], wide) }) },
	}
	rounds := 0
	for b.Loop() {
		for range 4 { // a minute
			next()
			for i := range work {
				work[(i+rounds)%len(work)]() // none of them is always the first to touch the new samples
			}
		}
		rounds++
	}
	n := float64(4 * rounds)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1000*pack.cpu.Seconds()/n, "cpu-ms/eval")
	b.ReportMetric(float64(pack.bytes)/n/(1<<20), "MiB/eval")
	b.ReportMetric(float64(pack.allocs)/n, "allocs/eval")
	b.ReportMetric(1000*each.cpu.Seconds()/n, "cpu-ms/read")
	b.ReportMetric(float64(pack.cpu)/float64(each.cpu), "x-read")
	b.ReportMetric(float64(pack.cpu)/float64(onlyWide.cpu), "x-wide")
}

// cost is what some work took: CPU of the process, and memory from the heap.
type cost struct {
	cpu           time.Duration
	bytes, allocs uint64
}

func (c *cost) add(f func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from := cpuTime()
	f()
	c.cpu += cpuTime() - from
	runtime.ReadMemStats(&after)
	c.bytes += after.TotalAlloc - before.TotalAlloc
	c.allocs += after.Mallocs - before.Mallocs
}

// cpuTime is the CPU time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a wrong argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// read evaluates the selectors that are wanted, each as a query of its own; a
// range is counted.
func (s *store) read(selectors []string, want func(string) bool) {
	for _, text := range selectors {
		if !want(text) {
			continue
		}
		if strings.HasSuffix(text, "]") || strings.Contains(text, "] ") {
			text = "count_over_time(" + text + ")"
		}
		q, err := s.engine.NewInstantQuery(s.tb.Context(), s.db, nil, text, s.now)
		if err != nil {
			s.tb.Fatal(err)
		}
		if res := q.Exec(s.tb.Context()); res.Err != nil {
			s.tb.Fatalf("%s: %v", text, res.Err)
		}
		q.Close()
	}
}
