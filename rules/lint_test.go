// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func lint(t *testing.T, files map[string]string, metrics []byte) []string {
	t.Helper()
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]byte{}
	for name, text := range files {
		in[name] = []byte(text)
	}
	var out []string
	for _, p := range pack.Lint(in, metrics) {
		out = append(out, fmt.Sprintf("%s:%d:%d %s", p.File, p.Line, p.Column, p.ID))
	}
	return out
}

func want(t *testing.T, got []string, expected ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(expected, "\n") {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(expected, "\n  "))
	}
}

// one wraps an expression into a rule file; the expression starts at 4:15.
func one(kind, expr string) map[string]string {
	return map[string]string{"f.yml": "groups:\n- name: g\n  rules:\n  - {expr: '" + expr + "', " + kind + ": X}\n"}
}

func TestLintJoins(t *testing.T) {
	for _, tc := range []struct {
		name, kind, expr string
		want             []string
	}{
		{"guarded join", "alert", `a{rack_id!=""} > 85 and on (site, rack_id) b{rack_id!=""} > 28`, nil},
		{"a fixed rack is a guard", "alert", `a{rack_id="r01"} and on (site, rack_id) b{rack_id=~"r.+"}`, nil},
		{"a pattern that matches nothing is none", "alert", `a{rack_id=~"r.*|"} and on (rack_id) b{rack_id!=""}`, []string{"f.yml:4:13 C002"}},
		{"left side without guard", "alert", `a > 85 and on (site, rack_id) b{rack_id!=""} > 28`, []string{"f.yml:4:13 C002"}},
		{"right side without guard", "alert", `a{rack_id!=""} and on (site, rack_id) b`, []string{"f.yml:4:51 C002"}},
		{"unless needs guards too", "alert", `a{rack_id!=""} unless on (rack_id) max by (rack_id) (b)`, []string{"f.yml:4:66 C002"}},
		{"one side of an and is enough for a GPU", "alert", `a > 85 and on (site, UUID) b{UUID!=""}`, nil},
		{"either side is", "alert", `a{node!=""} and on (site, node) b`, nil},
		{"one of two sources is not", "alert", `a and on (UUID) (b{UUID!=""} or c)`, []string{"f.yml:4:13 C002", "f.yml:4:45 C002"}},
		{"nor is it for unless", "alert", `a{UUID!=""} unless on (UUID) b`, []string{"f.yml:4:42 C002"}},
		{"a GPU aggregated away", "alert", `a{UUID!=""} and on (UUID) max by (site) (b)`, []string{"f.yml:4:39 C002"}},
		{"guard inside an aggregation and a window", "alert", `a{rack_id!=""} and on (rack_id) max by (rack_id) (max_over_time(b{rack_id!=""}[5m]))`, nil},
		{"label aggregated away", "alert", `a{rack_id!=""} and on (rack_id) max by (site) (b{rack_id!=""})`, []string{"f.yml:4:45 C002"}},
		{"label dropped by without", "alert", `a{rack_id!=""} and on (rack_id) max without (rack_id) (b{rack_id!=""})`, []string{"f.yml:4:45 C002"}},
		{"or has two sources", "alert", `a{rack_id!=""} and on (rack_id) (b{rack_id!=""} or c)`, []string{"f.yml:4:64 C002"}},
		{"label_replace needs its source", "alert", `a{device!=""} and on (device) label_replace(b, "device", "$1", "pdu_id", "(.+)")`, []string{"f.yml:4:57 C002"}},
		{"label_replace of a guarded source", "alert", `a{device!=""} and on (device) label_replace(b{pdu_id!=""}, "device", "$1", "pdu_id", "(.+)")`, nil},
		{"label_replace that may empty", "alert", `a{device!=""} and on (device) label_replace(b{pdu_id!=""}, "device", "$1", "pdu_id", "(.*)")`, []string{"f.yml:4:43 C002"}},
		{"site alone needs none", "alert", `a unless on (site) b`, nil},
		{"foreign label", "alert", `a{hostname!=""} and on (hostname) b{hostname!=""}`, []string{"f.yml:4:13 C001"}},
		{"ignoring", "record", `a and ignoring (instance) b`, []string{"f.yml:4:13 C004"}},
		{"arithmetic in an alert", "alert", `a{rack_id!=""} / on (rack_id) max by (rack_id) (b{rack_id!=""}) > 1`, []string{"f.yml:4:13 C003"}},
		{"aggregated one side", "record", `a{rack_id!=""} / on (rack_id) group_left () max by (rack_id) (b{rack_id!=""})`, nil},
		{"one side not aggregated", "record", `a{rack_id!=""} / on (rack_id) group_left () b{rack_id!=""}`, []string{"f.yml:4:13 C003"}},
		{"one side aggregated by too much", "record", `a{rack_id!=""} / on (rack_id) group_left () max by (rack_id, node) (b{rack_id!=""})`, []string{"f.yml:4:13 C003"}},
		{"the many side does not count", "record", `max by (rack_id) (a{rack_id!=""}) / on (rack_id) group_left () b{rack_id!=""}`, []string{"f.yml:4:13 C003"}},
		{"own past", "record", `a >= 1.3 * (a offset 5m)`, nil},
		{"other series without on", "record", `a - b`, []string{"f.yml:4:13 C003"}},
		{"info is experimental", "record", `info(a)`, []string{"f.yml:4:13 C005"}},
		{"syntax", "alert", `a and on (rack_id`, []string{"f.yml:4:30 C000"}},
	} {
		t.Run(tc.name, func(t *testing.T) { want(t, lint(t, one(tc.kind, tc.expr), nil), tc.want...) })
	}
}

