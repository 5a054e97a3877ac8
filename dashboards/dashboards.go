// SPDX-License-Identifier: Apache-2.0

// Package dashboards holds the Grafana dashboards, one JSON file each, and what
// is needed to check them: the queries of their panels.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed *.json
var files embed.FS

// Files returns the dashboards, ready to be written out or provisioned.
func Files() fs.FS { return files }

// Query is one PromQL expression of a dashboard, as Grafana stores it.
type Query struct {
	Panel string
	Expr  string
}

type model struct {
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

// Queries lists the expressions of a dashboard's panels in order.
func Queries(dashboard []byte) ([]Query, error) {
	var m model
	if err := json.Unmarshal(dashboard, &m); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	var out []Query
	for _, p := range m.Panels {
		for _, t := range p.Targets {
			out = append(out, Query{Panel: p.Title, Expr: t.Expr})
		}
	}
	return out, nil
}

// Substitute replaces the dashboard variables by what "All" stands for, and
// Grafana's own interval by the one given, so that the expression can be sent
// to Prometheus as it is.
func Substitute(expr, interval string) string {
	return strings.NewReplacer(
		"$__rate_interval", interval,
		"$site", ".+", "$rack_id", ".+", "$node", ".+", "$instance", ".+", "$gpu", ".+",
	).Replace(expr)
}
