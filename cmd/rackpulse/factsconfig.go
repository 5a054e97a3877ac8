// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"
)

// baselineConfig is the part "baseline" of agent.yml: the commands behind those facts
// that nobody else can tell.
type baselineConfig struct {
	// ToolkitCommand prints the version of the container toolkit; empty:
	// nvidia-ctk --version.
	ToolkitCommand []string `yaml:"toolkit_command"`
	// ContainerCommand succeeds when CUDA starts inside a container; empty: the fact
	// is not told.
	ContainerCommand []string `yaml:"container_command"`
	// Timeout bounds ContainerCommand; 0: 2 min, as it may pull an image.
	Timeout time.Duration `yaml:"timeout"`
	BurnIn  burnInConfig  `yaml:"burn_in"`
}

// burnInConfig is a test that a node has to pass once after each boot.
type burnInConfig struct {
	Command []string `yaml:"command"`
	// Timeout bounds Command; 0: 1 h.
	Timeout time.Duration `yaml:"timeout"`
}

const (
	defaultContainerTimeout = 2 * time.Minute
	defaultBurnInTimeout    = time.Hour
	maxBurnIn               = 24 * time.Hour
)

// withDefaults returns c with its defaults filled in.
func (c baselineConfig) withDefaults() baselineConfig {
	if len(c.ToolkitCommand) == 0 {
		c.ToolkitCommand = []string{"nvidia-ctk", "--version"}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultContainerTimeout
	}
	if c.BurnIn.Timeout == 0 {
		c.BurnIn.Timeout = defaultBurnInTimeout
	}
	return c
}

// check names what is wrong with the part. stateDir is the agent's.
func (c *baselineConfig) check(stateDir string) error {
	switch {
	case c.Timeout < 0 || c.Timeout > time.Hour:
		return errors.New("baseline.timeout: want up to 1h")
	case c.BurnIn.Timeout < 0 || c.BurnIn.Timeout > maxBurnIn:
		return errors.New("baseline.burn_in.timeout: want up to 24h")
	case len(c.BurnIn.Command) > 0 && stateDir == "":
		return errors.New("baseline.burn_in: needs state_dir, or it would run again whenever the agent is started")
	}
	return nil
}
