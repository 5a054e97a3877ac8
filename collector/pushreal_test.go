// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/testtool"
)

// startReceiver runs a real Prometheus that takes remote writes and scrapes
// target as job "scraped".
func startReceiver(t *testing.T, target string) (base string) {
	t.Helper()
	bin := testtool.Binary(t, "prometheus")
	dir := t.TempDir()
	conf := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `
global: {scrape_interval: 250ms}
scrape_configs:
- job_name: scraped
  honor_labels: true
  static_configs: [{targets: [%q], labels: {instance: gpu001, site: ams1}}]
`, target), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := testtool.FreeAddress(t)
	cmd := exec.Command(bin, "--config.file="+conf, "--web.enable-remote-write-receiver",
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	testtool.Start(t, cmd)
	return "http://" + addr
}

// instant answers a query with the value of each series; the label job is left out.
func instant(base, query string) (map[string]string, error) {
	resp, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s", answer.Error)
	}
	out := map[string]string{}
	for _, r := range answer.Data.Result {
		delete(r.Metric, "job")
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Metric)) {
			parts = append(parts, name+"="+r.Metric[name])
		}
		out[strings.Join(parts, ",")], _ = r.Value[1].(string)
	}
	return out, nil
}

// until asks again until check is content, for at most 20 s.
func until(t *testing.T, base, query string, check func(map[string]string) string) {
	t.Helper()
	why := ""
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-ticker.C {
		got, err := instant(base, query)
		if err != nil {
			why = err.Error()
		} else if why = check(got); why == "" {
			return
		}
	}
	t.Fatalf("%s: %s", query, why)
}

// extraMetrics are metrics of every type, one with a foreign instance.
func extraMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "test_seconds", Help: "h", Buckets: []float64{2.5e-7, 0.5, 1, 1e6, 1e30}})
	h.Observe(0.7)
	s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "test_bytes", Help: "s", Objectives: map[float64]float64{0.5: 0.05, 1: 0}, MaxAge: time.Hour})
	s.Observe(3)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "test_own_info", Help: "g"}, []string{"instance", "blank"})
	g.WithLabelValues("other", "").Set(1)
	g.WithLabelValues("", "x").Set(2)
	u := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "test_untyped", Help: "u"}, func() float64 { return 5e-324 })
	reg.MustRegister(h, s, g, u, collectors.NewGoCollector())
	return reg
}

// TestPushReal holds, against a real Prometheus and for both protocols, that
// pushed series are those which a scrape of the same store gives, that series
// which vanish do so at once, and how a stop looks.
func TestPushReal(t *testing.T) {
	for _, protocol := range []string{PushV2, PushV1} {
		t.Run(protocol, func(t *testing.T) {
			store, reg := pushedStore(), extraMetrics()
			page := httptest.NewServer(NewHandler(HandlerConfig{Store: store, Extra: reg, Logger: log.NewNopLogger()}))
			defer page.Close()
			base := startReceiver(t, page.Listener.Addr().String())
			http := promconfig.DefaultHTTPClientConfig
			p, err := NewPusher(PushConfig{
				Store: store, Extra: reg, URL: base + "/api/v1/write", Protocol: protocol, HTTP: http, Interval: 250 * time.Millisecond,
				Labels: map[string]string{"instance": "gpu001", "site": "ams1", "job": "pushed"}, Logger: log.NewNopLogger(),
			})
			if err != nil {
				t.Fatal(err)
			}
			reg.MustRegister(p)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()

			sameJobs(t, base)
			phase := `pdu_phase_current_ampere{job="pushed"}`
			until(t, base, phase, func(got map[string]string) string { return want(len(got) == 1, got) })
			store.Remove("r01-a")
			removed := time.Now()
			until(t, base, phase, func(got map[string]string) string { return want(len(got) == 0, got) })
			if took := time.Since(removed); took > 10*time.Second {
				t.Errorf("the series took %s to vanish", took)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			got, err := instant(base, `{job="pushed"}`)
			if err != nil || len(got) != 1 || got["__name__=up,instance=gpu001,site=ams1"] != "0" {
				t.Errorf("after the stop: %v %v", got, err)
			}
		})
	}
}

func want(ok bool, got any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf("got %v", got)
}

// sameJobs waits until both jobs show the same series, and compares the values
// of those that do not move.
func sameJobs(t *testing.T, base string) {
	t.Helper()
	until(t, base, `{job="pushed"}`, func(pushed map[string]string) string {
		scraped, err := instant(base, `{job="scraped",__name__!~"scrape_.+"}`)
		if err != nil {
			return err.Error()
		}
		var diff []string
		for key, v := range scraped {
			moves := strings.Contains(key, "__name__=go_") || strings.Contains(key, "_push_") || strings.Contains(key, "source_read_duration")
			if p, ok := pushed[key]; !ok || p != v && !moves {
				diff = append(diff, fmt.Sprintf("scraped %s %s, pushed %q", key, v, p))
			}
		}
		for key := range pushed {
			if _, ok := scraped[key]; !ok {
				diff = append(diff, "only pushed: "+key)
			}
		}
		for _, must := range []string{"__name__=up,", "DCGM_FI_DEV_GPU_TEMP", "rack_inlet_temperature_celsius", "le=1.0", "quantile=1.0", "instance=other"} {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(pushed)), func(key string) bool { return strings.Contains(key, must) }) {
				diff = append(diff, "no "+must)
			}
		}
		if len(pushed) < 40 {
			diff = append(diff, fmt.Sprintf("only %d series", len(pushed)))
		}
		return strings.Join(diff, "\n")
	})
}

