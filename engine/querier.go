// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"

	"github.com/rackpulse/rackpulse/query"
)

var errHistogram = errors.New("the answer holds native histograms")

// Instant implements query.Querier.
func (e *Engine) Instant(ctx context.Context, expr string, at time.Time) ([]query.Sample, error) {
	ctx, leave, err := e.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	q, err := e.promql.NewInstantQuery(ctx, e.db, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	defer q.Close() // takes the result back: copy it before
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, res.Err)
	}
	switch v := res.Value.(type) {
	case promql.Scalar:
		return []query.Sample{{Labels: map[string]string{}, Value: v.V, At: fromMillis(v.T)}}, nil
	case promql.Vector:
		samples := make([]query.Sample, 0, len(v))
		for _, s := range v {
			if s.H != nil {
				return nil, fmt.Errorf("query %q: %w", expr, errHistogram)
			}
			samples = append(samples, query.Sample{Labels: s.Metric.Map(), Value: s.F, At: fromMillis(s.T)})
		}
		return samples, nil
	default:
		return nil, fmt.Errorf("query %q: result is a %s, want vector or scalar", expr, res.Value.Type())
	}
}

// Range implements query.Querier.
func (e *Engine) Range(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]query.Series, error) {
	if step < time.Millisecond {
		return nil, fmt.Errorf("query %q: step %v: want at least 1ms", expr, step)
	}
	ctx, leave, err := e.use(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	q, err := e.promql.NewRangeQuery(ctx, e.db, nil, expr, from, to, step)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	m, err := res.Matrix()
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	series := make([]query.Series, 0, len(m))
	for _, s := range m {
		if len(s.Histograms) > 0 {
			return nil, fmt.Errorf("query %q: %w", expr, errHistogram)
		}
		points := make([]query.Point, len(s.Floats))
		for i, p := range s.Floats {
			points[i] = query.Point{At: fromMillis(p.T), Value: p.F}
		}
		series = append(series, query.Series{Labels: s.Metric.Map(), Points: points})
	}
	return series, nil
}

// Alerts implements query.Querier.
func (e *Engine) Alerts(context.Context) ([]query.Alert, error) {
	var alerts []query.Alert
	for _, g := range e.groups() {
		for _, rule := range g.AlertingRules() {
			for _, a := range rule.ActiveAlerts() {
				if a.State != rules.StatePending && a.State != rules.StateFiring {
					continue
				}
				alerts = append(alerts, query.Alert{
					Labels: a.Labels.Map(), Annotations: a.Annotations.Map(),
					State: a.State.String(), ActiveAt: a.ActiveAt.UTC(), Value: a.Value,
				})
			}
		}
	}
	return alerts, nil
}

func fromMillis(t int64) time.Time { return time.UnixMilli(t).UTC() }
