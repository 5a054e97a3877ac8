// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "rewrite generated files")

// TestAlertmanagerIsCurrent holds that the committed configuration is what the
// correlations and the base give.
func TestAlertmanagerIsCurrent(t *testing.T) {
	_, built, err := (&rulesVerbs{}).compile()
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(testtool.Root(), alertmanagerFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(there, built[alertmanagerFile]) {
		t.Errorf("%s is stale; run 'make generate'", alertmanagerFile)
	}
}

// TestReadme holds the generated list of parts and the budget of the README.
func TestReadme(t *testing.T) {
	path := filepath.Join(testtool.Root(), "README.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := partsList()
	if err != nil {
		t.Fatal(err)
	}
	next, err := replaceParts(data, list)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, next) {
		t.Error("the list of parts in README.md is stale; run 'make generate'")
	}
	if n := bytes.Count(data, []byte("\n")); n > 200 {
		t.Errorf("README.md has %d lines, the budget is 200", n)
	}
	for _, link := range links(string(data)) {
		if _, err := os.Stat(filepath.Join(testtool.Root(), link)); err != nil {
			t.Errorf("README.md: %v", err)
		}
	}
}

// links lists the relative links of a Markdown text.
func links(text string) []string {
	var out []string
	for _, part := range strings.Split(text, "](")[1:] {
		link, _, _ := strings.Cut(part, ")")
		link, _, _ = strings.Cut(link, "#")
		if link != "" && !strings.Contains(link, "://") {
			out = append(out, link)
		}
	}
	return out
}

// TestDashboardMetrics holds that panels name only metrics that an exporter of
// ours, our rules, or node_exporter emits: a typing error shows as "No data".
func TestDashboardMetrics(t *testing.T) {
	known := map[string]bool{
		"ALERTS": true, "node_cpu_seconds_total": true, "node_memory_MemAvailable_bytes": true,
		"node_memory_MemTotal_bytes": true, "node_network_receive_bytes_total": true,
	}
	for _, line := range strings.Split(string(rules.KnownMetrics()), "\n") {
		name, _, _ := strings.Cut(line, " ")
		known[name] = true
	}
	n := 0
	err := fs.WalkDir(dashboards.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dashboards.Files(), path)
		if err != nil {
			return err
		}
		queries, err := dashboards.Queries(data)
		for _, q := range queries {
			for _, metric := range metricsOf(t, dashboards.Substitute(q.Expr, "1m")) {
				n++
				if !known[metric] {
					t.Errorf("%s: panel %q names %s, which nothing emits", path, q.Panel, metric)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Errorf("only %d metrics looked at", n)
	}
}

func metricsOf(t *testing.T, expr string) []string {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var out []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if sel, ok := node.(*parser.VectorSelector); ok && sel.Name != "" {
			out = append(out, sel.Name)
		}
		return nil
	})
	return out
}
