// SPDX-License-Identifier: Apache-2.0

package lease

import "github.com/rackpulse/rackpulse/lease/leasepb"

// State is a node's lease state. docs/lease.md tells what each means.
type State uint8

// The states. Their order is that of the wire format.
const (
	Unknown     State = iota // no lease: the node never beat
	Joining                  // beats, not yet three in a row
	Ready                    // beats and is sound
	Suspect                  // missed beats: no new work, nothing else yet
	Expired                  // lost: its work is to be run elsewhere
	Recovering               // beats again after it was lost, in cool-down
	Degraded                 // beats, but its GPUs are not what they should be
	Draining                 // is leaving: runs its work to the end
	Left                     // left; silence is no fault
	Maint                    // in maintenance until a deadline
	Restored                 // known from before the registry's start or pause
	Limited                  // beats, but breaches a limit: no new work
	Isolated                 // beats, but breaches a grave limit: its work is to end
	Quarantined              // was lost too often: only an operator clears it
)

// states is the number of states.
const states = int(Quarantined) + 1

// String is the state's name as in labels, the API and the ledger.
func (s State) String() string {
	if s == Unknown || int(s) >= states {
		return ""
	}
	return leasepb.State_name[int32(s)]
}

// stateOf is a state of the wire; Unknown for one of a later version.
func stateOf(s leasepb.State) State {
	if s < 0 || int(s) >= states {
		return Unknown
	}
	return State(s)
}

// parseState is the inverse of String; Unknown for any other text.
func parseState(name string) State {
	if s := leasepb.State_value[name]; s > 0 && int(s) < states {
		return State(s)
	}
	return Unknown
}

// schedulable says whether a node in this state may be given new work. was is
// the state behind Restored: a restart of the registry takes nobody out.
func (s State) schedulable(was State) bool {
	return s == Ready || s == Restored && was == Ready
}

// up is the value of rackpulse_lease_up; ok is false where there is no lease to
// speak of. was is the state behind Maint and Restored.
func (s State) up(was State) (up, ok bool) {
	switch s {
	case Ready, Suspect, Degraded, Limited, Isolated, Draining:
		return true, true
	case Expired, Recovering, Quarantined:
		return false, true
	case Restored:
		return was.up(Unknown)
	case Maint:
		up, _ = was.up(Unknown)
		return up, up
	}
	return false, false
}
