// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// recipe reads one of the Prometheus configurations of deploy/prometheus.
func recipe(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "deploy", "prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestRecipes has the real promtool check every recipe, with the rules, targets and
// secrets where it expects them. The page that explains them names each.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "prometheus.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(testtool.Root(), "deploy", "prometheus", "*.yml"))
	if err != nil || len(files) < 7 {
		t.Fatalf("recipes %v, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			text := recipe(t, name)
			switch name {
			case "agent.yml":
				checkPrometheus(t, []byte(text), false, "--agent")
			case "federation.yml":
				checkPrometheus(t, []byte(text), false)
			default:
				checkPrometheus(t, []byte(text), true)
			}
			if !strings.Contains(string(page), "../deploy/prometheus/"+name) {
				t.Errorf("docs/prometheus.md does not name %s", name)
			}
			// Else a facility agent's series lose their racks to the target's labels.
			if n := strings.Count(text, "honor_labels: true"); n == 0 {
				t.Error("no job keeps the labels of our series")
			}
		})
	}
}

// checkPrometheus has promtool check a configuration; rules says that it loads ours.
func checkPrometheus(t *testing.T, data []byte, rules bool, flags ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(testtool.Root(), "rules", "generated"), filepath.Join(dir, "rules")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"prometheus.yml": string(data), "targets/agents.json": "[]", "targets/node_exporter.json": "[]", "secrets/rackpulse-read": "x", "secrets/mimir": "x",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"check", "config", "--lint=all", "--lint-fatal"}, flags...)
	out, err := exec.Command(testtool.Binary(t, "promtool"), append(args, filepath.Join(dir, "prometheus.yml"))...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
	if found := strings.Contains(string(out), "2 rule files found"); found != rules {
		t.Errorf("rule files found: %t, want %t\n%s", found, rules, out)
	}
}
