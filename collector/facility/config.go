// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"gopkg.in/yaml.v3"
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

// DeviceConfig is one entry of the facility list of agent.yml. Besides these
// keys the entry may have one block that is named after its driver.
type DeviceConfig struct {
	// Device is the id in the site file.
	Device string
	// Kind is the kind of the device (pdu, sensor, ...); optional, the registry
	// tells it.
	Kind     string
	Driver   string
	Interval time.Duration // default 15 s, at least 100 ms
	// Deadline bounds one read; default and at most the interval, at most 10 s
	// by default.
	Deadline time.Duration
	Profile  string
	Address  string

	block *yaml.Node // of the driver; nil where there is none
	text  string     // the block in one spelling, to tell a changed one
}

// UnmarshalYAML reads an entry. Unknown keys are errors; the driver's block is
// kept for the driver.
func (c *DeviceConfig) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a facility entry must be a mapping", node.Line)
	}
	keys := map[string]any{
		"device": &c.Device, "kind": &c.Kind, "driver": &c.Driver, "interval": &c.Interval,
		"deadline": &c.Deadline, "profile": &c.Profile, "address": &c.Address,
	}
	blocks := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		target, known := keys[key.Value]
		if !known {
			blocks[key.Value] = value
			continue
		}
		if target == nil {
			return fmt.Errorf("line %d: key %q is given twice", key.Line, key.Value)
		}
		if err := value.Decode(target); err != nil {
			return fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err)
		}
		keys[key.Value] = nil
	}
	for key, value := range blocks {
		if key != c.Driver {
			return fmt.Errorf("line %d: unknown key %q in the entry of %s; a driver's settings belong in a block named %q", value.Line, key, c.Device, c.Driver)
		}
		c.block = value
	}
	if c.block == nil {
		return nil
	}
	var plain any
	if err := c.block.Decode(&plain); err != nil {
		return err
	}
	text, err := yaml.Marshal(plain)
	c.text = string(text)
	return err
}

// equal reports whether two checked entries mean the same.
func (c DeviceConfig) equal(o DeviceConfig) bool {
	c.block, o.block = nil, nil
	return c == o
}

// check fills in defaults and finds what is wrong with the entry itself.
func (c *DeviceConfig) check() error {
	if c.Device == "" {
		return errors.New("device is missing")
	}
	if c.Driver == "" {
		return errors.New("driver is missing")
	}
	if c.Kind != "" && !knownKind(c.Kind) {
		return fmt.Errorf("kind %q is none of pdu, ups, cooling_unit, switch, sensor, meter", c.Kind)
	}
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
	return nil
}

func knownKind(kind string) bool {
	for _, q := range quantities {
		for _, k := range q.Kinds {
			if k == kind {
				return true
			}
		}
	}
	return false
}

// decode decodes the driver's block strictly; without one v stays as it is.
func (c *DeviceConfig) decode(v any) error {
	if c.block == nil {
		return nil
	}
	if err := decodeStrict(c.block, v); err != nil {
		return fmt.Errorf("%s: %w", c.Driver, err)
	}
	return nil
}

// decodeStrict decodes a node and refuses unknown keys, which yaml.Node.Decode
// does not: the node is written out and read again.
func decodeStrict(node *yaml.Node, v any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("block at line %d: %w", node.Line, err)
	}
	return nil
}
