// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// edited returns the built-in correlations with one replacement in one file.
func edited(t *testing.T, file, old, replacement string) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	paths, err := filepath.Glob("correlations/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == file {
			if !bytes.Contains(data, []byte(old)) {
				t.Fatalf("%s has no %q", file, old)
			}
			data = bytes.Replace(data, []byte(old), []byte(replacement), 1)
		}
		out[filepath.Base(path)] = &fstest.MapFile{Data: data}
	}
	return out
}

// TestBadSpecs holds that a mistake is refused with its file and line.
func TestBadSpecs(t *testing.T) {
	for _, tc := range []struct{ name, file, old, replacement, want string }{
		{"unknown key", "load-heat.yml", "  severity: info", "  severity: info\n  colour: red", `load-heat.yml:22:3: unknown key "colour"`},
		{"unknown level", "load-heat.yml", "    level: node", "    level: shelf", `load-heat.yml:3:12: signal gpus_hot_busy: unknown level "shelf"`},
		{"unknown signal in an expression", "load-heat.yml", `{{signal "inlet"}} <=`, `{{signal "outlet"}} <=`, `load-heat.yml:11:11: signal inlet_normal: unknown signal "outlet"; did you mean inlet?`},
		{"unknown signal as a cause", "load-heat.yml", "{signal: inlet_normal", "{signal: inlet_cold", `unknown signal "inlet_cold"`},
		{"unknown limit", "load-heat.yml", "gpu.default.busy_utilisation_percent", "gpu.default.bored", `unknown limit "gpu.default.bored"`},
		{"unknown role", "load-heat.yml", "role: required", "role: needed", `unknown role "needed"`},
		{"weight out of range", "load-heat.yml", "weight: 0.6", "weight: 6", "weight 6 is not in 0..1"},
		{"no text", "load-heat.yml", "  title: Heat from load\n", "", "load-heat.yml:16:3: correlation load-heat: title is missing"},
		{"no test", "load-heat.yml", "  - name: load\n    branch: load\n    at", "  - name: load\n    branch: lode\n    at", "branch load has no test"},
		{"placeholder without values", "load-heat.yml", "over: {rack: [r01]", "over: {shelf: [r01]", "placeholder <rack> has no values"},
		{"bad duration", "load-heat.yml", "for: 1m", "for: 1 minute", `load-heat.yml:31:8: for: want a duration such as 90s or 5m, got "1 minute"`},
		{"bad expression", "load-heat.yml", "count by (site, rack_id, node) (", "count by (site, rack_id, node) ((", "load-heat.yml:6:11: signal gpus_hot_busy: unclosed left parenthesis, here: "},
		{"threshold without a limit", "rack-silent.yml", "    raise: 1\n", "", "want either raise or raise_limit beside op"},
		{"hold of another level", "rack-silent.yml", "hold: rack_silent_share", "hold: node_silent", "hold: signal node_silent is of level node, want one of level rack"},
		{"lift without an edge", "cooling-fault.yml", "  at: rack\n  severity", "  at: device\n  severity", "cooling-fault.yml:153:10: correlation cooling-fault: no edge from device to cooling_unit in contract.yml"},
		{"filtered signal without proof", "gpu-lost.yml", "    op: \"==\"\n", "    op: \"==\"\n    missing: unknown\n", "needs covered_by"},
		{"mutes an alert that is not there", "rack-silent.yml", "alert: NodeLeaseLost", "alert: NodeLost", "there is no alert NodeLost"},
		{"signal in a circle", "cooling-fault.yml", `expr: '{{signal "inlet"}} and on`, `expr: '{{signal "inlet_up"}} and on`, "signal inlet_up refers to itself"},
		{"two of a name", "load-heat.yml", "name: inlet_normal", "name: inlet_hot", `signal "inlet_hot" is also at cooling-fault.yml:`},
		{"label that the level lacks", "load-heat.yml", `{{signal "gpu_hot_utilisation"}}`, `{{signal "gpu_hot_utilisation" "feed"}}`, `has no label "feed"`},
		{"two documents", "load-heat.yml", "\ncorrelation:", "\n---\ncorrelation:", "load-heat.yml:15:4: a second document"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pack, err := ReadPack(edited(t, tc.file, tc.old, tc.replacement))
			if err == nil {
				_, err = pack.Build(site.DefaultLimits())
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v\nwant one with %q", err, tc.want)
			}
		})
	}
}

// TestBuildIsDeterministic builds twice and compares.
func TestBuildIsDeterministic(t *testing.T) {
	if a, b := build(t), build(t); !maps.EqualFunc(a, b, bytes.Equal) {
		t.Error("two builds differ")
	}
}

