// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector/facility"
)

// claims keeps this agent off the devices that the registry has given to another
// agent: two pollers double every series and can overload a PDU's controller.
// The devices stay claimed in each hello, so that this agent takes over when the
// other one ends.
type claims struct {
	runner *facility.Runner
	logger log.Logger
	wake   chan struct{}
	told   chan struct{} // closed with the registry's first answer
	first  sync.Once

	mu      sync.Mutex
	configs []facility.DeviceConfig
	devices []string // all that the configuration reads, those behind another included
	refused map[string]string
}

func newClaims(configs []facility.DeviceConfig, runner *facility.Runner, logger log.Logger) *claims {
	return &claims{runner: runner, logger: logger, wake: make(chan struct{}, 1), told: make(chan struct{}), configs: configs, devices: runner.Devices()}
}

// wanted lists the devices that this agent would poll.
func (c *claims) wanted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.devices)
}

// firstWord is how long the devices wait for the registry's first answer.
const firstWord = 3 * time.Second

// await waits for the registry's first answer, so that not even one read goes to
// a device that another agent reads. It does not wait for long: without a
// registry the devices must be seen as well.
func (c *claims) await(ctx context.Context) {
	timer := time.NewTimer(firstWord)
	defer timer.Stop()
	select {
	case <-c.told:
		c.apply()
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refuse takes the registry's list of refused devices; run acts on it.
func (c *claims) refuse(refused map[string]string) {
	defer c.first.Do(func() { close(c.told) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(refused, c.refused) {
		return
	}
	for device, reason := range refused {
		if _, known := c.refused[device]; !known {
			level.Error(c.logger).Log("msg", "registry refuses a device to this agent", "device", device, "reason", reason)
		}
	}
	c.refused = maps.Clone(refused)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run stops and starts devices as the registry says, until ctx ends.
func (c *claims) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.apply()
	}
}

func (c *claims) apply() {
	if err := c.runner.Apply(c.allowed()); err != nil {
		level.Error(c.logger).Log("msg", "devices not changed", "err", err)
	}
}

// configure puts a new configuration into force.
func (c *claims) configure(configs []facility.DeviceConfig) error {
	if err := c.runner.Apply(configs); err != nil {
		return err
	}
	c.mu.Lock()
	c.configs, c.devices = configs, c.runner.Devices()
	anyRefused := len(c.refused) > 0
	c.mu.Unlock()
	if !anyRefused {
		return nil
	}
	return c.runner.Apply(c.allowed())
}

// allowed is the configuration without the refused devices.
func (c *claims) allowed() []facility.DeviceConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []facility.DeviceConfig
	for _, cfg := range c.configs {
		if _, refused := c.refused[cfg.Device]; !refused {
			out = append(out, cfg)
		}
	}
	return out
}
