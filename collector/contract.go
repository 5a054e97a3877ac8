// SPDX-License-Identifier: Apache-2.0

// Package collector holds the contract between the parts that sample devices and
// the one page that shows them: descriptors, immutable snapshots, staleness,
// range gates, rendering and the HTTP server of an agent.
package collector

import "time"

// Type is the exposition type of a family.
type Type uint8

// The types a family can have. Counter values only grow but for a reset.
const (
	Gauge Type = iota
	Counter
)

// Desc describes one metric family. A Desc is made once, as a package variable
// or when a counters file is read, and compared by pointer.
type Desc struct {
	Name string
	Help string
	Type Type
	// Labels are the variable label names in exposition order. Identity labels
	// (node, rack_id, pdu_id, ...) are not listed: rendering adds them.
	Labels []string
	// Min and Max are the range gate: a value outside is dropped and counted in
	// rackpulse_rejected_samples_total{field,reason="range"}. Both zero: no gate.
	Min, Max float64
}

// Point is one measured value.
type Point struct {
	Desc *Desc
	// Subject says whose identity labels are added at rendering: "" is the
	// agent's own node (labels node, rack_id), anything else a device id of the
	// site file (labels of site.Device).
	Subject string
	// Values are the label values, one for each of Desc.Labels.
	Values []string
	Value  float64
	// At is when the value was measured; zero means the snapshot's time.
	At time.Time
}

// Snapshot is what one source measured in one pass. It is immutable once put
// into a Store.
type Snapshot struct {
	// Source names the producer, unique in the agent: "gpu", or a device id.
	Source string
	At     time.Time
	// Interval is the source's sampling interval; points older than
	// max(3*Interval, 30 s) are dropped at rendering.
	Interval time.Duration
	Points   []Point
	// Rejected are values that the source left out itself; they are added to
	// rackpulse_rejected_samples_total.
	Rejected []Rejection
}

// Rejection counts values of one metric that were not fit to be shown.
type Rejection struct {
	Field  string // the metric's name
	Reason string // one of few words
	Count  uint64
}

// Identity is what the registry, the configuration or the cache says about the
// agent: the labels of its node and of each of its devices. It may arrive late
// and change while the agent runs.
type Identity struct {
	// Node holds the node's labels ("node", and "rack_id" when it has one).
	// Empty on a facility-only agent.
	Node map[string]string
	// Devices holds the labels of each facility device by its id.
	Devices map[string]map[string]string
	// Origin says where it came from: "config", "registry", "cache" or "none".
	Origin string
}
