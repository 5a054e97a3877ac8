// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// nvmlFakes are the built stand-ins for libnvidia-ml.so.1 by compiler flag.
var nvmlFakes = struct {
	sync.Mutex
	dirs map[string]string
}{dirs: map[string]string{}}

// nvmlModule is the folder of the go-nvml module.
var nvmlModule = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	return strings.TrimSpace(string(out)), err
})

// buildFakeNVML compiles testdata/fakenvml and returns the folder of the library.
func buildFakeNVML(t *testing.T, flag string) string {
	t.Helper()
	nvmlFakes.Lock()
	defer nvmlFakes.Unlock()
	if dir, ok := nvmlFakes.dirs[flag]; ok {
		return dir
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		testtool.Missing(t, "no gcc to build testdata/fakenvml")
	}
	module, err := nvmlModule()
	if err != nil {
		t.Fatalf("header of go-nvml: %v", err)
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		t.Fatal(err)
	}
	atEnd = append(atEnd, func() { os.RemoveAll(dir) })
	sources, err := filepath.Glob(filepath.Join(testtool.Root(), "testdata", "fakenvml", "*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of fakenvml: %q, %v", sources, err)
	}
	args := []string{"-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", filepath.Join(dir, "libnvidia-ml.so.1"),
		"-Wno-deprecated-declarations", "-I" + filepath.Join(module, "pkg", "nvml")}
	if flag != "" {
		args = append(args, "-D"+flag)
	}
	if out, err := exec.Command(cc, append(append(args, sources...), "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	nvmlFakes.dirs[flag] = dir
	return dir
}

// useNVML lets children of this test load the stand-in; see useFake.
func useNVML(t *testing.T, flag string, lines ...string) *fake {
	t.Helper()
	t.Setenv("LD_LIBRARY_PATH", buildFakeNVML(t, flag))
	f := &fake{t: t, script: filepath.Join(t.TempDir(), "script"), log: filepath.Join(t.TempDir(), "calls")}
	t.Setenv("FAKENVML_SCRIPT", f.script)
	t.Setenv("FAKENVML_LOG", f.log)
	f.say(lines...)
	return f
}

// startNVML runs a Runner with the real go-nvml in a real child.
func startNVML(t *testing.T, cfg Config) (*Runner, *recorder) {
	t.Helper()
	cfg.Source = "nvml"
	return startDCGM(t, cfg)
}
