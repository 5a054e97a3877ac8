// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"
)

type device struct {
	Device   string        `yaml:"device"`
	Driver   string        `yaml:"driver"`
	Interval time.Duration `yaml:"interval"`
	Port     int           `yaml:"port"`
	SNMP     Part          `yaml:"snmp"`
}

type agent struct {
	Node     string            `yaml:"node"`
	Tags     map[string]string `yaml:"tags"`
	Facility []device          `yaml:"facility"`
	Parts    map[string]Part   `yaml:"parts"`
	Ptr      *Part             `yaml:"ptr"`
}

type snmp struct {
	Version int    `yaml:"version"`
	User    string `yaml:"user"`
	Auth    struct {
		File string `yaml:"file"`
		Kind string `yaml:"kind"`
	} `yaml:"auth"`
	Deeper Part `yaml:"deeper"`
}

func TestStrict(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"good", "node: gpu001\nfacility: [{device: r01-a, interval: 15s}]\n", ""},
		{"empty", "", ""},
		{"comment only", "# nothing here\n", ""},
		{"unknown key", "node: a\nnod: b\n", `a.yml:2: unknown key "nod"`},
		{"unknown deep", "facility:\n- device: a\n  intervall: 1s\n", `a.yml:3: unknown key "intervall"`},
		{"all faults", "nod: b\nfacility:\n- {port: x}\n- {port: [1]}\n",
			"a.yml:1: unknown key \"nod\"\na.yml:3: want a whole number, got \"x\"\na.yml:4: want a whole number, got a list"},
		{"bad duration", "facility:\n- interval: soon\n", `a.yml:2: want a duration such as 15s, got "soon"`},
		{"list", "facility: {a: b}\n", "a.yml:1: want a list, got a mapping"},
		{"mapping", "tags: [a]\n", "a.yml:1: want a mapping, got a list"},
		{"text", "node: {a: b}\n", "a.yml:1: want a text, got a mapping"},
		{"scalar file", "hello\n", `a.yml:1: want a mapping, got "hello"`},
		{"twice", "node: a\nnode: b\n", `a.yml:2: mapping key "node" already defined at line 1`},
		{"two documents", "node: a\n---\nnode: b\n", "a.yml:2: a second document; want only one"},
		{"syntax", "node: [a\n", "a.yml:1: did not find expected ',' or ']'"},
		{"tab", "node:\n\t- a\n", "a.yml:2: found character that cannot start any token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v agent
			got := ""
			if err := Strict("a.yml", []byte(tt.in), &v); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestStrictKeepsDefaults(t *testing.T) {
	v := agent{Node: "default"}
	if err := Strict("a.yml", nil, &v); err != nil || v.Node != "default" {
		t.Errorf("got %q, %v", v.Node, err)
	}
}

func TestStrictBoundsFaults(t *testing.T) {
	var in strings.Builder
	in.WriteString("facility:\n")
	for range 60 {
		in.WriteString("- {port: x}\n")
	}
	err := Strict("a.yml", []byte(in.String()), &agent{})
	if err == nil || !strings.HasSuffix(err.Error(), "\na.yml: and 10 more") || strings.Count(err.Error(), "\n") != 50 {
		t.Errorf("got %v", err)
	}
}

func TestStrictRefusesAliasBomb(t *testing.T) {
	var in strings.Builder
	in.WriteString("tags:\n  a: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for _, c := range "bcdefghij" {
		prev := string(c - 1)
		in.WriteString("  " + string(c) + ": &" + string(c) + "0 [" + strings.TrimSuffix(strings.Repeat("*"+prev+"0,", 9), ",") + "]\n")
	}
	var v any
	err := Strict("a.yml", []byte(in.String()), &v)
	if err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Errorf("got %v", err)
	}
}

const partFile = `node: gpu001

# a comment
facility:
- device: r01-a

  driver: snmp     # another
  snmp: {version: 3,

         user: "007", auth: {file: a,
           knd: b}}
- device: r01-b
  snmp:
    version: three

    # why
    usr: x
    deeper:
      # deep

      colour: red
parts:
  one: {version: 2}
ptr: {user: p}
`

