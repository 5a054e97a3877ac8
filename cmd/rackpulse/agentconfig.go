// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/rackpulse/rackpulse/collector/facility"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/config"
)

// agentConfig is agent.yml. The zero value is a GPU node without a registry.
type agentConfig struct {
	// Node is the node's name, that of Slurm and Kubernetes; empty: the host name.
	Node string `yaml:"node"`
	// RackID is the node's rack where no registry and no site file tell it.
	RackID   string         `yaml:"rack_id"`
	SiteFile string         `yaml:"site_file"`
	Registry registryTarget `yaml:"registry"`
	// StateDir keeps the labels and the GPU list over restarts; empty: nowhere.
	StateDir string `yaml:"state_dir"`
	// Advertise is the host:port under which Prometheus reaches this agent;
	// empty: the host name and the port it listens on.
	Advertise string                  `yaml:"advertise"`
	GPU       *gpuConfig              `yaml:"gpu"`
	Facility  []facility.DeviceConfig `yaml:"facility"`
	Simulate  simulateConfig          `yaml:"simulate"`
	// Baseline has the commands behind some of the facts that the registry is told.
	Baseline baselineConfig `yaml:"baseline"`
	// Push sends the metrics out, where nobody can scrape this agent.
	Push *pushConfig `yaml:"push"`

	path       string
	nodeIsHost bool // the node's name is the host name, nobody chose it
}

// gpuConfig is gpu.Config with the further source "none".
type gpuConfig struct {
	gpu.Config `yaml:",inline"`
}

// registryTarget says where the registry is and how to prove who we are.
type registryTarget struct {
	Addresses []string  `yaml:"addresses"`
	TokenFile string    `yaml:"token_file"`
	TLS       tlsClient `yaml:"tls"`
	// AllowInsecure permits plain text to a registry that is not on this machine.
	AllowInsecure bool `yaml:"allow_insecure"`
	// LeaveOnStop ends the lease when the agent is stopped; otherwise a stop
	// announces a maintenance of a minute, so that an upgrade alerts nobody.
	LeaveOnStop bool `yaml:"leave_on_stop"`
}

type tlsClient struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// simulateConfig describes the simulated hall. Processes that share one must
// agree on all of it.
type simulateConfig struct {
	// SiteFile is the hall's site; empty: the built-in example.
	SiteFile string `yaml:"site_file"`
	Scenario string `yaml:"scenario"`
	Seed     int64  `yaml:"seed"`
	// Epoch is when its physics start; empty: today's midnight, UTC.
	Epoch time.Time     `yaml:"epoch"`
	Speed float64       `yaml:"speed"`
	Onset time.Duration `yaml:"onset"`
}

const maxConfigFile = 4 << 20

// loadAgentConfig reads agent.yml; an empty path gives the defaults.
func loadAgentConfig(path string) (*agentConfig, error) {
	cfg := &agentConfig{path: path}
	if path != "" {
		data, err := config.ReadFile(path, maxConfigFile)
		if err != nil {
			return nil, err
		}
		if err := config.Strict(path, data, cfg); err != nil {
			return nil, err
		}
	}
	if cfg.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("node: not configured, and the host name is not to be had: %w", err)
		}
		cfg.Node, cfg.nodeIsHost = host, true
	}
	for _, file := range []*string{&cfg.SiteFile, &cfg.Registry.TokenFile, &cfg.Registry.TLS.CAFile, &cfg.Registry.TLS.CertFile, &cfg.Registry.TLS.KeyFile, &cfg.Simulate.SiteFile, &cfg.StateDir} {
		*file = config.Resolve(path, *file)
	}
	if cfg.GPU != nil {
		cfg.GPU.CountersFile = config.Resolve(path, cfg.GPU.CountersFile)
		cfg.GPU.XIDOverridesFile = config.Resolve(path, cfg.GPU.XIDOverridesFile)
	}
	for i := range cfg.Facility {
		cfg.Facility[i].ProfileFile = config.Resolve(path, cfg.Facility[i].ProfileFile)
	}
	if cfg.Push != nil {
		cfg.Push.resolve(path)
	}
	return cfg, nil
}

// wantsGPU tells whether this agent samples GPUs: where it is told to, and where
// it is told nothing at all.
func (c *agentConfig) wantsGPU() bool {
	if c.GPU == nil {
		return len(c.Facility) == 0
	}
	return c.GPU.Source != "none"
}

// wantsKernelLog tells whether this agent reads the kernel log although it samples
// no GPUs: where it is told which log.
func (c *agentConfig) wantsKernelLog() bool {
	if c.GPU == nil || c.wantsGPU() {
		return false
	}
	return c.GPU.KernelLog != "" && c.GPU.KernelLog != "auto" && c.GPU.KernelLog != "none"
}

func (c *agentConfig) gpuConfig() gpu.Config {
	if c.GPU == nil {
		return gpu.Config{}
	}
	return c.GPU.Config
}
