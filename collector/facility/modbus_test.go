// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
)

func modbusEntry(device, profile, address, block string) string {
	return fmt.Sprintf("facility:\n- device: %s\n  driver: modbus\n  profile: %s\n  address: %s\n  modbus: %s\n", device, profile, address, block)
}

const quickly = "{timeout: 100ms}"

// -5.7 degrees are 0xffc7 in tenths with a sign.
func TestModbusSensor(t *testing.T) {
	s := newModbusSlave()
	s.set(1, 4, 1, 0xffc7, 413)
	path, _ := s.onPTY(t)
	wantText(t, read(t, openOf(t, modbusEntry("r01-in-top", "xy-md02", path, quickly))), " inlet_humidity 0.413\n inlet_temperature -5.7\n")
	if len(s.asked) != 1 || s.asked[0] != [2]uint16{1, 2} {
		t.Errorf("asked for %v, want one request of two registers from 1", s.asked)
	}
}

// meter630 fills the registers of a three-phase meter by their addresses.
func meter630(s *modbusSlave, unit byte) {
	s.set(unit, 4, 0, floats(230.5, 231.25, 229.75, 10.5, 11.25, 9.75, 2420.25, 2601.5, 2240)...)
	s.set(unit, 4, 52, floats(7261.75)...)
	s.set(unit, 4, 62, floats(-0.96875)...)
	s.set(unit, 4, 72, floats(1250.5)...)
	s.set(unit, 4, 200, floats(399.5, 400, 400.5)...)
	s.set(unit, 4, 224, floats(1.5)...)
}

const readings630 = ` current 11.25
 energy 4.5018e+09
 neutral_current 1.5
 phase_current[1] 10.5
 phase_current[2] 11.25
 phase_current[3] 9.75
 phase_power[1] 2420.25
 phase_power[2] 2601.5
 phase_power[3] 2240
 phase_voltage[1] 230.5
 phase_voltage[1-2] 399.5
 phase_voltage[2] 231.25
 phase_voltage[2-3] 400
 phase_voltage[3] 229.75
 phase_voltage[3-1] 400.5
 power 7261.75
 power_factor -0.96875
`

// The same meter on a serial line, behind a gateway, and behind one that passes
// serial frames through. V*I*PF of phase 1 is 230.5 V * 10.5 A = 2420.25 W.
func TestModbusMeter(t *testing.T) {
	s := newModbusSlave()
	meter630(s, 7)
	path, _ := s.onPTY(t)
	tcp, _ := s.onTCP(t, false)
	rtu, _ := s.onTCP(t, true)
	for address, block := range map[string]string{
		path: "{unit: 7, timeout: 200ms}", tcp: "{unit: 7}", rtu: "{unit: 7, framing: rtu}",
	} {
		d := openOf(t, modbusEntry("r01-a", "eastron-sdm630", address, block))
		wantText(t, read(t, d), readings630)
		fast, err := d.(fastReader).ReadFast(t.Context())
		if err != nil || !strings.Contains(show(fast), " current 11.25\n") || strings.Contains(show(fast), "energy") {
			t.Errorf("fast read: %s %v", show(fast), err)
		}
	}
}

// A PZEM sends the low word first: 70000 mA are 0x0001 0x1170.
func TestModbusWordOrder(t *testing.T) {
	s := newModbusSlave()
	s.set(2, 4, 0, 2305, 0x1170, 1, 0xf000, 1, 0x86a0, 1)
	s.set(2, 4, 8, 97)
	path, _ := s.onPTY(t)
	wantText(t, read(t, openOf(t, modbusEntry("r01-a", "pzem", path, "{unit: 2, timeout: 200ms}"))),
		" current 70\n energy 3.6e+08\n phase_current[1] 70\n phase_voltage[1] 230.5\n power 12697.6\n power_factor 0.97\n")
}

func TestModbusTypes(t *testing.T) {
	for _, c := range []struct {
		kind, order string
		words       []uint16
		want        float64
	}{
		{"uint16", "", []uint16{0xffff}, 65535},
		{"int16", "", []uint16{0xffff}, -1},
		{"uint32", "", []uint16{1, 2}, 65538},
		{"uint32", "little", []uint16{2, 1}, 65538},
		{"int32", "", []uint16{0xffff, 0xfffe}, -2},
		{"int64", "", []uint16{0xffff, 0xffff, 0xffff, 0xfffd}, -3},
		{"uint64", "little", []uint16{4, 0, 0, 1}, 281474976710660},
		{"float32", "", []uint16{0x3fc0, 0}, 1.5},
		{"float32", "little", []uint16{0, 0x3fc0}, 1.5},
		{"float64", "", []uint16{0x3ff8, 0, 0, 0}, 1.5},
	} {
		r := modbusRegister{Type: c.kind, WordOrder: c.order}
		if got := r.raw(c.words); got != c.want {
			t.Errorf("%s %s %x: got %g, want %g", c.kind, c.order, c.words, got, c.want)
		}
	}
	one := 1.0
	r := modbusRegister{Type: "float32", measure: measure{Quantity: "power", Unit: "watt", Scale: &one, Sentinels: []string{"-1"}}}
	for _, v := range []float32{float32(math.NaN()), float32(math.Inf(1)), -1} {
		if got, ok := r.reading(floats(v)); ok {
			t.Errorf("%g is a value: %v", v, got)
		}
	}
	r = modbusRegister{Type: "uint16", measure: measure{Quantity: "leak", States: map[string]float64{"2": 1, "1": 0}}}
	if got, ok := r.reading([]uint16{2}); !ok || got.Value != 1 {
		t.Errorf("state 2: %v %v", got, ok)
	}
	if _, ok := r.reading([]uint16{9}); ok {
		t.Error("state 9 is known")
	}
}

