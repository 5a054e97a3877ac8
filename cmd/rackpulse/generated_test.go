// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "rewrite generated files")

// TestAlertmanagerIsCurrent holds that the committed configuration is what the
// correlations and the base give.
func TestAlertmanagerIsCurrent(t *testing.T) {
	_, built, err := (&rulesVerbs{}).compile()
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(testtool.Root(), alertmanagerFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(there, built[alertmanagerFile]) {
		t.Errorf("%s is stale; run 'make generate'", alertmanagerFile)
	}
}

// TestReadme holds the generated list of parts and the budget of the README.
func TestReadme(t *testing.T) {
	path := filepath.Join(testtool.Root(), "README.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := partsList()
	if err != nil {
		t.Fatal(err)
	}
	next, err := replaceParts(data, list)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, next) {
		t.Error("the list of parts in README.md is stale; run 'make generate'")
	}
	if n := bytes.Count(data, []byte("\n")); n > 200 {
		t.Errorf("README.md has %d lines, the budget is 200", n)
	}
	for _, link := range links(string(data)) {
		if _, err := os.Stat(filepath.Join(testtool.Root(), link)); err != nil {
			t.Errorf("README.md: %v", err)
		}
	}
}

// links lists the relative links of a Markdown text.
func links(text string) []string {
	var out []string
	for _, part := range strings.Split(text, "](")[1:] {
		link, _, _ := strings.Cut(part, ")")
		link, _, _ = strings.Cut(link, "#")
		if link != "" && !strings.Contains(link, "://") {
			out = append(out, link)
		}
	}
	return out
}
