// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func catalogue(t testing.TB) *Catalogue {
	t.Helper()
	c, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// documented are the codes of the tables that the catalogue was made from:
// NVIDIA's own (in use), and the fatal or ignore lists of node agents.
var documented = []int{
	8, 13, 31, 32, 38, 43, 44, 45, 46, 48, 54, 56, 57, 58, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 73, 74,
	78, 79, 80, 81, 92, 93, 94, 95, 109, 110, 119, 120, 121, 136, 137, 140, 142, 143, 144, 145, 146, 147,
	148, 149, 150, 151, 154, 155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 167, 168, 169, 171, 172, 173,
}

func TestCatalogueIsComplete(t *testing.T) {
	c := catalogue(t)
	for _, code := range documented {
		if _, ok := c.Lookup(code); !ok {
			t.Errorf("XID %d is missing", code)
		}
	}
	check := func(what string, e Entry) {
		if e.Name == "" || e.Meaning == "" || e.Severity == "" || len(e.Action) == 0 || len(e.Sources) == 0 {
			t.Errorf("%s is incomplete: %+v", what, e)
		}
		for _, key := range slices.Concat(e.Action, e.IfRepeated) {
			if c.Action(key) == "" {
				t.Errorf("%s: action %s is not explained", what, key)
			}
		}
		for _, key := range e.Sources {
			if c.Source(key) == "" {
				t.Errorf("%s: source %s is not named", what, key)
			}
		}
	}
	for code, e := range c.xids {
		check(fmt.Sprint("xid ", code), e)
		if e.Severity == Critical && (e.Application || slices.Contains(e.Action, "NONE")) {
			t.Errorf("XID %d is critical and yet the application's or nothing to do", code)
		}
	}
	for _, m := range []map[string]Entry{c.lines, c.recovery} {
		for key, e := range m {
			check(key, e)
		}
	}
	for _, kind := range []Kind{KindOffBus, KindInitFailed} {
		if c.lines[string(kind)].Name == "" {
			t.Errorf("line form %s is missing", kind)
		}
	}
	used := map[string]bool{}
	for _, e := range c.xids {
		for _, key := range e.Sources {
			used[key] = true
		}
	}
	for _, m := range []map[string]Entry{c.lines, c.recovery} {
		for _, e := range m {
			for _, key := range e.Sources {
				used[key] = true
			}
		}
	}
	for key := range c.sources {
		if !used[key] && key != "nvidia-fabric" {
			t.Errorf("source %s is not used", key)
		}
	}
}

// TestCritical holds the codes that our table calls critical, and those that
// are counted from the start: an alert on an increase depends on the list.
func TestCritical(t *testing.T) {
	counted := []int{46, 48, 54, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158}
	if got := catalogue(t).Counted(); !slices.Equal(got, counted) {
		t.Errorf("counted: %v, want %v", got, counted)
	}
	critical := []int{46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 156, 158, 165, 167, 169, 171, 172, 173}
	if got := catalogue(t).Critical(); !slices.Equal(got, critical) {
		t.Errorf("critical: %v, want %v", got, critical)
	}
}

func TestLookup(t *testing.T) {
	c := catalogue(t)
	for code, want := range map[int]struct {
		severity    Severity
		immediate   string
		action      string
		application bool
		consequence bool
	}{
		13:  {Info, "RESTART_APP", "CHECK_APP", true, false},
		45:  {Info, "WORKFLOW_XID_45", "NONE", true, true},
		63:  {Warning, "IGNORE", "NONE", false, false},
		79:  {Critical, "RESTART_BM", "DRAIN_REBOOT CHECK_POWER_PCIE", false, false},
		130: {Warning, "RESTART_APP", "CHECK_APP", true, false},
		163: {Warning, "", "CHECK_COOLING", false, false},
	} {
		e, ok := c.Lookup(code)
		if !ok || e.Severity != want.severity || e.Immediate != want.immediate || strings.Join(e.Action, " ") != want.action ||
			e.Application != want.application || e.Consequence != want.consequence {
			t.Errorf("XID %d: %v, %+v", code, ok, e)
		}
	}
	for _, code := range []int{-1, 0, 1, 5, 14, 174, 999, 12028} {
		if e, ok := c.Lookup(code); ok {
			t.Errorf("XID %d is known: %+v", code, e)
		}
	}
	if e, ok := c.LookupSXid(12028); !ok || e.Severity != Warning {
		t.Errorf("SXid 12028: %v, %+v", ok, e)
	}
	if _, ok := c.LookupSXid(79); ok {
		t.Error("an XID passes for an SXid")
	}
}

