// SPDX-License-Identifier: Apache-2.0

// Package sim is the simulated hall: a first-order model of GPUs, racks, power
// and cooling with scenarios whose truth is known. It is pure: time is passed
// in, and equal specs give equal halls in different processes.
package sim

import (
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// Spec says which hall to simulate.
type Spec struct {
	Site     *site.Site
	Scenario string // a name of Scenarios; empty: "steady"
	Seed     int64
	Epoch    time.Time // physics time zero
	// Speed scales physics against wall time; 0 means 1.
	Speed float64
	// Onset is the physics time after Epoch at which the scenario's fault sets
	// in; 0 means 120 s.
	Onset time.Duration
	// Events are more courses beside the scenario, each with its own target and time.
	Events []Event
}

// Event is the course of one scenario with what it strikes, when and how hard.
type Event struct {
	Scenario string // a name of Scenarios
	// Target is the id of what is struck: a rack, node, PDU, feed, cooling unit,
	// sensor, "node/INDEX" for a GPU, "switch/port" for a port, "node/rack" for a
	// move. Empty: the first that fits.
	Target string
	// Onset and Until bound it, as physics time; Until 0: it is never mended.
	Onset, Until time.Duration
	// Size is how grave it is, in the unit that docs/simulator.md gives for the
	// scenario; 0 means the scenario's own.
	Size float64
	// Load is the utilisation of the nodes concerned, 0..1; 0 means the
	// scenario's own, negative: what their jobs give.
	Load float64
}

// Scenario is one course of events whose truth is known.
type Scenario struct{ Name, Summary string }

// Fault is the ground truth of a scenario: the cause, never its symptoms.
type Fault struct {
	Kind   string // the scenario's name with underscores, such as "cooling_loss"
	Entity site.Entity
	UUID   string        // the GPU, for a fault that sits in one
	Since  time.Duration // physics time
	// Value is the fault's size for the kinds that have one: clock_step:
	// seconds that the node's clock is ahead.
	Value float64
}

// State is the hall at one instant. It is immutable and shared between callers.
type State struct {
	Wall     time.Time     // of this state: at or shortly before the time asked for
	Physics  time.Duration // since the epoch
	Nodes    map[string]*Node
	Racks    map[string]*Rack
	PDUs     map[string]*PDU
	Cooling  map[string]*Cooling
	Switches map[string]*Switch
	Sensors  map[string]float64 // sensor id -> celsius, ratio (humidity) or 0/1 (leak); absent: not readable
	Meters   map[string]float64 // meter id -> joules
	Faults   []Fault            // those that have set in and are not mended
}

// Node is one server's state.
type Node struct {
	Up         bool    // false: no power or crashed; its GPUs then read nothing
	PowerWatts float64 // input of its power supplies
	GPUs       []GPU
}

// GPU is one GPU's state, in dcgm-exporter's units where it has a field.
type GPU struct {
	Index                       int
	UUID, PCIBusID, Model       string
	Present                     bool    // false: fallen off the bus
	TempC, MemTempC             float64 // whole degrees, as the device reports
	MarginC                     float64 // to the slowdown temperature
	PowerWatts, PowerLimitWatts float64
	EnergyJoules                float64 // integrates power over wall time
	Util, MemUtil               float64 // 0..1
	TensorActive, DRAMActive    float64 // 0..1
	SMClockMHz, MemClockMHz     float64
	FBUsedMiB, FBFreeMiB        float64
	FBReservedMiB               float64
	FanRatio                    float64 // server fans, 0..1
	PCIeGen, PCIeWidth          int
	PCIeTxBytes, PCIeRxBytes    float64     // bytes per second
	PCIeReplays                 float64     // counter
	NVLinkMiBs                  float64     // MiB per second, all links
	NVLinkCRC                   float64     // counter
	ECCSBE, ECCDBE              float64     // volatile counters
	RemapCorr, RemapUncorr      float64     // counters
	LastXID                     int         // 0: none yet
	ThermalSlowdown             bool        // software or hardware thermal slowdown
	PowerBrake, PowerCap        bool        // external power brake; at the power limit
	XIDs                        map[int]int // episodes per code; shared, read only
}

// Rack is one rack's state.
type Rack struct {
	InletC, OutletC float64 // mean, celsius
	PowerWatts      float64
}

// PDU is one PDU's state.
type PDU struct {
	Energised   bool               // its feed delivers power
	Manageable  bool               // its controller answers; false also when not energised
	Phases      []Phase            // empty when not energised
	PowerWatts  float64            // the sum of its phases
	PowerFactor float64            // of each phase; 0 when not energised
	EnergyJ     float64            // integrates power over wall time
	Outlets     map[string]float64 // outlet -> watts; empty when not energised
}

// Phase is one phase of a PDU, line to neutral.
type Phase struct{ Amperes, Volts, Watts float64 }

// Cooling is one cooling unit's state.
type Cooling struct {
	Up               bool    // it cools
	Manageable       bool    // its controller answers
	SupplyC, ReturnC float64 // celsius
	OutputWatts      float64 // heat removed
	FanRatio         float64 // 0..1
}

// Switch is one switch's state, by port.
type Switch struct {
	Manageable bool
	Ports      map[string]Port
}

// Port is one switch port.
type Port struct {
	Up                 bool
	SpeedBytes         float64 // bytes per second
	Flaps              float64 // counter
	RxBytes, TxBytes   float64 // counters
	RxErrors, TxErrors float64 // counters
}
