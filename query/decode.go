// SPDX-License-Identifier: Apache-2.0

package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// result is the data of /api/v1/query and /api/v1/query_range.
type result struct {
	Type   string          `json:"resultType"`
	Result json.RawMessage `json:"result"`
}

// element is one entry of a vector or matrix.
type element struct {
	Metric     map[string]string `json:"metric"`
	Value      *apiPoint         `json:"value"`
	Values     []apiPoint        `json:"values"`
	Histogram  json.RawMessage   `json:"histogram"`
	Histograms json.RawMessage   `json:"histograms"`
}

// apiPoint is [unix seconds, "value"].
type apiPoint Point

// UnmarshalJSON implements json.Unmarshaler.
func (p *apiPoint) UnmarshalJSON(b []byte) error {
	inner := bytes.TrimSpace(b)
	if len(inner) < 2 || inner[0] != '[' || inner[len(inner)-1] != ']' {
		return fmt.Errorf("point %q: want [time, \"value\"]", clip(string(b), 40))
	}
	when, text, ok := bytes.Cut(inner[1:len(inner)-1], []byte{','})
	if !ok {
		return fmt.Errorf("point %q: want [time, \"value\"]", clip(string(b), 40))
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(when)), 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/1e6 {
		return fmt.Errorf("point %q: bad time", clip(string(b), 40))
	}
	value, err := strconv.ParseFloat(string(bytes.Trim(bytes.TrimSpace(text), `"`)), 64)
	if err != nil {
		return fmt.Errorf("point %q: bad value", clip(string(b), 40))
	}
	p.At = time.UnixMilli(int64(math.Round(seconds * 1000))).UTC()
	p.Value = value
	return nil
}

var errHistogram = errors.New("the answer holds native histograms; use histogram_quantile or histogram_count")

func decodeInstant(data json.RawMessage) ([]Sample, error) {
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	switch r.Type {
	case "scalar":
		var p apiPoint
		if err := json.Unmarshal(r.Result, &p); err != nil {
			return nil, fmt.Errorf("scalar: %w", err)
		}
		return []Sample{{Labels: map[string]string{}, Value: p.Value, At: p.At}}, nil
	case "vector":
		var elements []element
		if err := json.Unmarshal(r.Result, &elements); err != nil {
			return nil, fmt.Errorf("vector: %w", err)
		}
		samples := make([]Sample, 0, len(elements))
		for _, e := range elements {
			if e.Value == nil {
				if e.Histogram != nil {
					return nil, errHistogram
				}
				return nil, errors.New("vector: element without a value")
			}
			samples = append(samples, Sample{Labels: nonNil(e.Metric), Value: e.Value.Value, At: e.Value.At})
		}
		return samples, nil
	default:
		return nil, fmt.Errorf("result type %q: want vector or scalar", clip(r.Type, 40))
	}
}

func decodeRange(data json.RawMessage) ([]Series, error) {
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if r.Type != "matrix" {
		return nil, fmt.Errorf("result type %q: want matrix", clip(r.Type, 40))
	}
	var elements []element
	if err := json.Unmarshal(r.Result, &elements); err != nil {
		return nil, fmt.Errorf("matrix: %w", err)
	}
	series := make([]Series, 0, len(elements))
	for _, e := range elements {
		if e.Histograms != nil {
			return nil, errHistogram
		}
		points := make([]Point, len(e.Values))
		for i, p := range e.Values {
			points[i] = Point(p)
		}
		series = append(series, Series{Labels: nonNil(e.Metric), Points: points})
	}
	return series, nil
}

func decodeAlerts(data json.RawMessage) ([]Alert, error) {
	var d struct {
		Alerts []struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
			State       string            `json:"state"`
			ActiveAt    *time.Time        `json:"activeAt"`
			Value       string            `json:"value"`
		} `json:"alerts"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	alerts := make([]Alert, 0, len(d.Alerts))
	for _, a := range d.Alerts {
		if a.State != "pending" && a.State != "firing" {
			continue
		}
		value, err := strconv.ParseFloat(a.Value, 64)
		if err != nil {
			return nil, fmt.Errorf("alert %q: value %q", clip(a.Labels["alertname"], 40), clip(a.Value, 40))
		}
		alert := Alert{Labels: nonNil(a.Labels), Annotations: nonNil(a.Annotations), State: a.State, Value: value}
		if a.ActiveAt != nil {
			alert.ActiveAt = a.ActiveAt.UTC()
		}
		alerts = append(alerts, alert)
	}
	return alerts, nil
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
