// SPDX-License-Identifier: Apache-2.0

// Package hall shows a simulated hall as the agents and the registry would, in
// virtual time: for tests and benchmarks that feed a rule engine without
// processes, sockets and clocks.
package hall

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Page is one scrape: families by name. It is a prometheus.Gatherer.
type Page map[string]*dto.MetricFamily

var _ prometheus.Gatherer = Page{}

// Labels are the labels of one series, made once and used in every scrape.
type Labels []*dto.LabelPair

// L makes labels from names and values; pairs without a value are left out.
func L(pairs ...string) Labels {
	var out Labels
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
		}
	}
	return out
}

// And returns the labels with more of them.
func (l Labels) And(pairs ...string) Labels { return append(l[:len(l):len(l)], L(pairs...)...) }

// Set adds a sample.
func (p Page) Set(name string, v float64, l Labels) {
	f := p[name]
	if f == nil {
		f = &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum()}
		p[name] = f
	}
	f.Metric = append(f.Metric, &dto.Metric{Label: l, Gauge: &dto.Gauge{Value: &v}})
}

// Gather implements prometheus.Gatherer.
func (p Page) Gather() ([]*dto.MetricFamily, error) {
	out := make([]*dto.MetricFamily, 0, len(p))
	for _, f := range p {
		out = append(out, f)
	}
	return out, nil
}

// Without takes the samples of a metric away whose labels hold a value.
func (p Page) Without(metric, value string) {
	f := p[metric]
	if f == nil {
		return
	}
	kept := f.Metric[:0]
	for _, m := range f.Metric {
		gone := false
		for _, l := range m.Label {
			gone = gone || l.GetValue() == value
		}
		if !gone {
			kept = append(kept, m)
		}
	}
	if f.Metric = kept; len(kept) == 0 {
		delete(p, metric)
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
