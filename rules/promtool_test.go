// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestPromtool runs the real promtool over the compiled rules and their tests.
func TestPromtool(t *testing.T) {
	out, err := Test(t.Context(), testtool.Binary(t, "promtool"), build(t))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "_test.yml"); n != 7 {
		t.Errorf("promtool ran %d test files, want 7:\n%s", n, out)
	}
}

// TestHandWritten runs the tests of testdata, written without the generator.
func TestHandWritten(t *testing.T) {
	promtool := testtool.Binary(t, "promtool")
	files, err := filepath.Glob("testdata/*_test.yml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "--diff", file).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestPromtoolSeesAFault holds that Test reports a rule that does not do what
// its tests say.
func TestPromtoolSeesAFault(t *testing.T) {
	promtool := testtool.Binary(t, "promtool")
	built := build(t)
	for path := range built {
		if strings.HasPrefix(path, generatedDir+"tests/") && !strings.HasSuffix(path, "gpu-lost_test.yml") {
			delete(built, path)
		}
	}
	path := generatedDir + "correlations.rules.yml"
	broken := strings.Replace(string(built[path]), `rackpulse_gpu_up == 0`, `rackpulse_gpu_up == 2`, 1)
	if broken == string(built[path]) {
		t.Fatal("the expression to break is gone")
	}
	built[path] = []byte(broken)
	out, err := Test(t.Context(), promtool, built)
	if err == nil || !strings.Contains(err.Error(), "promtool test rules") {
		t.Errorf("error %v, want one of promtool test rules\n%s", err, out)
	}
}
