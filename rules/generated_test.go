// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

func build(t testing.TB) map[string][]byte {
	t.Helper()
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.Build(site.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// TestGeneratedIsFresh fails when a committed file is not what the correlations
// compile to: run "rackpulse rules build" or "go test ./rules -update".
func TestGeneratedIsFresh(t *testing.T) {
	built, root := build(t), testtool.Root()
	if *update {
		for path, data := range built {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	changes, err := Diff(built, os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		t.Errorf("%s (go test ./rules -update)", c)
	}
}
