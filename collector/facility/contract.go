// SPDX-License-Identifier: Apache-2.0

// Package facility reads rack equipment: PDUs, sensors, cooling, switch ports.
// A driver knows one way to talk; metric names and units come from the
// quantities of this package, so no driver can invent a series.
package facility

import (
	"context"
	"time"
)

// Driver reads one device. It is used by one goroutine at a time.
type Driver interface {
	// Read returns the device's readings. It keeps to ctx's deadline. Readings
	// that came with an error are kept: one broken value does not lose the rest.
	Read(ctx context.Context) ([]Reading, error)
	// Close gives the device back.
	Close() error
}

// Reading is one value in the base unit of its quantity (celsius, ampere, watt,
// volt, joule, ratio 0..1, bytes per second).
type Reading struct {
	// Device is the id in the site file that the value belongs to; empty means
	// the device the driver was opened for.
	Device string
	// Quantity is a name of the quantity table, such as "inlet_temperature" or
	// "phase_current".
	Quantity string
	// Part is the phase, line, outlet, branch or port, for quantities that have one.
	Part string
	// Text is the text of an info quantity, whose Value is 1.
	Text  string
	Value float64
	At    time.Time // zero: now
}
