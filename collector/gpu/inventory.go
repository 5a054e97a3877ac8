// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"slices"
	"time"
)

// inventory is the state behind Inventory.
type inventory struct {
	uuids  []string
	at     time.Time
	reason string // why there is nothing newer
}

// Inventory returns the GPUs that the latest sample showed. It never waits.
func (r *Runner) Inventory() Inventory {
	i := r.inv.Load()
	inv := Inventory{UUIDs: slices.Clone(i.uuids), At: i.at, Reason: i.reason}
	switch {
	case i.at.IsZero():
		inv.Status = "unavailable"
	case time.Since(i.at) > staleAfter:
		inv.Status = "stale"
		if inv.Reason == "" {
			inv.Reason = fmt.Sprintf("no sample since %s", i.at.UTC().Format(time.RFC3339))
		}
	default:
		inv.Status = "fresh"
		inv.Reason = ""
	}
	return inv
}
