// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// appendLog writes lines to a log as syslog does.
func (s *small) appendLog(name string, lines ...string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for _, line := range lines {
		if _, err := f.WriteString("Oct  7 06:01:02 gpu001 kernel: " + line + "\n"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestE2EKernelLog sees errors of the kernel log and of DCGM on one page: once
// each, also while the library hangs, and not again after a restart of the agent.
func TestE2EKernelLog(t *testing.T) {
	t.Parallel()
	s, fake := prepareSmall(t, ""), newFakeGPUs(t, "gpus 8")
	log := filepath.Join(s.dir, "kern.log")
	s.appendLog("kern.log", "NVRM: Xid (PCI:0000:1a:00): 95, of an earlier boot")
	s.write("site-xid.yml", "xid:\n  45: {counted: true}\n")
	config := "node: gpu001\nstate_dir: state\ngpu: {source: dcgm, interval: 200ms, read_timeout: 5s, kernel_log: " + log + ", xid_overrides_file: site-xid.yml}\n"
	env := fake.env(fakeLibrary(t))
	run := func() *process { return s.agent("gpu001", config, env...) }
	p := run()
	const limit = 30 * time.Second
	count := func(agent, want, gpu, code string) {
		t.Helper()
		s.awaitSeries(limit, agent, strings.Fields(want), "rackpulse_gpu_xid_errors_total", gpu, `xid="`+code+`"`)
	}
	count("gpu001", "0", uuid(0), "45") // the site wants it from the start
	s.awaitSeries(limit, "gpu001", []string{"1"}, "rackpulse_source_up", `source="kernel_log"`)
	s.appendLog("kern.log", "NVRM: Xid (PCI:0000:1a:00): 31, pid=7, name=train, MMU Fault", "eth0: link is not ready")
	fake.say("gpus 8", "xid 0 31 1", "xid 1 43 2")
	count("gpu001", "1", uuid(1), "43") // DCGM has told of both
	count("gpu001", "1", uuid(0), "31")
	fake.say("gpus 8", "hang dcgmEntitiesGetLatestValues")
	s.awaitSeries(limit, "gpu001", []string{"0"}, "rackpulse_source_up", `source="gpu"`)
	s.appendLog("kern.log",
		"NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
		"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
		"nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
	count("gpu001", "1", uuid(1), "79")
	s.awaitSeries(limit, "gpu001", []string{"1"}, "rackpulse_gpu_recovery_action_logged", uuid(1), `action="node_reboot"`)
	s.awaitSeries(limit, "gpu001", []string{"1"}, "rackpulse_nvswitch_sxid_errors_total", `nvswitch="2"`, `sxid="20034"`, `severity="fatal"`)
	checkNames(t, s.fetch("gpu001"))
	p.end()
	fake.say("gpus 8")
	s.appendLog("kern.log", "NVRM: Xid (PCI:0000:1a:00): 48, DBE while the agent is away")
	run()
	count("gpu001", "1", uuid(0), "48")
	count("gpu001", "", uuid(0), "31") // not again
	s.awaitSeries(limit, "gpu001", []string{"1"}, "rackpulse_gpu_recovery_action_logged", uuid(1), `action="node_reboot"`)

	// A node whose GPUs are not sampled, with a log that comes later.
	s.agent("cpu001", "node: cpu001\ngpu: {source: none, kernel_log: "+log+".2}\n")
	s.awaitSeries(limit, "cpu001", []string{"0"}, "rackpulse_source_up", `source="kernel_log"`)
	s.awaitSeries(limit, "cpu001", []string{"1"}, "rackpulse_source_info", `source="kernel_log"`, "no such file or directory")
	s.appendLog("kern.log.2", "a first line")
	s.awaitSeries(limit, "cpu001", []string{"1"}, "rackpulse_source_up", `source="kernel_log"`)
	s.appendLog("kern.log.2", "NVRM: Xid (PCI:0000:1a:00): 79, pid=0, GPU has fallen off the bus.")
	count("cpu001", "1", `gpu="00000000:1A:00.0"`, "79")
}
