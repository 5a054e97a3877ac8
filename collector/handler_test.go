// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// ask sends a request to a handler.
func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func testConfig() HandlerConfig {
	s := NewStore()
	s.SetIdentity(testIdentity)
	s.Put(Snapshot{Source: "gpu", Points: []Point{{Desc: descEnergy, Values: gpuValues(0), Value: 1e9}}})
	return HandlerConfig{Store: s, Logger: log.NewNopLogger()}
}

func TestMethodsAndPaths(t *testing.T) {
	h := NewHandler(testConfig())
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/metrics", 200}, {"HEAD", "/metrics", 200}, {"POST", "/metrics", 405}, {"DELETE", "/metrics", 405},
		{"GET", "/", 200}, {"POST", "/", 405}, {"GET", "/other", 404}, {"GET", "/-/healthy", 200}, {"GET", "/-/ready", 200},
		{"POST", "/-/healthy", 405}, {"GET", "/-/reload", 405}, {"PUT", "/-/reload", 405}, {"POST", "/-/reload", 403},
		{"GET", "/-/release", 405}, {"POST", "/-/release", 403}, {"POST", "/-/acquire", 403}, {"POST", "/-/quit", 404},
	} {
		if w := ask(h, c.method, c.path); w.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
}

func TestLifecycle(t *testing.T) {
	cfg := testConfig()
	calls := ""
	cfg.Reload = func(context.Context) error { calls += "reload "; return nil }
	cfg.Release = func(_ context.Context, d time.Duration) error {
		calls += "release " + d.String() + " "
		return errors.New("gpu: still in use")
	}
	h := NewHandler(cfg)
	if w := ask(h, "POST", "/-/reload"); w.Code != 200 {
		t.Errorf("reload: %d", w.Code)
	}
	if w := ask(h, "POST", "/-/release"); w.Code != 500 || w.Body.String() != "gpu: still in use\n" {
		t.Errorf("release: %d %q", w.Code, w.Body)
	}
	if w := ask(h, "POST", "/-/release?for=10m"); w.Code != 500 {
		t.Errorf("release for 10 m: %d", w.Code)
	}
	for _, d := range []string{"10", "-1s", "0s", "soon"} {
		if w := ask(h, "POST", "/-/release?for="+d); w.Code != 400 || !strings.Contains(w.Body.String(), d) {
			t.Errorf("release for %s: %d %q", d, w.Code, w.Body)
		}
	}
	if w := ask(h, "POST", "/-/acquire"); w.Code != 403 {
		t.Errorf("acquire: %d", w.Code)
	}
	if w := ask(h, "POST", "/-/reload", "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
		t.Errorf("reload from a foreign page: %d", w.Code)
	}
	if calls != "reload release 0s release 10m0s " {
		t.Errorf("calls: %q", calls)
	}
}

func TestReady(t *testing.T) {
	cfg := testConfig()
	cfg.Sources = func() []string { return []string{"gpu", "r01-a"} }
	h := NewHandler(cfg)
	want := func(status int) {
		t.Helper()
		if w := ask(h, "GET", "/-/ready"); w.Code != status {
			t.Errorf("ready: %d, want %d", w.Code, status)
		}
		if w := ask(h, "GET", "/-/healthy"); w.Code != 200 {
			t.Errorf("healthy: %d", w.Code)
		}
	}
	want(503)
	cfg.Store.SetStatus("gpu", Status{Up: true})
	cfg.Store.SetStatus("r01-a", Status{Reason: "not read yet"})
	want(503)
	cfg.Store.SetStatus("r01-a", Status{Consecutive: 1, Reason: "no route to host"})
	want(200)
}

// Prometheus 3's header: OpenMetrics is preferred, text accepted.
const prometheusAccept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
	"application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"

func TestFormats(t *testing.T) {
	h := NewHandler(testConfig())
	plain := ask(h, "GET", "/metrics").Body.String()
	if !strings.Contains(plain, "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n") {
		t.Errorf("page:\n%s", plain)
	}
	w := ask(h, "GET", "/metrics", "Accept", prometheusAccept, "Accept-Encoding", "gzip")
	if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "text/plain") || w.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("headers %v", w.Header())
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := io.ReadAll(z)
	if err != nil || string(unzipped) != plain {
		t.Errorf("unzipped (%v):\n%s", err, unzipped)
	}
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	w = ask(h, "GET", "/metrics", "Accept", protobuf)
	var f dto.MetricFamily
	dec := expfmt.NewDecoder(w.Body, expfmt.NewFormat(expfmt.TypeProtoDelim))
	if err := dec.Decode(&f); err != nil || f.GetName() != descEnergy.Name || f.Metric[0].GetCounter().GetValue() != 1e9 {
		t.Errorf("protobuf: %v %v", err, &f)
	}
}

func TestScrapesAreBounded(t *testing.T) {
	cfg := testConfig()
	entered, leave := make(chan struct{}), make(chan struct{})
	cfg.Extra = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		entered <- struct{}{}
		<-leave
		return nil, nil
	})
	cfg.MaxScrapes = 1
	h := NewHandler(cfg)
	first := make(chan int)
	go func() { first <- ask(h, "GET", "/metrics").Code }()
	<-entered
	if w := ask(h, "GET", "/metrics"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("second scrape: %d", w.Code)
	}
	close(leave)
	if code := <-first; code != 200 {
		t.Errorf("first scrape: %d", code)
	}
}

func TestExtraFamilies(t *testing.T) {
	cfg := testConfig()
	reg := prometheus.NewRegistry()
	for name, v := range map[string]float64{"A_first": 1, descEnergy.Name: 2, "go_info": 3, "zlast": 4} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "x"})
		g.Set(v)
		reg.MustRegister(g)
	}
	cfg.Extra = reg
	got := samplesOf(ask(NewHandler(cfg), "GET", "/metrics").Body.String())
	want := []string{"A_first 1", samples(t, cfg.Store, "DCGM")[0], "go_info 3", "zlast 4"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}

	// A part that fails does not take the page along.
	cfg.Extra = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("no /proc") })
	w := ask(NewHandler(cfg), "GET", "/metrics")
	if got := samplesOf(w.Body.String()); w.Code != 200 || len(got) != 1 {
		t.Errorf("%d %q", w.Code, got)
	}
}

func samplesOf(page string) (lines []string) {
	for line := range strings.Lines(page) {
		if line[0] != '#' {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func TestLandingPage(t *testing.T) {
	cfg := testConfig()
	cfg.Version = "1.2.3"
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cfg.Store.SetStatus("gpu", Status{Up: true, Reason: "nvml: libdcgm.so.4 not found", Since: at, LastSample: at.Add(time.Minute)})
	cfg.Store.SetStatus("r01-a", Status{Consecutive: 4, Reason: "<script>alert(1)</script>", Since: at})
	cfg.Store.SetStatus("r01-b", Status{Reason: "not read yet"})
	cfg.Store.SetSimulated("facility", true)
	w := ask(NewHandler(cfg), "GET", "/")
	page := w.Body.String()
	for _, want := range []string{
		"RackPulse agent gpu001", "Rack r01 (labels from: registry), version 1.2.3.", "Simulated data: facility.",
		`<span class="up">up</span>`, "nvml: libdcgm.so.4 not found", "2026-03-01 12:01:00Z",
		`<span class="down">down</span>`, "&lt;script&gt;", "<td>4</td>", "starting", `<a href="metrics">`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script>") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Errorf("unsafe page:\n%s", page)
	}
}
