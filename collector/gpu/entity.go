// SPDX-License-Identifier: Apache-2.0

package gpu

import "time"

// Aside is what a source learned beside its passes, in calls that may take long.
// What is nil or empty has nothing new.
type Aside struct {
	Entities *EntityPass
	P2P      *P2PPass
	Health   []HealthCheck
	// Calls says of each kind of call, after every pass, whether it is overdue.
	Calls []Call
}

// Call is one kind of call beside the passes.
type Call struct {
	Name        string // "entities", "health", "p2p"
	UUID, Index string // of the GPU that it is about; empty: of the node
	Overdue     bool
}

// EntityPass is one reading of everything besides the GPUs.
type EntityPass struct {
	At   time.Time
	List []Entity
}

// The kinds of an Entity.
const (
	kindSwitch = "nvswitch"
	kindLink   = "nvlink"
	kindCPU    = "cpu"
	kindCore   = "cpucore"
)

// Entity is an NVSwitch, an NVLink of a GPU or of an NVSwitch, a CPU or a core.
type Entity struct {
	Kind string
	// ID is DCGM's id: "nvswitch1", or the number of a link, a CPU or a core.
	ID string
	// Parent is a link's NVSwitch, or a core's CPU.
	Parent string
	// GPU is the index of a link's GPU.
	GPU string
	// State is a link's: "up", "down" or "disabled".
	State string
	// Lost says that DCGM refuses to read it.
	Lost   bool
	Values []Value
	// Labels holds the text of its label fields, such as DCGM_FI_DEV_CPU_MODEL.
	Labels map[string]string
}

// HealthCheck is one of DCGM's health checks of one GPU.
type HealthCheck struct {
	UUID      string
	At        time.Time
	Incidents []HealthIncident
}

// HealthIncident is what a check found wrong.
type HealthIncident struct {
	System uint32 // one of DCGM's health watches, a bit; all bits: the whole GPU
	Result int    // 10: warning, 20: failure
	Code   int    // of dcgm_errors.h
}

// p2pInterval is how often the ways between GPUs are asked for.
const p2pInterval = time.Minute

// P2PPass tells which GPUs reach each other over NVLink.
type P2PPass struct {
	At    time.Time
	Pairs []P2P
}

// P2P is the way from one GPU to another.
type P2P struct {
	GPU, Peer string // indexes
	Status    int    // dcgmNvLinkGpuP2PStatus_t
}

// linkStates are the states of an Entity that is a link.
var linkStates = []string{"disabled", "down", "up"}
