// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackpulse/rackpulse/site"
)

// FuzzPack reads, builds and lints packs of any content: nothing panics, what is
// refused has a place in the file, and what is built parses.
func FuzzPack(f *testing.F) {
	paths, err := filepath.Glob("correlations/*.yml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(paths, "testdata/minipack/fans.yml", "testdata/minipack/contract.yml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(filepath.Base(path) == contractFile, data)
	}
	f.Fuzz(func(t *testing.T, shared bool, data []byte) {
		dir := minipack(t, "", "", "")
		name := "fans.yml"
		if shared {
			name = contractFile
		}
		dir[name] = &fstest.MapFile{Data: data}
		pack, err := ReadPack(dir)
		var built map[string][]byte
		if err == nil {
			built, err = pack.Build(site.DefaultLimits())
		}
		if err != nil {
			var list Problems
			if !errors.As(err, &list) {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range list {
				if p.File == "" || p.Line < 1 || p.Line > strings.Count(string(data), "\n")+200 || p.Column < 1 || p.Message == "" {
					t.Errorf("no place: %+v", p)
				}
			}
			return
		}
		maps.DeleteFunc(built, func(name string, _ []byte) bool {
			return !strings.HasSuffix(name, ".yml") || strings.Contains(name, "/tests/")
		})
		for _, p := range pack.LintPack(built, nil) {
			if p.ID == "C000" {
				t.Error(p)
			}
		}
	})
}