// TestLintPlaces holds the places in the styles that YAML has for text.
func TestLintPlaces(t *testing.T) {
	text := `groups:
  - name: g
    rules:
      - alert: Plain
        expr: x and on (zone) y
      - alert: Double
        expr: "x and on (zone) y"
      - alert: Block
        expr: |-
          vector(1) or
            (x and on (zone) y)
      - alert: Indented
        expr: |2-
            x
          and on (zone)
            y
`
	want(t, lint(t, map[string]string{"f.yml": text}, nil), "f.yml:5:15 C001", "f.yml:7:16 C001", "f.yml:11:14 C001", "f.yml:14:13 C001")
}

func TestLintYAML(t *testing.T) {
	want(t, lint(t, map[string]string{"f.yml": "groups:\n- name: g\n  rules:\n  - alert: [\n"}, nil), "f.yml:4:1 C000")
	want(t, lint(t, map[string]string{"f.yml": "groups:\n- name: g\n  rules:\n  - alert: X\n"}, nil), "f.yml:4:5 C000")
	want(t, lint(t, map[string]string{"f.yml": "groups:\n- name: g\n  rules:\n  - {alert: X, expr: up<1, for: 5 minutes}\n"}, nil), "f.yml:4:33 C000")
	want(t, lint(t, map[string]string{"f.yml": ""}, nil))
}

func TestLintDuplicates(t *testing.T) {
	rule := "groups:\n- name: g\n  rules:\n  - {record: x, expr: up}\n  - {record: x, expr: up, labels: {a: b}}\n  - {alert: x, expr: up == 0}\n"
	want(t, lint(t, map[string]string{"a.yml": rule}, nil))
	want(t, lint(t, map[string]string{"a.yml": rule, "b.yml": "groups:\n- name: h\n  rules:\n  - {record: x, expr: up}\n"}, nil), "b.yml:4:14 C016")
}

func TestLintMetrics(t *testing.T) {
	known := []byte("DCGM_FI_DEV_GPU_TEMP UUID,gpu\n# a comment\nplain\n")
	text := `groups:
- name: g
  rules:
  - {record: mine, expr: 'DCGM_FI_DEV_GPU_TEMP{UUID!="",instance="a"} + 0'}
  - {record: ok, expr: 'mine{any="x"} or ALERTS{alertname="x"} or up or plain'}
  - {record: label, expr: 'DCGM_FI_DEV_GPU_TEMP{hostname!=""}'}
  - {record: name, expr: 'max(DCGM_FI_DEV_GPU_TEMPERATURE)'}
`
	want(t, lint(t, map[string]string{"f.yml": text}, known), "f.yml:6:28 C013", "f.yml:7:31 C013")
	want(t, lint(t, map[string]string{"f.yml": text}, nil))
}