// TestRulefmt holds the generated files against Prometheus's own reader.
func TestRulefmt(t *testing.T) {
	for _, name := range []string{"correlations.rules.yml", "coverage.rules.yml"} {
		_, errs := (fileLoader{Generated()}).Load(name, false, model.UTF8Validation)
		for _, err := range errs {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// raisedLimits are the default limits with some changed.
type raisedLimits struct {
	*site.Limits
	own map[string]float64
}

func (l raisedLimits) Value(key string) (float64, bool) {
	if v, ok := l.own[key]; ok {
		return v, true
	}
	return l.Limits.Value(key)
}

func (l raisedLimits) Keys() []string {
	return slices.Sorted(slices.Values(append(l.Limits.Keys(), slices.Collect(maps.Keys(l.own))...)))
}

func TestLimitsOfASite(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.Build(raisedLimits{site.DefaultLimits(), map[string]float64{
		"inlet.correlation_hot_celsius": 31, "gpu.NVIDIA L40S.hot_celsius": 88, "gpu.Tesla T4.hot_celsius": 80, "correlation.silent_nodes": 5,
	}})
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(built[generatedDir+"correlations.rules.yml"], false, model.UTF8Validation, promParser, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := map[string]string{
		"rackpulse:gpu:gpu_hot": `max by (site, rack_id, node, gpu, UUID) (DCGM_FI_DEV_GPU_TEMP{modelName="NVIDIA L40S"} > 88 or ` +
			`DCGM_FI_DEV_GPU_TEMP{modelName="Tesla T4"} > 80 or DCGM_FI_DEV_GPU_TEMP{modelName!="NVIDIA L40S",modelName!="Tesla T4"} > 85)`,
		"rackpulse:rack:inlet_hot": `rackpulse:rack:inlet{rack_id!=""} > 31 or (rackpulse:rack:inlet{rack_id!=""} > 27 and on (site, rack_id) rackpulse:rack:inlet_hot{rack_id!=""})`,
	}
	for _, r := range groups.Groups[0].Rules {
		expr, err := promParser.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := want[r.Record]; ok && expr.String() != text {
			t.Errorf("%s:\n%s\nwant\n%s", r.Record, expr, text)
		}
		if r.Record == "rackpulse:rack:nodes_silent_together" && !strings.HasSuffix(expr.String(), ">= 5") {
			t.Errorf("%s: %s, want the site's limit 5", r.Record, expr)
		}
	}
}

func TestDiff(t *testing.T) {
	built := map[string][]byte{"rules/generated/a.rules.yml": []byte("a"), "rules/generated/tests/b_test.yml": []byte("b"), "docs/correlations/c.md": []byte("c")}
	root := fstest.MapFS{
		"rules/generated/a.rules.yml": {Data: []byte("a")}, "rules/generated/tests/b_test.yml": {Data: []byte("old")},
		"rules/generated/gone.rules.yml": {Data: []byte("x")}, "docs/correlations.md": {Data: []byte("hand-written")},
	}
	changes, err := Diff(built, root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	want(t, got, "missing docs/correlations/c.md", "changed rules/generated/tests/b_test.yml", "unknown rules/generated/gone.rules.yml")
}

func TestMetrics(t *testing.T) {
	gpu := "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\"} 40\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-2\",node=\"n1\"} 41\n"
	got, err := Metrics([]byte("kept a\nup_already b\n"), []byte(gpu), []byte("up_already{c=\"d\"} 1\nplain 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if text := "DCGM_FI_DEV_GPU_TEMP UUID,gpu,node\nkept a\nplain\nup_already b,c\n"; string(got) != text {
		t.Errorf("got\n%s\nwant\n%s", got, text)
	}
	if _, err := Metrics(nil, []byte("fine 1\n"), []byte("not a page {\n")); err == nil || !strings.Contains(err.Error(), "page 2") {
		t.Errorf("error %v, want one that names page 2", err)
	}
	if again, err := Metrics(KnownMetrics()); err != nil || !bytes.Equal(again, KnownMetrics()) {
		t.Errorf("metrics.txt is not in the form that Metrics writes (error %v)", err)
	}
}

func TestCorrelations(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range pack.Correlations() {
		got = append(got, c.ID+" "+strings.Join(c.Alerts, "+")+" "+c.Severity+" "+c.Team)
		if _, err := os.Stat(filepath.Join(testtool.Root(), c.Runbook)); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
		if c.Verdict == "" || len(c.Because) == 0 || len(c.NotBecause) == 0 || len(c.NextSteps) == 0 {
			t.Errorf("%s lacks texts", c.ID)
		}
	}
	want(t, got, "cooling-fault CoolingFault+RackAirflowLost critical facility", "feed-lost FeedLost+PDULost critical facility",
		"feed-sag FeedSag+PDUSag critical facility",
		"gpu-lost GPULost critical compute", "load-heat LoadHeat info compute", "node-airflow NodeAirflowLost critical compute", "rack-silent RackSilent critical network")
}
