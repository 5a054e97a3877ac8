// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestAgentDocs holds the table of fields in docs/agent.md against the code, and the
// keys of the configuration.
func TestAgentDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	rows := make(map[string][]string) // functions by field
	marked := make(map[string]bool)
	row := regexp.MustCompile("^\\| `(DCGM_FI_\\w+)`( \\*)? \\|[^|]*\\| (fast|slow) \\| (.*) \\|\n$")
	function := regexp.MustCompile("`(nvml\\w+)`")
	for line := range strings.Lines(text) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows[m[1]] = []string{}
		marked[m[1]] = m[2] != ""
		if slow := m[3] == "slow"; slow != isSlow(m[1]) {
			t.Errorf("%s: slow %v in docs/agent.md, not so in the code", m[1], slow)
		}
		for _, f := range function.FindAllStringSubmatch(m[4], -1) {
			rows[m[1]] = append(rows[m[1]], f[1])
		}
	}
	code := make(map[string][]string)
	for _, c := range nvmlCalls { // docs/gpu.md has the others
		for _, field := range c.fields {
			code[field] = append(code[field], c.symbol)
		}
	}
	for field, functions := range code {
		if !slices.Equal(rows[field], functions) {
			t.Errorf("%s: functions %q, docs/agent.md has %q", field, functions, rows[field])
		}
	}
	counters, err := loadCounters("")
	if err != nil {
		t.Fatal(err)
	}
	builtIn := make(map[string]bool)
	for _, m := range counters.metrics {
		builtIn[m.name] = true
	}
	for field, functions := range rows {
		if len(code[field]) == 0 && len(functions) > 0 {
			t.Errorf("%s: docs/agent.md has %q, the code nothing", field, functions)
		}
		if marked[field] != builtIn[field] {
			t.Errorf("%s: in the built-in list %v, marked %v", field, builtIn[field], marked[field])
		}
	}
	for field := range builtIn {
		if _, ok := rows[field]; !ok {
			t.Errorf("%s is not in docs/agent.md", field)
		}
	}
	for _, r := range throttleReasons {
		if !strings.Contains(text, r.reason) {
			t.Errorf("throttle reason %s is not in docs/agent.md", r.reason)
		}
	}
	for _, key := range []string{"source", "interval", "slow_interval", "read_timeout", "open_timeout", "counters_file", "hostname_label", "emit_dcgm_names", "devices", "exclude", "address"} {
		if !strings.Contains(text, key+": ") {
			t.Errorf("key %s is not in docs/agent.md", key)
		}
	}
}
