// SPDX-License-Identifier: Apache-2.0

// Package lease keeps a lease on every node: the state machine, the gRPC server
// that feeds it, and the agent's side that beats. docs/lease.md is its manual.
package lease

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the four numbers of the lease and its bounds. The zero value of
// a field means its default.
type Config struct {
	// BeatInterval is how often an agent beats; default 5 s. A stream that ends
	// without a leave makes its node suspect after two intervals.
	BeatInterval time.Duration `yaml:"beat_interval"`
	// SuspectMisses is how many beats in a row may be missed before the node is
	// suspect: that is after SuspectMisses and a half intervals of silence;
	// default 3, so 17.5 s.
	SuspectMisses int `yaml:"suspect_misses"`
	// TTL is how long after its last accepted beat a lease expires; default 30 s.
	TTL time.Duration `yaml:"ttl"`
	// Cooldown is how long a returned node must beat without a gap before it is
	// ready again, and how long a degraded node must be sound; default 60 s.
	Cooldown time.Duration `yaml:"cooldown"`
	// MaxMaintenance is the longest maintenance that an agent may declare for
	// itself; default 10 min. An operator may declare up to 24 h.
	MaxMaintenance time.Duration `yaml:"max_maintenance"`
	// Isolate names the breaches that take a node's work away; nil: those of
	// DefaultIsolate. All others only keep new work off.
	Isolate []string `yaml:"isolate"`
	// Policy is what may be done to nodes, Classes what differs for the classes
	// of the site file. They are the registry's part "actions".
	Policy  Policy            `yaml:"-"`
	Classes map[string]Policy `yaml:"-"`
}

// DefaultIsolate are the breaches after which work on a GPU gives wrong results
// or none: a fatal XID, uncorrectable memory errors, a failed row remapping, and
// a GPU that asks for a reset.
var DefaultIsolate = []string{"xid_fatal", "ecc_uncorrected", "row_remap_failure", "recovery_action"}

// Bounds of the configuration and of what operators may ask.
const (
	maxInterval            = 5 * time.Minute
	maxTTL                 = time.Hour
	maxCooldown            = 24 * time.Hour
	maxOperatorMaintenance = 24 * time.Hour
	// restoreGrace is the least time that a node has to come back after the
	// registry starts: 10,000 agents reconnecting at once took up to 32 s on
	// two busy cores.
	restoreGrace = 60 * time.Second
	// pauseGap is the gap between two signs of life of the registry itself from
	// which on it counts as paused.
	pauseGap = time.Second
)

// WithDefaults returns c with the defaults in place of zero values.
func (c Config) WithDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.BeatInterval, 5*time.Second)
	def(&c.TTL, 30*time.Second)
	def(&c.Cooldown, 60*time.Second)
	def(&c.MaxMaintenance, 10*time.Minute)
	if c.Isolate == nil {
		c.Isolate = DefaultIsolate
	}
	if c.SuspectMisses == 0 {
		c.SuspectMisses = 3
	}
	return c
}

// Validate names what is wrong with c, after defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("lease: "+format, args...))
		}
	}
	check(c.BeatInterval >= time.Millisecond && c.BeatInterval <= maxInterval,
		"beat_interval %s is not within 1ms and %s", c.BeatInterval, maxInterval)
	check(c.SuspectMisses >= 1 && c.SuspectMisses <= 100, "suspect_misses %d is not within 1 and 100", c.SuspectMisses)
	check(c.TTL > c.suspectAfter() && c.TTL <= maxTTL,
		"ttl %s is not above the time to suspicion (%d.5 beats, %s) and up to %s", c.TTL, c.SuspectMisses, c.suspectAfter(), maxTTL)
	check(c.Cooldown >= c.BeatInterval && c.Cooldown <= maxCooldown,
		"cooldown %s is not within beat_interval (%s) and %s", c.Cooldown, c.BeatInterval, maxCooldown)
	check(c.MaxMaintenance > 0 && c.MaxMaintenance <= maxOperatorMaintenance,
		"max_maintenance %s is not above 0 and up to %s", c.MaxMaintenance, maxOperatorMaintenance)
	return errors.Join(errs...)
}

// suspectAfter is the silence that makes a node suspect.
func (c Config) suspectAfter() time.Duration {
	return time.Duration(c.SuspectMisses)*c.BeatInterval + c.BeatInterval/2
}

// gap is the longest time between two beats that is no gap: one missed.
func (c Config) gap() time.Duration { return c.BeatInterval + c.BeatInterval/2 }

// eofGrace is how long after its stream ended a node becomes suspect.
func (c Config) eofGrace() time.Duration { return 2 * c.BeatInterval }
