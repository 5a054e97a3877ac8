// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "write the generated part of docs/facility.md")

const generatedMark = "<!-- The rest is generated: go test ./collector/facility -run TestDocs -update -->\n"

// generatedDocs are the tables of quantities and units.
func generatedDocs() string {
	var b strings.Builder
	b.WriteString("\n## Quantities\n\n| quantity | metric | label | belongs to | unit | range | why this range |\n|---|---|---|---|---|---|---|\n")
	for _, q := range Quantities() {
		label := "-"
		if q.PartLabel != "" {
			label = "`" + q.PartLabel + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %g to %g | %s |\n",
			q.Name, q.Desc.Name, label, strings.Join(q.Kinds, ", "), q.Base, q.Desc.Min, q.Desc.Max, q.Why)
	}
	b.WriteString("\n## Units\n\n| base unit | units |\n|---|---|\n")
	var done []string
	for _, q := range Quantities() {
		if !slices.Contains(done, q.Base) && q.Base != UnitInfo {
			done = append(done, q.Base)
			fmt.Fprintf(&b, "| %s | `%s` |\n", q.Base, strings.Join(unitNames(q.Base), "` `"))
		}
	}
	return b.String()
}

// TestDocsProfiles keeps the list of profiles in docs/profiles.md, and its
// example is a sound profile.
func TestDocsProfiles(t *testing.T) {
	path := filepath.Join(testtool.Root(), "docs", "profiles.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(data), "```profile\n")
	example, _, _ = strings.Cut(example, "```")
	if _, err := parseProfile("example.yml", []byte(example)); err != nil {
		t.Error(err)
	}
	const head = "| profile | devices |\n|---|---|\n"
	text, old, ok := strings.Cut(string(data), head)
	if !ok {
		t.Fatalf("%s has no table of profiles", path)
	}
	list, err := Profiles()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p.Name, p.About)
	}
	if *update {
		if err := os.WriteFile(path, []byte(text+head+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != b.String() {
		t.Errorf("the list of profiles in %s is stale; run go test ./collector/facility -run TestDocs -update", path)
	}
}

// TestDocs keeps the tables of docs/facility.md equal to the code.
func TestDocs(t *testing.T) {
	path := filepath.Join(testtool.Root(), "docs", "facility.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, old, ok := strings.Cut(string(data), generatedMark)
	if !ok {
		t.Fatalf("%s has no line %s", path, generatedMark)
	}
	if *update {
		if err := os.WriteFile(path, []byte(text+generatedMark+generatedDocs()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if old != generatedDocs() {
		t.Errorf("the tables of %s are stale; run go test ./collector/facility -run TestDocs -update", path)
	}
}

// secretFile finds the files of secrets in examples.
var secretFile = regexp.MustCompile(`(community|auth|privacy)_file: [^\s,}]+`)

// TestDocsExamples: every example of docs/facility.md is a valid configuration,
// and every driver and no other has a section with one.
func TestDocsExamples(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "facility.md"))
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a passphrase\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, section := range strings.Split(string(data), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		for i, block := range strings.Split(section, "```yaml\n") {
			if i == 0 {
				continue
			}
			example, _, _ := strings.Cut(block, "```")
			example = secretFile.ReplaceAllString(example, "${1}_file: "+secret)
			configs := entries(t, example)
			_, err := New(configs, Deps{
				Store: collector.NewStore(), Logger: log.NewNopLogger(), Device: hallDevice,
				SimState: func(time.Time) *sim.State { return nil },
			})
			if err != nil {
				t.Errorf("section %s: %v\n%s", title, err, example)
			}
			for _, c := range configs {
				shown[title] = shown[title] || c.Driver == title
			}
		}
	}
	for _, d := range Drivers() {
		if d.Name != "scripted" && !shown[d.Name] {
			t.Errorf("docs/facility.md has no section with an example of driver %s", d.Name)
		}
		if d.About == "" {
			t.Errorf("driver %s says nothing about itself", d.Name)
		}
	}
}
