// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// startHall runs a standalone with a scenario, which sets in after 120 s of its
// physics, as a process and returns its URL.
func startHall(t *testing.T, dir, scenario, speed string) string {
	t.Helper()
	addr := freePort(t)
	start(t, dir, "standalone", binary(t), "standalone", "--simulate", "--scenario="+scenario, "--speed="+speed, "--web.listen-address="+addr)
	return "http://" + addr
}

// askWhy runs explain and returns its exit status and what it printed.
func askWhy(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), append([]string{"explain"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// installEpilog copies the shipped hook with its settings.
func installEpilog(t *testing.T, dir, settings string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "deploy", "slurm", "epilog.sh"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "epilog.sh")
	for name, text := range map[string]string{script: string(data), filepath.Join(dir, "epilog.conf"): settings} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return script
}

// TestE2EJob kills a node of the simulated hall under a job of a real Slurm: the
// job's owner is told why in one line by the controller's epilog, and explain
// --job tells the whole. A job that ends well is told nothing.
func TestE2EJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hall := startHall(t, dir, "node-crash", "2") // it has its lease first
	script := installEpilog(t, dir, "")
	lab := startSlurmWith(t, "EpilogSlurmctld="+script+"\nMinJobAge=600\n", "gpu001", "gpu002")
	log := filepath.Join(dir, "told")
	installEpilog(t, dir, fmt.Sprintf("RACKPULSE=%s\nRACKPULSE_DELAY=5\nRACKPULSE_LIMIT=60\nRACKPULSE_LOG=%s\nRACKPULSE_ARGS='--prometheus.url=%s'\nexport SLURM_CONF=%s\n", binary(t), log, hall, lab.conf))
	submit := func(args ...string) string {
		out, err := lab.cmd("sbatch", append([]string{"--parsable", "--no-requeue", "-o", "/dev/null"}, args...)...)
		if err != nil {
			t.Fatal(err, out)
		}
		return strings.TrimSpace(out)
	}
	well, dies := submit("-w", "gpu002", "--wrap", "true"), submit("-w", "gpu001", "--wrap", "sleep 600")
	s := &stack{t: t}
	s.eventually(5*time.Minute, "the crash of gpu001 is seen", func() error {
		if code, out := askWhy(t, nil, "--node=gpu001", "--brief", "--prometheus.url="+hall); code != 0 || !strings.Contains(out, "gpu001 itself") {
			return fmt.Errorf("exit status %d: %s", code, out)
		}
		return nil
	})
	lab.await("gpu001", 30*time.Second, "State=ALLOCATED")
	if out, err := lab.cmd("scontrol", "update", "NodeName=gpu001", "State=DOWN", "Reason=silent"); err != nil {
		t.Fatal(err, out)
	}
	s.eventually(2*time.Minute, "the epilog told why", func() error {
		data, err := os.ReadFile(log)
		if err == nil && !strings.Contains(string(data), "job "+dies+" (NODE_FAIL) ended ") {
			err = fmt.Errorf("it said %q", data)
		}
		return err
	})
	data, _ := os.ReadFile(log)
	t.Logf("the owner reads: %s", data)
	if text := string(data); strings.Count(text, "\n") != 1 || strings.Contains(text, "job "+well+" ") || !strings.Contains(text, "on gpu001: node gpu001 itself") || !strings.Contains(text, "; next: ") {
		t.Errorf("told %q", text)
	}
	env := []string{"SLURM_CONF=" + lab.conf}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--job=" + dies}, 0, "reason NodeDown"},
		{[]string{"--job=" + dies, "--json"}, 0, `"state": "NODE_FAIL"`},
		{[]string{"--job=" + well, "--failed", "--brief"}, 0, ""},
		{[]string{"--job=" + well, "--brief"}, 2, "job " + well + " (COMPLETED) ended"},
		{[]string{"--job=99999"}, 3, "no such job"},
	} {
		code, out := askWhy(t, env, append(tc.args, "--prometheus.url="+hall)...)
		if code != tc.code || !strings.Contains(out, tc.want) || tc.want == "" && out != "" {
			t.Errorf("%v: exit status %d, want %d with %q:\n%s", tc.args, code, tc.code, tc.want, out)
		}
	}
}

// TestE2EEpilogHolds holds that the hook never holds a job: it returns at once
// with a store that takes connections and never answers, leaves no process
// behind, and exits 0 whatever is missing. Its question outlives the end of the
// hook, when slurmctld sends TERM and, 10 ms later, KILL to the process group of
// the script (run_command_waitpid_timeout of Slurm's src/common/run_command.c).
func TestE2EEpilogHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	taken := make(chan struct{})
	go func() { // it takes connections and answers none
		defer close(taken)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			defer conn.Close()
		}
	}()
	defer func() {
		_ = ln.Close()
		<-taken
	}()
	alive := filepath.Join(dir, "alive")
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte(fmt.Sprintf("#!/bin/sh\necho $$ >> %s\nexec %s \"$@\"\n", alive, binary(t))), 0o700); err != nil {
		t.Fatal(err)
	}
	script := installEpilog(t, dir, "RACKPULSE="+program+"\nRACKPULSE_DELAY=0\nRACKPULSE_ARGS='--registry.url=http://"+ln.Addr().String()+" --prometheus.url=http://"+ln.Addr().String()+"'\n")
	envs := [][]string{nil}
	const jobs = 20
	for range jobs / 2 {
		envs = append(envs, []string{"SLURM_JOB_ID=12"}, []string{"SLURM_JOB_ID=ml/train-0", "SLURM_ARRAY_TASK_ID=1", "SLURM_ARRAY_JOB_ID=12"})
	}
	for _, env := range envs {
		began := time.Now()
		cmd := exec.Command(script)
		cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %v, %q", env, err, out)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		time.Sleep(10 * time.Millisecond)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("%v: held for %s", env, d)
		}
	}
	(&stack{t: t}).eventually(30*time.Second, "all that asked are gone", func() error {
		data, err := os.ReadFile(alive)
		if err != nil {
			return err
		}
		pids := strings.Fields(string(data))
		for _, pid := range pids {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				return fmt.Errorf("process %s still asks", pid)
			}
		}
		if len(pids) != jobs {
			return fmt.Errorf("%d asked so far", len(pids))
		}
		return nil
	})
	if n := asked.Load(); n < jobs {
		t.Errorf("%d connections of %d questions", n, jobs)
	}
}
