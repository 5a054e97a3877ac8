// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// holders lists the processes that have a file open: this one and its children.
func holders(t *testing.T, file string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(links) == 0 {
		t.Fatalf("open files of all processes: %d, %v", len(links), err)
	}
	var pids []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == file {
			pids = append(pids, filepath.Base(filepath.Dir(filepath.Dir(link))))
		}
	}
	return slices.Compact(pids)
}

// TestReleaseDeviceFiles: the library has a file open as NVML has /dev/nvidia0.
func TestReleaseDeviceFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nvidia0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKENVML_DEVICE", file)
	useNVML(t, "", "gpus 2")
	r, rec := startNVML(t, Config{})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	if got := holders(t, file); len(got) != 1 || got[0] == strconv.Itoa(os.Getpid()) {
		t.Errorf("held by %q, want the child alone", got)
	}
	if err := r.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := holders(t, file); len(got) != 0 {
		t.Errorf("after the release held by %q", got)
	}
	released(t, r, rec, "released")
	want(t, "restarts", series(rec.page(t), "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
	if err := r.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "2 GPUs again", func() bool { return ups(t, rec) == "11" })
	if got := holders(t, file); len(got) != 1 {
		t.Errorf("held by %q again", got)
	}
}
