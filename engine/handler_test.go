// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// served is an engine with a firing alert and five minutes of data up to now.
func served(t *testing.T) (*Engine, *httptest.Server, time.Time) {
	t.Helper()
	inlet := 31.5
	e := newEngine(t, Config{RuleFiles: map[string][]byte{"hall.yml": []byte(hallRules)}})
	now := time.Now().Truncate(time.Second)
	for s := -300; s <= 0; s += 15 {
		at := now.Add(time.Duration(s) * time.Second)
		if err := e.Ingest(t.Context(), at, []Target{hall(&inlet)}); err != nil {
			t.Fatal(err)
		}
		if err := e.EvalAt(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(e.Handler())
	t.Cleanup(server.Close)
	return e, server, now
}

// TestPromtool reads the engine with Prometheus' own client.
func TestPromtool(t *testing.T) {
	bin := testtool.Binary(t, "promtool")
	_, server, now := served(t)
	f := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("promtool %v: %v\n%s\nwant %q in it", args, err, out, want)
		}
	}
	from, to := now.Add(-time.Minute).Format(time.RFC3339), now.Format(time.RFC3339)
	f(fmt.Sprintf(`rack:inlet:max{rack_id="r01", site="ams1"} => 31.5 @[%d]`, now.Unix()),
		"query", "instant", "--time="+to, server.URL, "rack:inlet:max")
	f("scalar: 3", "query", "instant", server.URL, "1+2")
	f(fmt.Sprintf("1 @[%d]\n1 @[%d]", now.Unix()-60, now.Unix()-30), "query", "range", "--start="+from, "--end="+to, "--step=30s", server.URL, "up")
	f(`{__name__="rack_inlet_temperature_celsius", instance="gpu001", job="rackpulse", rack_id="r01", sensor="r01-in-top", site="ams1"}`,
		"query", "series", "--match=rack_inlet_temperature_celsius", server.URL)
	f("rack:inlet:max", "query", "labels", server.URL, "__name__")
}

// TestOurClientReadsTheEngine: the HTTP Querier gives what the engine gives.
func TestOurClientReadsTheEngine(t *testing.T) {
	e, server, now := served(t)
	q, err := query.NewHTTP(query.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, ask func(query.Querier) (any, error)) {
		t.Helper()
		direct, err1 := ask(e)
		remote, err2 := ask(q)
		if a, b := fmt.Sprintf("%+v %v", direct, err1), fmt.Sprintf("%+v %v", remote, err2); a != b {
			t.Errorf("%s:\n%s\n%s", what, a, b)
		}
	}
	same("instant", func(q query.Querier) (any, error) { return q.Instant(t.Context(), "rack:inlet:max", now) })
	same("scalar", func(q query.Querier) (any, error) { return q.Instant(t.Context(), "-Inf", now) })
	same("range", func(q query.Querier) (any, error) {
		return q.Range(t.Context(), "up", now.Add(-time.Minute), now, 15*time.Second)
	})
	same("alerts", func(q query.Querier) (any, error) { return q.Alerts(t.Context()) })
	if alerts, _ := q.Alerts(t.Context()); len(alerts) != 1 || alerts[0].State != "firing" || alerts[0].Value != 31.5 {
		t.Errorf("alerts %+v", alerts)
	}
}

func TestAPI(t *testing.T) {
	_, server, now := served(t)
	f := func(path string, code int, wants ...string) {
		t.Helper()
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != code || !json.Valid(body) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, code, body)
		}
		for _, want := range wants {
			if !strings.Contains(string(body), want) {
				t.Errorf("%s: %q is not in %s", path, want, body)
			}
		}
	}
	f("/api/v1/status/buildinfo", 200, `"status":"success"`, `"version":"3.`)
	f("/api/v1/labels", 200, `"data":["__name__","alertname","alertstate","instance","job","rack_id",`)
	f("/api/v1/labels?match[]=up", 200, `"data":["__name__","instance","job","site"]`)
	f("/api/v1/label/rack_id/values", 200, `"data":["r01"]`)
	f("/api/v1/label/nothing/values", 200, `"data":[]`)
	f("/api/v1/label/__name__/values?limit=2", 200, `"data":["ALERTS","ALERTS_FOR_STATE"]`, "results truncated")
	f("/api/v1/series?match[]=up&match[]=%7Bsite=%22ams1%22,__name__=%22up%22%7D", 200, `"data":[{"__name__":"up","instance":"gpu001","job":"rackpulse","site":"ams1"}]`)
	f("/api/v1/series?match[]=nothing", 200, `"data":[]`)
	f("/api/v1/rules", 200, `"name":"records","file":"hall.yml"`, `"type":"recording"`, `"type":"alerting","state":"firing","duration":60`,
		`"health":"ok"`, `"value":"3.15e+01"`, `"severity":"critical"`)
	f("/api/v1/rules?type=record", 200, `{"name":"alerts","file":"hall.yml","rules":[]`)
	f("/api/v1/alerts", 200, `"state":"firing"`)
	f("/api/v1/query?query=vector(1)", 200, `"resultType":"vector","result":[{"metric":{},"value":[`)
	f(fmt.Sprintf("/api/v1/query?query=0/0&time=%d.5", now.Unix()), 200, fmt.Sprintf(`"resultType":"scalar","result":[%d.5,"NaN"]`, now.Unix()))
	f("/api/v1/query?query=rate(up[1m])", 200, `"infos":["PromQL info`)

	f("/api/v1/query?query=sum(", 400, `"errorType":"bad_data"`)
	f("/api/v1/query?query=up&time=noon", 400, "neither unix seconds nor RFC 3339")
	f("/api/v1/query?query=up&timeout=soon", 400, "timeout")
	f("/api/v1/query?query=up%20*%20on()%20(up%20or%20vector(1))", 422, `"errorType":"execution"`, "many-to-many")
	f("/api/v1/query_range?query=up&start=1&end=2", 400, "step")
	f("/api/v1/query_range?query=up&start=1&end=2&step=0", 400, "step")
	f("/api/v1/query_range?query=up&end=2&step=1", 400, "start: missing")
	f("/api/v1/query_range?query=up&start=2&end=1&step=1", 400, "end timestamp")
	f("/api/v1/query_range?query=up&start=0&end=11002&step=1", 400, "exceeded maximum resolution")
	f("/api/v1/query_range?query=up&start=1e300&end=2&step=1", 400, "out of range")
	f("/api/v1/series", 400, "no match[]")
	f("/api/v1/series?match[]=up%7B", 400, "match[]")
	f("/api/v1/labels?limit=x", 400, "limit")
	f("/api/v1/rules?type=x", 400, "want alert or record")

	resp, err := http.PostForm(server.URL+"/api/v1/query", url.Values{"query": {strings.Repeat("1+", maxForm) + "1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("huge form: %s", resp.Status)
	}
}

func TestAPIAfterClose(t *testing.T) {
	e, server, _ := served(t)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(server.URL + "/api/v1/query?query=up")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s", resp.Status)
	}
}
