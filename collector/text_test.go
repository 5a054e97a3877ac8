// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// TestTextIsThatOfExpfmt compares the page with what Prometheus' own encoder makes
// of the same families, over names, texts and numbers that need care.
func TestTextIsThatOfExpfmt(t *testing.T) {
	cfg := testConfig()
	odd := &Desc{Name: "odd", Help: "Quote \" backslash \\ and\nnewline, ümlaut.", Labels: []string{"text"}}
	none := &Desc{Name: "unlabelled_total", Type: Counter}
	snap := Snapshot{Source: "odd"}
	for i, v := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 999999, 1e6, -999999, -1e6, 1e15, 123456.5, 5e-324, 1e-5,
		math.MaxFloat64, math.MaxInt64, math.MinInt64, 9007199254740993, 1 << 40} {
		text := []string{"", "\"", "\\", "\n", "a\\nb\"c\n", "ü\xff", "{}", " "}[i%8] + strings.Repeat("x", i)
		snap.Points = append(snap.Points, Point{Desc: odd, Values: []string{text}, Value: v})
	}
	cfg.Store.Put(snap)
	cfg.Store.Put(Snapshot{Source: "none", Points: []Point{{Desc: none, Value: 3}}})
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "own", Help: "x"}, func() float64 { return 7 }))
	cfg.Extra = reg
	families, err := merged{cfg.Store, reg}.Gather()
	if err != nil || len(families) < 4 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	var want bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&want, f); err != nil {
			t.Fatal(err)
		}
	}
	w := ask(NewHandler(cfg), "GET", "/metrics")
	if got := w.Body.String(); got != want.String() {
		t.Errorf("got\n%s\nwant\n%s", got, want.String())
	}
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("type %q", got)
	}
	// A part of the page is left to promhttp.
	if got := samplesOf(ask(NewHandler(cfg), "GET", "/metrics?name[]=own").Body.String()); len(got) != 1 || got[0] != "own 7" {
		t.Errorf("by name: %q", got)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "identity": false, "gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0, deflate": false,
		"gzip;q=1.0, br": true, "x-gzip": false, "*": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}
