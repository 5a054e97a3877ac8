// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"cmp"
	"io"
	"path/filepath"
	"testing"

	"go.bug.st/serial"
)

// answerHID puts a pseudo-terminal in the place of a USB thermometer, which
// answers each command with these reports.
func answerHID(t *testing.T, root, usb string, reports []byte) (path string) {
	t.Helper()
	w := plug(t, filepath.Join(t.TempDir(), "temper"))
	raw, err := serial.Open(w.tty.Name(), &serial.Mode{}) // to make it raw
	if err == nil {
		err = raw.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	sysfs(t, root, map[string]string{"class/hidraw/" + filepath.Base(w.tty.Name()) + "/device/uevent": "DRIVER=hid-generic\nHID_ID=0003:" + usb + "\nHID_NAME=PCsensor\n"})
	go func() { // until the test unplugs it
		ask := make([]byte, 8)
		for {
			if _, err := io.ReadFull(w.device, ask); err != nil {
				return
			}
			if !bytes.Equal(ask, []byte{0x01, 0x80, 0x33, 0x01, 0, 0, 0, 0}) {
				t.Errorf("asked % x", ask)
			}
			if _, err := w.device.Write(reports); err != nil {
				return
			}
		}
	}()
	return w.link
}

// 0x0a8c is 27.00 degrees in hundredths, 0xfe0c is -5.00, 0x11d7 is 45.67 percent,
// and 0x19c0 is 25.75 in 256ths.
func TestHIDThermometers(t *testing.T) {
	const gold, old = "0000413D:00002107", "00000C45:00007401"
	inner, outer := "quantity: inlet_temperature", "probe: 2, device: r01-out, quantity: outlet_temperature"
	for name, c := range map[string]struct {
		usb     string
		reports []byte
		sensors []string
		want    string
	}{
		"one probe":           {gold, []byte{0x80, 0x80, 0x0a, 0x8c, 0x4e, 0x20, 0, 0}, []string{inner}, "r01-in-top inlet_temperature 27\n"},
		"frost":               {gold, []byte{0x80, 0x80, 0xfe, 0x0c, 0x4e, 0x20, 0, 0}, []string{inner}, "r01-in-top inlet_temperature -5\n"},
		"two probes":          {gold, []byte{0x80, 0x80, 0x0a, 0x8c, 0x4e, 0x20, 0, 0, 0x80, 0x01, 0xfe, 0x0c, 0x4e, 0x20, 0, 0}, []string{inner, outer}, "r01-in-top inlet_temperature 27\nr01-out outlet_temperature -5\n"},
		"no probe at a cable": {gold, []byte{0x80, 0x80, 0x0a, 0x8c, 0x4e, 0x20, 0, 0, 0x80, 0x01, 0x4e, 0x20, 0x4e, 0x20, 0, 0}, []string{inner, outer}, "r01-in-top inlet_temperature 27\n"},
		"hygrometer":          {gold, []byte{0x80, 0x40, 0x0a, 0x8c, 0x11, 0xd7, 0, 0}, []string{inner, "device: r01-rh, quantity: inlet_humidity"}, "r01-in-top inlet_temperature 27\nr01-rh inlet_humidity 0.4567\n"},
		"old":                 {old, []byte{0x80, 0x02, 0x19, 0xc0, 0, 0, 0, 0}, []string{inner}, "r01-in-top inlet_temperature 25.75\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d := openOf(t, hidEntry(root, answerHID(t, root, c.usb, c.reports), c.sensors...))
			for range 2 {
				list, err := d.Read(soon(t))
				if err != nil {
					t.Fatal(err)
				}
				wantText(t, show(list), c.want)
			}
		})
	}
}

func hidEntry(root, path string, sensors ...string) string {
	text := "facility:\n- device: r01-in-top\n  driver: local\n  local:\n    root: " + root + "\n    sensors:\n"
	for _, s := range sensors {
		text += "    - {hidraw: " + path + ", " + s + "}\n"
	}
	return text
}

// A thermometer that is mute, answers half, is of a model whose numbers are not
// known, or is gone, gives an error in time and no value.
func TestHIDFaults(t *testing.T) {
	root := t.TempDir()
	for name, c := range map[string]struct{ path, want, quantity string }{
		"old":     {answerHID(t, root, "00000C45:00007401", []byte{0x80, 0x02, 0x19, 0xc0, 0, 0, 0, 0}), "only the first probe is known", "inlet_humidity, device: r01-rh"},
		"mute":    {answerHID(t, root, "0000413D:00002107", nil), "no answer: read ", ""},
		"half":    {answerHID(t, root, "0000413D:00002107", []byte{0x80, 0x80, 0x0a, 0x8c}), "i/o timeout", ""},
		"unknown": {answerHID(t, root, "0000046D:0000C52B", []byte{0x80, 0x80, 0x0a, 0x8c, 0, 0, 0, 0}), "no known model of thermometer", ""},
		"gone":    {"/dev/no-such-thermometer", "no such file", ""},
	} {
		list, err := openOf(t, hidEntry(root, c.path, "quantity: "+cmp.Or(c.quantity, "inlet_temperature"))).Read(brief(t))
		wantErr(t, err, "hidraw "+c.path, c.want)
		if len(list) > 0 {
			t.Errorf("%s: %s", name, show(list))
		}
	}
}
