// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseKmsg(t *testing.T) {
	for record, want := range map[string]string{
		"4,1234,885242168,-;NVRM: Xid (PCI:0000:0a:00): 79, x\n":                     "1234 14m45.242168s 4,1234,885242168,-;NVRM: Xid (PCI:0000:0a:00): 79, x",
		"6,0,0,-;Linux version 6.18.44\n":                                            "0 0s 6,0,0,-;Linux version 6.18.44",
		"6,7,1000000,c;a fragment\n":                                                 "7 1s 6,7,1000000,c;a fragment",
		"6,7,1000000,-,caller=T77;by a thread\n":                                     "7 1s 6,7,1000000,-,caller=T77;by a thread",
		"6,7,1000000,-;head; and more\n":                                             "7 1s 6,7,1000000,-;head; and more",
		"3,8,2000000,-;nvidia 0000:0a:00.0: text\n SUBSYSTEM=pci\n DEVICE=+pci:0a\n": "8 2s 3,8,2000000,-;nvidia 0000:0a:00.0: text",
		`4,9,5000000,-;two\x0alines, \xc3\xa9, \x5cx0a and \ x \xzz \x4` + "\n":      "9 5s 4,9,5000000,-;two\nlines, é, \\x0a and \\ x \\xzz \\x4",
		"4,18446744073709551615,1,-;too large a number\n":                            "",
		"4,1,99999999999999999999,-;too large a time\n":                              "",
		"4,1,1;no flags\n":   "",
		"no record at all\n": "",
		"x,1,1,-;no level\n": "1 1µs x,1,1,-;no level",
		"4,-1,1,-;x\n":       "",
		"":                   "",
	} {
		got := ""
		if r, ok := parseKmsg([]byte(record)); ok {
			got = fmt.Sprint(r.sequence, " ", r.uptime, " ", r.text)
		}
		if got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", record, got, want)
		}
	}
}

// ring is a kernel log buffer of a few records.
type ring struct {
	records []string
	first   int // number of records[0]
	pos     int
	broken  error // comes at the end
	ctx     context.Context
	live    int // from this record on each is waited for
}

func (r *ring) next(buf []byte) (int, bool, error) {
	if r.pos < r.first { // overwritten
		r.pos = r.first
		return 0, false, &os.PathError{Op: "read", Path: "/dev/kmsg", Err: syscall.EPIPE}
	}
	if r.pos == r.first+len(r.records) {
		if r.broken != nil {
			return 0, false, r.broken
		}
		<-r.ctx.Done()
		return 0, true, os.ErrDeadlineExceeded
	}
	record := r.records[r.pos-r.first]
	waited := r.pos >= r.live
	r.pos++
	return copy(buf, record), waited, nil
}

// fill makes records with a driver error of each of the codes, one a second.
func fill(first int, codes ...int) []string {
	var out []string
	for i, code := range codes {
		out = append(out, fmt.Sprintf("4,%d,%d,-;NVRM: Xid (PCI:0000:03:00): %d, pid=7, name=x, text\n", first+i, (first+i)*1e6, code))
	}
	return out
}

// readRing reads to the end of the ring, at 1000 s after boot.
func readRing(t *testing.T, k *KernelLog, r *ring) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.ctx = ctx
	if r.live == 0 {
		r.live = 1 << 30
	}
	done := make(chan error, 1)
	go func() { done <- k.readKmsg(ctx, r, time.Now().Add(-1000*time.Second)) }()
	synctest.Wait()
	cancel()
	err := <-done
	k.flush(true)
	return err
}

// TestKmsgResume holds that a restart of the agent neither repeats nor loses an
// XID of this boot.
func TestKmsgResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k, rec := newTestLog(t, "kmsg", dir)
		if err := readRing(t, k, &ring{records: fill(0, 31, 43, 31)}); err != nil {
			t.Fatal(err)
		}
		if got := xids(t, rec); got != "31=2 43=1" {
			t.Errorf("this boot so far: %s", got)
		}
		k, rec = newTestLog(t, "kmsg", dir) // the agent starts anew
		readRing(t, k, &ring{records: fill(0, 31, 43, 31, 79, 48)})
		if got := xids(t, rec); got != "48=1 79=1" {
			t.Errorf("after a restart: %s", got)
		}
		want(t, "lost", series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="overrun"`), "0")
		k, rec = newTestLog(t, "kmsg", dir) // and once more, long after
		readRing(t, k, &ring{first: 9, pos: 9, records: fill(9, 74)})
		if got := xids(t, rec); got != "74=1" {
			t.Errorf("after an overrun while the agent was away: %s", got)
		}
		want(t, "lost", series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="overrun"`), "4")
		k, _ = newTestLog(t, "kmsg", dir)
		k.state.pos.BootID, k.boot = "another", "another"
		k.state.dirty = true
		k.flush(true)
		k, rec = newTestLog(t, "kmsg", dir) // the node has booted since
		readRing(t, k, &ring{records: fill(0, 95)})
		if got := xids(t, rec); got != "95=1" {
			t.Errorf("after a boot: %s", got)
		}
	})
}

