// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ProcessesConfig says what is shown of single processes. The sums per GPU are
// always there.
type ProcessesConfig struct {
	// PerPID shows the memory of each process, a series that ends with it.
	PerPID bool `yaml:"per_pid"`
	// Max bounds these series, those with most memory first; 0: 64, at most 1024.
	Max int `yaml:"max"`
}

// OwnersConfig says where the owners of the GPUs come from: pods and jobs.
type OwnersConfig struct {
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Slurm      SlurmConfig      `yaml:"slurm"`
}

// KubernetesConfig is about the kubelet of this node.
type KubernetesConfig struct {
	// Socket is the kubelet's pod-resources socket; "auto" or empty: the usual one
	// if it exists; "none": pods are not looked for.
	Socket string `yaml:"socket"`
	// ResourceNames are resources of GPUs besides nvidia.com/gpu, nvidia.com/gpu.shared
	// and nvidia.com/mig-*, or DRA drivers of GPUs besides gpu.nvidia.com; at most 32.
	ResourceNames []string `yaml:"resource_names"`
}

// SlurmConfig is about the Slurm jobs of this node.
type SlurmConfig struct {
	// Cgroup looks for jobs in the cgroups of the processes on the GPUs; default: true.
	Cgroup *bool `yaml:"cgroup"`
	// MappingDir is the folder in which a prolog keeps the jobs of each GPU, as for
	// dcgm-exporter's --hpc-job-mapping-dir; empty: there is none.
	MappingDir string `yaml:"mapping_dir"`
}

const (
	// defaultPodSocket is where the kubelet serves its pod-resources API.
	defaultPodSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"
	// maxSocketPath is what fits into sockaddr_un with its final zero.
	maxSocketPath    = 107
	maxResourceNames = 32
	defaultMaxPIDs   = 64
)

func (c ProcessesConfig) withDefaults() ProcessesConfig {
	if c.Max == 0 {
		c.Max = defaultMaxPIDs
	}
	return c
}

func (c ProcessesConfig) check() error {
	if c.Max < 0 || c.Max > maxProcesses {
		return fmt.Errorf("gpu.processes.max: %d is not from 1 to %d", c.Max, maxProcesses)
	}
	return nil
}

func (c OwnersConfig) withDefaults() OwnersConfig {
	if c.Kubernetes.Socket == "" {
		c.Kubernetes.Socket = "auto"
	}
	if c.Slurm.Cgroup == nil {
		yes := true
		c.Slurm.Cgroup = &yes
	}
	return c
}

func (c OwnersConfig) check() error {
	s := c.Kubernetes.Socket
	if s != "auto" && s != "none" && (!filepath.IsAbs(s) || len(s) > maxSocketPath) {
		return fmt.Errorf("gpu.owners.kubernetes.socket: %q is not auto, none or an absolute path of at most %d bytes", s, maxSocketPath)
	}
	if n := len(c.Kubernetes.ResourceNames); n > maxResourceNames {
		return fmt.Errorf("gpu.owners.kubernetes.resource_names: %d names, at most %d", n, maxResourceNames)
	}
	if slices.Contains(c.Kubernetes.ResourceNames, "") {
		return fmt.Errorf("gpu.owners.kubernetes.resource_names: an empty name")
	}
	if d := c.Slurm.MappingDir; d != "" && !filepath.IsAbs(d) {
		return fmt.Errorf("gpu.owners.slurm.mapping_dir: %q is not an absolute path", d)
	}
	return nil
}

// holdsGPUs tells whether a resource, or the DRA driver of a claim, is one of GPUs.
func (c *KubernetesConfig) holdsGPUs(resource string) bool {
	switch resource {
	case "nvidia.com/gpu", "nvidia.com/gpu.shared", "gpu.nvidia.com":
		return true
	}
	return strings.HasPrefix(resource, "nvidia.com/mig-") || slices.Contains(c.ResourceNames, resource)
}
