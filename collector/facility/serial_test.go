// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-kit/log"
)

// wire is a pseudo-terminal: the test holds the device's end.
type wire struct {
	device *os.File // the end that the test speaks on
	tty    *os.File // keeps the other end open
	link   string   // the path that the driver opens
}

// plug makes a pseudo-terminal and puts it at link.
func plug(t *testing.T, link string) *wire {
	t.Helper()
	device, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{device: device, tty: tty, link: link}
	t.Cleanup(w.unplug)
	if err := os.Symlink(tty.Name(), link); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wire) unplug() {
	w.device.Close()
	w.tty.Close()
	os.Remove(w.link)
}

func (w *wire) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(w.device, text); err != nil {
		t.Fatal(err)
	}
}

// soon bounds reads that succeed; the driver returns as soon as it can.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// brief bounds reads that are to fail.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func serialEntry(path, settings string) string {
	return fmt.Sprintf("facility:\n- device: r01-in-top\n  driver: serial\n  serial:\n    path: %s\n%s", path, settings)
}

const climateFields = `
    fields:
    - {name: t, quantity: inlet_temperature, sentinels: [-127, 85]}
    - {name: h, quantity: inlet_humidity, unit: percent, device: r01-rh}
`

const csvFields = `
    format: csv
    fields:
    - {column: 1, quantity: inlet_temperature}
    - {column: 2, quantity: inlet_humidity, unit: percent, device: r01-rh}
`

func TestSerialFormats(t *testing.T) {
	for _, c := range []struct{ name, settings, line string }{
		{"csv", csvFields, "23.5,41.3\r\n"},
		{"keyvalue", "    format: keyvalue" + climateFields, "t=23.5 h=41.3\n"},
		{"json", "    format: json" + climateFields, `{"t": 23.5, "h": 41.3}` + "\n"},
		{"regexp", "    format: regexp\n    regexp: '^T(?P<t>[0-9.]+) H(?P<h>[0-9.]+)$'" + climateFields, "T23.5 H41.3\r"},
		{"7e2", "    baud: 1200\n    bits: 7\n    parity: even\n    stop: 2\n" + csvFields, "23.5,41.3\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := plug(t, filepath.Join(t.TempDir(), "tty"))
			d := openOf(t, serialEntry(w.link, c.settings))
			start := time.Now()
			// The driver came in the middle of a line, whose rest looks right.
			w.say(t, "9.9,99.9\n"+c.line)
			got, err := d.Read(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range got {
				if r.At.Before(start) || r.At.After(time.Now()) {
					t.Errorf("%s measured at %s", r.Quantity, r.At)
				}
			}
			if text := show(got); text != "r01-in-top inlet_temperature 23.5\nr01-rh inlet_humidity 0.413\n" {
				t.Errorf("got %s", text)
			}
		})
	}
}

// TestSerialGarbage: noise and endless lines are skipped and counted, the log
// holds one bounded line, and values go on coming.
func TestSerialGarbage(t *testing.T) {
	w := plug(t, filepath.Join(t.TempDir(), "tty"))
	p, err := planOf(t, serialEntry(w.link, "    format: keyvalue"+climateFields))
	if err != nil {
		t.Fatal(err)
	}
	if p.Exclusive != w.link || fmt.Sprint(p.Serves) != "[r01-rh]" {
		t.Errorf("plan %+v", p)
	}
	var logged lockedBuffer
	d := openWith(t, serialEntry(w.link, "    format: keyvalue"+climateFields), log.NewLogfmtLogger(&logged)).(*serialDriver)
	w.say(t, "\nboot \xff\xfe\n"+strings.Repeat("x", 3000)+"\nt=ERR\n")
	if _, err := d.Read(brief(t)); err == nil || !strings.Contains(err.Error(), "lines came, but none with a configured field") {
		t.Errorf("error %v", err)
	}
	if _, err := d.Read(brief(t)); err == nil || !strings.Contains(err.Error(), "no line came within the deadline") {
		t.Errorf("error %v", err)
	}
	w.say(t, "h=oops t=21\n")
	got, err := d.Read(soon(t))
	if err != nil || show(got) != "r01-in-top inlet_temperature 21\n" {
		t.Errorf("%v %v", got, err)
	}
	if n := d.garbageLines(); n != 4 {
		t.Errorf("%d garbage lines, want 4", n)
	}
	if n := d.garbageLines(); n != 0 {
		t.Errorf("%d garbage lines told twice", n)
	}
	text := logged.String()
	if strings.Count(text, "\n") != 1 || len(text) > 400 || !strings.Contains(text, `boot \\xff\\xfe`) {
		t.Errorf("log is %q", text)
	}
}

