// SPDX-License-Identifier: Apache-2.0

package registry

import "time"

// View is everything the pages show, read at one instant. Pointers are nil for
// what is not known: nothing is ever shown as zero because it is missing.
type View struct {
	Site      string
	At        time.Time
	Simulated bool
	Racks     []RackView
	// Rackless are the nodes that stand in no rack.
	Rackless []NodeView
	Alerts   []AlertView
	// Problems are what keeps the view from being whole, such as an
	// unreachable Prometheus.
	Problems []string
}

// RackView is one rack, nodes from the top down.
type RackView struct {
	ID, Row, Room   string
	HeightU         int
	InletC          *float64 // highest inlet sensor, celsius
	PowerWatts      *float64 // sum of its PDUs
	PowerLimitWatts float64  // 0: not declared
	PDUs            []PDUView
	CoolingUnits    []string
	Nodes           []NodeView
}

// PDUView is one PDU of a rack.
type PDUView struct {
	ID, Feed   string
	Up         *bool // nil: never polled
	Amperes    *float64
	PowerWatts *float64
}

// NodeView is one node with its lease.
type NodeView struct {
	ID, Rack, Class string
	U, HeightU      int
	State           string // a lease state, or "" when the node never beat
	LeaseUp         bool
	Since           time.Time
	Reason          string
	GPUs            []GPUView
}

// GPUView is one GPU.
type GPUView struct {
	Index, UUID string
	Up          *bool
	TempC       *float64
	PowerWatts  *float64
	Utilisation *float64 // 0..1
}

// AlertView is one firing alert.
type AlertView struct {
	Name, Correlation, Severity, Team string
	// Cause is the cause named by the correlation, such as "cooling unit crah1".
	Cause       string
	Summary     string
	Description string
	Racks       []string
	Labels      map[string]string
	Since       time.Time
}
