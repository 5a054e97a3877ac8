// SPDX-License-Identifier: Apache-2.0

package ledger

// Witness is what a second source says of a silent node.
type Witness int

// What witnesses say. Only one that knows makes a difference.
const (
	WitnessSilent Witness = iota // there is none, or it does not know
	WitnessDead                  // no power, or no network port, or another lease is out, too
	WitnessAlive                 // it draws power, or others hear it
)

// Verdict says what may be done about an intent at this moment.
type Verdict struct {
	// Soft and Hard say which part of it may be done.
	Soft, Hard bool
	// Over says that the intent is out of date: nothing is to be done any more.
	Over bool
	// Slow says that a breaker allows one action in ten seconds.
	Slow bool
	// Reason says what holds back what may not be done.
	Reason string
	// Ask says that a witness could change the verdict.
	Ask bool
}
