// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/config"
)

// USB thermometers of the TEMPer kind are HID devices: a command of 8 bytes asks
// for reports of 8 bytes, with a big-endian number for the temperature in bytes 2
// and 3 and, in a model with a hygrometer, one for the humidity in bytes 4 and 5.
// A second probe comes in a report of its own. What the numbers mean depends on
// the model, so an unknown one is refused.
const (
	hidReport = 8
	hidWait   = 2 * time.Second // answers take some 10 ms to 100 ms
	hidNone   = 0x4e20          // 200.00, shown for a probe that is not there
	hidProbes = 2
	hidOld    = 256 // parts of a degree of the older model
)

var hidAsk = []byte{1, 0x80, 0x33, 1, 0, 0, 0, 0}

// hidModels are the parts of a degree, or of a percent, by USB vendor and product.
var hidModels = map[string]float64{
	"0000413D:00002107": 100,    // TEMPer (Gold), TEMPer2, TEMPerHUM
	"00001A86:0000E025": 100,    // the same, since 2020
	"00003553:0000A001": 100,    // the same, later still
	"00000C45:00007401": hidOld, // TEMPer before them (TEMPerF1.4)
}

var hidID = regexp.MustCompile(`(?m)^HID_ID=0003:([0-9A-F]{8}:[0-9A-F]{8})$`)

// hid asks one sensor; ok is false where the probe is not there.
func (d *localDriver) hid(ctx context.Context, s localSensor) (v float64, ok bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hidraw %s: %w", s.Hidraw, err)
		}
	}()
	parts, err := d.hidParts(s.Hidraw)
	if err != nil {
		return 0, false, err
	}
	if parts == hidOld && (s.Probe > 1 || s.humidity()) {
		return 0, false, errors.New("of this model only the first probe is known")
	}
	// Each opening has a queue of its own, so that a late report is not taken for
	// the next one.
	f, err := os.OpenFile(s.Hidraw, os.O_RDWR, 0)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := time.Now().Add(hidWait)
	if limit, ok := ctx.Deadline(); ok && limit.Before(end) {
		end = limit
	}
	if err := f.SetDeadline(end); err != nil {
		return 0, false, err
	}
	if _, err := f.Write(hidAsk); err != nil {
		return 0, false, err
	}
	var reports [hidProbes * hidReport]byte
	if _, err := io.ReadFull(f, reports[:d.hidReports(s.Hidraw)*hidReport]); err != nil {
		return 0, false, fmt.Errorf("no answer: %w", err)
	}
	at := 2 + (max(s.Probe, 1)-1)*hidReport
	if s.humidity() {
		at += 2
		parts *= percentParts
	}
	n := int16(binary.BigEndian.Uint16(reports[at:]))
	return float64(n) / parts, n != hidNone, nil
}

// hidReports is how many reports a device sends: a second one where it has a
// second probe.
func (d *localDriver) hidReports(path string) int {
	n := 1
	for _, s := range d.config.Sensors {
		if s.Hidraw == path {
			n = max(n, s.Probe)
		}
	}
	return n
}

const percentParts = 100 // a ratio is wanted, percents are told

// hidParts says what a device's numbers are parts of, by its USB ids.
func (d *localDriver) hidParts(path string) (float64, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0, err
	}
	data, err := config.ReadFile(filepath.Join(d.config.Root, "sys/class/hidraw", filepath.Base(path), "device/uevent"), maxLocalFile)
	if err != nil {
		return 0, err
	}
	m := hidID.FindStringSubmatch(strings.ToUpper(string(data)))
	if m == nil || hidModels[m[1]] == 0 {
		return 0, errors.New("no known model of thermometer")
	}
	return hidModels[m[1]], nil
}
