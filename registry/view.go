// SPDX-License-Identifier: Apache-2.0

package registry

import "time"

// View is everything the pages show, read at one instant. Pointers are nil for
// what is not known: nothing is ever shown as zero because it is missing.
type View struct {
	Site      string     `json:"site"`
	At        time.Time  `json:"at"`
	Simulated bool       `json:"simulated"`
	Racks     []RackView `json:"racks"`
	// Rackless are the nodes that stand in no rack.
	Rackless []NodeView  `json:"rackless,omitempty"`
	Alerts   []AlertView `json:"alerts"`
	// Problems are what keeps the view from being whole, such as an
	// unreachable Prometheus.
	Problems []string `json:"problems,omitempty"`
}

// RackView is one rack, nodes from the top down.
type RackView struct {
	ID              string     `json:"id"`
	Row             string     `json:"row,omitempty"`
	Room            string     `json:"room,omitempty"`
	HeightU         int        `json:"height_u,omitempty"`
	InletC          *float64   `json:"inlet_celsius,omitempty"`     // highest inlet sensor, celsius
	PowerWatts      *float64   `json:"power_watts,omitempty"`       // sum of its PDUs; nil unless all of them tell theirs
	PowerLimitWatts float64    `json:"power_limit_watts,omitempty"` // 0: not declared
	PDUs            []PDUView  `json:"pdus,omitempty"`
	CoolingUnits    []string   `json:"cooling_units,omitempty"`
	Nodes           []NodeView `json:"nodes,omitempty"`
}

// PDUView is one PDU of a rack.
type PDUView struct {
	ID         string   `json:"id"`
	Feed       string   `json:"feed,omitempty"`
	Up         *bool    `json:"up,omitempty"`      // nil: never polled
	Amperes    *float64 `json:"amperes,omitempty"` // highest line current
	PowerWatts *float64 `json:"power_watts,omitempty"`
}

// NodeView is one node with its lease.
type NodeView struct {
	ID      string    `json:"id"`
	Rack    string    `json:"rack_id,omitempty"`
	Class   string    `json:"class,omitempty"`
	U       int       `json:"u,omitempty"`
	HeightU int       `json:"height_u,omitempty"`
	State   string    `json:"state,omitempty"` // a lease state, or "" when the node never beat
	LeaseUp bool      `json:"lease_up"`
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	GPUs    []GPUView `json:"gpus,omitempty"`
}

// GPUView is one GPU.
type GPUView struct {
	Index       string   `json:"index,omitempty"`
	UUID        string   `json:"uuid,omitempty"`
	Up          *bool    `json:"up,omitempty"`
	TempC       *float64 `json:"celsius,omitempty"`
	PowerWatts  *float64 `json:"power_watts,omitempty"`
	Utilisation *float64 `json:"utilisation_ratio,omitempty"` // 0..1
}

// AlertView is one firing alert.
type AlertView struct {
	Name        string `json:"name"`
	Correlation string `json:"correlation,omitempty"`
	Severity    string `json:"severity,omitempty"`
	Team        string `json:"team,omitempty"`
	// Cause is the cause named by the correlation, such as "cooling unit crah1".
	Cause       string   `json:"cause,omitempty"`
	Summary     string   `json:"summary,omitempty"`
	Description string   `json:"description,omitempty"`
	Racks       []string `json:"racks,omitempty"`
	// Runbook is the address of the page that says what to do.
	Runbook string            `json:"runbook,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Since   time.Time         `json:"since,omitzero"`
}
