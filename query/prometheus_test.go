// SPDX-License-Identifier: Apache-2.0

package query

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/testtool"
)

// startPrometheus runs a real Prometheus that scrapes target every second and
// alerts on hall_temperature_celsius > 28. It asks for basic authentication.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	bin := testtool.Binary(t, "prometheus")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := write("rules.yml", `
groups:
- name: hall
  interval: 1s
  rules:
  - alert: HallWarm
    expr: hall_temperature_celsius > 28
    labels: {severity: warning}
    annotations: {summary: "rack {{ $labels.rack_id }} is warm"}
`)
	conf := write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 1s}
rule_files: [%s]
scrape_configs:
- job_name: hall
  static_configs: [{targets: [%q]}]
`, rules, target))
	// bcrypt of "hall-secret", cost 4.
	web := write("web.yml", "basic_auth_users: {ops: $2b$04$pzb.BDXrdaVK3e9ML0ZV8egMNpt2zZYjv0DXTivu5I8ehdAdH/R8.}\n")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	var logs bytes.Buffer
	cmd := exec.Command(bin, "--config.file="+conf, "--web.config.file="+web,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &logs, &logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	return addr
}

// eventually asks again until check says yes.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	var err error
	for {
		if err = check(); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestRealPrometheus(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hall_temperature_celsius{rack_id=\"r01\"} 31.5")
		fmt.Fprintln(w, "hall_temperature_celsius{rack_id=\"r02\"} 22")
		fmt.Fprintln(w, "hall_odd_value NaN")
	}))
	defer target.Close()
	addr := startPrometheus(t, strings.TrimPrefix(target.URL, "http://"))

	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("hall-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := NewHTTP(Config{URL: "http://" + addr + "/", HTTP: promconfig.HTTPClientConfig{
		BasicAuth: &promconfig.BasicAuth{Username: "ops", PasswordFile: secret}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	eventually(t, "alert", func() error {
		alerts, err := q.Alerts(ctx)
		if err == nil && len(alerts) == 0 {
			err = fmt.Errorf("no alert yet")
		}
		return err
	})

	alerts, err := q.Alerts(ctx)
	if err != nil || len(alerts) != 1 {
		t.Fatalf("alerts %v, %v", alerts, err)
	}
	a := alerts[0]
	if a.State != "firing" || a.Value != 31.5 || a.Labels["rack_id"] != "r01" || a.Labels["severity"] != "warning" ||
		a.Annotations["summary"] != "rack r01 is warm" || time.Since(a.ActiveAt) > time.Minute {
		t.Errorf("alert %+v", a)
	}

	now := time.Now()
	samples, err := q.Instant(ctx, `hall_temperature_celsius{rack_id="r02"}`, now)
	if err != nil || len(samples) != 1 || samples[0].Value != 22 || samples[0].Labels["__name__"] != "hall_temperature_celsius" ||
		!samples[0].At.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("instant %+v, %v (asked for %v)", samples, err, now)
	}
	samples, err = q.Instant(ctx, "1 + 2", now)
	if err != nil || len(samples) != 1 || samples[0].Value != 3 || len(samples[0].Labels) != 0 {
		t.Errorf("scalar %+v, %v", samples, err)
	}
	if samples, err = q.Instant(ctx, "no_such_metric", now); err != nil || len(samples) != 0 {
		t.Errorf("nothing %+v, %v", samples, err)
	}
	if samples, err = q.Instant(ctx, "hall_odd_value", now); err != nil || len(samples) != 1 || samples[0].Value == samples[0].Value {
		t.Errorf("NaN %+v, %v", samples, err)
	}

	from := now.Truncate(time.Second).Add(-4 * time.Second)
	series, err := q.Range(ctx, "vector(7)", from, from.Add(4*time.Second), 2*time.Second)
	if err != nil || len(series) != 1 || len(series[0].Points) != 3 {
		t.Fatalf("range %+v, %v", series, err)
	}
	for i, p := range series[0].Points {
		if want := from.Add(time.Duration(i) * 2 * time.Second); p.Value != 7 || !p.At.Equal(want) {
			t.Errorf("point %d: %+v, want 7 at %v", i, p, want)
		}
	}

	// A remark of the engine is not a partial answer.
	if _, err := q.Instant(ctx, "rate(hall_temperature_celsius[1m])", now); err != nil {
		t.Errorf("remark taken for an error: %v", err)
	}
	_, err = q.Instant(ctx, "sum(", now)
	if err == nil || !strings.Contains(err.Error(), "bad_data") || !strings.Contains(err.Error(), `"sum("`) {
		t.Errorf("parse error: %v", err)
	}
	_, err = q.Range(ctx, "vector(1)", from, from.Add(-time.Second), time.Second)
	if err == nil || !strings.Contains(err.Error(), "end timestamp") {
		t.Errorf("backward range: %v", err)
	}

	anonymous, err := NewHTTP(Config{URL: "http://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anonymous.Instant(context.Background(), "1", now); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without password: %v", err)
	}
}
