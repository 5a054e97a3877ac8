// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// script writes an executable and returns its path.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func execEntry(command, settings string) string {
	return fmt.Sprintf("facility:\n- device: r01-in-top\n  driver: exec\n  exec:\n    command: %s\n%s", command, settings)
}

const kvFields = "    format: keyvalue" + climateFields

func TestExec(t *testing.T) {
	d := openOf(t, execEntry(script(t, `echo "sensor tool 1.0"; echo "t=$1"; echo "h=41.3"; echo note >&2`), "    args: ['23.5; rm -rf \"$HOME\"']\n"+kvFields))
	if got, err := d.Read(soon(t)); err != nil || show(got) != "r01-in-top inlet_temperature 23.5\nr01-rh inlet_humidity 0.413\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

func TestExecJSON(t *testing.T) {
	d := openOf(t, execEntry(script(t, "cat <<X\n{\n  \"t\": 19.25,\n  \"h\": null\n}\nX\n"), "    format: json"+climateFields))
	if got, err := d.Read(soon(t)); err != nil || show(got) != "r01-in-top inlet_temperature 19.25\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

// TestExecEnvironment: nothing of the agent's environment and directory leaks.
func TestExecEnvironment(t *testing.T) {
	t.Setenv("RACKPULSE_TOKEN", "secret")
	out := filepath.Join(t.TempDir(), "out")
	d := openOf(t, execEntry(script(t, "{ env; pwd; } > "+out+"; echo t=1"), kvFields))
	if _, err := d.Read(soon(t)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Fields(string(text)) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "LC_ALL", "PWD", "OLDPWD", "_", "SHLVL", "/":
		default:
			t.Errorf("the command sees %q", line)
		}
	}
}

func TestExecFailures(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"exit code", "echo t=20; echo cannot open bus >&2; exit 3", []string{"exit status 3", `"cannot open bus"`}},
		{"long standard error", "i=0; while [ $i -lt 2000 ]; do echo complaint >&2; i=$((i+1)); done; exit 1", []string{"exit status 1", "complaint"}},
		{"flood", "exec yes t=20", []string{"killed: more than 64 KiB of output"}},
		{"flood of one line", "exec tr '\\0' x < /dev/zero", []string{"killed: more than 64 KiB of output"}},
		{"nothing", "true", []string{"none of the configured fields"}},
		{"rubbish", "echo t=warm", []string{`line 1: bad value: t: "warm" is not a number`}},
		{"killed", "kill -9 $$", []string{"signal: killed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := script(t, c.body)
			d := openOf(t, execEntry(path, kvFields))
			got, err := d.Read(soon(t))
			wantErr(t, err, append(c.want, path)...)
			if len(got) > 0 || len(err.Error()) > 1000 {
				t.Errorf("%v, an error of %d bytes", got, len(err.Error()))
			}
		})
	}
}

// TestExecHang: at the deadline the command dies with its children, and one that
// leaves a child behind with the pipe does not hold the reader.
func TestExecHang(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"hangs", "sleep 1000 &\necho $! > PIDS\necho $$ >> PIDS\nwait", "killed: it did not end within the deadline"},
		{"leaves a child", "sleep 1000 &\necho $! > PIDS\necho t=20", "WaitDelay expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			d := openOf(t, execEntry(script(t, strings.ReplaceAll(c.body, "PIDS", pids)), kvFields))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			start := time.Now()
			_, err := d.Read(ctx)
			wantErr(t, err, c.want)
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
			text, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range strings.Fields(string(text)) {
				for n := 0; running(t, pid); n++ {
					if n == 100 {
						t.Fatalf("process %s still runs", pid)
					}
					time.Sleep(50 * time.Millisecond) // the kernel reaps in its own time
				}
			}
		})
	}
}

// running tells whether a process is there and not a zombie.
func running(t *testing.T, pid string) bool {
	t.Helper()
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestExecRefused(t *testing.T) {
	for _, command := range []string{"sensors", "./tool", "\"\""} {
		_, err := planOf(t, execEntry(command, kvFields))
		wantErr(t, err, "exec: command", "is not an absolute path")
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		plain:                "is not an executable file",
		t.TempDir():          "is not an executable file",
		plain + "-not-there": "no such file or directory",
	} {
		p, err := planOf(t, execEntry(command, kvFields))
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Open(t.Context())
		wantErr(t, err, want)
	}
}
