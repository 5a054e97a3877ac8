// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "write the generated part of docs/xid.md")

const generatedMark = "<!-- The rest is generated: go test ./xid -run TestDocs -update -->\n"

func row(b *strings.Builder, key string, e Entry) {
	nvidia := strings.Trim(e.Immediate+" / "+e.Investigatory, "/ ")
	do := strings.Join(e.Action, ", ")
	if len(e.IfRepeated) > 0 {
		do += "; repeated: " + strings.Join(e.IfRepeated, ", ")
	}
	var marks []string
	for _, m := range []struct {
		set  bool
		name string
	}{{e.Application, "application"}, {e.Consequence, "consequence"}, {e.Counted, "counted"}} {
		if m.set {
			marks = append(marks, m.name)
		}
	}
	fmt.Fprintf(b, "| %s | **%s**: %s %s | %s | %s | %s | %s | %s |\n", key, e.Name, e.Meaning, e.Notes, e.Severity,
		nvidia, do, strings.Join(marks, ", "), strings.Join(e.Sources, ", "))
}

// generatedDocs are the tables of the catalogue.
func generatedDocs(c *Catalogue) string {
	const head = "| %s | meaning | severity | NVIDIA's buckets | do | marks | sources |\n|---|---|---|---|---|---|---|\n"
	var b strings.Builder
	b.WriteString("\n## XIDs\n\n")
	fmt.Fprintf(&b, head, "XID")
	for _, code := range c.Codes() {
		row(&b, fmt.Sprint(code), c.xids[code])
	}
	b.WriteString("\n## Recovery actions of XID 154\n\n")
	fmt.Fprintf(&b, head, "text")
	for _, key := range slices.Sorted(maps.Keys(c.recovery)) {
		row(&b, key, c.recovery[key])
	}
	b.WriteString("\n## Lines without a number\n\n")
	fmt.Fprintf(&b, head, "form")
	for _, key := range slices.Sorted(maps.Keys(c.lines)) {
		row(&b, key, c.lines[key])
	}
	b.WriteString("\n## SXids\n\n")
	fmt.Fprintf(&b, head, "SXid")
	for _, code := range slices.Sorted(maps.Keys(c.sxids)) {
		row(&b, fmt.Sprint(code), c.sxids[code])
	}
	for _, t := range []struct {
		title string
		texts map[string]string
	}{{"Actions", c.actions}, {"Sources", c.sources}} {
		fmt.Fprintf(&b, "\n## %s\n\n| name | |\n|---|---|\n", t.title)
		for _, key := range slices.Sorted(maps.Keys(t.texts)) {
			fmt.Fprintf(&b, "| %s | %s |\n", key, t.texts[key])
		}
	}
	return b.String()
}

// TestDocs keeps the tables of docs/xid.md equal to the catalogue.
func TestDocs(t *testing.T) {
	path := filepath.Join(testtool.Root(), "docs", "xid.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, old, ok := strings.Cut(string(data), generatedMark)
	if !ok {
		t.Fatalf("%s has no line %s", path, generatedMark)
	}
	now := generatedDocs(catalogue(t))
	if *update {
		if err := os.WriteFile(path, []byte(text+generatedMark+now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != now {
		t.Error("the tables of docs/xid.md are stale; run go test ./xid -run TestDocs -update")
	}
}
