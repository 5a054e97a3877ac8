// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// wilson is the 95 % interval of a share (Wilson's score interval).
func wilson(hits, n int) (lo, hi float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.959964
	p, m := float64(hits)/float64(n), float64(n)
	mid := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(0, mid-half), min(1, mid+half)
}

func share(hits, n int) string {
	lo, hi := wilson(hits, n)
	return fmt.Sprintf("%.1f (%.1f-%.1f)", 100*float64(hits)/float64(max(n, 1)), 100*lo, 100*hi)
}

// meanInterval is the mean of counts and its 95 % interval by bootstrap: 2,000
// resamples of a fixed seed.
func meanInterval(counts []int) string {
	if len(counts) == 0 {
		return "-"
	}
	r := rand.New(rand.NewPCG(1, 1))
	mean := func(draw func(int) int) float64 {
		sum := 0
		for i := range counts {
			sum += counts[draw(i)]
		}
		return float64(sum) / float64(len(counts))
	}
	all := make([]float64, 2000)
	for i := range all {
		all[i] = mean(func(int) int { return r.IntN(len(counts)) })
	}
	slices.Sort(all)
	return fmt.Sprintf("%.2f (%.2f-%.2f)", mean(func(i int) int { return i }), all[50], all[1949])
}

// perDay is a rate of counted events and its 95 % interval: exact for Poisson
// counts (Garwood), by bisection on the sums of its probabilities.
func perDay(events, days int) string {
	below := func(mean float64, k int) float64 { // P(X <= k)
		term, sum := math.Exp(-mean), 0.0
		for i := 0; i <= k; i++ {
			sum += term
			term *= mean / float64(i+1)
		}
		return sum
	}
	solve := func(f func(float64) bool) float64 {
		lo, hi := 0.0, float64(events)*3+20
		for range 60 {
			if mid := (lo + hi) / 2; f(mid) {
				lo = mid
			} else {
				hi = mid
			}
		}
		return lo
	}
	lo := 0.0
	if events > 0 {
		lo = solve(func(m float64) bool { return 1-below(m, events-1) < .025 })
	}
	hi := solve(func(m float64) bool { return below(m, events) > .025 })
	d := float64(days)
	return fmt.Sprintf("%.2f (%.2f-%.2f)", float64(events)/d, lo/d, hi/d)
}

// quantiles are the median and the 95th percentile, in seconds, of what was named.
func quantiles(list []time.Duration) string {
	list = slices.DeleteFunc(slices.Clone(list), func(d time.Duration) bool { return d < 0 })
	if len(list) == 0 {
		return "-"
	}
	slices.Sort(list)
	at := func(q float64) time.Duration { return list[min(len(list)-1, int(q*float64(len(list))))] }
	return fmt.Sprintf("%.0f / %.0f", at(.5).Seconds(), at(.95).Seconds())
}

// tally is what is counted of a set of incidents.
type tally struct {
	n, explain1, explain3, alert1, alert3 int
	plain1, grouped1, unknown, wrong      int
	delays, plainDelays                   []time.Duration
	pages, plainPages, groupedPages       []int // by play
}

func (t *tally) add(v verdict) {
	t.n++
	count := func(rank, most int) int {
		if rank > 0 && rank <= most {
			return 1
		}
		return 0
	}
	t.explain1 += count(v.explain, 1)
	t.explain3 += count(v.explain, 3)
	t.alert1 += count(v.alert, v.incidents)
	t.alert3 += count(v.alert, 2+v.incidents)
	t.plain1 += count(v.plain, v.incidents)
	t.grouped1 += count(v.grouped, v.incidents)
	switch {
	case v.unknown:
		t.unknown++
	case v.explain != 1:
		t.wrong++
	}
	t.delays, t.plainDelays = append(t.delays, v.delay), append(t.plainDelays, v.plainDelay)
}

func (t *tally) addPages(o *outcome) {
	from := o.truths[0].onset
	t.pages = append(t.pages, pages(o.sent, from, o.end))
	t.plainPages = append(t.plainPages, pages(o.plainSent, from, o.end))
	t.groupedPages = append(t.groupedPages, pages(o.groupedSent, from, o.end))
}

const header = `| %s | n | explain top-1 %% | explain top-3 %% | alert top-1 %% | alert top-3 %% | delay s, median / p95 | pages |
|---|---|---|---|---|---|---|---|
`

func (t *tally) row(w io.Writer, name string) {
	fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", name, t.n,
		share(t.explain1, t.n), share(t.explain3, t.n), share(t.alert1, t.n), share(t.alert3, t.n), quantiles(t.delays), meanInterval(t.pages))
}

const baselineHeader = `| %s | n | plain top-1 %% | grouped top-1 %% | plain delay s | pages, each alert | pages, grouped |
|---|---|---|---|---|---|---|
`

func (t *tally) baselineRow(w io.Writer, name string) {
	fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s |\n", name, t.n, share(t.plain1, t.n), share(t.grouped1, t.n),
		quantiles(t.plainDelays), meanInterval(t.plainPages), meanInterval(t.groupedPages))
}

// table writes the results of a set of plays, by name and over all.
func table(w io.Writer, b *bench, what string, list []*outcome, name func(*outcome, int) string) {
	all, byName := &tally{}, map[string]*tally{}
	for _, o := range list {
		for i := range o.truths {
			k, v := name(o, i), o.judge(b, i)
			if byName[k] == nil {
				byName[k] = &tally{}
			}
			byName[k].add(v)
			all.add(v)
			if len(o.truths) == 1 {
				byName[k].addPages(o)
			}
		}
		all.addPages(o)
	}
	var names []string
	for k := range byName {
		names = append(names, k)
	}
	slices.Sort(names)
	fmt.Fprintf(w, "\n"+header, what)
	for _, k := range names {
		byName[k].row(w, k)
	}
	all.row(w, "all")
	fmt.Fprintf(w, "\n"+baselineHeader, what)
	for _, k := range names {
		byName[k].baselineRow(w, k)
	}
	all.baselineRow(w, "all")
}

// blindTable writes the results of plays whose deciding sensors are dead.
func blindTable(w io.Writer, b *bench, list []*outcome) {
	byName := map[string]*tally{}
	var names []string
	for _, o := range list {
		k := strings.TrimPrefix(o.name, "blind ")
		if byName[k] == nil {
			byName[k] = &tally{}
			names = append(names, k)
		}
		byName[k].add(o.judge(b, 0))
	}
	slices.Sort(names)
	fmt.Fprintf(w, "\n| deciding sensors dead | n | right cause %% | unknown said %% | wrong or nothing %% |\n|---|---|---|---|---|\n")
	for _, k := range names {
		t := byName[k]
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s |\n", k, t.n, share(t.explain1, t.n), share(t.unknown, t.n), share(t.wrong, t.n))
	}
}

// quietTable writes what the quiet days brought.
func quietTable(w io.Writer, list []*outcome) {
	var ours, notices, plain, grouped int
	for _, o := range list {
		p := pages(o.sent, 0, o.end)
		ours, notices = ours+p, notices+len(o.sent)-p
		plain += pages(o.plainSent, 0, o.end)
		grouped += pages(o.groupedSent, 0, o.end)
	}
	n := len(list)
	fmt.Fprintf(w, "\n| %d quiet days | false pages a day |\n|---|---|\n| ours | %s |\n| plain thresholds, each alert | %s |\n| plain thresholds, grouped by rack | %s |\n",
		n, perDay(ours, n), perDay(plain, n), perDay(grouped, n))
	fmt.Fprintf(w, "\nOur notices below a page on those days (maintenance, dead sensors): %d.\n", notices)
}