func TestOverride(t *testing.T) {
	c := catalogue(t)
	own, err := c.Override("own.yml", []byte(`
sources: {us: our runbook}
actions: {CALL: call the vendor}
xid:
  79: {action: [CALL], sources: [nvidia, us]}
  126-128: {severity: error}
  900: {name: own, meaning: a test of ours, severity: info, action: [CALL], sources: [us]}
`))
	if err != nil {
		t.Fatal(err)
	}
	e, _ := own.Lookup(79)
	if e.Action[0] != "CALL" || e.Severity != Critical || e.Name != "GPU has fallen off the bus" || e.ChangedBy != "own.yml" || own.Action("CALL") == "" {
		t.Errorf("changed: %+v", e)
	}
	if e, _ := own.Lookup(127); e.Severity != Error || e.Action[0] != "CHECK_APP" {
		t.Errorf("range: %+v", e)
	}
	if e, ok := own.Lookup(900); !ok || e.Name != "own" {
		t.Errorf("new: %+v", e)
	}
	if e, _ := own.Lookup(129); e.ChangedBy != "" || e.Severity != Warning {
		t.Errorf("not named, yet changed: %+v", e)
	}
	if e, _ := c.Lookup(79); e.Action[0] != "DRAIN_REBOOT" || e.ChangedBy != "" {
		t.Errorf("the built-in catalogue changed: %+v", e)
	}
	if _, err := c.Override("empty.yml", nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestOverrideErrors(t *testing.T) {
	c := catalogue(t)
	for want, in := range map[string]string{
		"f.yml:1: unknown section \"xids\"":                           "xids: {}",
		"f.yml:2: xid 79: unknown field \"sevrity\"":                  "xid:\n  79: {sevrity: info}",
		"f.yml:3: xid 79: severity \"bad\" is none of":                "\nxid:\n  79: {severity: bad}",
		"f.yml:2: xid 79: unknown action \"RUN\"":                     "xid:\n  79: {action: [RUN]}",
		"f.yml:2: xid 79: unknown source \"me\"":                      "xid:\n  79: {sources: [me]}",
		"f.yml:2: xid 79: no action":                                  "xid:\n  79: {action: []}",
		"f.yml:2: xid 5: no name":                                     "xid:\n  5: {severity: info}",
		"f.yml:4: xid: \"79\" is set twice, first in line 2":          "xid:\n  79:\n    name: a\n  79:\n    name: b",
		"f.yml:3: xid: 79 is set twice, first in line 2":              "xid:\n  78-80: {name: a}\n  79: {name: b}",
		"f.yml:2: xid: \"x\" is no code":                              "xid:\n  x: {name: a}",
		"f.yml:2: xid: \"1-99999\" is no code":                        "xid:\n  1-99999: {name: a}",
		"f.yml:2: xid: \"0\" is no code":                              "xid:\n  0: {name: a}",
		"f.yml:2: xid 79: cannot unmarshal":                           "xid:\n  79: {counted: often}",
		"f.yml:2: anchors and aliases":                                "xid:\n  79: &a {name: b}",
		"f.yml:1: xid: want a mapping":                                "xid: [1]",
		"f.yml:2: sources.a: want a text":                             "sources:\n  a: ''",
		"f.yml: more than one YAML document":                          "xid: {}\n---\nxid: {}",
		"f.yml: file is larger":                                       strings.Repeat("#", maxFile+1),
		"f.yml: yaml: line 1":                                         "xid: {",
		"f.yml:1: catalogue: want a mapping":                          "- a",
		"f.yml:2: nvlink5: xid must be":                               "nvlink5:\n  - {xid: 79, unit: [A], status: [0], then: none}",
		"f.yml:2: nvlink5: then is \"x\"":                             "nvlink5:\n  - {xid: 144, unit: [A], status: [0], then: x}",
		"f.yml:2: nvlink5: unknown field":                             "nvlink5:\n  - {xid: 144, units: [A]}",
		"f.yml:1: nvlink5: want a list":                               "nvlink5: {}",
		"f.yml:2: xid 79: a text is longer":                           "xid:\n  79: {notes: " + strings.Repeat("a", maxText+1) + "}",
		"f.yml:2: recovery None: severity \"\"":                       "recovery:\n  None: {severity: ''}",
		"f.yml:2: sources: \"a\" is set twice, first in line 2":       "sources:\n  {a: b, a: c}",
		"f.yml:3: xid 79: \"name\" is set twice, first in line 3":     "xid:\n  79:\n    {name: b, name: c}",
		"f.yml:2: xid: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "xid:\n  " + strings.Repeat("a", 100) + ": {name: a}",
	} {
		got, err := c.Override("f.yml", []byte(in))
		if err == nil || got != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", in, err, want)
		}
	}
}
