// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
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

	"github.com/rackpulse/rackpulse/testtool"
)

func TestJournalArgs(t *testing.T) {
	const cursor = "s=0639b1;i=1a;b=77;m=5;t=6;x=7"
	for _, tc := range []struct {
		pos  logPosition
		kept bool
		want string
	}{
		{logPosition{}, true, "--no-tail"},
		{logPosition{}, false, "--lines=0"},
		{logPosition{Cursor: cursor, CursorTime: 5}, true, "--no-tail --after-cursor=" + cursor},
		{logPosition{Cursor: cursor}, false, "--no-tail --after-cursor=" + cursor},
		{logPosition{CursorTime: 1772359200250000}, true, "--no-tail --since=@1772359201"},
		{logPosition{Cursor: "--rotate"}, true, "--no-tail"}, // no cursor
		{logPosition{Cursor: "s=1 --rotate"}, true, "--no-tail"},
	} {
		args := journalArgs(tc.pos, tc.kept)
		if got := strings.Join(args[7:], " "); got != tc.want || args[2] != "-k" || args[3] != "-f" {
			t.Errorf("%+v: %q, want %q", tc.pos, args, tc.want)
		}
	}
}

// script is a journalctl of a test's own.
func script(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"/bin/sh", path}
}

const entryForm = `{"__CURSOR":"s=1;i=%d","__REALTIME_TIMESTAMP":"%d","_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","MESSAGE":"%s"}`

