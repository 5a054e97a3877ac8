// SPDX-License-Identifier: Apache-2.0

//go:build noengine

package main

import (
	"net/http"

	"github.com/rackpulse/rackpulse/query"
)

// noEngine stands in a build without the embedded Prometheus: the pages then
// show leases only, and /metrics is for a Prometheus outside.
type noEngine struct{}

func (noEngine) actors() []actor       { return nil }
func (noEngine) handler() http.Handler { return nil }
func (noEngine) close() error          { return nil }

func newEngine(engineConfig) (query.Querier, embedded, error) { return nil, noEngine{}, nil }
