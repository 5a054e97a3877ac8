// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
)

// TestSerialRun runs the whole way with a real terminal: values on the page, the
// adapter unplugged, the reason shown, plugged in again, values again, the end.
func TestSerialRun(t *testing.T) {
	before := runtime.NumGoroutine()
	link := filepath.Join(t.TempDir(), "tty")
	w := plug(t, link)
	store := collector.NewStore()
	store.SetIdentity(hallIdentity())
	text := strings.Replace(serialEntry(link, csvFields), "  driver: serial", "  driver: serial\n  interval: 200ms", 1)
	r, err := New(entries(t, text), Deps{Store: store, Logger: log.NewNopLogger(), Device: hallDevice})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Devices()); got != "[r01-in-top r01-rh]" {
		t.Errorf("devices %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()

	// until speaks for the sensor every few milliseconds and looks at the page.
	until := func(line string, wants ...string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			if line != "" {
				w.say(t, line)
			}
			text, missing := page(t, store), ""
			for _, want := range wants {
				if !strings.Contains(text, want+"\n") {
					missing = want
				}
			}
			if missing == "" {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s on the page\n%s", missing, text)
			}
			time.Sleep(20 * time.Millisecond) // a terminal has no fake clock
		}
	}
	top := `rack_inlet_temperature_celsius{position="top",sensor="r01-in-top",rack_id="r01"} `
	rh := `rack_inlet_relative_humidity_ratio{sensor="r01-rh",rack_id="r01"} `
	up := `facility_device_up{device="r01-in-top",driver="serial",position="top",sensor="r01-in-top",rack_id="r01"} `
	until("20.5,40\r\n", top+"20.5", rh+"0.4", up+"1", `facility_device_up{device="r01-rh",driver="serial",sensor="r01-rh",rack_id="r01"} 1`)
	w.unplug()
	until("", up+"0", `rackpulse_source_info{source="r01-in-top",reason="open: open `+link+`: no such file or directory"} 1`)
	w = plug(t, link)
	until("22.5,42\r\n", top+"22.5", rh+"0.42", up+"1")
	cancel()
	<-done
	for n := 0; runtime.NumGoroutine() > before; n++ {
		if n == 200 {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond) // goroutines that have ended are counted for a moment
	}
}

// TestSerialNoPermission opens a terminal without the right to: root gives its
// right up for one thread, which dies with the test.
func TestSerialNoPermission(t *testing.T) {
	device, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	defer tty.Close()
	if err := tty.Chmod(0); err != nil {
		t.Fatal(err)
	}
	p, err := planOf(t, serialEntry(tty.Name(), csvFields))
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				result <- err
				return
			}
		}
		_, err := p.Open(t.Context())
		result <- err
	}()
	wantErr(t, <-result, "open "+tty.Name(), "permission denied; the agent's user must be in the group of the device")
}

// TestSerialTornFirstLine: the rest of a line is no value, however right it looks.
func TestSerialTornFirstLine(t *testing.T) {
	w := plug(t, filepath.Join(t.TempDir(), "tty"))
	d := openOf(t, serialEntry(w.link, csvFields))
	w.say(t, "3.5,41\n")
	_, err := d.Read(brief(t))
	wantErr(t, err, "no line came within the deadline")
}

// TestSerialOldAnswer: a line from before the request does not answer it.
func TestSerialOldAnswer(t *testing.T) {
	w := plug(t, filepath.Join(t.TempDir(), "tty"))
	d := openOf(t, serialEntry(w.link, "    request: \"?\"\n"+csvFields)).(*serialDriver)
	w.say(t, "20,40\n")
	<-d.news
	_, err := d.Read(brief(t))
	wantErr(t, err, "no line came within the deadline")
}
