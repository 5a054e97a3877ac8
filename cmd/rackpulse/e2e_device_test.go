// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// nobody is a user without rights, for devices that may not be read.
const nobody = 65534

// asNobody lets a root test run the agent as a user without rights: root may open
// everything. It returns what to do to the command.
func asNobody(t *testing.T, dir string) func(*exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	chmod(t, 0o755, filepath.Dir(dir), dir) // the test's own folders are root's alone
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

func chmod(t *testing.T, mode os.FileMode, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// openTerminal returns the two ends of a pseudo terminal.
func openTerminal(t *testing.T, mode os.FileMode) (device, tty *os.File) {
	t.Helper()
	device, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = device.Close(), tty.Close() })
	chmod(t, mode, tty.Name())
	return device, tty
}

// sensorEntry is an entry of the facility list for an inlet or outlet sensor.
func sensorEntry(device, driver, settings string) string {
	quantity := "inlet_temperature"
	if strings.HasSuffix(device, "-out") {
		quantity = "outlet_temperature"
	}
	return fmt.Sprintf("- device: %s\n  driver: %s\n  interval: 1s\n  %s: {%s, format: keyvalue, fields: [{name: t, quantity: %s}]}\n",
		device, driver, driver, settings, quantity)
}

// pduEntry is an entry for a PDU that a shell command reads.
func pduEntry(device, script string) string {
	return fmt.Sprintf("- device: %s\n  driver: exec\n  interval: 2s\n  deadline: 1s\n  exec: {command: /bin/sh, args: [-c, %q], format: keyvalue, fields: [{name: watts, quantity: power}]}\n", device, script)
}

