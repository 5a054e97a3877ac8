// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// parsed is a page as Prometheus' own parser of the format sees it.
type parsed struct {
	series map[string]float64
	types  map[string]model.MetricType
	help   map[string]string
}

func parsePage(t *testing.T, body, contentType string) parsed {
	t.Helper()
	p, err := textparse.New([]byte(body), contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatalf("%s: %v", contentType, err)
	}
	out := parsed{map[string]float64{}, map[string]model.MetricType{}, map[string]string{}}
	for {
		kind, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", contentType, err, body)
		}
		switch kind {
		case textparse.EntryType:
			name, typ := p.Type()
			out.types[string(name)] = typ
		case textparse.EntryHelp:
			name, help := p.Help()
			out.help[string(name)] = string(help)
		case textparse.EntrySeries:
			_, ts, value := p.Series()
			var l labels.Labels
			p.Labels(&l)
			if _, twice := out.series[l.String()]; twice || ts != nil {
				t.Errorf("%s: %s twice, or with a time", contentType, l)
			}
			out.series[l.String()] = value
		}
	}
}

// TestOpenMetrics reads the page in both formats with Prometheus' parsers: the same
// series and values; only the types of counters without _total differ.
func TestOpenMetrics(t *testing.T) {
	cfg := testConfig()
	energy := &Desc{Name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Help: "Energy, in \\ and \"mJ\"\nsince boot", Type: Counter, Labels: []string{"gpu", "modelName"}}
	total := &Desc{Name: "rackpulse_gpu_xid_errors_total", Help: "XIDs.", Type: Counter, Labels: []string{"gpu"}}
	power := &Desc{Name: "DCGM_FI_DEV_POWER_USAGE", Help: "", Labels: []string{"gpu"}}
	cfg.Store = NewStore()
	cfg.Store.Put(Snapshot{Source: "gpu", At: time.Now(), Interval: time.Second, Points: []Point{
		{Desc: energy, Values: []string{"0", "NVIDIA \"H100\" \\ 80GB\n"}, Value: 1.5e12},
		{Desc: energy, Values: []string{"1", "\u00b5"}, Value: 7},
		{Desc: total, Values: []string{"0"}, Value: 2},
		{Desc: power, Values: []string{"0"}, Value: 95.25},
		{Desc: power, Values: []string{"1"}, Value: -1e-9},
	}})
	h := NewHandler(cfg)
	get := func(accept string) parsed {
		t.Helper()
		w := ask(h, "GET", "/metrics", "Accept", accept)
		return parsePage(t, w.Body.String(), w.Header().Get("Content-Type"))
	}
	text, open := get(prometheusAccept), get("application/openmetrics-text")
	if len(text.series) != 5 || !maps.Equal(text.series, open.series) {
		t.Errorf("text:\n%v\nOpenMetrics:\n%v", text.series, open.series)
	}
	for name, typ := range text.types {
		family, want := name, typ
		if typ == model.MetricTypeCounter {
			var ok bool
			if family, ok = strings.CutSuffix(name, "_total"); !ok {
				want = model.MetricTypeUnknown
			}
		}
		if got := open.types[family]; got != want {
			t.Errorf("%s: %s in the text format, %s in OpenMetrics, want %s", name, typ, got, want)
		}
		if open.help[family] != text.help[name] {
			t.Errorf("%s: help %q and %q", name, text.help[name], open.help[family])
		}
	}
	if text.types[energy.Name] != model.MetricTypeCounter || open.types[energy.Name] != model.MetricTypeUnknown {
		t.Errorf("%s: %s and %s", energy.Name, text.types[energy.Name], open.types[energy.Name])
	}
}

func TestOnlyOpenMetrics(t *testing.T) {
	f := func(accept, wantType string) {
		t.Helper()
		w := ask(NewHandler(testConfig()), "GET", "/metrics", "Accept", accept)
		if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, wantType) {
			t.Errorf("%q: %s, want %s", accept, got, wantType)
		}
	}
	const open, text = "application/openmetrics-text", "text/plain"
	f(prometheusAccept, text)
	f("", text)
	f("*/*", text)
	f("text/html,application/xhtml+xml,*/*;q=0.8", text)
	f(open, open)
	f("application/openmetrics-text; version=1.0.0; charset=utf-8", open)
	f(open+";version=1.0.0,text/plain;q=0", open)
	f(open+";q=0", text)
	f(open+";q=0.9,text/plain;version=0.0.4;q=0.1", text)
	f(open+",text/*;q=0.1", text)
	f(open+",application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.1", "application/vnd.google.protobuf")
}
