// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestRulesDiff compares the compiled pack with the committed files, and with
// such files after an edit, as a folder and as a file.
func TestRulesDiff(t *testing.T) {
	root := testtool.Root()
	committed := filepath.Join(root, "rules", "generated")
	data, err := os.ReadFile(filepath.Join(committed, "correlations.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	edited := filepath.Join(t.TempDir(), "correlations.rules.yml")
	text := strings.Replace(string(data), "alert: CoolingFault\n", "alert: CoolingFaultOld\n", 1)
	if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string // one of its lines begins like this
	}{
		{[]string{"rules", "diff", "--out", root}, 0, ""},
		{[]string{"rules", "diff", committed}, 0, ""},
		{[]string{"rules", "diff", edited}, 1, "correlations.rules.yml: added alert CoolingFault{"},
		{[]string{"rules", "diff", committed, edited}, 1, "correlations.rules.yml: removed alert CoolingFault{"},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), tc.args, stdio{in: strings.NewReader(""), out: &out, err: &errs})
		if code != tc.code || tc.want != "" && !strings.Contains("\n"+out.String(), "\n"+tc.want) || code == 0 && out.Len() > 0 {
			t.Errorf("%v: status %d, want %d\n%s%s", tc.args, code, tc.code, out.String(), errs.String())
		}
	}
}

// TestRulesInit: the starter pack is written once and never over another file.
func TestRulesInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	for i, want := range []int{0, 1} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{"rules", "init", dir}, stdio{in: strings.NewReader(""), out: &out, err: &errs}); code != want {
			t.Errorf("time %d: status %d, want %d\n%s%s", i+1, code, want, out.String(), errs.String())
		}
	}
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"rules", "--pack", dir, "lint"}, stdio{in: strings.NewReader(""), out: &out, err: &errs}); code != 0 || !strings.Contains(out.String(), "no problems") {
		t.Errorf("lint: status %d\n%s%s", code, out.String(), errs.String())
	}
}

// TestRulesAdapters: names and files, an unknown one, both formats.
func TestRulesAdapters(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yml")
	if err := os.WriteFile(bad, []byte("adapter: x\nfoo: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "dcgm-exporter"},
		{[]string{"dcgm-exporter", "snmp-apcups"}, 0, "record: rackpulse_gpu_up"},
		{[]string{"dcgm-exporter", "--format=prometheusrule"}, 0, "kind: PrometheusRule"},
		{[]string{"dcgm-exporter", "-o", filepath.Join(dir, "out")}, 0, "2 files written"},
		{[]string{"dcgm"}, 1, `no adapter "dcgm"; there are dcgm-exporter,`},
		{[]string{bad}, 1, "bad.yml:2"},
		{[]string{"dcgm-exporter", "--registry.url=reg"}, 1, `registry "reg": want http://`},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"rules", "adapters"}, tc.args...), stdio{in: strings.NewReader(""), out: &out, err: &errs})
		if code != tc.code || !strings.Contains(out.String()+errs.String(), tc.want) {
			t.Errorf("%v: status %d, want %d and %q\n%.2000s%s", tc.args, code, tc.code, tc.want, out.String(), errs.String())
		}
	}
}