// TestE2EInputDevices gives one agent devices that cannot be read, talk garbage,
// hang and flood, beside good ones and GPUs, which must not notice.
func TestE2EInputDevices(t *testing.T) {
	measuring(t)
	s := newSmall(t, "")
	device, tty := openTerminal(t, 0o666) // with a sensor behind it
	_, locked := openTerminal(t, 0)
	marker := fmt.Sprintf("%d.5", 80000+os.Getpid()) // seconds to sleep, and how to find who sleeps
	fake := newFakeGPUs(t, "gpus 8")
	config := strings.Replace(s.gpuAgent("gpu001", ""), "state_dir: state-gpu001\n", "", 1) + "facility:\n" +
		sensorEntry("r01-top", "serial", "path: "+tty.Name()) +
		sensorEntry("r01-out", "serial", "path: "+locked.Name()) +
		sensorEntry("r02-top", "serial", "path: "+s.write("no-device", "t=1\n")) +
		sensorEntry("r02-out", "exec", `command: /bin/echo, args: ["t=31.5"]`) +
		pduEntry("r01-a", "sleep "+marker+" & sleep "+marker) +
		pduEntry("r02-a", "yes watts=100")
	chmod(t, 0o644, s.write("gpu001.yml", config), fake.script)
	chmod(t, 0o666, filepath.Join(s.dir, "no-device"))
	chmod(t, 0o777, filepath.Dir(filepath.Dir(fake.script)), filepath.Dir(fake.script))
	s.urls["gpu001"] = "http://" + freePort(t)
	user := asNobody(t, s.dir)
	agent := startWith(t, s.dir, "gpu001", func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), fake.env(fakeLibrary(t))...)
		if user != nil {
			user(cmd)
		}
	}, binary(t), "agent", "--config.file=gpu001.yml", "--web.listen-address="+strings.TrimPrefix(s.urls["gpu001"], "http://"))
	s.awaitState("gpu001", "READY", 20*time.Second)
	beats, scrapes := s.watchLease("gpu001"), s.watchScrapes("gpu001")

	for what, reason := range map[string]string{
		"r01-out": "open: open " + locked.Name() + ": permission denied",
		"r02-top": "no-device: not a usable serial port",
		"r01-a":   "/bin/sh: killed: it did not end within the deadline",
		"r02-a":   "/bin/sh: killed: more than 64 KiB of output",
	} {
		s.awaitSeries(20*time.Second, "gpu001", []string{"1"}, "rackpulse_source_info", fmt.Sprintf("source=%q", what), reason)
		s.awaitSeries(20*time.Second, "gpu001", []string{"0"}, "facility_device_up", fmt.Sprintf("device=%q", what))
		t.Logf("%s: %s", what, reason)
	}
	garbageOnLine(t, s, agent, device, tty.Name())
	goodGoesOn(t, s)
	scrapes.check(t)
	beats.check(t, "READY")
	agent.end()
	s.eventually(5*time.Second, "no command outlives the agent", func() error {
		if pids := running(t, marker); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
}

// garbageOnLine lets a sensor say some 20 degrees between garbage: binary, no
// numbers, an endless line, values out of range.
func garbageOnLine(t *testing.T, s *small, agent *process, device *os.File, tty string) {
	t.Helper()
	garbage := []string{"\xff\xfe\x00\x80\r\n", "t=\r\n", "t=NaN\r\n", "t=1e9999\r\n", "hello world\r\n", strings.Repeat("9", 5000) + "\r\n", "t=-500\r\n"}
	value := 0
	speak := repeatText(t, device, 50*time.Millisecond, func(n int) string {
		if n%len(garbage) == 0 {
			value++
			return fmt.Sprintf("t=2%d.25\r\n", value%10)
		}
		return garbage[n%len(garbage)]
	})
	s.awaitSaid(20*time.Second, agent, "line not understood", tty)
	s.awaitSeries(20*time.Second, "gpu001", []string{"1"}, "facility_device_up", `device="r01-top"`)
	seen := map[string]bool{}
	s.eventually(30*time.Second, "three values of the sensor", func() error {
		for _, v := range series(s.fetch("gpu001"), "rack_inlet_temperature_celsius", `sensor="r01-top"`, `rack_id="r01"`) {
			seen[v] = true
			if n, err := strconv.ParseFloat(v, 64); err != nil || n < 20 || n > 30 {
				t.Fatalf("garbage became the value %q", v)
			}
		}
		if len(seen) < 3 {
			return fmt.Errorf("only %v", seen)
		}
		return nil
	})
	if n := series(s.fetch("gpu001"), "rackpulse_facility_refused_readings_total", `device="r01-top"`, `reason="garbage_line"`); len(n) != 1 || n[0] == "0" {
		t.Errorf("garbage counted: %q", n)
	} else {
		t.Logf("%s lines of garbage counted, values seen %v", n[0], seen)
	}
	speak()
}

// goodGoesOn wants the good device to be read on, and the GPUs whole.
func goodGoesOn(t *testing.T, s *small) {
	t.Helper()
	good := func(page string) float64 {
		got := series(page, "facility_last_sample_timestamp_seconds", `device="r02-out"`)
		if len(got) != 1 {
			t.Fatalf("samples of the good device: %q", got)
		}
		at, err := strconv.ParseFloat(got[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	before := good(s.fetch("gpu001"))
	s.eventually(10*time.Second, "the good device is read on", func() error {
		if page := s.fetch("gpu001"); good(page) < before+2 || !slices.Equal(series(page, "rackpulse_gpu_up"), up(8)) {
			return fmt.Errorf("last sample at %v, before at %v", good(page), before)
		}
		return nil
	})
	s.awaitSeries(time.Second, "gpu001", []string{"31.5"}, "rack_outlet_temperature_celsius", `rack_id="r02"`)
}

// repeatText writes to a terminal until stop.
func repeatText(t *testing.T, w *os.File, every time.Duration, text func(n int) string) (stop func()) {
	t.Helper()
	n := 0
	return repeatFunc(t, every, func() {
		n++
		_, _ = w.WriteString(text(n)) // nobody listens: lost, as on a line
	})
}

// running lists the processes with a word in their command line.
func running(t *testing.T, word string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range lines {
		data, _ := os.ReadFile(path) // it ended
		if slices.Contains(strings.Split(string(data), "\x00"), word) {
			out = append(out, filepath.Base(filepath.Dir(path)))
		}
	}
	return out
}

// TestE2EInputTwoPollers lets two agents ask for the same PDU: only the first may
// poll it, until it is gone.
func TestE2EInputTwoPollers(t *testing.T) {
	measuring(t)
	s := newSmall(t, "")
	polls := s.write("polls", "")
	facility := func(name string, devices ...string) string {
		text := fmt.Sprintf("node: %s\ngpu: {source: none}\nregistry: {addresses: [%q]}\nfacility:\n", name, s.grpc)
		for _, d := range devices {
			text += pduEntry(d, fmt.Sprintf("echo %s %s >> %s; echo watts=%d", name, d, polls, 100+len(name)))
		}
		return text
	}
	polled := func(name, device string) int {
		data, err := os.ReadFile(polls)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), name+" "+device+"\n")
	}
	first := s.agent("first", facility("first", "r01-a"))
	s.awaitSeries(10*time.Second, "first", []string{"105"}, "pdu_power_watt", `pdu_id="r01-a"`, `rack_id="r01"`)
	second := s.agent("second", facility("second", "r01-a", "r02-a"))
	s.awaitSaid(10*time.Second, second, "registry refuses a device to this agent", "device=r01-a", "agent first polls it already")
	s.awaitSeries(10*time.Second, "second", []string{"106"}, "pdu_power_watt", `pdu_id="r02-a"`, `rack_id="r02"`)
	s.awaitSeries(10*time.Second, "second", nil, "facility_device_up", `device="r01-a"`)
	for device, want := range map[string]int{"r01-a": 1, "r02-a": 1} {
		n := 0
		for _, agent := range []string{"first", "second"} {
			n += len(series(s.fetch(agent), "facility_device_up", fmt.Sprintf("device=%q", device)))
		}
		if n != want {
			t.Errorf("facility_device_up of %s is there %d times, want %d", device, n, want)
		}
	}
	if got := series(s.fetch(""), "rackpulse_lease_conflicts_total", `kind="device"`); len(got) != 1 || got[0] == "0" {
		t.Errorf("conflicts counted: %q", got)
	}
	before := polled("first", "r01-a")
	s.eventually(10*time.Second, "the first agent goes on", func() error {
		if n := polled("first", "r01-a"); n < before+2 {
			return fmt.Errorf("%d reads, before %d", n, before)
		}
		return nil
	})
	if got := polled("second", "r01-a"); got != 0 {
		t.Errorf("the second agent polled r01-a %d times", got)
	}

	first.signal(syscall.SIGKILL)
	gone := time.Now()
	s.awaitSeries(25*time.Second, "second", []string{"1"}, "facility_device_up", `device="r01-a"`)
	t.Logf("the second agent took r01-a over %.1f s after the first one was killed", time.Since(gone).Seconds())
	s.awaitSeries(5*time.Second, "second", []string{"106"}, "pdu_power_watt", `pdu_id="r01-a"`, `rack_id="r01"`)
}
