// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/site"
)

// TestLintRules holds, for each finding about single rules, a rule that has the
// fault and one that is like it and has not.
func TestLintRules(t *testing.T) {
	for _, tc := range []struct {
		name, rule string // in one line; column 5 of line 4
		want       []string
	}{
		{"fill is experimental", `{record: x, expr: 'a + on (rack_id) fill (0) b'}`, []string{"f.yml:4:24 C005"}},
		{"limitk is experimental", `{record: x, expr: 'limitk(3, a)'}`, []string{"f.yml:4:24 C005"}},
		{"topk is not", `{record: x, expr: 'topk(3, a)'}`, nil},

		{"value in a label", `{alert: X, expr: a > 1, labels: {level: '{{ $value }}'}}`, []string{"f.yml:4:45 C006"}},
		{"value in a label, in a function", `{alert: X, expr: a > 1, labels: {level: '{{ .Value | humanize }}'}}`, []string{"f.yml:4:45 C006"}},
		{"value in an annotation", `{alert: X, expr: a > 1, annotations: {level: '{{ $value }}'}}`, nil},
		{"the word alone", `{alert: X, expr: a > 1, labels: {level: 'some $value'}}`, nil},

		{"no comparison", `{alert: X, expr: sum(a)}`, []string{"f.yml:4:22 C007"}},
		{"a comparison that yields 0 or 1", `{alert: X, expr: a > bool 1}`, []string{"f.yml:4:22 C007"}},
		{"comparison inside", `{alert: X, expr: count(a > 1)}`, nil},
		{"absence", `{alert: X, expr: absent(a)}`, nil},
		{"the dead man's switch", `{alert: X, expr: vector(1)}`, nil},
		{"an info series", `{alert: X, expr: 'rackpulse_node_info{rack_id=""}'}`, nil},

		{"rate over too little", `{alert: X, expr: 'rate(a[45s]) > 1'}`, []string{"f.yml:4:28 C008"}},
		{"mean over too little", `{alert: X, expr: 'avg_over_time(a[59s]) > 1'}`, []string{"f.yml:4:37 C008"}},
		{"rate over four samples", `{alert: X, expr: 'rate(a[1m]) > 1'}`, nil},
		{"highest of two samples", `{alert: X, expr: 'max_over_time(a[30s]) > 1'}`, nil},
		{"rate of a subquery", `{alert: X, expr: 'deriv((a + 0)[2m:1m]) > 1'}`, []string{"f.yml:4:29 C008"}},

		{"shorter than two evaluations", `{alert: X, expr: a > 1, for: 20s}`, []string{"f.yml:4:34 C009"}},
		{"two evaluations", `{alert: X, expr: a > 1, for: 30s}`, nil},
		{"none at all is a decision", `{alert: X, expr: a > 1, for: 0s}`, nil},

		{"label aggregated away", `{alert: X, expr: sum by (site) (a) > 1, annotations: {summary: 'rack {{ $labels.rack_id }}'}}`, []string{"f.yml:4:68 C014"}},
		{"label aggregated away, in a label", `{alert: X, expr: sum (a) > 1, labels: {rack: '{{ $labels.rack_id }}'}}`, []string{"f.yml:4:50 C014"}},
		{"label kept", `{alert: X, expr: 'sum by (rack_id) (a) > 1', annotations: {summary: '{{ $labels.rack_id }}'}}`, nil},
		{"label kept by topk", `{alert: X, expr: 'topk by (site) (1, a) > 1', annotations: {summary: '{{ $labels.rack_id }}'}}`, nil},
		{"label of the rule itself", `{alert: X, expr: sum(a) > 1, labels: {team: t}, annotations: {summary: '{{ $labels.team }} {{ $labels.alertname }}'}}`, nil},
		{"label made by label_join", `{alert: X, expr: 'label_join(sum by (a) (b), "c", "", "a") > 1', annotations: {summary: '{{ $labels.c }}'}}`, nil},

		{"range without a sample", `{record: x, expr: 'max_over_time(a[20s])'}`, []string{"f.yml:4:38 C017"}},
		{"range of a scrape and an evaluation", `{record: x, expr: 'max_over_time(a[30s])'}`, nil},

		{"a series for each pod", `{record: x, expr: 'sum by (node, pod) (a)'}`, []string{"f.yml:4:24 C018"}},
		{"pods summed up", `{record: x, expr: 'sum by (node) (a{pod!=""})'}`, nil},
		{"each GPU with each PDU", `{record: x, expr: 'sum by (site, UUID, pdu_id) (a)'}`, []string{"f.yml:4:24 C018"}},
		{"each GPU with its rack", `{record: x, expr: 'sum by (site, UUID, node, rack_id) (a)'}`, nil},

		{"absent without on", `{alert: X, expr: 'a > 1 and absent(b{rack_id="r"})'}`, []string{"f.yml:4:33 C019"}},
		{"absent without the label", `{alert: X, expr: 'a{rack_id!=""} > 1 and on (rack_id) absent(b{rack_id!=""})'}`, []string{"f.yml:4:59 C019"}},
		{"absent with a fixed label", `{alert: X, expr: 'a{rack_id!=""} > 1 and on (rack_id) absent(b{rack_id="r"})'}`, nil},
		{"absent for all", `{alert: X, expr: 'a > 1 unless on () absent(b)'}`, nil},
		{"absent as an alternative", `{alert: X, expr: 'a > 1 or absent(b)'}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want(t, lint(t, map[string]string{"f.yml": "groups:\n- name: g\n  rules:\n  - " + tc.rule + "\n"}, nil), tc.want...)
		})
	}
}

// TestLintFollowsRecords holds that findings see through recorded series, and use
// the interval of their group.
func TestLintFollowsRecords(t *testing.T) {
	text := `groups:
- name: slow
  interval: 1m
  rules:
  - {record: 'x:always', expr: 'sum by (site) (a)'}
  - {record: 'x:hot', expr: 'sum by (site) (a) > 5'}
  - {record: 'x:pods', expr: 'max by (pod) (a)'}
  - {alert: Fast, expr: 'a > 1', for: 1m}
- name: fast
  interval: 15s
  rules:
  - {alert: Always, expr: 'x:always'}
  - {alert: Hot, expr: 'x:hot', annotations: {summary: '{{ $labels.site }}{{ $labels.node }}'}}
  - {alert: Slope, expr: 'deriv(x:always[2m]) > 0'}
  - {alert: Window, expr: 'max_over_time(x:always[1m]) > 0'}
  - {record: 'y:pods', expr: 'x:pods + 1'}
`
	want(t, lint(t, map[string]string{"f.yml": text}, nil),
		"f.yml:7:31 C018", "f.yml:8:39 C009", "f.yml:12:28 C007", "f.yml:13:56 C014", "f.yml:14:33 C008", "f.yml:15:42 C017", "f.yml:16:31 C018")
}

// TestLintSizes holds that labels of raw series are those of the list of metrics,
// and that levels which a metric joins count once.
func TestLintSizes(t *testing.T) {
	known := []byte("DCGM_FI_DEV_GPU_TEMP UUID,gpu,node,pod\nport_info node,port,switch\n")
	text := `groups:
- name: g
  rules:
  - {record: a, expr: 'DCGM_FI_DEV_GPU_TEMP * 2'}
  - {record: b, expr: 'max without (pod) (DCGM_FI_DEV_GPU_TEMP)'}
  - {record: c, expr: 'max by (site, node, switch, port) (port_info)'}
`
	want(t, lint(t, map[string]string{"f.yml": text}, known), "f.yml:4:24 C018")
}

// TestLintCycles holds that alerts which mute each other are found, through others
// and by name alone, and that Alertmanager's own exemption is known.
func TestLintCycles(t *testing.T) {
	rule := func(source, target string) string {
		return "- {source_matchers: ['" + source + "'], target_matchers: ['" + target + "'], equal: [site]}\n"
	}
	for _, tc := range []struct {
		name  string
		rules []string
		want  []string
	}{
		{"a chain", []string{rule(`alertname="A"`, `alertname="B"`), rule(`alertname="B"`, `alertname="C"`)}, nil},
		{"two", []string{rule(`alertname="A"`, `alertname="B"`), rule(`alertname="B"`, `alertname="A"`)}, []string{"am.yml:3:3 C015"}},
		{"three", []string{rule(`alertname="A"`, `alertname="B"`), rule(`alertname="B"`, `alertname="C"`), rule(`alertname="C"`, `alertname="A"`)}, []string{"am.yml:3:3 C015"}},
		{"by severity", []string{rule(`severity="critical"`, `severity=~"warning|info"`)}, nil},
		{"an alert that fits both sides", []string{rule(`alertname=~"A|B"`, `alertname=~"A|B"`)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := lint(t, map[string]string{"am.yml": "route: {}\ninhibit_rules:\n" + strings.Join(tc.rules, "")}, nil)
			want(t, got, tc.want...)
		})
	}
}

// TestLintPack holds the findings about the pack's own files.
func TestLintPack(t *testing.T) {
	for _, tc := range []struct{ name, file, old, replacement, want string }{
		{"as it is", "load-heat.yml", "for: 1m", "for: 1m", ""},
		{"a needed signal that says nothing of its absence", "rack-silent.yml", "    missing: ok # rack_leases tells when there are no leases at all\n", "", "rack-silent.yml:54:16 C012"},
		{"a number in an expression", "load-heat.yml", `{{limit "inlet.correlation_hot_celsius"}}`, "28", "load-heat.yml:11:11 C020"},
		{"a count of samples", "load-heat.yml", `({{signal "inlet"}} <= {{limit "inlet.correlation_hot_celsius"}})`, `(count_over_time({{signal "inlet"}}[5m]) > 12)`, ""},
		{"a limit without a unit", "contract.yml", "  correlation.silent_nodes: 3", "  correlation.silent_nodes: 3\n  correlation.much: 3", "contract.yml:49:21 C020"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pack, err := ReadPack(edited(t, tc.file, tc.old, tc.replacement))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range sorted(pack.sources()) {
				got = append(got, fmt.Sprintf("%s:%d:%d %s", p.File, p.Line, p.Column, p.ID))
			}
			want(t, got, slices.DeleteFunc([]string{tc.want}, func(s string) bool { return s == "" })...)
			if _, err := pack.Build(site.DefaultLimits()); err != nil {
				t.Error(err)
			}
		})
	}
}
