// SPDX-License-Identifier: Apache-2.0

// Package query reads a Prometheus-compatible store: Prometheus, Thanos, Mimir,
// VictoriaMetrics over HTTP, or the embedded engine.
package query

import (
	"context"
	"time"
)

// Sample is one element of an instant vector.
type Sample struct {
	Labels map[string]string // includes __name__ where the query keeps it
	Value  float64
	At     time.Time
}

// Point is one value of a range series.
type Point struct {
	At    time.Time
	Value float64
}

// Series is one element of a range matrix, points ascending in time.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Alert is one pending or firing alert.
type Alert struct {
	Labels, Annotations map[string]string
	State               string // "pending" or "firing"
	ActiveAt            time.Time
	Value               float64
}

// Querier answers PromQL. Implementations are safe for concurrent use and
// return an error, never a partial answer passed off as whole.
type Querier interface {
	// Instant evaluates expr at the given time; a scalar comes back as one Sample without labels.
	Instant(ctx context.Context, expr string, at time.Time) ([]Sample, error)
	// Range evaluates expr at from, from+step, ... to.
	Range(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error)
	// Alerts lists the pending and firing alerts.
	Alerts(ctx context.Context) ([]Alert, error)
}
