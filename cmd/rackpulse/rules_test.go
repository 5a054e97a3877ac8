// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/testtool"
)

// rulesCommand runs "rackpulse rules ..." and returns its exit status and output.
func rulesCommand(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = execute(t.Context(), append([]string{"rules"}, args...), stdio{nil, &stdout, &stderr})
	return status, stdout.String(), stderr.String()
}

// userPack is the pack of a user, with one replacement.
func userPack(t *testing.T, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"fans.yml", "metrics.txt"} {
		data, err := os.ReadFile(filepath.Join(testtool.Root(), "rules", "testdata", "userpack", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "fans.yml" && !strings.Contains(string(data), old) {
			t.Fatalf("no %q", old)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(data), old, replacement, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRulesLint holds the output and the exit status for a pack beside the
// built-in one: clean, with a finding, and not valid.
func TestRulesLint(t *testing.T) {
	for _, tc := range []struct{ name, old, replacement, want string }{
		{"clean", "", "", ""},
		{"a finding", "node_fan_speed_ratio\n", "node_fan_speed\n", "fans.yml:6:13: C013 rackpulse:node:fan_low: no exporter has the metric node_fan_speed"},
		{"a race", "GPUHot", "NodeSuspect", "fans.yml:25:24: C011 rackpulse/fan-fault/NodeSuspect: symptom NodeSuspect is for 1m30s; its cause FanFault is for 1m0s, so it needs at least 1m45s (evaluation and group_wait)"},
		{"not valid", "signal: inlet_hot,", "signal: inlet_hat,", `fans.yml:20:56: C000 correlation fan-fault: unknown signal "inlet_hat"; did you mean inlet_hot?`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := userPack(t, tc.old, tc.replacement)
			status, out, errs := rulesCommand(t, "lint", "--pack", dir)
			want, wantStatus := "16 files, no problems\n", 0
			if tc.want != "" {
				want, wantStatus = dir+"/"+tc.want+"\n", 1
			}
			if status != wantStatus || out != want || errs != "" {
				t.Errorf("status %d, output %q, errors %q\nwant %d, %q", status, out, errs, wantStatus, want)
			}
			status, out, errs = rulesCommand(t, "lint", "--pack", dir, "--format", "json")
			var list []rules.Problem
			if err := json.Unmarshal([]byte(out), &list); err != nil || status != wantStatus || errs != "" || len(list) != wantStatus {
				t.Fatalf("status %d, output %q, errors %q (%v)", status, out, errs, err)
			}
			if tc.want != "" && list[0].String() != dir+"/"+tc.want {
				t.Errorf("json %+v, want %s", list[0], tc.want)
			}
		})
	}
}

// TestRulesTest holds that promtool runs the tests of a user's pack and of the
// built-in one, and that a failing test fails the command. Passing ones are seen
// in package rules.
func TestRulesTest(t *testing.T) {
	promtool := testtool.Binary(t, "promtool")
	for _, tc := range []struct {
		name, old, replacement, want string
		status                       int
	}{
		{"a test fails", "bad: 30x40", "bad: 20x40", "tests/fan-fault_test.yml\n  FAILED", 1},
		{"not valid", "signal: inlet_hot,", "signal: inlet_hat,", "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, out, errs := rulesCommand(t, "test", "--pack", userPack(t, tc.old, tc.replacement), "--promtool", promtool, "--format", "json")
			var got tested
			if err := json.Unmarshal([]byte(out), &got); err != nil || errs != "" {
				t.Fatalf("output %q, errors %q (%v)", out, errs, err)
			}
			if status != tc.status || got.OK != (status == 0) || !strings.Contains(got.Promtool, tc.want) || (len(got.Problems) == 1) != (tc.want == "") {
				t.Errorf("status %d, %+v\nwant %d and %q", status, got, tc.status, tc.want)
			}
			if tc.want != "" && !strings.Contains(got.Promtool, "tests/cooling-fault_test.yml\n  SUCCESS") {
				t.Errorf("the built-in tests did not run:\n%s", got.Promtool)
			}
		})
	}
}