func TestJournalOutput(t *testing.T) {
	noLeaks(t)
	k, rec := newTestLog(t, "journal", t.TempDir())
	at := time.Now().Add(-time.Hour).UnixMicro()
	entries := []string{
		fmt.Sprintf(entryForm, 1, at, "NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=x, text"),
		fmt.Sprintf(entryForm, 2, at, strings.Repeat("y", 70_000)),
		`{"__CURSOR":"s=1;i=3","__REALTIME_TIMESTAMP":"` + fmt.Sprint(at) + `","_TRANSPORT":"kernel","MESSAGE":null}`,
		`-- no entry at all`,
		fmt.Sprintf(strings.ReplaceAll(entryForm, `":"`, `" : "`), 4, at, "NVRM: Xid (PCI:0000:03:00): 43, as systemd 239 writes it"),
	}
	file := filepath.Join(t.TempDir(), "entries")
	if err := os.WriteFile(file, []byte(strings.Join(entries, "\n")+"\n"+`{"__CURSOR":"s=1;i=9","MESS`), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(t.TempDir(), "pid")
	k.journalctl = script(t, "echo $$ >"+pid+"\ncat "+file+"\nsleep 1000 & wait\n")
	stop := k.run(t)
	awaitXIDs(t, rec, "journal", "31=1 43=1")
	if got := sourceReason(t, rec); got != "journal" {
		t.Errorf("reason %q", got)
	}
	eventually(t, "the long one is counted", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="long"`), []string{"1"})
	})
	want(t, "time", series(rec.page(t), "rackpulse_gpu_xid_last_timestamp_seconds", `xid="31"`), strconv.FormatFloat(float64(at/1000)/1e3, 'g', -1, 64))
	stop()
	data, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of its processes", func() bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) })
	if pos := k.state.position(); pos.Cursor != "s=1;i=4" || pos.CursorTime != at {
		t.Errorf("position %+v", pos)
	}
}

func TestJournalFails(t *testing.T) {
	noLeaks(t)
	for text, want := range map[string]string{
		"echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1": "journal: No journal files were opened due to insufficient permissions.",
		"yes | head -c 100000 >&2; exit 1":                                                 "journal: y y y",
		"exit 3":                                                                           "journal: exit status 3",
		"exit 0":                                                                           "journal: journalctl ended",
	} {
		k, rec := newTestLog(t, "journal", "")
		k.journalctl = script(t, text)
		stop := k.run(t)
		eventually(t, text, func() bool { return strings.HasPrefix(sourceReason(t, rec), want) })
		stop()
	}
	k, rec := newTestLog(t, "auto", "")
	k.kmsg, k.journalctl = filepath.Join(t.TempDir(), "kmsg"), []string{"rackpulse-no-journalctl"}
	k.run(t)
	eventually(t, "neither", func() bool {
		got := sourceReason(t, rec)
		return strings.Contains(got, "kmsg: open ") && strings.Contains(got, "journal: exec: ") && strings.Contains(got, "not found")
	})
}

// TestJournalLostCursor goes on by the time where journalctl refuses a cursor.
func TestJournalLostCursor(t *testing.T) {
	dir := t.TempDir()
	k, rec := newTestLog(t, "journal", dir)
	k.state.read(func(p *logPosition) { p.Cursor, p.CursorTime = "s=1;i=1", 1772359200250000 })
	entry := fmt.Sprintf(entryForm, 5, time.Now().UnixMicro(), "NVRM: Xid (PCI:0000:03:00): 31, text")
	k.journalctl = script(t, `case "$*" in
*--after-cursor=*) echo 'Failed to seek to cursor: Invalid argument' >&2; exit 1;;
*--since=@1772359201*) echo '`+entry+`'; exec sleep 1000;;
esac
`)
	k.run(t)
	awaitXIDs(t, rec, "by the time", "31=1")
}

// exported are entries in the journal's export format.
func exported(boot string, first int, messages ...string) []byte {
	var b bytes.Buffer
	for i, m := range messages {
		at := time.Now().UnixMicro() + int64(i)
		fmt.Fprintf(&b, "__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%s\n", at, 1000+first+i, boot)
		transport, text, _ := strings.Cut(m, ": ")
		fmt.Fprintf(&b, "_TRANSPORT=%s\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=kernel\nPRIORITY=4\nMESSAGE\n", transport)
		binary.Write(&b, binary.LittleEndian, uint64(len(text)))
		b.WriteString(text + "\n\n")
	}
	return b.Bytes()
}

// TestJournal reads a journal of systemd's own: as it was, as it grows, and after
// a restart of the agent.
func TestJournal(t *testing.T) {
	noLeaks(t)
	journalctl := testtool.Binary(t, "journalctl")
	remote := "/usr/lib/systemd/systemd-journal-remote"
	if _, err := os.Stat(remote); err != nil {
		remote = strings.TrimPrefix(remote, "/usr")
	}
	if _, err := os.Stat(remote); err != nil {
		testtool.Missing(t, "systemd-journal-remote is not installed; run 'make deps'")
	}
	boot := strings.ReplaceAll(bootID(), "-", "")
	file, count := filepath.Join(t.TempDir(), "kernel.journal"), 0
	write := func(messages ...string) {
		t.Helper()
		cmd := exec.Command(remote, "--output="+file, "-")
		cmd.Stdin = bytes.NewReader(exported(boot, count, messages...))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		count += len(messages)
	}
	write("kernel: NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=x, text", "stdout: NVRM: Xid (PCI:0000:03:00): 95, forged",
		"kernel: NVRM: Xid (PCI:0000:03:00): 43, pid=7, name=\x1b\xff, text", "kernel: NVRM: The NVIDIA GPU 0000:03:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.")
	dir := t.TempDir()
	open := func() (*recorder, func()) {
		k, rec := newTestLog(t, "journal", dir)
		k.journalctl = []string{journalctl, "--file=" + file}
		return rec, k.run(t)
	}
	rec, stop := open()
	awaitXIDs(t, rec, "what was there", "31=1 43=1 79=1")
	write("kernel: NVRM: Xid (PCI:0000:03:00): 48, text")
	awaitXIDs(t, rec, "what came", "31=1 43=1 48=1 79=1")
	stop()
	write("kernel: NVRM: Xid (PCI:0000:03:00): 64, text")
	rec, _ = open()
	awaitXIDs(t, rec, "after a restart", "64=1")
}
