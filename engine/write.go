// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

var errTooMany = fmt.Errorf("more than %d samples", maxTargetSamples)

// writer writes one target's samples of one round.
type writer struct {
	app     storage.AppenderV2
	state   *targetState
	round   uint64
	at      int64 // unix milliseconds
	samples int
	key     []byte
	builder labels.ScratchBuilder

	rejected int // samples the storage refused
	first    error
}

// families writes metric families; it stops at errTooMany.
func (w *writer) families(families []*dto.MetricFamily) error {
	for _, f := range families {
		for _, m := range f.Metric {
			w.metric(f, m)
			if w.samples > maxTargetSamples {
				return errTooMany
			}
		}
	}
	return nil
}

func (w *writer) metric(f *dto.MetricFamily, m *dto.Metric) {
	name := f.GetName()
	switch {
	case m.Gauge != nil:
		w.sample(m, name, "", "", m.Gauge.GetValue())
	case m.Counter != nil:
		w.sample(m, name, "", "", m.Counter.GetValue())
	case m.Untyped != nil:
		w.sample(m, name, "", "", m.Untyped.GetValue())
	case m.Summary != nil:
		for _, q := range m.Summary.Quantile {
			w.sample(m, name, "quantile", labels.FormatOpenMetricsFloat(q.GetQuantile()), q.GetValue())
		}
		w.sample(m, name+"_sum", "", "", m.Summary.GetSampleSum())
		w.sample(m, name+"_count", "", "", float64(m.Summary.GetSampleCount()))
	case m.Histogram != nil:
		w.histogram(m, name, m.Histogram)
	}
}

// histogram writes the classic buckets; a native histogram keeps its sum and count.
func (w *writer) histogram(m *dto.Metric, name string, h *dto.Histogram) {
	count := float64(h.GetSampleCount())
	if h.SampleCountFloat != nil && h.GetSampleCountFloat() > 0 {
		count = h.GetSampleCountFloat()
	}
	infinite := false
	for _, b := range h.Bucket {
		infinite = infinite || math.IsInf(b.GetUpperBound(), 1)
		v := float64(b.GetCumulativeCount())
		if b.GetCumulativeCountFloat() > 0 {
			v = b.GetCumulativeCountFloat()
		}
		w.sample(m, name+"_bucket", "le", labels.FormatOpenMetricsFloat(b.GetUpperBound()), v)
	}
	if !infinite { // client_golang leaves it out
		w.sample(m, name+"_bucket", "le", "+Inf", count)
	}
	w.sample(m, name+"_sum", "", "", h.GetSampleSum())
	w.sample(m, name+"_count", "", "", count)
}

// sample writes one value of a metric, with one more label if extra is not empty.
func (w *writer) sample(m *dto.Metric, name, extra, extraValue string, v float64) {
	w.samples++
	key := append(w.key[:0], name...)
	for _, l := range m.Label {
		key = append(key, 0xff)
		key = append(key, l.GetName()...)
		key = append(key, 0xff)
		key = append(key, l.GetValue()...)
	}
	if extra != "" {
		key = append(key, 0xff)
		key = append(key, extra...)
		key = append(key, 0xff)
		key = append(key, extraValue...)
	}
	w.key = key
	c, ok := w.state.series[string(key)]
	if !ok {
		c = &cached{labels: w.labels(m, name, extra, extraValue)}
		w.state.series[string(key)] = c
	}
	c.round = w.round
	at := w.at
	if c.ownTime = m.TimestampMs != nil; c.ownTime {
		at = m.GetTimestampMs()
	}
	w.put(c, at, v)
}

// labels joins the metric's labels with the target's that it does not have.
// An empty label of the metric takes the target's away, as in Prometheus.
func (w *writer) labels(m *dto.Metric, name, extra, extraValue string) labels.Labels {
	w.builder.Reset()
	w.builder.Add(model.MetricNameLabel, name)
	own := func(label string) bool {
		for _, l := range m.Label {
			if l.GetName() == label {
				return true
			}
		}
		return label == extra
	}
	for _, l := range m.Label {
		if l.GetValue() != "" {
			w.builder.Add(l.GetName(), l.GetValue())
		}
	}
	if extra != "" {
		w.builder.Add(extra, extraValue)
	}
	w.state.labels.Range(func(l labels.Label) {
		if !own(l.Name) {
			w.builder.Add(l.Name, l.Value)
		}
	})
	w.builder.Sort()
	return w.builder.Labels()
}

func (w *writer) put(c *cached, at int64, v float64) {
	ref, err := w.app.Append(c.ref, c.labels, 0, at, v, nil, nil, storage.AOptions{})
	if err != nil {
		if w.rejected++; w.first == nil {
			w.first = fmt.Errorf("%s: %w", c.labels, err)
		}
		return
	}
	c.ref = ref
}

// endUnseen marks the series that were not seen in this round stale and forgets them.
func (w *writer) endUnseen() {
	for key, c := range w.state.series {
		if c.round == w.round {
			continue
		}
		if !c.ownTime {
			w.put(c, w.at, staleNaN)
		}
		delete(w.state.series, key)
	}
}

func (w *writer) err() error {
	if w.rejected == 0 {
		return nil
	}
	if w.rejected == 1 {
		return w.first
	}
	return errors.Join(w.first, fmt.Errorf("and %d more samples refused", w.rejected-1))
}
