// SPDX-License-Identifier: Apache-2.0

// Package testtool finds the real programs that tests run against. It is
// imported by tests only.
package testtool

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Root is the repository's root folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(file))
}

// CacheDir is where make deps puts built tools: $RACKPULSE_TOOLS, else
// rackpulse/tools in the user's cache folder.
func CacheDir() string {
	if dir := os.Getenv("RACKPULSE_TOOLS"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "rackpulse", "tools")
}

// Binary returns the path of a program that make deps installs. Where it is
// missing the test is skipped with a hint, or fails when CI=true.
func Binary(t testing.TB, name string) string {
	t.Helper()
	hits, _ := filepath.Glob(filepath.Join(CacheDir(), "*", name))
	if len(hits) > 0 {
		return hits[len(hits)-1]
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	Missing(t, name+" is not installed; run 'make deps'")
	return ""
}

// Missing skips the test, or fails it when CI=true.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// FreeAddress is an address of this machine, host:port, that nobody listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	list, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// Start runs a program until the test ends; what it printed is shown if that
// failed.
func Start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", cmd.Path, log.String())
		}
	})
}
