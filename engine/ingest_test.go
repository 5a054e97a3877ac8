// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// gauge is a family of one gauge per label set.
func gauge(name string, v float64, labelPairs ...[]string) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_GAUGE.Enum()}
	for _, pairs := range labelPairs {
		m := &dto.Metric{Gauge: &dto.Gauge{Value: proto.Float64(v)}}
		for i := 0; i+1 < len(pairs); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(pairs[i]), Value: proto.String(pairs[i+1])})
		}
		f.Metric = append(f.Metric, m)
	}
	return f
}

func families(f ...*dto.MetricFamily) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return f, nil })
}

func TestHonorLabels(t *testing.T) {
	e := newEngine(t, Config{})
	target := Target{Instance: "registry", Labels: map[string]string{"site": "ams1", "room": "hall1"}, Gatherer: families(
		gauge("plain", 1, nil),
		gauge("own", 2, []string{"instance", "gpu007", "site", "fra2"}),
		gauge("blank", 3, []string{"room", ""}),
	)}
	if err := e.Ingest(t.Context(), start, []Target{target}); err != nil {
		t.Fatal(err)
	}
	f := func(selector string) {
		t.Helper()
		if got := theValue(t, e, selector, start); math.IsNaN(got) {
			t.Errorf("%s: not there", selector)
		}
	}
	f(`plain{instance="registry",site="ams1",room="hall1",job="rackpulse"}`)
	f(`own{instance="gpu007",site="fra2",room="hall1",job="rackpulse"}`)
	f(`blank{instance="registry",site="ams1",room="",job="rackpulse"}`)
	f(`up{instance="registry",site="ams1",room="hall1",job="rackpulse"} == 1`)
}

func TestAllMetricTypes(t *testing.T) {
	registry := prometheus.NewRegistry()
	with := promauto.With(registry)
	with.NewCounter(prometheus.CounterOpts{Name: "beats_total"}).Add(7)
	with.NewUntypedFunc(prometheus.UntypedOpts{Name: "odd"}, func() float64 { return 4 })
	h := with.NewHistogram(prometheus.HistogramOpts{Name: "wait_seconds", Buckets: []float64{0.5, 1}})
	for _, v := range []float64{0.2, 0.7, 3} {
		h.Observe(v)
	}
	s := with.NewSummary(prometheus.SummaryOpts{Name: "size_bytes", Objectives: map[float64]float64{0.5: 0.01}})
	s.Observe(10)
	e := newEngine(t, Config{})
	if err := e.Ingest(t.Context(), start, []Target{{Instance: "a", Gatherer: registry}}); err != nil {
		t.Fatal(err)
	}
	wantValue(t, e, "beats_total", start, 7)
	wantValue(t, e, "odd", start, 4)
	wantValue(t, e, `wait_seconds_bucket{le="0.5"}`, start, 1)
	wantValue(t, e, `wait_seconds_bucket{le="1.0"}`, start, 2)
	wantValue(t, e, `wait_seconds_bucket{le="+Inf"}`, start, 3)
	wantValue(t, e, "wait_seconds_sum", start, 3.9)
	wantValue(t, e, "wait_seconds_count", start, 3)
	wantValue(t, e, `size_bytes{quantile="0.5"}`, start, 10)
	wantValue(t, e, "size_bytes_sum", start, 10)
	wantValue(t, e, "size_bytes_count", start, 1)
}

// TestStaleMarkers: what vanishes is gone at once, not five minutes later.
func TestStaleMarkers(t *testing.T) {
	e := newEngine(t, Config{})
	now := start
	round := func(targets ...Target) {
		t.Helper()
		now = now.Add(15 * time.Second)
		if err := e.Ingest(t.Context(), now, targets); err != nil {
			t.Fatal(err)
		}
	}
	both := Target{Instance: "a", Gatherer: families(gauge("temp", 50, []string{"gpu", "0"}, []string{"gpu", "1"}))}
	one := Target{Instance: "a", Gatherer: families(gauge("temp", 51, []string{"gpu", "0"}))}
	round(both)
	wantValue(t, e, "count(temp)", now, 2)
	round(one)
	wantValue(t, e, "count(temp)", now, 1)
	wantValue(t, e, `temp{gpu="1"}`, now, math.NaN())
	wantValue(t, e, `temp{gpu="0"}`, now, 51)
	round(both) // back again
	wantValue(t, e, `temp{gpu="1"}`, now, 50)
	round() // the target is gone, and its up with it
	wantValue(t, e, "count(temp)", now, math.NaN())
	wantValue(t, e, "up", now, math.NaN())
	wantValue(t, e, "count(temp)", now.Add(-time.Second), 2)
	if len(e.ingester.targets) != 0 {
		t.Errorf("%d targets are remembered", len(e.ingester.targets))
	}
}

