// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

const fastRules = `
groups:
- name: fast
  interval: 50ms
  rules:
  - alert: RackWarm
    expr: rack_inlet_temperature_celsius > 28
    labels: {severity: critical, site: "{{ $labels.site }}"}
    annotations: {summary: "rack {{ $labels.rack_id }}"}
`

// posted is one alert of Alertmanager's API v2, as its OpenAPI file names it.
type posted struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

type delivery struct {
	path, user string
	alerts     []posted
}

// alertmanager records what is posted to it.
func alertmanager(t *testing.T) (*httptest.Server, <-chan delivery) {
	t.Helper()
	got := make(chan delivery, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := delivery{path: r.Method + " " + r.URL.Path}
		d.user, _, _ = r.BasicAuth()
		if err := json.NewDecoder(r.Body).Decode(&d.alerts); err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadRequest)
		}
		got <- d
	}))
	t.Cleanup(server.Close)
	return server, got
}

func receive(t *testing.T, from <-chan delivery) delivery {
	t.Helper()
	select {
	case d := <-from:
		return d
	case <-time.After(30 * time.Second):
		t.Fatal("no alert was posted")
		return delivery{}
	}
}

// TestAlertsAreDelivered: the first alert already reaches every Alertmanager,
// and so does its end.
func TestAlertsAreDelivered(t *testing.T) {
	before := runtime.NumGoroutine()
	one, first := alertmanager(t)
	two, second := alertmanager(t)
	begin := time.Now()
	warm := make(chan float64, 1)
	inlet := 31.0
	e, err := New(Config{
		RuleFiles:        map[string][]byte{"fast.yml": []byte(fastRules)},
		ExternalLabels:   map[string]string{"cluster": "c1"},
		ExternalURL:      "https://pulse.example/",
		AlertmanagerURLs: []string{one.URL, strings.Replace(two.URL, "http://", "http://ops:secret@", 1) + "/am"},
		ScrapeInterval:   50 * time.Millisecond,
		Sources: func() []Target {
			select {
			case inlet = <-warm:
			default:
			}
			v := inlet
			return []Target{hall(&v)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()

	d := receive(t, first)
	if d.path != "POST /api/v2/alerts" || len(d.alerts) != 1 {
		t.Fatalf("got %+v", d)
	}
	a := d.alerts[0]
	want := map[string]string{"alertname": "RackWarm", "severity": "critical", "site": "ams1", "rack_id": "r01", "sensor": "r01-in-top",
		"instance": "gpu001", "job": "rackpulse", "cluster": "c1"}
	if !maps.Equal(a.Labels, want) {
		t.Errorf("labels %v, want %v", a.Labels, want)
	}
	if a.Annotations["summary"] != "rack r01" || a.StartsAt.Before(begin.Add(-time.Second)) || !a.EndsAt.After(time.Now()) ||
		!strings.HasPrefix(a.GeneratorURL, "https://pulse.example/") {
		t.Errorf("got %+v", a)
	}
	if d := receive(t, second); d.path != "POST /am/api/v2/alerts" || d.user != "ops" {
		t.Errorf("second alertmanager: %+v", d)
	}
	warm <- 22
	if d := receive(t, first); len(d.alerts) != 1 || d.alerts[0].EndsAt.After(time.Now()) {
		t.Errorf("want the alert resolved, got %+v", d)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	one.Close()
	two.Close()
	waitForGoroutines(t, before)
}

// TestDeadAlertmanagerDoesNotHoldTheStop: a full queue to an Alertmanager that
// never answers is given up within the drain time.
func TestDeadAlertmanagerDoesNotHoldTheStop(t *testing.T) {
	entered := make(chan struct{}, 100)
	dead := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []posted
		_ = json.NewDecoder(r.Body).Decode(&alerts)
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	defer dead.Close()
	inlet := 31.0
	e, err := New(Config{RuleFiles: map[string][]byte{"fast.yml": []byte(fastRules)}, AlertmanagerURLs: []string{dead.URL},
		ScrapeInterval: 50 * time.Millisecond, Sources: func() []Target { return []Target{hall(&inlet)} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	<-entered
	begin := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > drainTimeout+2*time.Second {
		t.Errorf("stopping took %v", took)
	}
}
