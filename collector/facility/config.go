// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/config"
)

// Limits and defaults of a device's timing.
const (
	// DefaultInterval is the time between two reads where none is configured; it
	// is Prometheus' usual scrape interval in this field.
	DefaultInterval = 15 * time.Second
	// MinInterval is the shortest interval: ten reads per second.
	MinInterval = 100 * time.Millisecond
	// maxDeadline is the default and longest time for one read of a slow device.
	maxDeadline = 10 * time.Second
	maxInterval = 24 * time.Hour
	maxDevices  = 4096
)

// DeviceConfig is one entry of the facility list of agent.yml.
type DeviceConfig struct {
	// Device is the id in the site file.
	Device string `yaml:"device"`
	// Kind is the kind of the device (pdu, sensor, ...); optional, the registry
	// tells it.
	Kind     string        `yaml:"kind"`
	Driver   string        `yaml:"driver"`
	Interval time.Duration `yaml:"interval"` // default 15 s, at least 100 ms
	// Deadline bounds one read. It is at most the interval; default is the
	// interval, but not over 10 s.
	Deadline time.Duration `yaml:"deadline"`
	// Sample is the time between two reads for peaks, troughs and transients; 0:
	// none. The driver must allow it (Plan.Fastest).
	Sample  time.Duration `yaml:"sample"`
	Profile string        `yaml:"profile"`
	// ProfileFile is a profile of the user's own, instead of Profile.
	ProfileFile string `yaml:"profile_file"`
	Address     string `yaml:"address"`
	// Blocks are the driver's own settings: one block, named after the driver.
	Blocks map[string]config.Part `yaml:",inline"`
}

// check fills in defaults and finds what is wrong with the entry itself.
func (c *DeviceConfig) check() error {
	if c.Device == "" {
		return errors.New("device is missing")
	}
	if c.Driver == "" {
		return errors.New("driver is missing")
	}
	for key, block := range c.Blocks {
		if key != c.Driver {
			return fmt.Errorf("%s: unknown key %q; the settings of a driver belong in a block named after it, here %q", block.Position(), key, c.Driver)
		}
	}
	if c.Kind != "" && !knownKind(c.Kind) {
		return fmt.Errorf("kind %q is none of %s", c.Kind, strings.Join(kinds(), ", "))
	}
	if c.Profile != "" && c.ProfileFile != "" {
		return errors.New("profile and profile_file are given; want one of them")
	}
	return c.checkTiming()
}

func (c *DeviceConfig) checkTiming() error {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Interval < MinInterval || c.Interval > maxInterval {
		return fmt.Errorf("interval %s is not between %s and %s", c.Interval, MinInterval, maxInterval)
	}
	if c.Deadline == 0 {
		c.Deadline = min(c.Interval, maxDeadline)
	}
	if c.Deadline < 0 || c.Deadline > c.Interval {
		return fmt.Errorf("deadline %s is not between 0 and the interval %s", c.Deadline, c.Interval)
	}
	if c.Sample != 0 && (c.Sample < MinSample || c.Sample > min(MaxSample, c.Interval)) {
		return fmt.Errorf("sample %s is not between %s and %s, or longer than the interval", c.Sample, MinSample, MaxSample)
	}
	return nil
}

// kinds lists the kinds of device that have quantities, in the table's order.
func kinds() []string {
	var out []string
	for _, q := range quantities {
		for _, k := range q.Kinds {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

func knownKind(kind string) bool { return slices.Contains(kinds(), kind) }

// equal reports whether two checked entries mean the same.
func (c DeviceConfig) equal(o DeviceConfig) bool {
	return c.Device == o.Device && c.Kind == o.Kind && c.Driver == o.Driver &&
		c.Interval == o.Interval && c.Deadline == o.Deadline && c.Sample == o.Sample && c.Profile == o.Profile && c.ProfileFile == o.ProfileFile && c.Address == o.Address &&
		maps.EqualFunc(c.Blocks, o.Blocks, config.Part.Equal)
}
