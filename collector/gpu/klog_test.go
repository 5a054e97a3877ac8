// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
)

// testLog are settings that are valid.
func testLog(t *testing.T, setting string) *settings {
	t.Helper()
	s := &settings{cfg: Config{KernelLog: setting}.withDefaults()}
	if err := s.loadLog(false); err != nil {
		t.Fatal(err)
	}
	return s
}

// newTestLog is a reader that does not run.
func newTestLog(t *testing.T, setting, stateDir string) (*KernelLog, *recorder) {
	t.Helper()
	rec := newRecorder()
	book := newXIDBook()
	k := newKernelLog(testLog(t, setting), Deps{Store: rec, StateDir: stateDir, Logger: log.NewNopLogger()}, book)
	book.begin(nil)
	return k, rec
}

// run runs the reader until the returned function is called.
func (k *KernelLog) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// xids returns "xid=count" of all GPUs on the page.
func xids(t *testing.T, rec *recorder) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(rec.page(t)) {
		if rest, ok := strings.CutPrefix(line, "rackpulse_gpu_xid_errors_total{"); ok {
			_, code, _ := strings.Cut(rest, `xid="`)
			code, n, _ := strings.Cut(strings.TrimSpace(code), `"} `)
			out = append(out, code+"="+n)
		}
	}
	return strings.Join(out, " ")
}

func sourceReason(t *testing.T, rec *recorder) string {
	t.Helper()
	for line := range strings.Lines(rec.page(t)) {
		if _, rest, ok := strings.Cut(line, `rackpulse_source_info{source="kernel_log",reason="`); ok {
			return strings.TrimSuffix(strings.TrimSpace(rest), `"} 1`)
		}
	}
	return ""
}

func TestKernelLogConfig(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yml")
	good := filepath.Join(dir, "good.yml")
	for path, text := range map[string]string{
		bad:  "xid:\n  63: {severity: loud}\n",
		good: "xid:\n  63: {severity: error, counted: false}\n  45: {counted: true}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{KernelLog: "dmesg"}, `gpu.kernel_log: "dmesg" is none of auto, kmsg, journal, none, /path/file`},
		{Config{KernelLog: "messages.log"}, "gpu.kernel_log"},
		{Config{XIDOverridesFile: bad}, bad + `:2: xid 63: severity "loud" is none of`},
		{Config{XIDOverridesFile: filepath.Join(dir, "none.yml")}, "gpu.xid_overrides_file: "},
	} {
		if _, err := New(tc.cfg, Deps{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.cfg, err, tc.want)
		}
		if _, err := NewKernelLog(tc.cfg, Deps{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.cfg, err, tc.want)
		}
	}
	k, err := NewKernelLog(Config{XIDOverridesFile: good}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if c := k.book.counted; !slices.Contains(c, 45) || slices.Contains(c, 63) || !slices.Contains(c, 79) {
		t.Errorf("counted from the start: %v", c)
	}
	if err := k.Apply(Config{KernelLog: "x"}); err == nil || k.settings.Load().cfg.KernelLog != "auto" {
		t.Errorf("a bad configuration was taken: %v", err)
	}
}

// TestKernelLogUnreadable holds that a log that cannot be read is shown, tried
// again and never more than once a minute.
func TestKernelLogUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, rec := newTestLog(t, "none", "")
		var tries atomic.Int32
		var works atomic.Bool
		source := func(name string) logSource {
			return logSource{name, func(ctx context.Context, _ *KernelLog, up func()) error {
				tries.Add(1)
				if !works.Load() {
					return errors.New("permission denied")
				}
				up()
				<-ctx.Done()
				return nil
			}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.follow(ctx, []logSource{source("kmsg"), source("journal")})
		time.Sleep(10 * time.Minute)
		if got := sourceReason(t, rec); got != "kmsg: permission denied; journal: permission denied" {
			t.Errorf("reason %q", got)
		}
		want(t, "source_up", series(rec.page(t), "rackpulse_source_up", `source="kernel_log"`), "0")
		if n := tries.Load(); n < 20 || n > 40 {
			t.Errorf("%d tries in 10 minutes", n)
		}
		works.Store(true)
		time.Sleep(2 * time.Minute)
		want(t, "source_up", series(rec.page(t), "rackpulse_source_up", `source="kernel_log"`), "1")
		if got := sourceReason(t, rec); got != "kmsg" {
			t.Errorf("reason %q", got)
		}
		cancel()
		synctest.Wait()
	})
}

// TestKernelLogSettingChanges moves a running reader from one log to another.
func TestKernelLogSettingChanges(t *testing.T) {
	noLeaks(t)
	one, two := newLogFile(t), newLogFile(t)
	k, rec := newTestLog(t, one.path, t.TempDir())
	k.run(t)
	reads := func(f *logFile) func() bool { return func() bool { return sourceReason(t, rec) == f.path } }
	eventually(t, "the first log", reads(one))
	one.write("kernel: NVRM: Xid (PCI:0000:03:00): 31, x\n")
	eventually(t, "its XID", func() bool { return xids(t, rec) == "31=1" })
	if err := k.Apply(Config{KernelLog: two.path}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second log", reads(two))
	two.write("kernel: NVRM: Xid (PCI:0000:03:00): 43, x\n")
	eventually(t, "its XID", func() bool { return xids(t, rec) == "31=1 43=1" })
	if err := k.Apply(Config{KernelLog: "none"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no log", func() bool { return sourceReason(t, rec) == "" })
}

// TestFlood holds that a flood is bounded, counted, and hides no other fault.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, rec := newTestLog(t, "none", "")
		for i := range 300_000 {
			if i == 290_000 {
				k.line("4,1,1,-;NVRM: Xid (PCI:0000:05:00): 79, pid=7, GPU has fallen off the bus.", time.Now())
			}
			k.line("4,1,1,-;NVRM: Xid (PCI:0000:04:00): 45, pid=7, name=x, Ch 00000008", time.Now())
			if i%1000 == 999 {
				time.Sleep(10 * time.Millisecond) // 100,000 a second
			}
		}
		k.flush(false)
		// 20000 at once, 2000 in each of the seconds after the first, and the first of each
		// second that is one too many.
		if got := xids(t, rec); got != "45=24003 79=1" {
			t.Errorf("counted %s", got)
		}
		want(t, "lost", series(rec.page(t), "rackpulse_kernel_log_lost_total", `reason="flood"`), "275997")
		want(t, "lines", series(rec.page(t), "rackpulse_kernel_log_lines_total"), "300001")
	})
}

func TestLineKind(t *testing.T) {
	for line, want := range map[string]string{
		"[ 1.000000] NVRM: Xid (PCI:0000:0f:00): 45, pid=7":              "Xid (PCI:0000:0f:00): 45",
		"nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal":    "Xid (PCI:0000:85:00.0): 12028",
		"[ 1.000000] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus": "NVRM: GPU 0000:b3:00.0: GPU has fallen o",
		"nvidia-nvswitch2: open":                                         "nvidia-nvswitch2: open",
	} {
		if got := lineKind(line); got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}
