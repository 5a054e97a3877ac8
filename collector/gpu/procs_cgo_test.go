// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
)

// readTable lists the processes once, in a child process: what one process has
// bound to a library does not go over to another.
func readTable(t *testing.T) *ProcessTable {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	source, err := newLauncher([]string{os.Args[0], "gpu-child"}, log.NewNopLogger()).open(ctx, "nvml", SourceConfig{
		Fields: []string{fieldTemp}, ProcessInterval: time.Second, CallBudget: callBudget})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	sample, err := source.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return sample.Processes
}

// TestProcessLists reads the lists of real go-nvml with the library's newest
// functions, and with those of driver 390.
func TestProcessLists(t *testing.T) {
	script := []string{"gpus 2",
		"process 0 compute 101 1048576", "process 0 compute 102 2097152", "process 0 graphics 102 2097152", "process 0 graphics 103 unknown",
		"process 0 mps 101 1048576", "process 1 compute 104 281474976710657", "value 1 nvmlDeviceGetMemoryInfo_v2.used 7340032"}
	for flag, mps := range map[string]int{"": kindMPS, "FAKE_OLD": 0} {
		t.Run("lib"+flag, func(t *testing.T) {
			useNVML(t, flag, script...)
			table := readTable(t)
			if len(table.GPUs) != 2 || table.GPUs[0].UUID != "GPU-01000100-0000-0000-0000-000000000000" {
				t.Fatalf("table: %+v", table)
			}
			g := table.GPUs[0]
			w := []Process{{PID: 101, Kind: kindCompute | mps, Memory: 1048576}, {PID: 102, Kind: kindCompute | kindGraphics, Memory: 2097152}, {PID: 103, Kind: kindGraphics, Memory: -1}}
			if !slices.Equal(g.Processes, w) || g.Kinds != kindCompute|kindGraphics|mps || g.Err != "" || len(g.Instances) != 0 {
				t.Errorf("GPU 0: %+v, want %+v", g, w)
			}
			used := int64(7340032)
			if flag != "" {
				used = -1 // the old function counts what the driver reserves
			}
			if g := table.GPUs[1]; g.Used != used || len(g.Processes) != 1 || g.Processes[0].Memory != -1 { // no GPU has 256 TiB
				t.Errorf("GPU 1: %+v", g)
			}
		})
	}
}

// TestProcessListsMIG: the whole GPU's list tells the instances; where it is not
// for this user the instances' own lists do.
func TestProcessListsMIG(t *testing.T) {
	script := []string{"gpus 1", "mig 0 3", "process 0 compute 101 1048576 7 0", "process 0 compute 101 2097152 8 0", "process 0 compute 102 1048576 8 0"}
	for name, more := range map[string]string{"whole": "", "parts": "value 0 compute-list.gpu noperm"} {
		t.Run(name, func(t *testing.T) {
			useNVML(t, "", append(script, more)...)
			g := readTable(t).GPUs[0]
			w := []Process{{101, "7", "0", kindCompute, 1048576}, {101, "8", "0", kindCompute, 2097152}, {102, "8", "0", kindCompute, 1048576}}
			if !slices.Equal(g.Processes, w) || g.Err != "" {
				t.Errorf("processes: %+v", g)
			}
			if w := (MIGInstance{UUID: "MIG-01000100-0000-0000-0008-000000000000", GI: "8", CI: "0", Placement: "19-1-1"}); len(g.Instances) != 3 || g.Instances[1] != w {
				t.Errorf("instances: %+v", g.Instances)
			}
		})
	}
	useNVML(t, "", append(script, "value 0 compute-list noperm")...)
	if g := readTable(t).GPUs[0]; len(g.Processes) != 0 || !strings.HasPrefix(g.Err, "nvmlDeviceGetComputeRunningProcesses: ") {
		t.Errorf("without permission: %+v", g)
	}
}

func TestProcessListsBounded(t *testing.T) {
	script := []string{"gpus 1"}
	for pid := range 2000 {
		script = append(script, fmt.Sprintf("process 0 compute %d 1", pid+1))
	}
	useNVML(t, "", script...)
	if g := readTable(t).GPUs[0]; len(g.Processes) != 0 || g.Err != "more than 1024 processes" {
		t.Errorf("%d processes, %q", len(g.Processes), g.Err)
	}
}

// TestProcessesThroughNVML shows a real process by its real name.
func TestProcessesThroughNVML(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	useNVML(t, "", "gpus 2", fmt.Sprintf("process 1 compute %d 1048576", cmd.Process.Pid))
	_, rec := startNVML(t, Config{Processes: ProcessesConfig{PerPID: true}})
	eventually(t, "the process", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_pid_memory_bytes", fmt.Sprintf(`gpu="1",pid="%d",command="sleep",type="compute"`, cmd.Process.Pid)), []string{"1.048576e+06"})
	})
	page := rec.page(t)
	want(t, "sums", series(page, "rackpulse_gpu_process_memory_bytes"), "0", "1.048576e+06")
	want(t, "counts", series(page, "rackpulse_gpu_processes", "compute"), "0", "1")
	want(t, "source", series(page, "rackpulse_source_up", `source="gpu_processes"`), "1")
}

// TestProcessesBesideDCGM: DCGM's source lists the processes through NVML, and a
// NVML that hangs costs nothing else.
func TestProcessesBesideDCGM(t *testing.T) {
	useFake(t, "", "gpus 2")
	dirs := os.Getenv("LD_LIBRARY_PATH")
	t.Run("lists", func(t *testing.T) {
		useNVML(t, "", "gpus 2", "process 0 compute 4194301 1048576")
		t.Setenv("LD_LIBRARY_PATH", dirs+":"+os.Getenv("LD_LIBRARY_PATH"))
		_, rec := startDCGM(t, Config{})
		eventually(t, "the sums", func() bool {
			return slices.Equal(series(rec.page(t), "rackpulse_gpu_process_memory_bytes", `UUID="GPU-0`), []string{"1.048576e+06", "0"})
		})
	})
	t.Run("hang", func(t *testing.T) {
		fake := useNVML(t, "", "gpus 2", "hang nvmlDeviceGetComputeRunningProcesses_v3")
		t.Setenv("LD_LIBRARY_PATH", dirs+":"+os.Getenv("LD_LIBRARY_PATH"))
		_, rec := startDCGM(t, Config{Interval: minInterval, ReadTimeout: time.Second})
		eventually(t, "the hang", func() bool { return len(fake.calls("nvmlDeviceGetComputeRunningProcesses_v3")) > 0 })
		puts := func() int { rec.mu.Lock(); defer rec.mu.Unlock(); return rec.puts }
		before := puts()
		eventually(t, "passes go on", func() bool { return puts() > before+20 })
		page := rec.page(t)
		want(t, "restarts", series(page, "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
		want(t, "GPUs", series(page, "rackpulse_gpu_up"), "1", "1")
		want(t, "processes", series(page, "rackpulse_gpu_processes"))
	})
}

// TestProcessesWithoutNVML: DCGM alone has no lists, which is said.
func TestProcessesWithoutNVML(t *testing.T) {
	useFake(t, "", "gpus 2")
	_, rec := startDCGM(t, Config{})
	eventually(t, "the reason", func() bool {
		return len(series(rec.page(t), "rackpulse_source_info", `source="gpu_processes",reason="nvml: libnvidia-ml.so.1 not found (no NVIDIA driver)"`)) == 1
	})
	want(t, "source", series(rec.page(t), "rackpulse_source_up", `source="gpu"`), "1")
}
