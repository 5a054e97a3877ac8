// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logFile is a log that a test writes.
type logFile struct {
	t    *testing.T
	path string
}

func newLogFile(t *testing.T) *logFile {
	t.Helper()
	f := &logFile{t, filepath.Join(t.TempDir(), "kern.log")}
	f.write("kernel: NVRM: Xid (PCI:0000:03:00): 95, of an earlier boot\n")
	return f
}

func (f *logFile) write(text string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
}

func (f *logFile) xid(code int) {
	f.t.Helper()
	f.write(fmt.Sprintf("Oct  7 06:01:02 gpu1 kernel: NVRM: Xid (PCI:0000:03:00): %d, pid=7, name=x, text\n", code))
}

// rename rotates the log as logrotate does.
func (f *logFile) rename(to string) {
	f.t.Helper()
	if err := os.Rename(f.path, filepath.Join(filepath.Dir(f.path), to)); err != nil {
		f.t.Fatal(err)
	}
}

// tailLog runs a reader of a log until it is open.
func tailLog(t *testing.T, f *logFile, stateDir string) (rec *recorder, stop func()) {
	t.Helper()
	k, rec := newTestLog(t, f.path, stateDir)
	stop = k.run(t)
	eventually(t, "the log is open", func() bool { return sourceReason(t, rec) == f.path })
	return rec, stop
}

func awaitXIDs(t *testing.T, rec *recorder, what, want string) {
	t.Helper()
	last := ""
	deadline := time.Now().Add(30 * time.Second)
	for last = xids(t, rec); last != want; last = xids(t, rec) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q, want %q", what, last, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestFileRotation(t *testing.T) {
	noLeaks(t)
	f := newLogFile(t)
	rec, _ := tailLog(t, f, "")
	f.xid(31)
	awaitXIDs(t, rec, "a line", "31=1")
	f.write("Oct  7 06:01:02 gpu1 kernel: NVRM: Xid (PCI:0000:03:00): 4")
	f.write("3, in two pieces\n")
	awaitXIDs(t, rec, "a line in two pieces", "31=1 43=1")
	writer, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	f.rename("kern.log.1")
	f.xid(48)
	fmt.Fprintln(writer, "kernel: NVRM: Xid (PCI:0000:03:00): 79, by a writer that has not noticed yet")
	fmt.Fprint(writer, "kernel: NVRM: Xid (PCI:0000:03:00): 74, without an end")
	f.write("kernel: something else\n") // so that the log is longer than what comes after
	awaitXIDs(t, rec, "rotated", "31=1 43=1 48=1 74=1 79=1")
	eventually(t, "all lines", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_kernel_log_lines_total"), []string{"6"})
	})
	if err := os.Truncate(f.path, 0); err != nil {
		t.Fatal(err)
	}
	f.xid(95)
	awaitXIDs(t, rec, "cut", "31=1 43=1 48=1 74=1 79=1 95=1")
}

// TestFileResume holds that a restart of the agent neither repeats nor loses a line.
func TestFileResume(t *testing.T) {
	f, dir := newLogFile(t), t.TempDir()
	rec, stop := tailLog(t, f, dir)
	f.xid(31)
	awaitXIDs(t, rec, "at first", "31=1")
	stop()
	f.xid(43)
	rec, stop = tailLog(t, f, dir)
	awaitXIDs(t, rec, "written while the agent was away", "43=1")
	stop()
	f.xid(48)
	f.rename("kern.log.1")
	f.xid(79)
	rec, stop = tailLog(t, f, dir)
	awaitXIDs(t, rec, "rotated while the agent was away", "48=1 79=1")
	stop()
	if err := os.Truncate(f.path, 0); err != nil {
		t.Fatal(err)
	}
	rec, stop = tailLog(t, f, dir)
	f.xid(95)
	awaitXIDs(t, rec, "cut while the agent was away", "95=1")
	stop()
	if err := os.WriteFile(filepath.Join(dir, logStateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, _ = tailLog(t, f, dir) // as if it were the first time
	f.xid(64)
	awaitXIDs(t, rec, "a broken position", "64=1")
}

// TestRecoverySurvives holds that what the driver asked for is known after a
// restart of the agent, as long as the node has not booted.
func TestRecoverySurvives(t *testing.T) {
	f, dir := newLogFile(t), t.TempDir()
	rec, stop := tailLog(t, f, dir)
	f.write("kernel: NVRM: Xid (PCI:0000:03:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n")
	f.write("kernel: nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n")
	awaitXIDs(t, rec, "154", "154=1")
	reboot := func(rec *recorder) []string {
		return series(rec.page(t), "rackpulse_gpu_recovery_action_logged", `gpu="00000000:03:00.0",action="node_reboot"`)
	}
	want(t, "reboot", reboot(rec), "1")
	want(t, "SXid", series(rec.page(t), "rackpulse_nvswitch_sxid_errors_total", `nvswitch="2",pci_bus_id="00000000:85:00.0",sxid="20034",severity="fatal"`), "1")
	stop()
	k, rec := newTestLog(t, f.path, dir)
	k.flush(true)
	want(t, "reboot after a restart of the agent", reboot(rec), "1")
	state, err := loadLogState(dir, "another boot")
	if err != nil || len(state.recoveries()) != 0 || state.position().Sequence != nil {
		t.Errorf("after a boot: %+v, %v", state.position(), err)
	}
}

func TestFileLongLines(t *testing.T) {
	f := newLogFile(t)
	rec, _ := tailLog(t, f, "")
	long := strings.Repeat("y", 64<<10)
	f.write("kernel: NVRM: Xid (PCI:0000:03:00): 31, " + long + "\n")
	f.write(long + " kernel: NVRM: Xid (PCI:0000:03:00): 79, behind the limit\n")
	f.write("\n\x00\xff\nkernel: NVRM: Xid (PCI:0000:03:00): 43, pid=7, name=\xff\x00, text\n")
	awaitXIDs(t, rec, "after lines of 64 KiB", "31=1 43=1")
}

// TestFileFlood reads a flood of 100,000 lines to its end.
func TestFileFlood(t *testing.T) {
	f := newLogFile(t)
	rec, _ := tailLog(t, f, "")
	line := "Oct  7 06:01:02 gpu1 kernel: eth0: link is not ready, and more of the like, over and over again\n"
	f.write(strings.Repeat(line, 100_000))
	f.xid(79)
	awaitXIDs(t, rec, "behind the flood", "79=1")
	want(t, "lines", series(rec.page(t), "rackpulse_kernel_log_lines_total"), "100001")
	want(t, "lost", series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="flood"`), "0")
}

func TestFileUnreadable(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.log"): "no such file or directory",
		dir:                            "is no regular file",
		fifo:                           "is no regular file",
	} {
		k, rec := newTestLog(t, path, "")
		stop := k.run(t)
		eventually(t, path, func() bool { return strings.Contains(sourceReason(t, rec), want) })
		stop()
	}
	f := newLogFile(t)
	rec, _ := tailLog(t, f, "")
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log is gone", func() bool { return strings.Contains(sourceReason(t, rec), "no such file") })
	f.write("")
	eventually(t, "the log is back", func() bool { return sourceReason(t, rec) == f.path })
}
