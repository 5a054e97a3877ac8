// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/xid"
)

var (
	seedRange = flag.String("incidents.seeds", "", "seeds of the benchmark, FROM-TO; empty: the benchmark does not run")
	only      = flag.String("incidents.only", "", "kinds of incident, with commas; empty: all")
	parts     = flag.String("incidents.parts", "alone,pairs,blind,quiet", "parts of the benchmark")
	quietDays = flag.Int("incidents.days", 0, "quiet days; 0: as many as the parameters say")
	outFile   = flag.String("incidents.out", "", "file for the tables, besides the output")
)

func newBench(tb testing.TB) *bench {
	tb.Helper()
	check := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	p := loadParameters(tb)
	b := &bench{draw: &draw{parameters: p, site: p.site(tb)}}
	var err error
	b.files, err = ruleFiles()
	check(err)
	b.pack, err = rules.DefaultPack()
	check(err)
	b.config, err = shippedConfig()
	check(err)
	catalogue, err := xid.Default()
	check(err)
	b.xid = func(code int) (explain.XID, bool) {
		e, ok := catalogue.Lookup(code)
		return explain.XID{Name: e.Name, Meaning: e.Meaning, Severity: string(e.Severity), Benign: e.Application || e.Consequence}, ok
	}
	return b
}

// all runs plays side by side, one for each processor. The heap is small, so the
// collector is given room: a tenth of the time.
func (b *bench) all(tb testing.TB, plays []*play) []*outcome {
	tb.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	out := make([]*outcome, len(plays))
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(plays)); i = next.Add(1) - 1 {
				o, err := b.run(context.Background(), plays[i])
				if err != nil {
					tb.Error(err)
					continue
				}
				out[i] = o
				if n := done.Add(1); n%50 == 0 {
					tb.Logf("%d of %d", n, len(plays))
				}
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return out
}

// TestBenchmark is "make bench-incidents".
func TestBenchmark(t *testing.T) {
	if *seedRange == "" {
		t.Log("no seeds asked for: see make bench-incidents")
		return
	}
	var from, to int64
	if n, err := fmt.Sscanf(*seedRange, "%d-%d", &from, &to); n != 2 || err != nil || from > to {
		t.Fatalf("-incidents.seeds %q: want FROM-TO", *seedRange)
	}
	b := newBench(t)
	var w bytes.Buffer
	fmt.Fprintf(&w, "Seeds %d-%d; parameters SHA-256 %s.\n", from, to, sum())
	began := time.Now()
	wanted := func(kind string) bool { return *only == "" || slices.Contains(strings.Split(*only, ","), kind) }
	part := func(name string) bool { return slices.Contains(strings.Split(*parts, ","), name) }
	each := func(do func(seed int64) []*play) []*outcome {
		var plays []*play
		for seed := from; seed <= to; seed++ {
			plays = append(plays, do(seed)...)
		}
		return b.all(t, plays)
	}
	if part("alone") {
		list := each(func(seed int64) (out []*play) {
			for _, kind := range b.kinds() {
				if wanted(kind) {
					out = append(out, b.alone(kind, seed))
				}
			}
			return out
		})
		table(&w, b, "alone", list, func(o *outcome, _ int) string { return o.name })
		b.misses(t, list)
	}
	if part("pairs") {
		list := each(func(seed int64) (out []*play) {
			for n := range b.Pairs.PerSeed {
				out = append(out, b.pair(seed, n))
			}
			return out
		})
		table(&w, b, "in pairs", list, func(o *outcome, i int) string { return o.truths[i].kind })
		b.misses(t, list)
	}
	if part("blind") {
		list := each(func(seed int64) (out []*play) {
			for kind := range b.Blind {
				if wanted(kind) {
					out = append(out, b.blind(kind, seed))
				}
			}
			return out
		})
		blindTable(&w, b, list)
		b.misses(t, list)
	}
	if part("quiet") {
		var days []*play
		for day := range int64(cmp.Or(*quietDays, b.Quiet.Days)) {
			days = append(days, b.quiet(from+day))
		}
		list := b.all(t, days)
		quietTable(&w, list)
		for _, o := range list {
			for _, n := range o.sent {
				t.Logf("%s %s %s %s", o.play, n.at.Sub(epoch), n.receiver, brief(n.alerts[0]))
			}
		}
	}
	fmt.Fprintf(&w, "\nTook %s on %d processors.\n", time.Since(began).Round(time.Second), runtime.GOMAXPROCS(0))
	fmt.Println(w.String())
	if *outFile != "" {
		if err := os.WriteFile(*outFile, w.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func brief(l map[string]string) string {
	out := l["alertname"]
	for _, name := range []string{"severity", "urgency", "cooling_unit", "feed", "rack_id", "pdu_id", "device", "node", "gpu", "switch", "port", "signal"} {
		if l[name] != "" {
			out += " " + l[name]
		}
	}
	return out
}

// misses logs what was not named, with what was seen in its place.
func (b *bench) misses(t *testing.T, list []*outcome) {
	for _, o := range list {
		for i := range o.truths {
			v, tr := o.judge(b, i), &o.truths[i]
			n := pages(o.sent, o.truths[0].onset, o.end)
			if v.explain == 1 && v.alert > 0 && v.alert <= v.incidents && n <= v.incidents {
				continue
			}
			t.Logf("%s: %s %s (silent %v): explain %d alert %d, %d pages; %q", o.play, tr.kind, tr.entity, tr.silent, v.explain, v.alert, n, o.asked[i].Conclusion)
			for k, c := range o.asked[i].Candidates {
				if k < 3 {
					t.Logf("      %.2f %s %s: %s", c.Score, c.Correlation, c.Entity, c.Cause)
				}
			}
			for _, f := range o.ours {
				if f.seen >= 0 && f.last >= tr.onset {
					t.Logf("      %+.0f s %s", (f.seen - tr.onset).Seconds(), brief(f.labels))
				}
			}
		}
	}
}
