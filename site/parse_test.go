// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestInvalid reads testdata/sites/invalid-*.yml: each holds one fault, and its
// first line says the whole message.
func TestInvalid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testtool.Root(), "testdata", "sites", "invalid-*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := bytes.Cut(data, []byte("\n"))
			want, ok := strings.CutPrefix(string(first), "# want: ")
			if !ok {
				t.Fatalf("no # want: in the first line")
			}
			s, err := Parse(filepath.Base(file), data)
			if err == nil {
				t.Fatalf("accepted: %+v", s)
			}
			if err.Error() != want {
				t.Errorf("got\n%s\nwant\n%s", err, want)
			}
		})
	}
}

func TestParseReportsAllProblems(t *testing.T) {
	_, err := Parse("site.yml", []byte(`site: {id: s1}
racks:
- {id: r01, hight: 1}
- {id: r01}
pdus:
- {id: p1, rack: r99, phases: 2}
`))
	want := `site.yml:3: racks[0].hight: unknown key
site.yml:4: racks[1].id: duplicate id "r01" (first in racks[0] at line 3)
site.yml:6: pdus[0].phases: 2 phases; want 1 or 3
site.yml:6: pdus[0].rack: unknown rack "r99"`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestParseBoundsProblems(t *testing.T) {
	var b strings.Builder
	b.WriteString("site: {id: s1}\nracks:\n")
	for range 12000 {
		b.WriteString("- {id: r1, x: 1}\n")
	}
	_, err := Parse("site.yml", []byte(b.String()))
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	// 12,000 unknown keys and 11,999 duplicates, 50 of them shown.
	if len(lines) != 51 || lines[50] != "site.yml: and 23949 more" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
}

func TestParseBoundsSize(t *testing.T) {
	_, err := Parse("site.yml", make([]byte, 16<<20+1))
	if err == nil || err.Error() != "site.yml: file is larger than 16 MiB" {
		t.Errorf("got %v", err)
	}
}

// TestParseBoundsNames: many ranges, each within its own bound, are refused once
// their sum gets out of hand.
func TestParseBoundsNames(t *testing.T) {
	var b strings.Builder
	b.WriteString("site: {id: s1}\nnode_classes: [{id: ws, rackless: true}]\nnodes:\n- id: n[1-2]\n  class: ws\n  outlets:\n")
	for range 9 {
		b.WriteString("  - p/[1-65536]\n")
	}
	_, err := Parse("site.yml", []byte(b.String()))
	// 524,288 is 8 x 65,536, and the ids take three: the eighth list is too much.
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprintf(`site.yml:%d: nodes[0].outlets[%d]: "p/[1-65536]" gives 65536 names, but the id gives 2`, i+7, i))
	}
	for i := 7; i < 9; i++ {
		want = append(want, fmt.Sprintf("site.yml:%d: nodes[0].outlets[%d]: the ranges of this file have more than 524288 names", i+7, i))
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.yml")
	if err := os.WriteFile(path, []byte("site: {id: s1}\nrows: [{id: a}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != path+":2: rows[0].room: missing" {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("site: {id: s1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(path); err != nil || s.ID != "s1" {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := Load(path + "x"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil {
		t.Error("a folder was accepted")
	}
}

// TestRanges covers what a range may spread over.
func TestRanges(t *testing.T) {
	_, err := Parse("site.yml", []byte(`
site: {id: s1}
racks: [{id: "r[1-2]"}]
pdus: [{id: "r[1-2]-a", rack: "r[1-2]", phases: 1}]
switches: [{id: t1}]
node_classes: [{id: c1, height_u: 3}, {id: ws, rackless: true}]
nodes:
- id: "n[1-4]"
  rack: "r[1,1,2,2]"
  u: 5
  class: c1
  outlets: ["r[1,1,2,2]-a/[1,2,1,2]", "r[1-2]-a/[7-8]"]
  ports: ["t1/Ethernet[1-4]/1"]
  address: "10.0.0.[11-14]"
  exporters: {node: "n[1-4].example.com:9100"}
  tenant: red
- {id: w1, class: ws, outlets: ["r1-a/[20-22]"], exporters: {node: "[::1]:9100"}}
`))
	if err == nil {
		t.Fatal("outlets spread in the wrong number")
	}
	// r[1,1,2,2]-a/[1,2,1,2] has 16 names: brackets multiply.
	if want := `site.yml:12: nodes[0].outlets[0]: "r[1,1,2,2]-a/[1,2,1,2]" gives 16 names, but the id gives 4`; err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestRangesSpread(t *testing.T) {
	s, err := Parse("site.yml", []byte(`
site: {id: s1}
racks: [{id: "r[1-2]"}]
pdus: [{id: "r[1-2]-a", rack: "r[1-2]", phases: 1}]
switches: [{id: t1}]
node_classes: [{id: c1, height_u: 3}, {id: ws, rackless: true}]
nodes:
- id: "n[1-4]"
  rack: "r[1,1,2,2]"
  u: 5
  class: c1
  outlets: ["r[1-2]-a/[1-2]"]
  ports: ["t1/Ethernet[1-4]/1"]
  address: "10.0.0.[11-14]"
  exporters: {node: "n[1-4].example.com:9100"}
  tenant: red
- {id: w1, class: ws, outlets: ["r1-a/[20-22]"], exporters: {node: "[::1]:9100"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"n1 r1 5 [r1-a/1] [t1/Ethernet1/1] 10.0.0.11 n1.example.com:9100 red",
		"n2 r1 8 [r1-a/2] [t1/Ethernet2/1] 10.0.0.12 n2.example.com:9100 red",
		"n3 r2 5 [r2-a/1] [t1/Ethernet3/1] 10.0.0.13 n3.example.com:9100 red",
		"n4 r2 8 [r2-a/2] [t1/Ethernet4/1] 10.0.0.14 n4.example.com:9100 red",
		"w1  0 [r1-a/20 r1-a/21 r1-a/22] []  [::1]:9100 ",
	}
	for i, n := range s.Nodes {
		got := fmt.Sprintf("%s %s %d %v %v %s %s %s", n.ID, n.Rack, n.U, n.Outlets, n.Ports, n.Address, n.Exporters["node"], n.Tenant)
		if got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
}

func TestDefaults(t *testing.T) {
	s, err := Parse("site.yml", []byte("site: {id: s1}\nfeeds: [{id: f1}, {id: f2, derate: 1}]\nracks: [{id: r1, row: ~}]\nrooms:\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Feeds[0].Derate != 0.8 || s.Feeds[1].Derate != 1 || s.Racks[0].HeightU != 42 {
		t.Errorf("%+v %+v", s.Feeds, s.Racks)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(smallHall))
	f.Add([]byte("site: {id: a}\nnodes: [{id: \"n[1-9]\", class: [x]}]\n"))
	f.Add([]byte("site: {id: a}\nlimits: {gpu: {x: {hot_celsius: 1}}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Parse("fuzz.yml", data); err == nil {
			for _, e := range s.Entities() {
				s.DependsOn(e)
			}
			if d := Diff(s, s); len(d) > 0 {
				t.Errorf("differs from itself: %v", d)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	data := hallFile(64, 8, 8)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Parse("hall.yml", data); err != nil {
			b.Fatal(err)
		}
	}
}