// Manuals print register numbers; the profile says which of both it gives.
func TestModbusNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"number: 30013":                                   "",
		"number: 400001":                                  "",
		"address: 12, function: input":                    "",
		"address: 40001, function: input":                 "",
		"number: 12":                                      "number 12 is not between",
		"number: 50000":                                   "number 50000 is not between",
		"number: 30000":                                   "number 30000 is not between",
		"number: 30013, function: input":                  "leave these out",
		"address: 30013, function: input":                 "looks like the number of a manual; write number: 30013, or its address 12",
		"address: 40001, function: holding":               "or its address 0",
		"address: 12, function: input, word_order: mixed": "neither big nor little",
		"address: 65535, function: input":                 "not between 0 and 65535",
		"address: 12, function: coil":                     "neither input nor holding",
		"address: 12, function: input, part: 1":           "has no parts",
	} {
		p, err := parseProfile("own.yml", []byte("about: a\nkind: pdu\nmodbus:\n  registers:\n  - {"+text+", type: float32, quantity: power, unit: watt, scale: 1}\n"))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			} else if r := p.Modbus.Registers[0]; text == "number: 30013" && (r.Address != 12 || r.Function != "input") {
				t.Errorf("%s: %+v", text, r)
			}
			continue
		}
		wantErr(t, err, "own.yml:5: ", want)
	}
}

// Frames that are spoiled on the line: a checksum that is wrong once is asked
// for again; a reply that is cut off, or that comes late, costs this read and
// never the next.
func TestModbusSpoiled(t *testing.T) {
	s := newModbusSlave()
	s.set(1, 4, 1, 215, 400)
	path, _ := s.onPTY(t)
	d := openOf(t, modbusEntry("r01-in-top", "xy-md02", path, quickly))
	const good = " inlet_humidity 0.4\n inlet_temperature 21.5\n"
	once := func(f func([]byte) []byte) func([]byte) []byte {
		var done sync.Once
		return func(reply []byte) []byte {
			done.Do(func() { reply = f(reply) })
			return reply
		}
	}
	fail := func(want string) {
		t.Helper()
		_, err := d.Read(t.Context())
		wantErr(t, err, path+" unit 1, input registers 1 to 2: ", want)
		s.spoiler(nil)
		s.set(1, 4, 1, 215, 400)
		wantText(t, read(t, d), good)
	}
	broken := func(r []byte) []byte { return append(r[:len(r)-1], r[len(r)-1]^1) }
	s.spoiler(once(broken))
	wantText(t, read(t, d), good)
	s.spoiler(broken)
	fail("bad crc")
	s.spoiler(func(r []byte) []byte { return r[:4] })
	fail("request timed out")
	s.spoiler(func([]byte) []byte { return nil })
	fail("request timed out")
	// The late reply says 30 degrees; the next read must not take it.
	s.set(1, 4, 1, 300, 400)
	s.spoiler(late(150 * time.Millisecond))
	fail("request timed out")
	s.spoiler(func(r []byte) []byte { r[0] = 9; r = r[:len(r)-2]; return append(r, crc16(r)...) })
	fail("bad unit id")
}

// A device that refuses a register gives the others; the error names it.
func TestModbusException(t *testing.T) {
	s := newModbusSlave()
	meter630(s, 1)
	delete(s.units[1][4], 224)
	tcp, stop := s.onTCP(t, false)
	d := openOf(t, modbusEntry("r01-a", "eastron-sdm630", tcp, "{timeout: 1s}"))
	list, err := d.Read(t.Context())
	wantErr(t, err, tcp+" unit 1, input registers 224 to 225: illegal data address")
	wantText(t, show(list), strings.Replace(readings630, " neutral_current 1.5\n", "", 1))
	silent := openOf(t, modbusEntry("r01-a", "eastron-sdm630", tcp, "{unit: 9}"))
	_, err = silent.Read(t.Context())
	wantErr(t, err, "unit 9, input registers 0 to 17: gateway target device failed to respond")
	stop()
	if _, err = d.Read(t.Context()); err == nil {
		t.Error("a dead gateway is read")
	}
	_, err = d.Read(t.Context())
	wantErr(t, err, "open "+tcp+": ", "connection refused")
}

