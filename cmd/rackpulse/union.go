// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// part is one page of metrics with the instance label that a scrape of its own
// would have given it.
type part struct {
	instance string
	gatherer prometheus.Gatherer
}

// union shows the pages of several agents as one. Each series gets its part's
// instance label unless it has one, so that a scrape of the union with
// honor_labels gives the series that separate scrapes give. The parts' families
// and metrics are not changed: other readers share them.
type union func() []part

// Gather implements prometheus.Gatherer. A part that fails is left out and told.
func (u union) Gather() ([]*dto.MetricFamily, error) {
	byName := map[string]*dto.MetricFamily{}
	var errs []error
	for _, p := range u() {
		families, err := p.gatherer.Gather()
		if err != nil {
			errs = append(errs, err)
		}
		for _, f := range families {
			whole, ok := byName[f.GetName()]
			if !ok {
				whole = &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}
				byName[f.GetName()] = whole
			}
			if whole.GetType() != f.GetType() {
				continue // one name has one type; the first part's stays
			}
			for _, m := range f.Metric {
				whole.Metric = append(whole.Metric, withInstance(m, p.instance))
			}
		}
	}
	out := make([]*dto.MetricFamily, 0, len(byName))
	for _, f := range byName {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, errors.Join(errs...)
}

// withInstance returns m with an instance label, as a copy.
func withInstance(m *dto.Metric, instance string) *dto.Metric {
	name := "instance"
	if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name }) {
		return m
	}
	labels := make([]*dto.LabelPair, len(m.Label), len(m.Label)+1)
	copy(labels, m.Label)
	return &dto.Metric{
		Label: append(labels, &dto.LabelPair{Name: &name, Value: &instance}),
		Gauge: m.Gauge, Counter: m.Counter, Summary: m.Summary, Untyped: m.Untyped, Histogram: m.Histogram, TimestampMs: m.TimestampMs,
	}
}