// TestKmsgOverrun holds that records that were overwritten are counted and the
// rest is read.
func TestKmsgOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, rec := newTestLog(t, "kmsg", t.TempDir())
		r := &ring{records: fill(0, 31)}
		readRing(t, k, r)
		r.first, r.records = 6, fill(6, 79)
		if err := readRing(t, k, r); err != nil {
			t.Fatal(err)
		}
		if got := xids(t, rec); got != "31=1 79=1" {
			t.Errorf("counted %s", got)
		}
		want(t, "lost", series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="overrun"`), "5")
		r.broken = errors.New("I/O error")
		if err := readRing(t, k, r); err == nil || err.Error() != "I/O error" {
			t.Errorf("a broken device: %v", err)
		}
		r.broken = &os.PathError{Op: "read", Path: "/dev/kmsg", Err: syscall.EPIPE}
		if err := readRing(t, k, r); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("nothing but overruns: %v", err)
		}
	})
}

// TestKmsgTimes holds when an error happened: by the kernel's clock for what was
// there before, now for what comes.
func TestKmsgTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, rec := newTestLog(t, "kmsg", t.TempDir())
		now := time.Now()
		readRing(t, k, &ring{records: fill(700, 31, 43), first: 700, pos: 700, live: 701})
		for code, at := range map[string]time.Time{"31": now.Add(-300 * time.Second), "43": now} {
			want(t, "time of "+code, series(rec.page(t), "rackpulse_gpu_xid_last_timestamp_seconds", `xid="`+code+`"`), strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64))
		}
	})
}

// TestKmsgFlood holds that a flood of other lines is read no faster than 20000 a second.
func TestKmsgFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := newTestLog(t, "kmsg", "")
		r := &ring{live: 1 << 30}
		for i := range 100_000 {
			r.records = append(r.records, fmt.Sprintf("6,%d,1,-;eth0: link is not ready\n", i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.ctx = ctx
		go k.readKmsg(ctx, r, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		if k.lines < 20_000 || k.lines > 22_000 {
			t.Errorf("%v lines in the first second", k.lines)
		}
		cancel()
		synctest.Wait()
	})
}

// TestKmsgDevice reads this machine's own kernel log where that may be read, and
// holds what is said of it where not.
func TestKmsgDevice(t *testing.T) {
	noLeaks(t)
	k, rec := newTestLog(t, "kmsg", "")
	dev, err := openKmsg("/dev/kmsg", true)
	if err != nil {
		k.run(t)
		eventually(t, "the reason on the page", func() bool { return strings.HasPrefix(sourceReason(t, rec), "kmsg: open /dev/kmsg: ") })
		want(t, "source_up", series(rec.page(t), "rackpulse_source_up", `source="kernel_log"`), "0")
		t.Logf("no /dev/kmsg here: %v", err)
		return
	}
	defer dev.file.Close()
	k.run(t)
	eventually(t, "the log is read", func() bool { return sourceReason(t, rec) == "kmsg" })
	writer, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		t.Logf("/dev/kmsg may be read only: %v", err)
		return
	}
	defer writer.Close()
	text := fmt.Sprintf("rackpulse-test-%d", time.Now().UnixNano())
	for _, line := range []string{text, "NVRM: Xid (PCI:0000:03:00): 79, " + text} {
		if _, err := writer.WriteString("<4>" + line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	buf, found := make([]byte, kmsgRecord), 0
	dev.file.SetReadDeadline(time.Now().Add(20 * time.Second))
	for found < 2 {
		n, _, err := dev.next(buf)
		if err != nil {
			t.Fatalf("%d of my lines came: %v", found, err)
		}
		r, ok := parseKmsg(buf[:n])
		if !ok || r.sequence == 0 || r.uptime == 0 {
			t.Fatalf("not understood: %q", buf[:n])
		}
		if strings.HasSuffix(r.text, text) {
			found++
		}
	}
	eventually(t, "the lines are counted", func() bool {
		got := series(rec.page(t), "rackpulse_kernel_log_lines_total")
		return len(got) == 1 && got[0] != "0" && got[0] != "1"
	})
	if got := xids(t, rec); got != "" {
		t.Errorf("a program's line was believed: %s", got)
	}
}
