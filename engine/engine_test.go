// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rackpulse/rackpulse/query"
)

var _ query.Querier = (*Engine)(nil)

// start is the beginning of virtual time.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const hallRules = `
groups:
- name: records
  rules:
  - record: rack:inlet:max
    expr: max by (site, rack_id) (rack_inlet_temperature_celsius{rack_id!=""})
- name: alerts
  rules:
  - alert: RackWarm
    expr: rack:inlet:max > 28
    for: 1m
    labels: {severity: critical, team: facility}
    annotations: {summary: "{{ $labels.rack_id }} at {{ $value }} C", racks: "{{ $labels.rack_id }}"}
`

func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// hall is a target of one rack inlet sensor that tests can set.
func hall(inlet *float64) Target {
	registry := prometheus.NewRegistry()
	promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: "rack_inlet_temperature_celsius",
		ConstLabels: prometheus.Labels{"rack_id": "r01", "sensor": "r01-in-top"}}, func() float64 { return *inlet })
	return Target{Instance: "gpu001", Labels: map[string]string{"site": "ams1"}, Gatherer: registry}
}

// theValue is the one sample of expr at t, or NaN.
func theValue(t testing.TB, e *Engine, expr string, at time.Time) float64 {
	t.Helper()
	samples, err := e.Instant(t.Context(), expr, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) > 1 {
		t.Fatalf("%s: %d samples: %v", expr, len(samples), samples)
	}
	if len(samples) == 0 {
		return math.NaN()
	}
	return samples[0].Value
}

func wantValue(t testing.TB, e *Engine, expr string, at time.Time, want float64) {
	t.Helper()
	if got := theValue(t, e, expr, at); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
		t.Errorf("%s at %v: got %v, want %v", expr, at.Sub(start), got, want)
	}
}

// TestAlertLife drives a rack through 22 C, 31 C from second 60 and 22 C from
// second 240, at 15 s: pending from 60, firing from 120 (for: 1m), gone at 240.
func TestAlertLife(t *testing.T) {
	inlet := 22.0
	e := newEngine(t, Config{RuleFiles: map[string][]byte{"hall.yml": []byte(hallRules)}})
	for s := 0; s <= 300; s += 15 {
		now := start.Add(time.Duration(s) * time.Second)
		inlet = 22
		if s >= 60 && s < 240 {
			inlet = 31
		}
		if err := e.Ingest(t.Context(), now, []Target{hall(&inlet)}); err != nil {
			t.Fatal(err)
		}
		if err := e.EvalAt(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		switch {
		case s < 60 || s >= 240:
			wantAlert(t, e, now, "none")
		case s < 120:
			wantAlert(t, e, now, "pending")
		default:
			wantAlert(t, e, now, "firing")
		}
	}
	series, err := e.Range(t.Context(), "rack:inlet:max", start, start.Add(5*time.Minute), time.Minute)
	if err != nil || len(series) != 1 || len(series[0].Points) != 6 {
		t.Fatalf("range %+v, %v", series, err)
	}
	for i, want := range []float64{22, 31, 31, 31, 22, 22} {
		if p := series[0].Points[i]; p.Value != want || !p.At.Equal(start.Add(time.Duration(i)*time.Minute)) {
			t.Errorf("point %d: %+v, want %v", i, p, want)
		}
	}
}

// wantAlert checks the one alert of TestAlertLife in both places it shows in.
func wantAlert(t *testing.T, e *Engine, now time.Time, state string) {
	t.Helper()
	alerts, err := e.Alerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := "none"
	for _, a := range alerts {
		got = fmt.Sprint(a.State, " ", a.ActiveAt.Sub(start), " ", a.Value, " ", a.Labels["site"], " ", a.Labels["severity"], " ", a.Annotations["summary"])
	}
	want := state
	if state != "none" {
		want += " 1m0s 31 ams1 critical r01 at 31 C"
	}
	if got != want || len(alerts) > 1 {
		t.Errorf("at %v: %s (%d alerts), want %s", now.Sub(start), got, len(alerts), want)
	}
	if state == "none" {
		wantValue(t, e, `ALERTS{alertname="RackWarm"}`, now, math.NaN())
		return
	}
	wantValue(t, e, fmt.Sprintf(`ALERTS{alertname="RackWarm",alertstate=%q}`, state), now, 1)
	wantValue(t, e, `rack:inlet:max`, now, 31) // this round's, which the alert has seen
}

// TestRunInVirtualTime runs the whole actor under a fake clock: rules fire in
// real-time mode, and everything has ended when Run returns.
func TestRunInVirtualTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		inlet := 31.0
		e, err := New(Config{Dir: dir, RuleFiles: map[string][]byte{"hall.yml": []byte(hallRules)},
			Sources: func() []Target { return []Target{hall(&inlet)} }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		alerts, err := e.Alerts(t.Context())
		if err != nil || len(alerts) != 1 || alerts[0].State != "firing" {
			t.Errorf("after two minutes: %+v, %v", alerts, err)
		}
		wantValue(t, e, "count_over_time(up[2m])", time.Now(), 8)
		if err := e.EvalAt(t.Context(), time.Now()); err == nil {
			t.Error("EvalAt while Run drives the rules: no error")
		}
		if err := e.Run(t.Context()); err == nil {
			t.Error("second Run: no error")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := e.Instant(context.Background(), "up", time.Now()); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("after Run: %v", err)
		}
	})
}

func TestStoppedAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		e, err := New(Config{RuleFiles: map[string][]byte{"hall.yml": []byte(hallRules)}, AlertmanagerURLs: []string{"http://127.0.0.1:1"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(e.dir); !os.IsNotExist(err) {
			t.Errorf("temporary folder %s is still there: %v", e.dir, err)
		}
	}
	waitForGoroutines(t, before)
}

// waitForGoroutines lets goroutines that are about to end do so.
func waitForGoroutines(t *testing.T, most int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= most {
			return
		}
		time.Sleep(time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("%d goroutines, want at most %d:\n%s", runtime.NumGoroutine(), most, buf[:runtime.Stack(buf, true)])
}

func TestRestartKeepsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	inlet := 23.5
	for round := range 2 {
		e, err := New(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		now := start.Add(time.Duration(round) * time.Minute)
		if round == 1 {
			wantValue(t, e, "rack_inlet_temperature_celsius", now, 23.5)
		}
		if err := e.Ingest(t.Context(), now, []Target{hall(&inlet)}); err != nil {
			t.Fatal(err)
		}
		wantValue(t, e, "count_over_time(up[2m])", now, float64(round+1))
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the configured folder is gone: %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	f := func(cfg Config, want string) {
		t.Helper()
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	before := runtime.NumGoroutine()
	f(Config{RuleFiles: map[string][]byte{"a.yml": []byte("groups:\n- name: g\n  rules:\n  - record: x\n    expr: sum(\n")}}, "a.yml")
	f(Config{RuleFiles: map[string][]byte{"b.yml": []byte("groups:\n- nam: g\n")}}, "b.yml")
	f(Config{AlertmanagerURLs: []string{"ops:hunter2@am:9093"}}, "alertmanager url")
	f(Config{AlertmanagerURLs: []string{"ftp://ops:hunter2@am:9093"}}, "want http")
	f(Config{Dir: "/dev/null/data"}, "/dev/null/data")
	waitForGoroutines(t, before)
}

func TestQueryErrors(t *testing.T) {
	e := newEngine(t, Config{})
	if s, err := e.Instant(t.Context(), "1 + 2", start); err != nil || len(s) != 1 || s[0].Value != 3 || !s[0].At.Equal(start) {
		t.Errorf("scalar: %v, %v", s, err)
	}
	for _, expr := range []string{"sum(", `"text"`, "up[1m]"} {
		if _, err := e.Instant(t.Context(), expr, start); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", expr)) {
			t.Errorf("%s: %v", expr, err)
		}
	}
	if _, err := e.Range(t.Context(), "up", start, start, 0); err == nil {
		t.Error("step 0: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Instant(ctx, "up", start); err == nil {
		t.Error("cancelled query: no error")
	}
}

// TestRuleErrorIsReported: a rule that cannot be evaluated does not stop the others.
func TestRuleErrorIsReported(t *testing.T) {
	e := newEngine(t, Config{RuleFiles: map[string][]byte{"r.yml": []byte(`
groups:
- name: g
  rules:
  - {record: bad, expr: "up * on() group_left() up"}
  - {record: good, expr: vector(1)}
`)}})
	a, b := 1.0, 2.0
	one, two := hall(&a), hall(&b)
	two.Instance = "gpu002"
	if err := e.Ingest(t.Context(), start, []Target{one, two}); err != nil {
		t.Fatal(err)
	}
	err := e.EvalAt(t.Context(), start)
	if err == nil || !strings.Contains(err.Error(), "r.yml: group g: rule bad") {
		t.Errorf("got %v", err)
	}
	wantValue(t, e, "good", start, 1)
}