// TestExplicitTimestamps: a sample with a time of its own is kept at that
// time and ends by itself, as in a scrape.
func TestExplicitTimestamps(t *testing.T) {
	e := newEngine(t, Config{})
	f := gauge("pushed", 5, nil)
	f.Metric[0].TimestampMs = proto.Int64(start.Add(-time.Minute).UnixMilli())
	if err := e.Ingest(t.Context(), start, []Target{{Instance: "a", Gatherer: families(f)}}); err != nil {
		t.Fatal(err)
	}
	wantValue(t, e, "timestamp(pushed)", start, float64(start.Add(-time.Minute).Unix()))
	if err := e.Ingest(t.Context(), start.Add(time.Second), []Target{{Instance: "a", Gatherer: families()}}); err != nil {
		t.Fatal(err)
	}
	wantValue(t, e, "pushed", start.Add(time.Second), 5)
}

func TestBadTargetsDisturbNobody(t *testing.T) {
	e := newEngine(t, Config{})
	good := Target{Instance: "good", Gatherer: families(gauge("temp", 50, nil))}
	var broken error
	flaky := Target{Instance: "flaky", Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return []*dto.MetricFamily{gauge("temp", 60, nil)}, broken
	})}
	panics := Target{Instance: "panics", Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { panic("oops") })}
	huge := Target{Instance: "huge", Gatherer: families(gauge("many", 1, make([][]string, maxTargetSamples+1)...))}

	if err := e.Ingest(t.Context(), start, []Target{good, flaky}); err != nil {
		t.Fatal(err)
	}
	broken = errors.New("pipe broke")
	now := start.Add(15 * time.Second)
	err := e.Ingest(t.Context(), now, []Target{flaky, panics, huge, good, good})
	for _, want := range []string{"target flaky: pipe broke", "target panics: panic: oops", "target huge: more than 200000 samples", "listed twice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	wantValue(t, e, `up{instance="good"}`, now, 1)
	for _, instance := range []string{"flaky", "panics", "huge"} {
		wantValue(t, e, `up{instance="`+instance+`"}`, now, 0)
	}
	wantValue(t, e, `sum(temp)`, now, 50) // flaky's is stale
	wantValue(t, e, `count(many)`, now, math.NaN())

	// Time that goes back is refused sample by sample and named.
	if err := e.Ingest(t.Context(), start, []Target{good}); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("time went back: %v", err)
	}
}

// TestManyErrorsAreSummed: an error names a few targets and counts the rest.
func TestManyErrorsAreSummed(t *testing.T) {
	err := summary([]error{errors.New("1"), nil, errors.New("2"), errors.New("3"), errors.New("4"), errors.New("5"), errors.New("6"), errors.New("7")})
	if err == nil || err.Error() != "1\n2\n3\n4\n5\nand 2 more" {
		t.Errorf("got %q", err)
	}
	if summary([]error{nil, nil}) != nil {
		t.Error("nothing failed: an error")
	}
}

// TestHangingTarget: it costs one timeout, then it is not asked again until it
// returns.
func TestHangingTarget(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Dir: dir, ScrapeInterval: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		asked := 0
		hang := Target{Instance: "hang", Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			asked++
			<-release
			return nil, nil
		})}
		good := Target{Instance: "good", Gatherer: families(gauge("temp", 50, nil))}
		ingest := func(wait time.Duration, want string) {
			t.Helper()
			begin := time.Now()
			err := e.Ingest(t.Context(), begin, []Target{hang, good})
			if got := time.Since(begin); got != wait {
				t.Errorf("took %v, want %v", got, wait)
			}
			if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
			wantValue(t, e, `up{instance="good"}`, begin, 1)
		}
		ingest(5*time.Second, "target hang: no answer within 5s")
		time.Sleep(time.Second)
		ingest(0, "target hang: still busy")
		wantValue(t, e, `up{instance="hang"}`, time.Now(), 0)
		close(release)
		synctest.Wait()
		time.Sleep(time.Second)
		ingest(0, "")
		wantValue(t, e, `up{instance="hang"}`, time.Now(), 1)
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseEndsARound: Close does not wait for a gatherer that hangs.
func TestCloseEndsARound(t *testing.T) {
	before := runtime.NumGoroutine()
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	hang := Target{Instance: "hang", Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		close(entered)
		<-release
		return nil, nil
	})}
	done := make(chan error)
	go func() { done <- e.Ingest(context.Background(), start, []Target{hang}) }()
	<-entered
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	waitForGoroutines(t, before)
}
