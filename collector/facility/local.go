// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/config"
)

func init() {
	Register("local", "sensors that the kernel shows as files: 1-wire (DS18B20), hwmon, USB thermometers (TEMPer)", newLocal)
}

const (
	maxLocalSensors = 256
	maxLocalFile    = 4 << 10 // bytes
	milli           = 0.001   // w1 and hwmon give thousandths of a degree
)

// localConfig is the block "local" of an entry.
type localConfig struct {
	// Root is the folder that holds sys; default /.
	Root    string        `yaml:"root"`
	Sensors []localSensor `yaml:"sensors"`
}

// localSensor is one value, given by one of W1, Hwmon and Hidraw.
type localSensor struct {
	// W1 is the id of a 1-wire thermometer, such as 28-0316a2791aff.
	W1 string `yaml:"w1"`
	// Hwmon is a chip's name and a channel or its label: "nct6775/temp2",
	// "nct6775/SYSTIN".
	Hwmon string `yaml:"hwmon"`
	// Hidraw is the path of a USB thermometer; Probe is 1 (default) for the one in
	// the stick, 2 for the one at its cable.
	Hidraw   string `yaml:"hidraw"`
	Probe    int    `yaml:"probe"`
	Device   string `yaml:"device"`
	Quantity string `yaml:"quantity"`
}

var (
	w1ID      = regexp.MustCompile(`^(10|22|28|3b|42)-[0-9a-f]{12}$`) // families of w1_therm
	hwmonName = regexp.MustCompile(`^[^/]{1,64}/[^/]{1,64}$`)
	hwmonTemp = regexp.MustCompile(`^temp[0-9]{1,3}$`)
)

func newLocal(fc FactoryConfig) (Plan, error) {
	var c localConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	if c.Root == "" {
		c.Root = "/"
	}
	if len(c.Sensors) == 0 || len(c.Sensors) > maxLocalSensors {
		return Plan{}, fmt.Errorf("local: sensors: want 1 to %d", maxLocalSensors)
	}
	var serves []string
	seen := map[readingKey]bool{}
	for i := range c.Sensors {
		s := &c.Sensors[i]
		if err := s.check(fc); err != nil {
			return Plan{}, fmt.Errorf("local: sensors[%d]: %w", i, err)
		}
		key := readingKey{device: s.Device, quantity: s.Quantity}
		if seen[key] {
			return Plan{}, fmt.Errorf("local: sensors[%d]: %s of %s is given twice", i, s.Quantity, s.Device)
		}
		seen[key] = true
		if s.Device != fc.Device.ID && !slices.Contains(serves, s.Device) {
			serves = append(serves, s.Device)
		}
	}
	d := &localDriver{config: c}
	return Plan{Open: func(context.Context) (Driver, error) { return d, nil }, Serves: serves}, nil
}

func (s *localSensor) check(fc FactoryConfig) error {
	if err := s.checkSource(); err != nil {
		return err
	}
	q, err := lookup(s.Quantity)
	if err != nil {
		return err
	}
	if !(q.Base == UnitCelsius && q.PartLabel == "" || s.Hidraw != "" && s.humidity()) {
		return fmt.Errorf("quantity %s is no temperature", q.Name)
	}
	if s.Device == "" {
		s.Device = fc.Device.ID
	}
	if err := q.allows(fc.Kind(s.Device)); err != nil {
		return fmt.Errorf("device %s: %w", s.Device, err)
	}
	return nil
}

// checkSource checks what the value is read from.
func (s *localSensor) checkSource() error {
	switch {
	case given(s.W1, s.Hwmon, s.Hidraw) != 1:
		return errors.New("want one of w1, hwmon and hidraw")
	case s.Hidraw != "" && !filepath.IsAbs(s.Hidraw):
		return fmt.Errorf("hidraw %q is no absolute path", s.Hidraw)
	case s.Probe < 0 || s.Probe > hidProbes || s.Probe != 0 && s.Hidraw == "":
		return fmt.Errorf("probe %d: a hidraw has 1 and 2", s.Probe)
	case s.W1 != "" && !w1ID.MatchString(s.W1):
		return fmt.Errorf("w1 %q is no id of a thermometer, such as 28-0316a2791aff", s.W1)
	case s.Hwmon != "" && !hwmonName.MatchString(s.Hwmon):
		return fmt.Errorf("hwmon %q is not chip/channel", s.Hwmon)
	}
	return nil
}

// humidity says that the hygrometer of a USB thermometer is meant.
func (s *localSensor) humidity() bool { return s.Quantity == "inlet_humidity" }

