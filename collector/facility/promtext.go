// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/site"
)

// identityLabel is the label that names the device in our own series, by kind.
var identityLabel = map[string]string{
	site.KindPDU: "pdu_id", site.KindUPS: "ups", site.KindCooling: "cooling_unit",
	site.KindSwitch: "switch", site.KindSensor: "sensor", site.KindMeter: "meter",
}

// promParser reads the Prometheus text format: series with the names of our
// quantities, and others that the configuration maps to quantities.
type promParser struct {
	own    string
	fields []field
	mapped map[string][]*field // by metric name
}

// newPromParser checks the mapping; without fields only our own names count.
func newPromParser(c LineConfig, own string, kind func(id string) string) (*promParser, error) {
	if c.Delimiter != "" || c.Regexp != "" || c.DecimalComma {
		return nil, errors.New("delimiter, regexp and decimal_comma are not for format prometheus")
	}
	p := &promParser{own: own, mapped: map[string][]*field{}}
	if len(c.Fields) == 0 {
		return p, nil
	}
	var err error
	if p.fields, err = newFields(c.Fields, own, kind); err != nil {
		return nil, err
	}
	for i := range p.fields {
		f := &p.fields[i]
		if f.Name == "" || f.Column != 0 || len(f.States) > 0 {
			return nil, fmt.Errorf("fields[%d]: format prometheus needs a name, and no column or states", i)
		}
		p.mapped[f.Name] = append(p.mapped[f.Name], f)
	}
	return p, nil
}

// parse reads a whole text. An error, which names the line, keeps nothing.
func (p *promParser) parse(data []byte) ([]Reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var out []Reading
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].GetMetric() {
			out = append(out, p.sample(name, m)...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no facility metric and no configured field is in the file")
	}
	return out, nil
}

// sample turns one series into readings; series of others give none.
func (p *promParser) sample(name string, m *dto.Metric) []Reading {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	var at time.Time
	if m.TimestampMs != nil {
		at = time.UnixMilli(m.GetTimestampMs())
	}
	v := value(m)
	if math.IsNaN(v) {
		return nil
	}
	var out []Reading
	for _, f := range p.mapped[name] {
		if !matches(f.Match, labels) || f.sentinelNumber(v) {
			continue
		}
		r := f.reading(v)
		if f.PartLabel != "" {
			r.Part = labels[f.PartLabel]
		}
		r.At = at
		out = append(out, r)
	}
	if q := byMetric[name]; q != nil && len(p.mapped[name]) == 0 {
		r := Reading{Device: p.own, Quantity: q.Name, Part: labels[q.PartLabel], Value: v, At: at}
		for _, kind := range q.Kinds {
			if id := labels[identityLabel[kind]]; id != "" {
				r.Device = id
			}
		}
		out = append(out, r)
	}
	return out
}

func matches(want, labels map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// value is the value of a gauge, counter or untyped series; others have none.
func value(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	}
	return math.NaN()
}
