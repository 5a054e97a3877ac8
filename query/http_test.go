// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"
)

var when = time.UnixMilli(1_700_000_000_250)

// serve returns a Querier over a server that answers with handler.
func serve(t *testing.T, cfg Config, handler http.HandlerFunc) Querier {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cfg.URL = strings.Replace(server.URL, "http://", "http://ops:hunter2@", 1) + "/prometheus/"
	q, err := NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// silent answers nothing until the client hangs up, which the server notices
// once the body is read.
func silent(_ http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	<-r.Context().Done()
}

func TestErrorsOfTheStore(t *testing.T) {
	f := func(name string, cfg Config, handler http.HandlerFunc, want string) {
		t.Helper()
		q := serve(t, cfg, handler)
		expr := `sum(x) by (rack_id) + ` + strings.Repeat("y", 500)
		_, err := q.Instant(t.Context(), expr, when)
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		text := err.Error()
		if !strings.Contains(text, want) || !strings.Contains(text, "sum(x) by (rack_id)") || !strings.Contains(text, "/prometheus") {
			t.Errorf("%s: %q, want %q, the url and the expression in it", name, text, want)
		}
		if strings.Contains(text, "hunter2") || len(text) > 700 {
			t.Errorf("%s: %d bytes: %q", name, len(text), text)
		}
	}
	body := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	f("html error page", Config{}, body(502, "<html>"+strings.Repeat("bad gateway ", 100)), `status 502, not the prometheus api: "<html>bad gateway`)
	f("html with 200", Config{}, body(200, "<html>sign in</html>"), "status 200, not the prometheus api")
	f("422", Config{}, body(422, `{"status":"error","errorType":"execution","error":"many-to-many matching not allowed"}`), "status 422: execution: many-to-many matching")
	f("success with 500", Config{}, body(500, `{"status":"success","data":{}}`), "status 500")
	f("truncated json", Config{}, body(200, `{"status":"success","data":{"resultType":"vec`), "not the prometheus api")
	f("thanos lost a store", Config{}, body(200, `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["PromQL info: x","store 10.0.0.7 unavailable"]}`), "partial answer: store 10.0.0.7 unavailable")
	f("victoriametrics lost a node", Config{}, body(200, `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`), "partial answer")
	f("native histogram", Config{}, body(200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1"}]}]}}`), "native histograms")
	f("bad value", Config{}, body(200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"warm"]}]}}`), "bad value")
	f("no value", Config{}, body(200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`), "without a value")
	f("a matrix", Config{}, body(200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), `result type "matrix"`)
	f("redirect", Config{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
	}, "status 302")
	f("too large", Config{MaxBytes: 1000}, body(200, strings.Repeat("x", 1001)), "larger than 1000 bytes")
	f("slow", Config{Timeout: 30 * time.Millisecond}, silent, "no answer within 30ms")
}

func TestRequestsOnTheWire(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		seen = r
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/query_range" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		kind := "vector"
		if strings.HasSuffix(r.URL.Path, "range") {
			kind = "matrix"
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":[]}}`, kind)
	}))
	defer server.Close()
	q, err := NewHTTP(Config{URL: server.URL, HTTP: promconfig.HTTPClientConfig{
		Authorization: &promconfig.Authorization{Type: "Bearer", CredentialsFile: token}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Instant(t.Context(), "up", when); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(seen.Method, seen.URL, " ", seen.Form.Get("time"), " ", seen.Form.Get("query"), " ", seen.Header.Get("Authorization"))
	if got != "POST/api/v1/query 1700000000.250 up Bearer s3cret" {
		t.Errorf("instant: %s", got)
	}
	// A proxy that lets only GET through.
	if _, err := q.Range(t.Context(), "up", when, when.Add(time.Minute), 15*time.Second); err != nil {
		t.Fatal(err)
	}
	got = fmt.Sprint(seen.Method, seen.URL.Path, " ", seen.Form.Get("start"), " ", seen.Form.Get("end"), " ", seen.Form.Get("step"))
	if got != "GET/api/v1/query_range 1700000000.250 1700000060.250 15" {
		t.Errorf("range: %s", got)
	}
}

func TestCancelledByTheCaller(t *testing.T) {
	q := serve(t, Config{}, silent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Instant(ctx, "up", when); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNoServer(t *testing.T) {
	q, err := NewHTTP(Config{URL: "http://ops:hunter2@127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Alerts(t.Context())
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "http://127.0.0.1:1: ") {
		t.Errorf("got %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	f := func(cfg Config, want string) {
		t.Helper()
		_, err := NewHTTP(cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: got %v, want %q", cfg, err, want)
		}
	}
	f(Config{}, "want http://HOST")
	f(Config{URL: "prom:9090"}, "want http://HOST")
	f(Config{URL: "http://ops:hunter2@prom:port"}, "not a valid url")
	f(Config{URL: "ops:hunter2@prom:9090"}, "want http://HOST")
	f(Config{URL: "ftp://ops:hunter2@prom"}, "want http://HOST")
	f(Config{URL: "http://ops:hunter2@prom", HTTP: promconfig.HTTPClientConfig{BasicAuth: &promconfig.BasicAuth{Username: "x"}}}, "basic_auth")
	f(Config{URL: "https://prom", HTTP: promconfig.HTTPClientConfig{TLSConfig: promconfig.TLSConfig{CAFile: "no/such/ca.pem"}}}, "no/such/ca.pem")
}

func TestAlertStates(t *testing.T) {
	q := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"alerts":[
			{"labels":{"alertname":"A"},"state":"pending","activeAt":"2026-01-02T03:04:05.5Z","value":"1e+00"},
			{"labels":{"alertname":"B"},"state":"inactive","value":"0"}]}}`)
	})
	alerts, err := q.Alerts(t.Context())
	if err != nil || len(alerts) != 1 {
		t.Fatalf("%v %v", alerts, err)
	}
	if a := alerts[0]; a.State != "pending" || a.Value != 1 || !a.ActiveAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC)) {
		t.Errorf("%+v", a)
	}
}