const causes = `groups:
- name: g
  rules:
  - {alert: Cause, expr: 'c{rack_id!=""} > 0', for: 1m}
  - {alert: Loose, expr: 'max by (rack_id) (c) > 0', for: 1m}
  - {alert: Late, expr: 's > 0', for: 1m45s}
  - {alert: Early, expr: 's > 0', for: 1m44s}
`

func TestLintInhibitions(t *testing.T) {
	for _, tc := range []struct{ source, target, equal string }{
		{`'alertname="Cause"'`, `'alertname="Late"', 'rack_id!=""'`, "site, rack_id"},
		{`'alertname="Loose"', 'rack_id!=""'`, `'alertname="Late"', 'rack_id!=""'`, "rack_id"},
		{`'alertname="Cause"', 'severity="critical"'`, `'alertname=~"La.*"', 'rack_id=~".+"'`, "rack_id"},
	} {
		want(t, lint(t, map[string]string{"r.yml": causes, "am.yml": inhibit(tc.source, tc.target, tc.equal)}, nil))
	}
	bare := inhibit(`'alertname="Cause"'`, `'alertname="Late"'`, "site, rack_id")
	want(t, lint(t, map[string]string{"r.yml": causes, "am.yml": bare}, nil), "am.yml:5:19 C010")
	loose := inhibit(`'alertname="Loose"'`, `'alertname="Late"', 'rack_id!=""'`, "site, rack_id")
	want(t, lint(t, map[string]string{"r.yml": causes, "am.yml": loose}, nil), "am.yml:5:19 C010")
	early := inhibit(`'alertname="Cause"'`, `'alertname="Early"', 'rack_id!=""'`, "rack_id")
	want(t, lint(t, map[string]string{"r.yml": causes, "am.yml": early}, nil), "r.yml:7:13 C011")
	broken := inhibit(`'alertname'`, `'alertname="Late"'`, "rack_id")
	want(t, lint(t, map[string]string{"r.yml": causes, "am.yml": broken}, nil), "am.yml:3:5 C000")
}

func inhibit(source, target, equal string) string {
	return "route: {receiver: x}\ninhibit_rules:\n  - source_matchers: [" + source + "]\n    target_matchers: [" + target + "]\n    equal: [" + equal + "]\n"
}

// committed are the generated files as they lie in the repository.
func committed(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, pattern := range []string{"generated/*.yml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) != 3 {
			t.Fatalf("%s: %v, error %v", pattern, paths, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[path] = data
		}
	}
	return files
}

func TestGeneratedIsClean(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pack.Lint(committed(t), KnownMetrics()) {
		t.Error(p)
	}
}

// TestEveryGuardMatters removes, one at a time, each guard of each joined
// selector from the generated rules and holds that C002 or C010 sees it.
func TestEveryGuardMatters(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	files := committed(t)
	path := "generated/correlations.rules.yml"
	text := string(files[path])
	joined := 0
	for _, at := range regexp.MustCompile(`rack_id!=""`).FindAllStringIndex(text, -1) {
		// A matcher that series without the label pass, in place of the guard.
		files[path] = []byte(text[:at[0]] + `rack_id!="~` + text[at[1]-1:])
		guard := 0
		for _, p := range pack.Lint(files, nil) {
			switch p.ID {
			case "C002", "C010":
				guard++
			case "C003": // the series and its own past no longer look the same
			default:
				t.Errorf("removed at %d: %s", at[0], p)
			}
		}
		if guard > 0 {
			joined++
		}
	}
	if joined < 40 {
		t.Errorf("lints saw %d removed guards, want at least 40", joined)
	}
	t.Logf("%d removed guards seen", joined)
}
