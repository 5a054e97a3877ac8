// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

const nutLong = `device.model: "Smart"
battery.charge: 97.5
battery.runtime: 1830
battery.temperature: 24.6
ups.load: 43
ups.realpower: 1290
ups.power: 1410
ups.status: %s
input.voltage: 231.2
output.voltage: 229.9
output.current: 5.61
`

const nutReadingsText = ` ups_battery_charge 0.975
 ups_battery_runtime 1830
 ups_battery_temperature 24.6
 ups_input_voltage[1] 231.2
 ups_load 0.43
 ups_on_battery %d
 ups_output_current[1] 5.61
 ups_output_power 1290
 ups_output_voltage[1] 229.9
`

// upsd runs Debian's own server with a driver that plays a file.
func upsd(t *testing.T) (address string, write func(status string)) {
	t.Helper()
	// /usr/sbin/upsd of Debian is a script that looks at /etc/nut/nut.conf first.
	const server, dummy = "/lib/nut/upsd", "/lib/nut/dummy-ups"
	if _, err := os.Stat(server); err != nil {
		testtool.Missing(t, "nut-server is not installed; run 'make deps'")
	}
	dir, err := os.MkdirTemp("", "nut") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	write = func(status string) {
		if err := os.WriteFile(filepath.Join(dir, "ups.dev"), fmt.Appendf(nil, nutLong, status), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("OL CHRG")
	for name, text := range map[string]string{
		"ups.conf":   "[rackups]\n  driver = dummy-ups\n  port = " + dir + "/ups.dev\n  mode = dummy-loop\n  pollinterval = 1\n",
		"upsd.conf":  "LISTEN " + host + " " + port + "\nMAXAGE 15\n",
		"upsd.users": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start := func(path string, args ...string) {
		cmd := exec.Command(path, args...)
		cmd.Env = []string{"NUT_CONFPATH=" + dir, "NUT_STATEPATH=" + dir, "NUT_ALTPIDPATH=" + dir, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		testtool.Start(t, cmd)
	}
	user := []string{"-u", "root"}
	if os.Getuid() != 0 {
		user = nil
	}
	start(dummy, append(user, "-D", "-a", "rackups")...)
	start(server, append(user, "-D")...)
	return l.Addr().String(), write
}

func TestNUTServer(t *testing.T) {
	address, write := upsd(t)
	entry := "facility:\n- {device: ups1, driver: nut, address: '" + address + "'}\n"
	plan, err := planOf(t, entry)
	if err != nil {
		t.Fatal(err)
	}
	var d Driver
	until := func(want string) {
		t.Helper()
		var last string
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if d == nil {
				d, err = plan.Open(ctx)
			}
			var list []Reading
			if err == nil {
				list, err = d.Read(ctx)
			} else {
				d = nil
			}
			cancel()
			if last = show(list) + fmt.Sprint(err); err == nil && show(list) == want {
				return
			}
			err = nil
		}
		t.Fatalf("got\n%s\nwant\n%s", last, want)
	}
	until(fmt.Sprintf(nutReadingsText, 0))
	write("OB DISCHRG")
	until(fmt.Sprintf(nutReadingsText, 1))
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	other := openOf(t, "facility:\n- {device: ups1, driver: nut, address: '"+address+"', nut: {ups: none}}\n")
	_, err = other.Read(t.Context())
	wantErr(t, err, "ups none: UNKNOWN-UPS")
}

// nutFake answers each line as told and hangs up where nothing is told.
func nutFake(t *testing.T, answers map[string]string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 256)
			for n, err := c.Read(buf); err == nil; n, err = c.Read(buf) {
				text, ok := answers[strings.TrimSpace(string(buf[:n]))]
				if !ok {
					break
				}
				_, _ = c.Write([]byte(text))
			}
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

func TestNUTAnswers(t *testing.T) {
	for name, c := range map[string]struct{ answer, readings, err string }{
		"three phases": {"BEGIN LIST VAR u\nVAR u input.voltage \"230\"\nVAR u input.L1-N.voltage \"231\"\nVAR u input.L2-N.voltage \"232\"\n" +
			"VAR u ups.status \"OFF\"\nVAR u ups.mfr \"a \\\"b\\\" \\\\\"\nEND LIST VAR u\n", " ups_input_voltage[1] 231\n ups_input_voltage[2] 232\n", ""},
		"no number":   {"BEGIN LIST VAR u\nVAR u ups.load \"n/a\"\nVAR u ups.status \"OL LB\"\nEND LIST VAR u\n", " ups_on_battery 0\n", ""},
		"stale":       {"ERR DATA-STALE\n", "", "ups u: DATA-STALE"},
		"cut off":     {"BEGIN LIST VAR u\nVAR u ups.load \"4", "", "no answer in time"},
		"other words": {"HTTP/1.1 400 Bad Request\n", "", "unexpected line \"HTTP/1.1 400 Bad Request\""},
		"long line":   {strings.Repeat("x", 2000) + "\n", "", "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			d := openOf(t, "facility:\n- {device: ups1, driver: nut, address: '"+nutFake(t, map[string]string{"LIST VAR u": c.answer})+"', nut: {ups: u}}\n")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			list, err := d.Read(ctx)
			if c.err != "" {
				wantErr(t, err, c.err)
			} else if err != nil {
				t.Error(err)
			}
			wantText(t, show(list), c.readings)
		})
	}
	plan, err := planOf(t, "facility:\n- {device: ups1, driver: nut, address: '"+nutFake(t, map[string]string{"LIST UPS": "BEGIN LIST UPS\nUPS a \"A\"\nUPS b \"B\"\nEND LIST UPS\n"})+"'}\n")
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Open(t.Context())
	wantErr(t, err, "set ups to one of: a, b")
	for text, want := range map[string]string{"nut: {ups: 'a b'}": "no name of a UPS", "nut: {bogus: 1}": "unknown key", "address: ':1'": "no host"} {
		_, err := planOf(t, "facility:\n- {device: ups1, driver: nut, "+text+"}\n")
		wantErr(t, err, want)
	}
}