func decodeParts(t *testing.T) agent {
	t.Helper()
	var v agent
	if err := Strict("agent.yml", []byte(partFile), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPartLines(t *testing.T) {
	v := decodeParts(t)
	want := []string{
		`agent.yml:11: unknown key "knd"`,
		"agent.yml:14: want a whole number, got \"three\"\nagent.yml:17: unknown key \"usr\"",
	}
	for i, d := range v.Facility {
		var s snmp
		if err := d.SNMP.Decode(&s); err == nil || err.Error() != want[i] {
			t.Errorf("part %d: got %v\nwant %s", i, err, want[i])
		}
	}
	var s snmp
	if err := v.Parts["one"].Decode(&s); err != nil || s.Version != 2 {
		t.Errorf("in a map: %+v, %v", s, err)
	}
	if err := v.Parts["one"].Decode(&struct{}{}); err == nil || err.Error() != `agent.yml:23: unknown key "version"` {
		t.Errorf("in a map: %v", err)
	}
	if err := v.Ptr.Decode(&struct{}{}); err == nil || err.Error() != `agent.yml:24: unknown key "user"` {
		t.Errorf("behind a pointer: %v", err)
	}
}

func TestPartInPart(t *testing.T) {
	v := decodeParts(t)
	var outer struct {
		Version, Usr string
		Deeper       Part
	}
	if err := v.Facility[1].SNMP.Decode(&outer); err != nil {
		t.Fatal(err)
	}
	if got := outer.Deeper.Position(); got != "agent.yml:21" {
		t.Errorf("position %s", got)
	}
	if err := outer.Deeper.Decode(&struct{}{}); err == nil || err.Error() != `agent.yml:21: unknown key "colour"` {
		t.Errorf("got %v", err)
	}
}

func TestPartValues(t *testing.T) {
	in := "node: x\nptr:\n  text: |\n    two\n    lines\n  quoted: \"on\"\n  number: '012'\n  list: [1, 2]\n  none: ~\n"
	var v agent
	if err := Strict("a.yml", []byte(in), &v); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Text, Quoted, Number string
		List                 []int
		None                 *int
	}
	if err := v.Ptr.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if got.Text != "two\nlines\n" || got.Quoted != "on" || got.Number != "012" || len(got.List) != 2 || got.None != nil {
		t.Errorf("%+v", got)
	}
}

func TestPartAbsent(t *testing.T) {
	var p Part
	s := snmp{Version: 3}
	if err := p.Decode(&s); err != nil || s.Version != 3 || !p.IsZero() {
		t.Errorf("%+v %v", s, err)
	}
	var v agent
	if err := Strict("a.yml", []byte("ptr: ~\nfacility: [{snmp: }]\n"), &v); err != nil || v.Ptr != nil || !v.Facility[0].SNMP.IsZero() {
		t.Errorf("null part: %+v %v", v, err)
	}
}

func TestPartResolve(t *testing.T) {
	var v struct{ P Part }
	if err := Strict("/etc/rackpulse/agent.yml", []byte("p: {a: b}\n"), &v); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"": "", "/run/s": "/run/s", "s": "/etc/rackpulse/s", "d/s": "/etc/rackpulse/d/s"} {
		if got := v.P.Resolve(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

func TestPartEqual(t *testing.T) {
	part := func(in string) Part {
		var v struct{ P Part }
		if err := Strict("a.yml", []byte(in), &v); err != nil {
			t.Fatal(err)
		}
		return v.P
	}
	a := part("p: {version: 3, user: mon}")
	if !a.Equal(part("\n\n# moved\np:\n  version: 3 # same\n\n  user: mon\n")) {
		t.Error("layout counts")
	}
	if a.Equal(part("p: {version: 3, user: other}")) || a.Equal(Part{}) {
		t.Error("values do not count")
	}
	if a.Equal(part("p: {version: \"3\", user: mon}")) {
		t.Error("a text equals a number")
	}
}

func TestPartRefusesAlias(t *testing.T) {
	err := Strict("a.yml", []byte("tags: &t {a: b}\nptr:\n  x: *t\n"), &agent{})
	if err == nil || err.Error() != "a.yml:3: alias *t: aliases are not understood here" {
		t.Errorf("got %v", err)
	}
}
