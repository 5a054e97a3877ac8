// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// processInterval is how often the processes on the GPUs are listed, and what is
// made of them: a job or a pod that is gone leaves the page within two of these.
const processInterval = 10 * time.Second

// maxProcesses bounds the processes of one GPU; drivers list some hundreds at most.
const maxProcesses = 1024

// ProcessTable is what the driver says of the processes on all GPUs. It travels
// from the child to the agent, so it holds plain data only.
type ProcessTable struct {
	At time.Time
	// Err says why there is no list at all; GPUs is empty then.
	Err  string
	GPUs []GPUProcesses
}

// GPUProcesses are the processes on one physical GPU.
type GPUProcesses struct {
	UUID string
	// Err says why this GPU has no list; Processes is empty then.
	Err string
	// Kinds are the lists that the driver gave, an OR of the Process kinds.
	Kinds int
	// Used is the memory in use in bytes without what the driver reserves for
	// itself (NVML's memory info, version 2); -1: unknown.
	Used int64
	// Instances are the MIG compute instances.
	Instances []MIGInstance
	Processes []Process
}

// The kinds of a process: which of the driver's lists it is in.
const (
	kindCompute = 1 << iota
	kindGraphics
	kindMPS
)

var kindNames = []struct {
	kind int
	name string
}{{kindCompute, "compute"}, {kindGraphics, "graphics"}, {kindMPS, "mps"}}

// Process is one process with a context on a GPU.
type Process struct {
	// PID is the process id in the PID namespace of the child process.
	PID int
	// GI is the MIG GPU instance and CI the compute instance in it; empty: the
	// whole GPU.
	GI, CI string
	// Kind is an OR of kindCompute, kindGraphics and kindMPS.
	Kind int
	// Memory is the GPU memory of all its contexts in bytes; -1: the driver does
	// not tell.
	Memory int64
}

// MIGInstance is one MIG compute instance, which is what a pod gets.
type MIGInstance struct {
	UUID   string // "MIG-..."
	GI, CI string
	// Placement is the GPU instance's profile id, first memory slice and number
	// of slices, as in the device names of NVIDIA's DRA driver: "19-2-1"; empty:
	// unknown.
	Placement string
}
