// SPDX-License-Identifier: Apache-2.0

// Package gpu samples the GPUs of this node through DCGM, NVML or the simulator,
// always under dcgm-exporter's metric names. DCGM and NVML run in a child
// process, so that a hanging or crashing library never takes the agent along.
package gpu

import (
	"context"
	"time"
)

// Source reads the GPUs of one node.
type Source interface {
	// Read returns what all GPUs show now. One faulty GPU is marked in its
	// Device, it is not an error; an error means the source as a whole failed.
	Read(ctx context.Context) (*Sample, error)
	// Close gives all device handles back.
	Close() error
}

// Sample is one pass over all GPUs. It travels from the child to the agent, so
// it holds plain data only.
type Sample struct {
	At      time.Time
	Driver  string // driver version, empty when unknown
	Devices []Device
	// FastOnly says that the slow fields were not read this time: those of the
	// latest pass that has them still hold.
	FastOnly bool
	// XIDs are the driver errors since the last pass, each of them once.
	XIDs []XID
	// Aside is what was learned beside the passes.
	Aside Aside
	// Processes are those on the GPUs; nil: they were not listed this time.
	Processes *ProcessTable
	// Rejected counts the values of this pass that were no values.
	Rejected []Rejection
}

// Rejection counts what a source gave instead of values of a field: "blank",
// "not_found", "not_supported", "no_permission" (the library's own marks), "no_data",
// "error" (its status of a value), "not_a_number", "range", or "stale" (not refreshed).
type Rejection struct {
	Field, Reason string
	Count         uint64
}

// XID is one driver error of one GPU.
type XID struct {
	UUID string
	Code int
	At   time.Time // zero: the sample's time
}

// Device is one GPU, or one MIG GPU instance.
type Device struct {
	Index    string // dcgm-exporter's "gpu" label
	UUID     string
	PCIBusID string
	Name     string // "nvidia0"
	Model    string
	// MIGProfile and MIGID are set for a GPU instance.
	MIGProfile, MIGID string
	// Entity is DCGM's number of a GPU instance, where DCGM is the source.
	Entity string
	// Skipped says that the configuration leaves the device out; it has no values.
	Skipped bool
	// Lost says the GPU is gone or unreachable; Reason says why.
	Lost   bool
	Reason string
	Values []Value
	// Labels holds the text of the label fields of the counters file, such as
	// DCGM_FI_DEV_SERIAL, by field name. Unknown ones are absent.
	Labels map[string]string
	// Unsupported are the fields asked for that this GPU or its library does not
	// give. It comes with the slow fields.
	Unsupported []string
}

// Value is one field's value, after the blank test.
type Value struct {
	// Field is the metric name, such as DCGM_FI_DEV_GPU_TEMP.
	Field string
	// Label is an extra label value for fields that have one (reason, xid, link).
	Label string
	V     float64
	At    time.Time // zero: the sample's time
}

// Inventory is what the beat tells of the GPUs; it never waits for a device.
type Inventory struct {
	UUIDs  []string // present GPUs, sorted
	At     time.Time
	Status string // "fresh", "stale", "unavailable"
	// Reason says why it is not fresh.
	Reason string
}
