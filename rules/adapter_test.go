// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestAdapters compiles all adapters together: no lint finds anything, and the
// real promtool takes both files.
func TestAdapters(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	list, err := Adapters()
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.BuildAdapters(list, "http://registry:9401")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pack.LintAdapters(list, built[AdapterRules]) {
		t.Error(p)
	}
	promtool, dir := testtool.Binary(t, "promtool"), t.TempDir()
	for name, data := range built {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", AdapterRules}, {"check", "config", "--syntax-only", AdapterScrape}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// column is that of a place.
var column = regexp.MustCompile(`(a\.yml:\d+):\d+`)

// TestBadAdapters wants a message with file and line for each fault.
func TestBadAdapters(t *testing.T) {
	const good = `adapter: one
title: t
source: s
target: pdu
scrape: {path: /snmp, through: "snmp:9116"}
metrics:
- metric: pdu_power_watt
  from: watts
`
	if _, err := ReadAdapter("a.yml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"adapter: one", "adapter: One", `a.yml:1: adapter "One": want lower case`},
		{"title: t\n", "", "a.yml:1: adapter one: title and source are required"},
		{"target: pdu", "target: rack", `a.yml:4: adapter one: unknown target "rack"`},
		{"target: pdu", "target: pdu\nfoo: 1", "a.yml:5: "},
		{"target: pdu", "target: pdu\njob: a b", `a.yml:5: adapter one: "a b" is no job name`},
		{`, through: "snmp:9116"`, "", "a.yml:5: adapter one: a facility device is asked through an exporter"},
		{`"snmp:9116"`, `"http://snmp"`, `a.yml:5: adapter one: through is "http://snmp", want host:port`},
		{"path: /snmp", "port: 70000", "a.yml:5: adapter one: port 70000"},
		{"metrics:\n", "labels: [{name: a, from: a}]\nmetrics:\n", `a.yml:6: adapter one: labels: "a" from "a"`},
		{"metrics:\n", "passes: [foo]\nmetrics:\n", "a.yml:6: adapter one: foo is no metric of RackPulse"},
		{"pdu_power_watt", "power_watt", `a.yml:7: metric "power_watt" is none of RackPulse`},
		{"from: watts", "unit: W", "a.yml:7: metric pdu_power_watt: from is required"},
		{"from: watts", "from: 'watts{'", "a.yml:7: metric pdu_power_watt: from: "},
		{"from: watts", "from: 'info(watts)'", "a.yml:7: metric pdu_power_watt: from: "},
		{"from: watts", "from: 'watts[5m]'", "a.yml:7: metric pdu_power_watt: from gives a matrix, want an instant vector"},
		{"from: watts", "from: watts\n  scale: 10", "a.yml:7: metric pdu_power_watt: scale without unit"},
		{"from: watts", "from: watts\n  unit: W\n  scale: -1", "a.yml:7: metric pdu_power_watt: scale -1 is negative"},
		{"from: watts", "from: watts\n  range: [3]", "a.yml:7: metric pdu_power_watt: range wants two rising numbers"},
		{"from: watts", "from: watts\n  is: 1\n  range: [0, 1]", "a.yml:7: metric pdu_power_watt: a state (is)"},
		{"from: watts", "from: watts\n  fn: median", `a.yml:7: metric pdu_power_watt: unknown fn "median"`},
		{"from: watts", "from: watts\n  served: up", `a.yml:7: metric pdu_power_watt: served: "up" is no metric`},
		{"from: watts", "from: watts\n  static: {adapter: x}", `a.yml:7: metric pdu_power_watt: "adapter" cannot be a static label`},
		{"from: watts", "from: watts\n  labels: [{name: pdu_id, from: [x]}]", `a.yml:7: metric pdu_power_watt: label "pdu_id" cannot be made`},
		{"from: watts", "from: watts\n  labels: [{name: phase}]", "a.yml:7: metric pdu_power_watt, label phase: want from or value"},
		{"from: watts", "from: watts\n- metric: pdu_power_watt\n  from: w", "a.yml:9: metric pdu_power_watt is also at a.yml:7"},
		{"metrics:\n- metric: pdu_power_watt\n  from: watts\n", "", "a.yml:1: adapter one: neither metrics nor passes"},
		{good, "", "a.yml:1: empty"},
		{good, "- a", "a.yml:1"},
	} {
		text := strings.Replace(good, tc.old, tc.new, 1)
		if text == good {
			t.Fatalf("%q is not in the file", tc.old)
		}
		_, err := ReadAdapter("a.yml", []byte(text))
		if err == nil || !strings.HasPrefix(column.ReplaceAllString(err.Error(), "$1"), tc.want) {
			t.Errorf("%q for %q: error %v, want %q", tc.new, tc.old, err, tc.want)
		}
	}
}

// TestAdapterTwice: two adapters of one name, and a registry that is no URL.
func TestAdapterTwice(t *testing.T) {
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	list, err := Adapters()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pack.BuildAdapters([]*Adapter{list[0], list[0]}, "http://registry:9401"); err == nil || !strings.Contains(err.Error(), "is also at") {
		t.Errorf("twice: error %v", err)
	}
	if _, err := pack.BuildAdapters(list[:1], "registry:9401"); err == nil || !strings.Contains(err.Error(), `registry "registry:9401"`) {
		t.Errorf("no URL: error %v", err)
	}
}
