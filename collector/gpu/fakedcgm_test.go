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
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/testtool"
)

// fakes are the built stand-ins for libdcgm.so.4 by compiler flag.
var fakes = struct {
	sync.Mutex
	dirs map[string]string
	root string
}{dirs: map[string]string{}}

// buildFake compiles testdata/fakedcgm and returns the folder of the library.
func buildFake(t *testing.T, flag string) string {
	t.Helper()
	fakes.Lock()
	defer fakes.Unlock()
	if dir, ok := fakes.dirs[flag]; ok {
		return dir
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		testtool.Missing(t, "no gcc to build testdata/fakedcgm")
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	if err != nil {
		t.Fatalf("headers of go-dcgm: %v", err)
	}
	if fakes.root == "" {
		if fakes.root, err = os.MkdirTemp("", "fakedcgm"); err != nil {
			t.Fatal(err)
		}
		atEnd = append(atEnd, func() { os.RemoveAll(fakes.root) })
	}
	dir := filepath.Join(fakes.root, "lib"+flag)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(testtool.Root(), "testdata", "fakedcgm", "*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of fakedcgm: %q, %v", sources, err)
	}
	args := []string{"-O1", "-shared", "-fPIC", "-Wl,-soname,libdcgm.so.4", "-o", filepath.Join(dir, "libdcgm.so.4"),
		"-I" + filepath.Join(strings.TrimSpace(string(module)), "pkg", "dcgm")}
	if flag != "" {
		args = append(args, "-D"+flag)
	}
	if out, err := exec.Command(cc, append(append(args, sources...), "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	fakes.dirs[flag] = dir
	return dir
}

// fake is the stand-in of one test.
type fake struct {
	t      *testing.T
	script string
	log    string
}

// useFake lets children of this test load the stand-in. The test must not be
// parallel, since the environment says which library to load.
func useFake(t *testing.T, flag string, lines ...string) *fake {
	t.Helper()
	t.Setenv("LD_LIBRARY_PATH", buildFake(t, flag))
	f := &fake{t: t, script: filepath.Join(t.TempDir(), "script"), log: filepath.Join(t.TempDir(), "calls")}
	t.Setenv("FAKEDCGM_SCRIPT", f.script)
	t.Setenv("FAKEDCGM_LOG", f.log)
	f.say(lines...)
	return f
}

// say replaces the script; running libraries take it over within 20 ms.
func (f *fake) say(lines ...string) {
	f.t.Helper()
	tmp := f.script + ".new"
	if err := os.WriteFile(tmp, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(tmp, f.script); err != nil {
		f.t.Fatal(err)
	}
}

// calls returns the logged calls that begin with a text.
func (f *fake) calls(begin string) []string {
	data, err := os.ReadFile(f.log)
	if err != nil {
		return nil
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, begin) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// startDCGM runs a Runner with the real go-dcgm in a real child. The interval is
// the shortest there is; deadlines leave room for a loaded machine.
func startDCGM(t *testing.T, cfg Config) (*Runner, *recorder) {
	t.Helper()
	return startDCGMWith(t, cfg, nil)
}

func startDCGMWith(t *testing.T, cfg Config, logger log.Logger) (*Runner, *recorder) {
	t.Helper()
	noLeaks(t)
	if cfg.Source == "" {
		cfg.Source = "dcgm"
	}
	cfg.Interval = 100 * time.Millisecond
	if cfg.ReadTimeout == 0 {
		cfg.ReadTimeout = 10 * time.Second
	}
	cfg.OpenTimeout = 20 * time.Second
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, cfg, Deps{ChildCommand: []string{self, "gpu-child"}, Logger: logger})
}

// ups returns rackpulse_gpu_up of all GPUs in page order as one text.
func ups(t *testing.T, rec *recorder) string {
	t.Helper()
	return strings.Join(series(rec.page(t), "rackpulse_gpu_up"), "")
}