// TestSerialSentinel: a value that the device withdraws is absent at once, the
// others stay.
func TestSerialSentinel(t *testing.T) {
	w := plug(t, filepath.Join(t.TempDir(), "tty"))
	d := openOf(t, serialEntry(w.link, "    format: keyvalue"+climateFields))
	w.say(t, "\nt=21 h=40\n")
	if got, err := d.Read(soon(t)); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	w.say(t, "t=-127.0\n")
	if got, err := d.Read(soon(t)); err != nil || show(got) != "r01-rh inlet_humidity 0.4\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

// TestSerialUnplugged: the error of a vanished device asks for a new open, which
// fails clearly while it is away and works once it is back.
func TestSerialUnplugged(t *testing.T) {
	link := filepath.Join(t.TempDir(), "tty")
	w := plug(t, link)
	p, err := planOf(t, serialEntry(link, csvFields))
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.say(t, "\n20,40\n")
	if _, err := d.Read(soon(t)); err != nil {
		t.Fatal(err)
	}
	w.unplug()
	_, err = d.Read(soon(t))
	if !errors.Is(err, ErrGone) {
		t.Fatalf("error %v", err)
	}
	wantErr(t, err, link)
	if _, err := d.Read(soon(t)); !errors.Is(err, ErrGone) {
		t.Errorf("second error %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	_, err = p.Open(t.Context())
	wantErr(t, err, "open "+link, "no such file or directory")

	w = plug(t, link)
	d, err = p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w.say(t, "\n22,42\n")
	if got, err := d.Read(soon(t)); err != nil || show(got) != "r01-in-top inlet_temperature 22\nr01-rh inlet_humidity 0.42\n" {
		t.Errorf("%s %v", show(got), err)
	}
}

// TestSerialRequest: a device that speaks only when asked gets the request once
// for each read, and its first line counts.
func TestSerialRequest(t *testing.T) {
	w := plug(t, filepath.Join(t.TempDir(), "tty"))
	d := openOf(t, serialEntry(w.link, "    request: \"READ?\\r\"\n"+csvFields))
	asked := make(chan string)
	go func() {
		defer close(asked)
		buf := make([]byte, 64)
		for i := 1; i <= 3; i++ {
			n, err := io.ReadAtLeast(w.device, buf, len("READ?\r"))
			if err != nil {
				return
			}
			asked <- string(buf[:n])
			fmt.Fprintf(w.device, "%d.5,50\r\n", 20+i)
		}
	}()
	for i := 1; i <= 3; i++ {
		result := make(chan string)
		go func() {
			got, err := d.Read(soon(t))
			result <- fmt.Sprint(show(got), err)
		}()
		if q := <-asked; q != "READ?\r" {
			t.Errorf("asked %q", q)
		}
		want := fmt.Sprintf("r01-in-top inlet_temperature %d.5\nr01-rh inlet_humidity 0.5\n<nil>", 20+i)
		if got := <-result; got != want {
			t.Errorf("read %d: %s, want %s", i, got, want)
		}
	}
}

func TestSerialConfigErrors(t *testing.T) {
	for settings, want := range map[string]string{
		"    baud: -1\n" + csvFields:                                  "baud -1",
		"    bits: 9\n" + csvFields:                                   "bits 9 is not between 5 and 8",
		"    parity: some\n" + csvFields:                              `parity "some"`,
		"    stop: 3\n" + csvFields:                                   `stop "3"`,
		"    speed: 9600\n" + csvFields:                               `agent.yml:6: unknown key "speed"`,
		"    format: csv\n":                                           "fields: at least one",
		"    request: " + strings.Repeat("x", 257) + "\n" + csvFields: "request is longer than 256 bytes",
	} {
		_, err := planOf(t, serialEntry("/dev/ttyUSB0", settings))
		wantErr(t, err, want)
	}
	_, err := planOf(t, serialEntry("ttyUSB0", csvFields))
	wantErr(t, err, `serial: path "ttyUSB0" is not absolute`)
}

// TestSerialOpenErrors: what is not a usable line says so.
func TestSerialOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file:                         "not a usable serial port",
		"/dev/null":                  "not a usable serial port",
		"/dev/rackpulse-not-there":   "no such file or directory",
		filepath.Join(file, "below"): "not a directory",
	} {
		p, err := planOf(t, serialEntry(path, csvFields))
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Open(t.Context())
		wantErr(t, err, "open "+path, want)
	}
}

func TestLineSplitter(t *testing.T) {
	long := strings.Repeat("a", 1024)
	for _, c := range []struct {
		skip bool
		in   string
		want string
	}{
		{false, "a\nb\r\nc\rd", "a|b|c"},
		{true, "a\nb\n", "b"},
		{false, "\n\n \r\n", ""},
		{false, long + "\nb\n", long + "|b"},
		{false, long + "a\nb\n", long + "!|b"},
	} {
		for size := 1; size <= 600; size += 299 { // the same however it is cut
			s := lineSplitter{skip: c.skip}
			var got []string
			for rest := []byte(c.in); len(rest) > 0; {
				n := min(size, len(rest))
				s.split(rest[:n], func(text string, tooLong bool) {
					if tooLong {
						text += "!"
					}
					got = append(got, text)
				})
				rest = rest[n:]
			}
			if strings.Join(got, "|") != c.want {
				t.Errorf("%q in pieces of %d: %q, want %q", clip(c.in, 20), size, got, c.want)
			}
		}
	}
}

// lockedBuffer is a bytes.Buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
