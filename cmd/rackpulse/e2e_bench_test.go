// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// BenchmarkAgent measures the real agent, child process included: 8 GPUs through
// go-dcgm over the stand-in library at 1 s, and one rack (2 PDUs, 5 sensors, a
// switch) from text files, scraped again and again. It reports the CPU of all
// processes for one scrape, the time to the answer as the client sees it, the
// share of a core that sampling costs without scrapes, and the summed PSS.
func BenchmarkAgent(b *testing.B) {
	url, pids := startBenchAgent(b, filepath.Join(testtool.Root(), "build", "fakedcgm"), "{source: dcgm, interval: 1s}")
	idle := cpuSeconds(b, pids)
	const quiet = 20 * time.Second
	time.Sleep(quiet)
	sampling := (cpuSeconds(b, pids) - idle) / quiet.Seconds()
	before := cpuSeconds(b, pids)
	started := time.Now()
	var took []time.Duration
	series := 0
	for b.Loop() {
		at := time.Now()
		resp, err := http.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(at))
		series = strings.Count("\n"+string(data), "\n") - 2*strings.Count(string(data), "# TYPE") - 1
	}
	cpu := cpuSeconds(b, pids) - before - sampling*time.Since(started).Seconds()
	slices.Sort(took)
	b.ReportMetric(1000*cpu/float64(len(took)), "cpu-ms/scrape")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(100*sampling, "sampling-%core")
	b.ReportMetric(pssMiB(b, pids), "PSS-MiB")
	b.ReportMetric(float64(series), "series")
}

// startBenchAgent starts the agent over the DCGM in a folder and returns its page
// and the processes. gpu is that part of the configuration.
func startBenchAgent(b *testing.B, library, gpu string) (url string, pids []int) {
	b.Helper()
	root := testtool.Root()
	dir := b.TempDir()
	example, err := os.ReadFile(filepath.Join(root, "site", "example.yml"))
	if err != nil {
		b.Fatal(err)
	}
	config := "node: gpu001\nsite_file: site.yml\ngpu: " + gpu + "\nfacility:\n"
	for device, text := range benchRack() {
		writeBench(b, filepath.Join(dir, device+".prom"), text)
		config += fmt.Sprintf("- {device: %s, driver: textfile, interval: 10m, textfile: {path: %q}}\n", device, filepath.Join(dir, device+".prom"))
	}
	writeBench(b, filepath.Join(dir, "site.yml"), string(example))
	writeBench(b, filepath.Join(dir, "agent.yml"), config)
	ln := freePort(b)
	url = "http://" + ln + "/metrics"
	pid := startBench(b, library, url, func(page string) bool {
		return strings.Count(page, "\nrack_inlet_temperature_celsius{") == 3 && strings.Contains(page, "\nswitch_port_up{")
	}, filepath.Join(root, "build", "rackpulse"), "agent", "--config.file="+filepath.Join(dir, "agent.yml"), "--web.listen-address="+ln)
	return url, append(childPIDs(b, pid), pid)
}

// startBench starts a process over the DCGM in a folder and waits until its page
// has 8 GPUs and what complete wants.
func startBench(b *testing.B, library, url string, complete func(page string) bool, argv ...string) (pid int) {
	b.Helper()
	script := filepath.Join(b.TempDir(), "gpus")
	writeBench(b, script, "gpus 8\n")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+library, "FAKEDCGM_SCRIPT="+script, "DISABLE_STARTUP_VALIDATE=true")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		page := ""
		if resp, err := http.Get(url); err == nil {
			data, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			page = string(data)
		}
		if strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{") == 8 && complete(page) {
			return cmd.Process.Pid
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s does not show all it should:\n%s", argv[0], tailOf(page, 30))
		}
	}
}

// benchRack is one rack's devices as text files.
func benchRack() map[string]string {
	out := map[string]string{"r01-out": "rack_outlet_temperature_celsius 34\n", "r01-rh": "rack_inlet_relative_humidity_ratio 0.42\n"}
	for _, pos := range []string{"top", "mid", "bot"} {
		out["r01-in-"+pos] = "rack_inlet_temperature_celsius 24.5\n"
	}
	for _, pdu := range []string{"r01-a", "r01-b"} {
		text := "pdu_current_ampere 22.5\npdu_power_watt 15000\npdu_power_factor_ratio 0.97\npdu_energy_joules_total 1e9\n"
		for phase := 1; phase <= 3; phase++ {
			text += fmt.Sprintf("pdu_phase_current_ampere{phase=\"%d\"} 22.5\npdu_phase_voltage_volt{phase=\"%d\"} 230\npdu_phase_power_watt{phase=\"%d\"} 5000\n", phase, phase, phase)
		}
		for outlet := 1; outlet <= 4; outlet++ {
			text += fmt.Sprintf("pdu_outlet_power_watt{outlet=\"%d\"} 3700\n", outlet)
		}
		out[pdu] = text
	}
	ports := ""
	for port := 1; port <= 4; port++ {
		for _, m := range []string{"switch_port_up", "switch_port_flaps_total", "switch_port_receive_bytes_total", "switch_port_transmit_bytes_total", "switch_port_receive_errors_total", "switch_port_transmit_errors_total", "switch_port_speed_bytes"} {
			ports += fmt.Sprintf("%s{port=\"Ethernet%d\"} 1\n", m, port)
		}
	}
	out["tor01"] = ports
	return out
}

func writeBench(b *testing.B, path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// cpuSeconds is the CPU time of the processes so far, from /proc/PID/schedstat's
// sum over the threads: nanoseconds on a CPU.
func cpuSeconds(b *testing.B, pids []int) float64 {
	b.Helper()
	var total float64
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err != nil {
				continue // a thread that ended
			}
			ns, err := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			total += ns / 1e9
		}
	}
	return total
}

// pssMiB is the summed proportional set size of the processes.
func pssMiB(b *testing.B, pids []int) float64 {
	b.Helper()
	var kib float64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); f[0] == "Pss:" {
				v, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					b.Fatal(err)
				}
				kib += v
			}
		}
	}
	return kib / 1024
}
