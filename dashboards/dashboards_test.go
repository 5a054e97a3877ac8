// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// known are the metrics of our exporters and the series of our rules.
func known(t *testing.T) Known {
	t.Helper()
	pack, err := rules.DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	series, err := pack.Series(site.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// all are the files of the dashboards.
func all(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := fs.Glob(Files(), "*.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		if out[name], err = fs.ReadFile(Files(), name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestLint(t *testing.T) {
	boards := all(t)
	for _, p := range Lint(boards, known(t)) {
		t.Error(p)
	}
	if len(boards) != 12 {
		t.Errorf("%d dashboards, want 12", len(boards))
	}
}

// TestRunbooks holds that the links to documentation lead to pages there are.
func TestRunbooks(t *testing.T) {
	pack, err := rules.DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile(`https://github\.com/rackpulse/rackpulse/blob/main/([^"#]+)`)
	seen := map[string]bool{}
	for name, data := range all(t) {
		for _, m := range page.FindAllStringSubmatch(string(data), -1) {
			seen[m[1]] = true
			paths := []string{m[1]}
			if strings.Contains(m[1], "${__data.fields.correlation}") {
				paths = nil
				for _, c := range pack.Correlations() {
					paths = append(paths, strings.ReplaceAll(m[1], "${__data.fields.correlation}", c.ID))
				}
			}
			for _, path := range paths {
				if ok, err := filepath.Glob(filepath.Join(testtool.Root(), path)); err != nil || len(ok) != 1 {
					t.Errorf("%s links to %s, which is not there", name, path)
				}
			}
		}
	}
	if len(seen) < 2 {
		t.Errorf("links to %v only", seen)
	}
}

// plain is a dashboard without a fault; %s are a target's expression, its unit,
// and what else stands in the panel.
const plain = `{"uid":"a-v1","editable":false,"templating":{"list":[
 {"name":"datasource","type":"datasource","query":"prometheus"},
 {"name":"site","type":"query","datasource":{"uid":"${datasource}"},"query":{"query":"label_values(a_celsius, site)"},"refresh":2,"includeAll":true,"allValue":".+"},
 {"name":"rack_id","type":"query","datasource":{"uid":"${datasource}"},"query":"label_values(a_celsius{site=~\"$site\"}, rack_id)","refresh":2,"includeAll":true,"allValue":".*"}]},
 "links":[{"type":"dashboards"}],
 "annotations":{"list":[{"datasource":{"uid":"${datasource}"},"expr":"ALERTS{site=~\"$site\"}"}]},
 "panels":[{"id":1,"type":"stat","title":"A","description":"a","datasource":{"type":"prometheus","uid":"${datasource}"},"gridPos":{"x":0,"y":0,"w":12,"h":4},
  "targets":[{"refId":"A","datasource":{"uid":"${datasource}"},"expr":%q}],"fieldConfig":{"defaults":{"unit":%q,"links":[{"title":"to","url":"/d/a-v1/x?var-site=x&${__url_time_range}"}]}}}]}`

var plainKnown = Known{
	"a_celsius": {"rack_id"}, "b_celsius": {"rack_id", "site"}, "c_total": {"rack_id"}, "d_bytes_total": nil, "e_timestamp_seconds": nil, "f_ratio": nil, "g": nil,
}

const (
	goodExpr = `a_celsius{site=~"$site",rack_id=~"$rack_id"}`
	bothSide = `site=~"$site",rack_id=~"$rack_id"`
)

// TestLintFinds has one bad dashboard for each rule, and holds that it has no
// other fault.
func TestLintFinds(t *testing.T) {
	good := fmt.Sprintf(plain, goodExpr, "celsius")
	if got := Lint(map[string][]byte{"x.json": []byte(good)}, plainKnown); len(got) > 0 {
		t.Fatalf("the good one: %v", got)
	}
	for _, tc := range []struct{ rule, from, to, text string }{
		{"json", `{"uid"`, `{"uid`, "dashboard: "},
		{"uid", `a-v1`, `Oxed_c6Wz`, "Oxed_c6Wz"},
		{"uid", `a-v1`, `a-name-that-is-much-longer-than-grafana-allows-v1`, "at most 40"},
		{"no-inputs", `"editable"`, `"__inputs":[{}],"editable"`, "__inputs"},
		{"no-inputs", `"description":"a"`, `"description":"${DS_PROMETHEUS}"`, "__inputs"},
		{"uneditable", `"editable":false`, `"editable":true`, "editable"},
		{"uneditable", `"editable":false,`, ``, "editable"},
		{"template-datasource", `"query":"prometheus"`, `"query":"loki"`, "query prometheus"},
		{"template-datasource", `"datasource":{"uid":"${datasource}"},"query":{`, `"datasource":{"uid":"P1"},"query":{`, `"P1"`},
		{"template-on-time-change-reload", `"refresh":2`, `"refresh":1`, "variable site"},
		{"template-all-value", `"allValue":".+"`, `"allValue":"a|b"`, `"a|b"`},
		{"template-label-promql", `label_values(a_celsius, site)`, `query_result(a_celsius)`, "variable site"},
		{"template-label-promql", `label_values(a_celsius, site)`, `label_values(a_celsius{, site)`, "parse error"},
		{"metric-known", `label_values(a_celsius, site)`, `label_values(z_celsius, site)`, "z_celsius"},
		{"panel-title-description", `"title":"A"`, `"title":""`, "panel 1"},
		{"panel-title-description", `"description":"a"`, `"description":""`, "panel 1"},
		{"no-angular", `"type":"stat"`, `"type":"graph"`, "graph"},
		{"panel-datasource", `"datasource":{"type":"prometheus","uid":"${datasource}"}`, `"datasource":"Prometheus"`, `"Prometheus"`},
		{"panel-datasource", `"refId":"A","datasource":{"uid":"${datasource}"}`, `"refId":"A","datasource":{"uid":"P1"}`, "target A"},
		{"panel-datasource", `[{"datasource":{"uid":"${datasource}"},"expr"`, `[{"name":"N","datasource":{"uid":"P1"},"expr"`, "annotation N"},
		{"panel-units", `"unit":"celsius"`, `"unit":""`, "no unit"},
		{"unit-known", `"unit":"celsius"`, `"unit":"amperes"`, `"amperes"`},
		{"panel-no-targets", `"targets":[{"refId":"A"`, `"targets":[],"was":[{"refId":"A"`, "asks for nothing"},
		{"panel-id", `"panels":[`, `"panels":[{"id":1,"type":"row","title":"R","gridPos":{"x":0,"y":9,"w":24,"h":1}},`, "same id 1"},
		{"grid", `"panels":[`, `"panels":[{"id":2,"type":"row","title":"R","gridPos":{"x":0,"y":3,"w":24,"h":1}},`, `panels "A" and "R" overlap`},
		{"grid", `"w":12`, `"w":25`, "24 columns"},
		{"link-dead", `/d/a-v1/x?`, `/d/b-v1/x?`, `"b-v1"`},
		{"link-dead", `var-site=x`, `var-node=x`, `"node"`},
		{"link-time", `&${__url_time_range}`, ``, "__url_time_range"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if !strings.Contains(good, tc.from) {
				t.Fatalf("%s is not in the good dashboard", tc.from)
			}
			n := 1
			if tc.rule == "uid" {
				n = -1 // with the link to itself
			}
			only(t, Lint(map[string][]byte{"x.json": []byte(strings.Replace(good, tc.from, tc.to, n))}, plainKnown), tc.rule, tc.text)
		})
	}
	// Another way to write it, and none, which is the panel's.
	for _, same := range []string{`"refId":"A","datasource":{"uid":"$datasource"}`, `"refId":"A"`} {
		dash := strings.Replace(good, `"refId":"A","datasource":{"uid":"${datasource}"}`, same, 1)
		if got := Lint(map[string][]byte{"x.json": []byte(dash)}, plainKnown); len(got) > 0 || dash == good {
			t.Errorf("%s: %v", same, got)
		}
	}
	many := `{"panels":[{}` + strings.Repeat(`,{}`, maxPanels) + `]}`
	only(t, Lint(map[string][]byte{"x.json": []byte(many)}, nil), "panels", "501 panels")
	twins := Lint(map[string][]byte{"x.json": []byte(good), "y.json": []byte(good)}, plainKnown)
	only(t, twins, "uid-unique", "x.json")
}

// only holds that there is one problem, of this rule and with this text.
func only(t *testing.T, got []Problem, rule, text string) {
	t.Helper()
	if len(got) != 1 || got[0].Rule != rule || !strings.Contains(got[0].String(), text) || !strings.Contains(got[0].String(), ".json") {
		t.Errorf("problems %v, want one of %s with %q", got, rule, text)
	}
}

// TestLintFindsInQueries has one bad query for each rule, and good ones beside.
func TestLintFindsInQueries(t *testing.T) {
	for _, tc := range []struct{ rule, unit, expr string }{
		{"", "celsius", goodExpr},
		{"target-promql", "celsius", `a_celsius{`},
		{"target-promql", "celsius", `a_celsius{site=~"$site",rack_id=~"$rack_id",node=~"$node"}`},
		{"", "celsius", `a_celsius{site=~"${site:regex}",rack_id=~"${rack_id}"}`},
		{"target-rate-interval", "short", `sum(rate(c_total{` + bothSide + `}[$__interval]))`},
		{"metric-known", "celsius", `x_celsius{` + bothSide + `}`},
		{"", "Bps", `rate(node_network_receive_bytes_total{` + bothSide + `}[$__rate_interval])`},
		{"target-rack", "celsius", `a_celsius{site=~"$site"}`},
		{"target-rack", "celsius", `a_celsius{site=~"$site",rack_id=~".*"}`},
		{"target-rack", "celsius", `a_celsius{site="ams1",rack_id=~"$rack_id"}`},
		{"", "short", `g{site=~"$site"}`},
		{"target-rack", "short", `g`},
		{"target-counter-agg", "short", `sum(c_total{` + bothSide + `})`},
		{"", "short", `sum(rate(c_total{` + bothSide + `}[$__rate_interval]))`},
		{"", "short", `sum(increase(c_total{` + bothSide + `}[${__range}]))`},
		{"", "short", `sum(rate(c_total{` + bothSide + `}[15m]))`},
		{"target-rate-interval", "short", `sum(rate(c_total{` + bothSide + `}[1m]))`},
		{"join-guard", "celsius", `a_celsius{` + bothSide + `} and on (site, rack_id) b_celsius{` + bothSide + `,rack_id!=""}`},
		{"", "celsius", `a_celsius{` + bothSide + `,rack_id!=""} and on (site, rack_id) b_celsius{` + bothSide + `,rack_id!=""}`},
		{"unit-right", "percent", goodExpr},
		{"unit-right", "short", `max by (rack_id) (` + goodExpr + `)`},
		{"unit-right", "celsius", `count(` + goodExpr + `)`},
		{"unit-right", "bytes", `rate(d_bytes_total{site=~"$site"}[$__rate_interval])`},
		{"", "bytes", `increase(d_bytes_total{site=~"$site"}[$__range])`},
		{"unit-right", "none", `time() - e_timestamp_seconds{site=~"$site"}`},
		{"", "s", `time() - max(e_timestamp_seconds{site=~"$site"})`},
		{"unit-right", "percent", `f_ratio{site=~"$site"}`},
		{"", "percentunit", `1 - f_ratio{site=~"$site"}`},
		{"unit-right", "celsius", goodExpr + ` / on (site, node) ` + strings.Replace(goodExpr, "a_", "b_", 1)},
		{"unit-right", "volt", `max_over_time(` + goodExpr + `[1h:1m])`},
		{"unit-right", "celsius", goodExpr + ` > bool 3`},
		{"", "celsius", goodExpr + ` > 3`},
	} {
		got := Lint(map[string][]byte{"x.json": fmt.Appendf(nil, plain, tc.expr, tc.unit)}, plainKnown)
		if tc.rule == "" {
			if len(got) > 0 {
				t.Errorf("%s in %s: %v", tc.expr, tc.unit, got)
			}
			continue
		}
		t.Run(tc.rule, func(t *testing.T) { only(t, got, tc.rule, `panel "A"`) })
	}
}

// TestLabelsOfQueries holds which labels the legend and the links of a target name.
func TestLabelsOfQueries(t *testing.T) {
	const panel = `{"panels":[{"type":%q,"targets":[{"refId":"A","expr":"a","legendFormat":"{{node}} of {{ rack_id }}"},{"refId":"B","expr":"b"}],
 "fieldConfig":{"defaults":{"links":[{"url":"/d/x?var-site=${__field.labels.site}&from=${__from}"}]},
  "overrides":[{"matcher":{"id":"byFrameRefID","options":"B"},"properties":[{"id":"links","value":[{"url":"/d/y?v=${__data.fields.feed}"}]}]}]}}]}`
	for kind, want := range map[string][][]string{
		"timeseries": {{"node", "rack_id", "site"}, {"feed", "site"}},
		"table":      {{"node", "rack_id", "site"}, nil}, // its rows are merged
	} {
		got, err := Queries(fmt.Appendf(nil, panel, kind))
		if err != nil || len(got) != 2 || !slices.Equal(got[0].Labels, want[0]) || !slices.Equal(got[1].Labels, want[1]) {
			t.Errorf("%s: %+v, %v, want %v", kind, got, err, want)
		}
	}
}

// TestUnitOfTarget holds that a unit given for one target counts for that one.
func TestUnitOfTarget(t *testing.T) {
	for _, matcher := range []string{`"id":"byFrameRefID","options":"A"`, `"id":"byName","options":"Value"`} {
		dash := strings.Replace(fmt.Sprintf(plain, goodExpr, "short"), `"fieldConfig":{`,
			`"fieldConfig":{"overrides":[{"matcher":{`+matcher+`},"properties":[{"id":"unit","value":"celsius"}]}],`, 1)
		if got := Lint(map[string][]byte{"x.json": []byte(dash)}, plainKnown); len(got) > 0 {
			t.Errorf("%s: %v", matcher, got)
		}
	}
}

// TestEveryBoardLeadsToTheOthers holds that each dashboard has the menu of all,
// and that its tables and bars lead on.
func TestEveryBoardLeadsToTheOthers(t *testing.T) {
	for name, data := range all(t) {
		b, err := parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(b.Links, func(k link) bool { return k.Type == "dashboards" && slices.Contains(k.Tags, "rackpulse") }) {
			t.Errorf("%s has no menu of the other dashboards", name)
		}
		var tags struct{ Tags []string }
		if err := json.Unmarshal(data, &tags); err != nil || !slices.Contains(tags.Tags, "rackpulse") {
			t.Errorf("%s is in no menu: tags %v, %v", name, tags.Tags, err)
		}
		if name != "self.json" && strings.Count(string(data), `"/d/rackpulse-`) < 3 {
			t.Errorf("%s has %d links to other dashboards", name, strings.Count(string(data), `"/d/rackpulse-`))
		}
	}
}
