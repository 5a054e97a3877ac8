// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"fmt"
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

	addr := testtool.FreeAddress(t)
	cmd := exec.Command(bin, "--config.file="+conf, "--web.config.file="+web,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	testtool.Start(t, cmd)
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

// realPrometheus is a Querier over a Prometheus that has scraped the small
// hall and raised its alert, and the server's address.
func realPrometheus(t *testing.T) (Querier, string) {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hall_temperature_celsius{rack_id=\"r01\"} 31.5")
		fmt.Fprintln(w, "hall_temperature_celsius{rack_id=\"r02\"} 22")
		fmt.Fprintln(w, "hall_odd_value NaN")
	}))
	t.Cleanup(target.Close)
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
	eventually(t, "alert", func() error {
		alerts, err := q.Alerts(t.Context())
		if err == nil && len(alerts) == 0 {
			err = errors.New("no alert yet")
		}
		return err
	})
	return q, addr
}

func TestRealPrometheus(t *testing.T) {
	q, addr := realPrometheus(t)
	t.Run("alerts", func(t *testing.T) {
		alerts, err := q.Alerts(t.Context())
		if err != nil || len(alerts) != 1 {
			t.Fatalf("alerts %v, %v", alerts, err)
		}
		a := alerts[0]
		if got := fmt.Sprintln(a.State, a.Value, a.Labels["rack_id"], a.Labels["severity"], a.Annotations["summary"]); got != "firing 31.5 r01 warning rack r01 is warm\n" {
			t.Errorf("got %q from %+v", got, a)
		}
		if time.Since(a.ActiveAt) > time.Minute {
			t.Errorf("active since %v", a.ActiveAt)
		}
	})
	t.Run("instant", func(t *testing.T) { realInstant(t, q) })
	t.Run("range", func(t *testing.T) { realRange(t, q) })
	t.Run("without password", func(t *testing.T) {
		anonymous, err := NewHTTP(Config{URL: "http://" + addr})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := anonymous.Instant(t.Context(), "1", time.Now()); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("got %v", err)
		}
	})
}

func realInstant(t *testing.T, q Querier) {
	now := time.Now()
	f := func(expr, want string) {
		t.Helper()
		samples, err := q.Instant(t.Context(), expr, now)
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, s := range samples {
				got += fmt.Sprintf("%s%s=%v ", s.Labels["__name__"], s.Labels["rack_id"], s.Value)
				if !s.At.Equal(now.Truncate(time.Millisecond)) {
					t.Errorf("%s: at %v, want %v", expr, s.At, now)
				}
			}
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
	f(`hall_temperature_celsius{rack_id="r02"}`, "hall_temperature_celsiusr02=22 ")
	f("1 + 2", "=3 ")
	f("no_such_metric", "")
	f("hall_odd_value", "hall_odd_value=NaN ")
	f("quantile(2, vector(3))", "=+Inf ") // with a warning of the engine, which is no error
	f("sum(", "bad_data")
	f("sum(", `"sum("`)
}

func realRange(t *testing.T, q Querier) {
	from := time.Now().Truncate(time.Second).Add(-4 * time.Second)
	series, err := q.Range(t.Context(), "vector(7)", from, from.Add(4*time.Second), 2*time.Second)
	if err != nil || len(series) != 1 || len(series[0].Points) != 3 {
		t.Fatalf("range %+v, %v", series, err)
	}
	for i, p := range series[0].Points {
		if want := from.Add(time.Duration(i) * 2 * time.Second); p.Value != 7 || !p.At.Equal(want) {
			t.Errorf("point %d: %+v, want 7 at %v", i, p, want)
		}
	}
	if _, err = q.Range(t.Context(), "vector(1)", from, from.Add(-time.Second), time.Second); err == nil || !strings.Contains(err.Error(), "end timestamp") {
		t.Errorf("backward range: %v", err)
	}
}