func TestModbusUnplugged(t *testing.T) {
	s := newModbusSlave()
	s.set(1, 4, 1, 215, 400)
	path, unplug := s.onPTY(t)
	link := filepath.Join(t.TempDir(), "adapter")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	d := openOf(t, modbusEntry("r01-in-top", "xy-md02", link, quickly))
	read(t, d)
	unplug()
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first may still use the open line
		_, err := d.Read(t.Context())
		wantErr(t, err, link)
	}
	_, err := d.Read(t.Context())
	wantErr(t, err, "open "+link+": ", "no such file")
	again, _ := s.onPTY(t)
	if err := os.Symlink(again, link); err != nil {
		t.Fatal(err)
	}
	wantText(t, read(t, d), " inlet_humidity 0.4\n inlet_temperature 21.5\n")
}

// Five devices share a line: never are two requests under way, a silent one
// among them delays the others by its timeout but takes nothing from them.
func TestModbusSharedLine(t *testing.T) {
	s := newModbusSlave()
	for unit := byte(1); unit <= 4; unit++ {
		s.set(unit, 4, 1, 200+10*uint16(unit), 400)
	}
	path, _ := s.onPTY(t)
	text := "facility:\n"
	for i, device := range []string{"r01-in-top", "r01-out", "r01-rh", "row-a-leak", "r02-in"} {
		text += fmt.Sprintf("- {device: %s, kind: sensor, driver: modbus, profile: xy-md02, address: %s, interval: 1s, modbus: {unit: %d, timeout: 100ms}}\n", device, path, i+1)
	}
	store, stop := runText(t, text)
	want := []string{
		`rack_inlet_temperature_celsius{position="top",sensor="r01-in-top",rack_id="r01"} 21`,
		`rack_inlet_temperature_celsius{sensor="r01-out",rack_id="r01"} 22`,
		`rack_inlet_temperature_celsius{sensor="r01-rh",rack_id="r01"} 23`,
		`rack_inlet_temperature_celsius{sensor="row-a-leak"} 24`,
		`facility_device_up{device="r02-in",driver="modbus"} 0`,
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text := page(t, store)
		if !slices.ContainsFunc(want, func(l string) bool { return !strings.Contains(text, l+"\n") }) {
			break
		}
		if time.Now().After(deadline) {
			wantLines(t, store, want...)
			break
		}
	}
	stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most != 1 {
		t.Errorf("%d requests at a time on one line", s.most)
	}
}

func TestModbusConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{bogus: 1}"):      "agent.yml:6: unknown key",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{unit: 0}"):       "unit 0 is not between 1 and 247",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{framing: rtu}"):  "always RTU",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{parity: mark}"):  "parity \"mark\" is none of",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{bits: 5}"):       "bits 5",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{stop: 3}"):       "stop 3",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{baud: 1}"):       "baud 1",
		modbusEntry("r01-a", "pzem", "/dev/ttyS0", "{timeout: 1m}"):   "timeout 1m0s is not between",
		modbusEntry("r01-a", "pzem", "gw:0", "{}"):                    "neither the path of a serial line nor host:port",
		modbusEntry("r01-a", "pzem", "gw", "{framing: ascii}"):        "framing \"ascii\"",
		modbusEntry("r01-a", "apc-rpdu2", "gw", "{}"):                 "profile apc-rpdu2 has no register map",
		modbusEntry("r01-a", "xy-md02", "gw", "{}"):                   "profile xy-md02 is of a sensor, not of a pdu",
		modbusEntry("r01-a", "none", "gw", "{}"):                      "unknown profile \"none\"",
		"facility:\n- {device: r01-a, driver: modbus, address: gw}\n": "profile or profile_file is missing",
	} {
		_, err := planOf(t, text)
		wantErr(t, err, want)
	}
	shared := func(other string) error {
		_, err := New(entries(t, "facility:\n- {device: r01-a, driver: modbus, profile: pzem, address: /dev/ttyS7}\n- "+other+"\n"),
			Deps{Store: collector.NewStore(), Logger: log.NewNopLogger(), Device: hallDevice})
		return err
	}
	if err := shared("{device: r01-b, driver: modbus, profile: pzem, address: /dev/ttyS7, modbus: {unit: 2}}"); err != nil {
		t.Error(err)
	}
	wantErr(t, shared("{device: r01-b, driver: modbus, profile: pzem, address: /dev/ttyS7, modbus: {unit: 2, baud: 19200}}"),
		"the entries of r01-a and r01-b give the line /dev/ttyS7 other settings")
	wantErr(t, shared("{device: r01-rh, driver: serial, serial: {path: /dev/ttyS7, format: csv, fields: [{column: 1, quantity: inlet_humidity}]}}"),
		"/dev/ttyS7 is used by the entries of r01-rh and r01-a")
}
