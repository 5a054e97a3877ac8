// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackpulse/rackpulse/site"
)

// minipack is the small pack of testdata with one replacement in one file.
func minipack(t testing.TB, file, old, replacement string) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	for _, name := range []string{contractFile, "fans.yml"} {
		data, err := os.ReadFile(filepath.Join("testdata/minipack", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == file {
			if bytes.Count(data, []byte(old)) < 1 {
				t.Fatalf("%s has no %q", name, old)
			}
			data = bytes.Replace(data, []byte(old), []byte(replacement), 1)
		}
		out[name] = &fstest.MapFile{Data: data}
	}
	return out
}

// faults reads and builds a pack and returns what is wrong with it.
func faults(dir fstest.MapFS) error {
	pack, err := ReadPack(dir)
	if err == nil {
		_, err = pack.Build(site.DefaultLimits())
	}
	return err
}

func TestMinipack(t *testing.T) {
	if err := faults(minipack(t, "", "", "")); err != nil {
		t.Fatal(err)
	}
}

// TestBadPacks holds that each of these packs, with one fault each, is refused
// with the place of the fault and a message that names the key or expression and
// what is wanted.
func TestBadPacks(t *testing.T) {
	f, c := "fans.yml", contractFile
	for _, tc := range []struct{ file, old, replacement, want string }{
		{f, "signals:\n", "signals: [\n", "fans.yml:1:1: did not find expected node content (YAML syntax: look at indentation, quotes and brackets)"},
		{f, "  - name: racks", "  - name: \"racks", "fans.yml:2:5: did not find expected key (YAML syntax: look at indentation, quotes and brackets)"},
		{f, "    level: site", "   level: site", "fans.yml:3:4: did not find expected '-' indicator (YAML syntax: look at indentation, quotes and brackets)"},
		{f, "    unit: racks", "\tunit: racks", "fans.yml:5:1: found a tab character that violates indentation (YAML syntax: look at indentation, quotes and brackets)"},
		{f, "    unit: racks", "    unit: racks\n    unit: racks", "fans.yml:6:5: mapping key \"unit\" already defined at line 5"},
		{f, "    unit: racks", "    units: racks", "fans.yml:5:5: unknown key \"units\""},
		{f, "signals:\n", "signal:\n", "fans.yml:1:1: unknown key \"signal\""},
		{f, "signals:\n", "signals: 5\nx:\n", "fans.yml:1:10: signals: want a list, got \"5\"\nfans.yml:2:1: unknown key \"x\""},
		{f, "aggregate: {fn: min}", "aggregate: min", "fans.yml:12:16: aggregate: want a mapping, got \"min\""},
		{f, "weight: 0.5", "weight: half", "fans.yml:54:55: weight: want a number, got \"half\""},
		{f, "  for: 1m", "  for: 1", "fans.yml:60:8: for: want a duration such as 90s or 5m, got \"1\""},
		{f, "  for: 1m", "  for: one minute", "fans.yml:60:8: for: want a duration such as 90s or 5m, got \"one minute\""},
		{f, "alerts:\n", "---\nalerts:\n", "fans.yml:67:4: a second document; want only one"},
		{f, "    unit: racks\n    expr", "    unit: &u racks\n    description: *u\n    expr", "fans.yml:6:18: aliases (*u) are not read in a pack: write the value out"},
		{c, "interval: 15s\n", "interval: 0s\n", "contract.yml:1:11: interval is 0s, want a second or more"},
		{c, "join: [site, rack_id]", "join: [rack_id]", "contract.yml:6:49: level rack: join must begin with site, as ids repeat in other sites"},
		{c, "join: [site, rack_id]", "join: [site, rack]", "contract.yml:6:49: level rack: join [site, rack] has a label that labels [site, rack_id] lacks"},
		{c, "{from: node, to: rack}", "{from: node, to: shelf}", "contract.yml:10:5: edge from \"node\" to \"shelf\": no such levels"},
		{c, "name: room,", "name: rack,", "contract.yml:8:12: level \"rack\": want a name of its own in lower case letters, digits and _"},
		{c, "  inlet.hot_celsius: 28", "  inlet.hot_celsius: warm", "contract.yml:12:22: inlet.hot_celsius: want a number, got \"warm\""},
		{f, "  - name: racks", "  - name: Racks", "fans.yml:2:11: signal name \"Racks\": want lower case letters, digits and _"},
		{f, "name: nodes", "name: inlet", "fans.yml:16:17: signal fan_low: covered_by names no signal: \"nodes\"\nfans.yml:22:5: signal \"inlet\" is also at fans.yml:17:5\nfans.yml:57:9: correlation fan-fault: group.of: unknown signal \"nodes\""},
		{f, "    level: site", "    level: syte", "fans.yml:3:12: signal racks: unknown level \"syte\"; did you mean site?"},
		{f, "    unit: racks\n", "", "fans.yml:2:5: signal racks: unit is missing"},
		{f, "    expr: '{{signal \"inlet\"}}'", "    metric: x\n    expr: '{{signal \"inlet\"}}'", "fans.yml:29:5: signal inlet_hot: want either metric or expr"},
		{f, "    metric: node_fan_speed_ratio", "    metric: min(node_fan_speed_ratio)", "fans.yml:11:13: signal fan_low: \"min(node_fan_speed_ratio)\" is not a selector"},
		{f, "    metric: node_fan_speed_ratio", "    metric: node_fan_speed_ratio{fan=}", "fans.yml:11:13: signal fan_low: unexpected \"}\" in label matching, expected string, here: \"node_fan_speed_ratio{fan= <!> }\""},
		{f, "aggregate: {fn: min}", "aggregate: {fn: median}", "fans.yml:12:21: signal fan_low: a metric needs aggregate.fn, one of max min avg sum count upper"},
		{f, "    aggregate: {fn: min}\n", "", "fans.yml:7:5: signal fan_low: a metric needs aggregate.fn, one of max min avg sum count upper"},
		{f, "(rackpulse_rack_info{rack_id!=\"\"})", "(rackpulse_rack_info{rack_id!=\"\"}", "fans.yml:6:11: signal racks: unclosed left parenthesis, here: \"ckpulse_rack_info{rack_id!=\\\"\\\"} <!>\""},
		{f, "(rackpulse_rack_info{rack_id!=\"\"})", "(rackpulse_rack_info{rack_id=~\"r[0\"})", "fans.yml:6:11: signal racks: error parsing regexp: missing closing ]: `[0`, here: \"y (site) (rackpulse_rack_info{ <!> rack_id=~\\\"r[0\\\"})\""},
		{f, "{{signal \"inlet\"}}'", "{{signal \"inlets\"}}'", "fans.yml:33:11: signal inlet_hot: unknown signal \"inlets\"; did you mean inlet?"},
		{f, "{{signal \"inlet\"}}'", "{{signal \"inlet_hot\"}}'", "fans.yml:33:11: signal inlet_hot refers to itself"},
		{f, "{{signal \"inlet\"}}'", "{{signal \"inlet\" \"node\"}}'", "fans.yml:33:11: signal inlet_hot: signal \"inlet\" of level rack has no label \"node\", only site, rack_id"},
		{f, "{{signal \"inlet\"}}'", "{{signal inlet}}'", "fans.yml:33:11: signal inlet_hot: {{signal inlet}}: want {{signal \"NAME\"}}, with guarded labels after the name, or {{limit \"KEY\"}}"},
		{f, "{{signal \"inlet\"}}'", "{{limit \"inlet.hot\"}}'", "fans.yml:33:11: signal inlet_hot: unknown limit \"inlet.hot\"; did you mean inlet.hot_celsius?"},
		{f, "raise_limit: inlet.hot_celsius", "raise_limit: inlet.hot_celcius", "fans.yml:33:11: signal inlet_hot: unknown limit \"inlet.hot_celcius\"; did you mean inlet.hot_celsius?"},
		{f, "    raise_limit: inlet.hot_celsius", "    raise: 28\n    raise_limit: inlet.hot_celsius", "fans.yml:29:5: signal inlet_hot: want either raise or raise_limit beside op"},
		{f, "    op: \">\"\n", "", "fans.yml:29:5: signal inlet_hot: raise and clear need op"},
		{f, "op: \">\"", "op: \"=>\"", "fans.yml:34:9: signal inlet_hot: unknown op \"=>\", want one of > >= < <= == !="},
		{f, "covered_by: nodes", "covered_by: node", "fans.yml:16:17: signal fan_low: covered_by names no signal: \"node\"; did you mean nodes?"},
		{f, "    covered_by: nodes\n", "", "fans.yml:15:14: signal fan_low: has series only while true, so missing: unknown needs covered_by"},
		{f, "missing: unknown", "missing: bad data", "fans.yml:15:14: signal fan_low: missing is \"bad data\", want ok, unknown, optional or bad"},
		{f, "    missing: unknown\n    covered_by: nodes\n", "    missing: bad\n", "fans.yml:15:14: signal fan_low: missing: bad needs covered_by, the signal of what must report"},
		{f, "    missing: unknown\n    covered_by: nodes\n", "    missing: bad\n    covered_by: inlet\n", "fans.yml:16:17: signal fan_low: missing: bad needs covered_by of level node, inlet is of level rack"},
		{f, "    aggregate: {fn: max}\n    missing: unknown", "    aggregate: {fn: max}\n    missing: bad\n    covered_by: inlet_hot", "fans.yml:28:14: signal inlet: missing: bad needs op: without, it has no series that do not hold"},
		{f, "  id: fan-fault", "  id: Fan fault", "fans.yml:43:7: correlation id \"Fan fault\": want lower case letters, digits and -"},
		{f, "  title: Fans fail\n", "", "fans.yml:43:3: correlation fan-fault: title is missing"},
		{f, "  level: rack\n  at: node", "  level: rack\n  at: nod", "fans.yml:47:7: correlation fan-fault: unknown level \"nod\"; did you mean node?"},
		{f, "  level: rack\n  at: node", "  level: room\n  at: node", "fans.yml:46:10: correlation fan-fault: no edge from node to room in contract.yml"},
		{f, "severity: warning", "severity: page", "fans.yml:48:13: correlation fan-fault: unknown severity \"page\", want one of critical warning info"},
		{f, "team: facility", "team: me", "fans.yml:49:9: correlation fan-fault: unknown team \"me\", want one of facility compute network"},
		{f, "symptom: fan_low", "symptom: inlet_hot", "fans.yml:52:16: correlation fan-fault: symptom of branch slow: signal inlet_hot is of level rack, want one of level node"},
		{f, "signal: inlet_hot, role: required", "signal: inlet_hott, role: required", "fans.yml:54:20: correlation fan-fault: unknown signal \"inlet_hott\"; did you mean inlet_hot?"},
		{f, "signal: inlet_hot, role: required", "signal: room_hot, role: required", "fans.yml:54:20: correlation fan-fault, cause room_hot: no labels join level node to level room"},
		{f, "  for: 1m", "  unless: [inlet_hit]\n  for: 1m", "fans.yml:60:12: correlation fan-fault: unless: unknown signal \"inlet_hit\"; did you mean inlet_hot?"},
		{f, "role: required", "role: needed", "fans.yml:54:37: correlation fan-fault, cause inlet_hot: unknown role \"needed\", want one of required supporting contradicting"},
		{f, "weight: 0.5", "weight: 50", "fans.yml:54:55: correlation fan-fault, cause inlet_hot: weight 50 is not in 0..1"},
		{f, "lead: 5m", "lead: -5m", "fans.yml:54:66: correlation fan-fault, cause inlet_hot: lead -5m0s is negative"},
		{f, "lead: 5m", "lag: -1m", "fans.yml:54:65: correlation fan-fault, cause inlet_hot: lag -1m0s is negative"},
		{f, "  for: 1m", "  actions: [drain, reboot]\n  for: 1m", "fans.yml:60:20: correlation fan-fault: unknown action \"reboot\", want one of drain hold maintenance"},
		{f, "  for: 1m", "  actions: [drain, drain]\n  for: 1m", "fans.yml:60:20: correlation fan-fault: action drain stands there twice"},
		{f, "share_limit: rack.share_ratio", "share_limit: rack.share", "fans.yml:56:18: correlation fan-fault: unknown limit \"rack.share\"; did you mean rack.share_ratio?"},
		{f, "    of: nodes", "    of: inlet", "fans.yml:57:9: correlation fan-fault: group.of: signal inlet is of level rack, want one of level node"},
		{f, "    companion: FanFaultNode\n", "", "fans.yml:56:5: correlation fan-fault: group.companion is missing\nfans.yml:95:17: test \"slow\": fan-fault has no alert \"FanFaultNode\"; did you mean FanFault?"},
		{f, "  cause: fans\n", "", "fans.yml:43:3: correlation fan-fault: cause is missing"},
		{f, "  explain: {verdict: The fans are slow.}\n", "", "fans.yml:43:3: correlation fan-fault: explain.verdict is missing"},
		{f, "{alert: FanSlow, equal: [site, node]}", "{alert: FansSlow, equal: [site, node]}", "fans.yml:65:15: rackpulse/fan-fault/FansSlow: there is no alert FansSlow; did you mean FanSlow?"},
		{f, "{alert: FanSlow, equal: [site, node]}", "{alert: FanSlow, equal: [site, gpu]}", "fans.yml:65:38: correlation fan-fault: FanFault has no label \"gpu\" to compare, only site, rack_id, node, device"},
		{f, "{alert: FanSlow, equal: [site, node]}", "{alert: FanSlow, equal: [node]}", "fans.yml:65:31: correlation fan-fault: equal lacks site, so a cause would mute FanSlow of other sites"},
		{f, "{alert: FanSlow, equal: [site, node]}", "{alert: FanFaultNode, equal: [site, node]}", "fans.yml:65:15: rackpulse/fan-fault/FanFaultNode: FanFaultNode mutes itself"},
		{f, "    signal: fan_low\n    summary", "    signal: fan_low\n    colour: red\n    summary", "fans.yml:74:5: unknown key \"colour\""},
		{f, "    signal: fan_low", "    signal: fan_lo", "fans.yml:73:13: alert FanSlow: unknown signal \"fan_lo\"; did you mean fan_low?"},
		{f, "    signal: fan_low", "    expr: \"fan_low >\"", "fans.yml:73:11: alert FanSlow: unexpected end of input, here: \"fan_low > <!>\""},
		{f, "    summary: A fan is slow", "    summary: \"{{limit \\\"fan.low\\\"}}\"", "fans.yml:74:14: alert FanSlow: summary: unknown limit \"fan.low\"; did you mean fan.low_ratio?"},
		{f, "    branch: slow", "    branch: fast", "fans.yml:51:13: correlation fan-fault: branch slow has no test"},
		{f, "    over: {rack: [r01]}", "    over: {racks: [r01]}", "fans.yml:83:17: test \"slow\": placeholder <rack> has no values in over"},
		{f, "        of: [fan_low]", "        of: [fan_lower]", "fans.yml:86:14: test \"slow\": unknown signal \"fan_lower\"; did you mean fan_low?"},
		{f, "    at: 5m", "    at: 5m\n    mirror: [a]", "fans.yml:81:13: test \"slow\": mirror has 1 endings, want the two that change places"},
		{f, "    at: 5m", "    at: 0s", "fans.yml:78:5: test \"slow\": at must say when the alert is there, like 10m"},
		{f, "bad: 0.1x40", "bad: 0.1x400000", "fans.yml:87:14: test \"slow\": more than 5000 samples in one series"},
		{f, "node_fan_speed_ratio{site=\"ams1\",", "node_fan_speed_ratio{site=\"ams1\"", "fans.yml:85:17: test \"slow\": unexpected identifier \"rack_id\" in label set, expected \",\" or \"}\", here: \"de_fan_speed_ratio{site=\\\"ams1\\\" <!> rack_id=\\\"x\\\",node=\\\"x-n1\\\",fan=\\\"1\""},
		{f, "bad: 0.1x40", "bad: low x40", "fans.yml:87:14: test \"slow\": \"low x40\": want values as promtool has them, like 1x40, 22+0.4x16, _x5 or stale"},
		{f, "{alert: FanFault, labels: {rack_id: r01}}", "{alert: FanFalt, labels: {rack_id: r01}}", "fans.yml:95:17: test \"slow\": fan-fault has no alert \"FanFalt\"; did you mean FanFault?"},
		{f, "description: Fans of rack {{ $labels.rack_id }} are slow.", "description: Fans of rack {{ $labels.rack_id are slow.", "fans.yml:63:16: alert FanFault: description: template: function \"are\" not defined"},
		{f, "description: Fans of rack {{ $labels.rack_id }} are slow.", "description: Fans of rack {{ labels.rack_id }} are slow.", "fans.yml:63:16: alert FanFault: description: template: function \"labels\" not defined"},
	} {
		t.Run(strings.ReplaceAll(tc.replacement, "\n", "|"), func(t *testing.T) {
			err := faults(minipack(t, tc.file, tc.old, tc.replacement))
			if err == nil {
				t.Fatalf("no error, want %s", tc.want)
			}
			if _, ok := err.(Problems); !ok {
				t.Errorf("error is a %T, want Problems", err)
			}
			if err.Error() != tc.want {
				t.Errorf("got\n  %s\nwant\n  %s", err, tc.want)
			}
		})
	}
}

// TestUnlessAndMinSensors holds what the two keys compile to.
func TestUnlessAndMinSensors(t *testing.T) {
	dir := minipack(t, "fans.yml", "  for: 1m", "  unless: [racks]\n  for: 1m")
	dir["fans.yml"].Data = bytes.Replace(dir["fans.yml"].Data, []byte("aggregate: {fn: min}"), []byte("aggregate: {fn: min, min_sensors: 2}"), 1)
	pack, err := ReadPack(dir)
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.Build(site.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(built[generatedDir+"correlations.rules.yml"])), " ")
	for _, want := range []string{
		`min by (site, rack_id, node) (node_fan_speed_ratio{node!=""} < 0.2) and on (site, node) (count by (site, node) (node_fan_speed_ratio{node!=""}) >= 2)`,
		`unless on (site) rackpulse:site:racks`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
