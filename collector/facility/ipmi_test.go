// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// ipmiSDR is a full sensor record (IPMI 2.0 table 43-1) of a temperature sensor
// in half degrees: M is 5 and the exponent of the result -1.
func ipmiSDR(number, entity byte, name string) string {
	record := []byte{
		0, 0, 0x51, 1, 0, // id, version, full sensor; the length is set below
		0x20, 0, number, entity, 1, 0x7f, 0x68, 1, 1, // owner, lun, number, entity, init, capabilities, temperature, threshold
		0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, // masks, 2's complement, degrees C, linear
		5, 0, 0, 0, 0, 0xf0, 0, 0, 0, 0, 0x7f, 0x80, // factors, analog, nominal, ranges
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0 | byte(len(name)), // thresholds, hysteresis
	}
	record = append(record, name...)
	record[4] = byte(len(record) - 5)
	return "main_sdr_add 0x20" + strings.ReplaceAll(fmt.Sprintf("% x", append([]byte{' '}, record...))[2:], " ", " 0x") + "\n"
}

// ipmiSim runs OpenIPMI's simulator with two sensors: the CPU at 61 and the air
// inlet at 24.5 degrees.
func ipmiSim(t *testing.T) (entry func(block string) string, stop func()) {
	t.Helper()
	sim := testtool.Binary(t, "ipmi_sim")
	dir := t.TempDir()
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.LocalAddr().(*net.UDPAddr).Port
	_ = l.Close()
	bits := strings.Repeat(" 000000000000000", 4)
	for name, text := range map[string]string{
		"lan.conf": fmt.Sprintf(`name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  user 2 true "mon" "s3cret" user 10 none md2 md5 straight
`, port),
		"bmc.emu": "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n" +
			"sensor_add 0x20 0 1 0x01 0x01\nsensor_set_event_support 0x20 0 1 enable scanning per-state " + bits + "\nsensor_set_value 0x20 0 1 122 0\n" + ipmiSDR(1, 3, "CPU Temp") +
			"sensor_add 0x20 0 2 0x01 0x01\nsensor_set_event_support 0x20 0 2 enable scanning per-state " + bits + "\nsensor_set_value 0x20 0 2 49 0\n" + ipmiSDR(2, 0x37, "Temp 7") + "mc_enable 0x20\n",
		"password": "s3cret\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	cmd := exec.Command(sim, "-c", dir+"/lan.conf", "-f", dir+"/bmc.emu", "-s", dir, "-n")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("ipmi_sim: %s", out.String())
		}
	})
	return func(block string) string {
		return fmt.Sprintf("facility:\n- device: r01-in-top\n  driver: ipmi\n  address: 127.0.0.1:%d\n  deadline: 2s\n  ipmi: {user: mon, password_file: %s/password%s}\n", port, dir, block)
	}, stop
}

// The simulator has an inlet sensor and refuses DCMI to a user: an absent power
// with its reason and no fault of the temperature.
func TestIPMISimulator(t *testing.T) {
	entry, stop := ipmiSim(t)
	plan, err := planOf(t, entry(", node: gpu001"))
	if err != nil {
		t.Fatal(err)
	}
	var d Driver
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		d, err = plan.Open(ctx)
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := d.Read(ctx)
	wantErr(t, err, "ipmi: DCMI power: completion code 0xd4")
	wantText(t, show(list), " inlet_temperature 24.5\n")
	named := openOf(t, entry(", cipher_suite: 3, sensor: CPU Temp"))
	wantText(t, read(t, named), " inlet_temperature 61\n")
	wrong, err := planOf(t, entry(", cipher_suite: 3, sensor: Nose"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = wrong.Open(ctx); err == nil || !strings.Contains(err.Error(), `no temperature sensor is named "Nose"`) {
		t.Errorf("got %v", err)
	}
	stop()
	short, cancel2 := context.WithTimeout(t.Context(), time.Second)
	defer cancel2()
	begin := time.Now()
	if _, err = d.Read(short); err == nil || !strings.Contains(err.Error(), ErrGone.Error()) {
		t.Errorf("a dead controller: %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a dead controller took %s", took)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestIPMIConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{device: r01-in-top, driver: ipmi, address: a}":                                              "user and password_file are missing",
		"{device: r01-in-top, driver: ipmi, ipmi: {user: a, password_file: b}}":                       "address is missing",
		"{device: r01-in-top, driver: ipmi, address: 'a:0', ipmi: {user: a, password_file: b}}":       "no host or host:port",
		"{device: r01-in-top, driver: ipmi, address: a, ipmi: {user: a}}":                             "belong together",
		"{device: r01-in-top, driver: ipmi, address: a, ipmi: {user: a, password_file: b, bogus: 1}}": "unknown key \"bogus\"",
	} {
		_, err := planOf(t, "facility:\n- "+text+"\n")
		wantErr(t, err, want)
	}
}
