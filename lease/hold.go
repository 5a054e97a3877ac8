// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"encoding/json"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// held is what the ledger keeps of an operator's hold: it stands until somebody
// resets it, over restarts and fail-overs of the registry.
type held struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// keepHold writes the hold, or removes it.
func (c *core) keepHold(b *breaker) {
	r := ledger.Record{Kind: ledger.RecordHold, ID: ScopeManual}
	if b != nil {
		// Texts and a time can always be written.
		r.Data, _ = json.Marshal(held{By: b.heldBy, Reason: b.reason, Since: b.since.UTC().Round(0)})
	}
	c.keep(r)
}

// restoreHold takes the hold over from the ledger. One that cannot be read holds
// all the same.
func (c *core) restoreHold(records []ledger.Record, now time.Time) {
	for i := range records {
		if records[i].Kind != ledger.RecordHold {
			continue
		}
		h := held{By: "an operator", Since: now}
		_ = json.Unmarshal(records[i].Data, &h)
		c.breakers[breakerKey{ScopeManual, ""}] = &breaker{since: h.Since, heldBy: h.By, reason: h.Reason}
	}
}
