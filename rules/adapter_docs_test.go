// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestAdapterDocs: the page names every adapter, and its example compiles.
func TestAdapterDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "existing-exporters.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := Adapters()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if !strings.Contains(string(data), "`"+a.Name+"`") {
			t.Errorf("adapter %s is not in the page", a.Name)
		}
	}
	_, block, _ := strings.Cut(string(data), "```yaml\nadapter:")
	block, _, _ = strings.Cut(block, "```")
	own, err := ReadAdapter("mine.yml", []byte("adapter:"+block))
	if err != nil {
		t.Fatal(err)
	}
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, own)
	built, err := pack.BuildAdapters(list, "http://registry:9401")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pack.LintAdapters(list, built[AdapterRules]) {
		t.Error(p)
	}
}