// TestPushAuth holds that a token and a CA of files are used.
func TestPushAuth(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	seen := make(chan string, 100)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization") + " " + r.Header.Get("User-Agent")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	token := write("token", []byte("s3cret\n"))
	cfg := PushConfig{
		Store: pushedStore(), URL: srv.URL, Interval: 100 * time.Millisecond, Protocol: PushV1, Logger: log.NewNopLogger(),
		HTTP: promconfig.HTTPClientConfig{BearerTokenFile: token, TLSConfig: promconfig.TLSConfig{CAFile: write("ca.pem", ca)}},
	}
	p, err := NewPusher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	if got := <-seen; !strings.HasPrefix(got, "Bearer s3cret rackpulse/") {
		t.Errorf("request with %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPushConfig holds what is refused, and that the message names the key.
func TestPushConfig(t *testing.T) {
	for want, change := range map[string]func(*PushConfig){
		"url: must be http":          func(c *PushConfig) { c.URL = "prom:9090" },
		"with a host":                func(c *PushConfig) { c.URL = "" },
		"use basic_auth":             func(c *PushConfig) { c.URL = "http://me:pw@prom/api/v1/write" },
		"interval: -1s":              func(c *PushConfig) { c.Interval = -time.Second },
		"interval: 15ns":             func(c *PushConfig) { c.Interval = 15 },
		`protocol: "3"`:              func(c *PushConfig) { c.Protocol = "3" },
		`labels: invalid name "a-b"`: func(c *PushConfig) { c.Labels = map[string]string{"a-b": "c"} },
		`invalid name "__name__"`:    func(c *PushConfig) { c.Labels = map[string]string{"__name__": "c"} },
		"the value of site":          func(c *PushConfig) { c.Labels = map[string]string{"site": "\xff"} },
		"no-such-token":              func(c *PushConfig) { c.HTTP.BearerTokenFile = "no-such-token" },
		"no-such-password": func(c *PushConfig) {
			c.HTTP.BasicAuth = &promconfig.BasicAuth{Username: "u", PasswordFile: "no-such-password"}
		},
		"no-such-ca": func(c *PushConfig) { c.HTTP.TLSConfig.CAFile = "no-such-ca" },
		"at most one of": func(c *PushConfig) {
			c.HTTP.BearerTokenFile, c.HTTP.BasicAuth = "t", &promconfig.BasicAuth{Username: "u"}
		},
	} {
		cfg := PushConfig{Store: NewStore(), URL: "http://prom/api/v1/write", Logger: log.NewNopLogger()}
		change(&cfg)
		if _, err := NewPusher(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "push: ") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
