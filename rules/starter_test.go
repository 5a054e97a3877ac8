// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// TestStarter: what "rules init" writes has no problems beside the built-in pack,
// and passes its own tests under the real promtool.
func TestStarter(t *testing.T) {
	pack, err := ReadBeside(fstest.MapFS{StarterName: {Data: Starter()}}, "mine")
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.Build(site.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for path, data := range built {
		if strings.HasSuffix(path, ".rules.yml") || strings.HasSuffix(path, "inhibit.yml") {
			files[path] = data
		}
		// The other tests are those of TestPromtool.
		if strings.HasPrefix(path, generatedDir+"tests/") && !strings.HasSuffix(path, "/starter-rack-heavy_test.yml") {
			delete(built, path)
		}
	}
	for _, p := range pack.LintPack(files, KnownMetrics()) {
		t.Error(p)
	}
	out, err := Test(t.Context(), testtool.Binary(t, "promtool"), built)
	if err != nil || strings.Count(string(out), "starter-rack-heavy_test.yml") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