// given counts the texts that are not empty.
func given(list ...string) (n int) {
	for _, text := range list {
		if text != "" {
			n++
		}
	}
	return n
}

// localDriver reads files of sysfs and of /dev.
type localDriver struct {
	config localConfig
}

// Read reads each sensor once. A 1-wire conversion takes up to 750 ms.
func (d *localDriver) Read(ctx context.Context) ([]Reading, error) {
	var out []Reading
	var errs []error
	for _, s := range d.config.Sensors {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		v, ok, err := d.sensor(ctx, s)
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			out = append(out, Reading{Device: s.Device, Quantity: s.Quantity, Value: v})
		}
	}
	return out, errors.Join(errs...)
}

// sensor returns a value in its base unit; ok is false where there is none.
func (d *localDriver) sensor(ctx context.Context, s localSensor) (v float64, ok bool, err error) {
	var n int64
	switch {
	case s.Hidraw != "":
		return d.hid(ctx, s)
	case s.W1 != "":
		n, ok, err = d.w1(s.W1)
	default:
		var file string
		if file, err = d.hwmon(s.Hwmon); err == nil {
			n, err = readNumber(file)
		}
		ok = err == nil
	}
	return float64(n) * milli, ok, err
}

// The values that a 1-wire thermometer shows where it has not measured: 85 C
// after power-on (DS18B20 data sheet), and -127 C from a line without a sensor.
const (
	w1PowerOn      = 85_000
	w1Disconnected = -127_000
)

// w1 prefers w1_slave, which tells whether the checksum was right; newer kernels
// check it themselves and show temperature.
func (d *localDriver) w1(id string) (v int64, ok bool, err error) {
	dir := filepath.Join(d.config.Root, "sys/bus/w1/devices", id)
	data, err := config.ReadFile(filepath.Join(dir, "w1_slave"), maxLocalFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v, err = readNumber(filepath.Join(dir, "temperature"))
	case err == nil:
		v, err = w1Slave(string(data))
	}
	if err != nil {
		return 0, false, fmt.Errorf("1-wire %s: %w", id, err)
	}
	return v, v != w1PowerOn && v != w1Disconnected, nil
}

// w1Slave reads the two lines of w1_slave.
func w1Slave(text string) (int64, error) {
	first, second, _ := strings.Cut(text, "\n")
	if !strings.HasSuffix(strings.TrimSpace(first), "YES") {
		return 0, errors.New("wrong checksum")
	}
	_, number, ok := strings.Cut(second, "t=")
	if !ok {
		return 0, errors.New("w1_slave has no temperature")
	}
	return parseNumber(number)
}

// hwmon finds the file of a chip's channel. The numbers of hwmon folders change
// from boot to boot, the names of chips do not.
func (d *localDriver) hwmon(name string) (string, error) {
	chip, channel, _ := strings.Cut(name, "/")
	dirs, err := filepath.Glob(filepath.Join(d.config.Root, "sys/class/hwmon/hwmon*"))
	if err != nil {
		return "", err
	}
	found := ""
	for _, dir := range dirs {
		if text, err := config.ReadFile(filepath.Join(dir, "name"), maxLocalFile); err != nil || strings.TrimSpace(string(text)) != chip {
			continue
		}
		file := hwmonInput(dir, channel)
		if file != "" && found != "" {
			return "", fmt.Errorf("hwmon: several chips %s have %s", chip, channel)
		}
		if file != "" {
			found = file
		}
	}
	if found == "" {
		return "", fmt.Errorf("hwmon: no chip %s with %s", chip, channel)
	}
	return found, nil
}

func hwmonInput(dir, channel string) string {
	if hwmonTemp.MatchString(channel) {
		file := filepath.Join(dir, channel+"_input")
		if _, err := os.Stat(file); err == nil {
			return file
		}
		return ""
	}
	files, _ := filepath.Glob(filepath.Join(dir, "temp*_label"))
	for _, file := range files {
		if text, err := config.ReadFile(file, maxLocalFile); err == nil && strings.TrimSpace(string(text)) == channel {
			return strings.TrimSuffix(file, "_label") + "_input"
		}
	}
	return ""
}

func readNumber(file string) (int64, error) {
	data, err := config.ReadFile(file, maxLocalFile)
	if err != nil {
		return 0, err
	}
	return parseNumber(string(data))
}

func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", clip(strings.TrimSpace(text), 40))
	}
	return n, nil
}

// Close does nothing: no file stays open.
func (d *localDriver) Close() error { return nil }
