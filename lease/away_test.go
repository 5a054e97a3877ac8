// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// away is the maintenance that an agent knows of.
type away struct {
	mu     sync.Mutex
	until  time.Time
	reason string
}

func (a *away) set(d time.Duration, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until, a.reason = time.Now().Add(d), reason
}

func (a *away) maintenance() (time.Duration, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Until(a.until), a.reason
}

// TestBeaterMaintenance: what the agent knows of a maintenance of its GPUs reaches
// the registry once, also over a broken connection, and so does its early end.
func TestBeaterMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		n, plan := oneRegistry(b.ln), &away{}
		a := beatTo(t, n, func(x *Beater) { x.Maintenance = plan.maintenance }, "reg1:9402")
		time.Sleep(12 * time.Second)
		b.want("gpu001", Ready)

		plan.set(30*time.Minute, "GPUs released")
		a.inv.Store(&Inventory{Status: Unavailable, Reason: "released"})
		time.Sleep(9 * time.Minute)
		b.want("gpu001", Maint)
		if st := b.srv.Nodes()[0]; st.Reason != "GPUs released, for 10m0s" {
			t.Errorf("reason %q", st.Reason)
		}
		time.Sleep(2 * time.Minute) // over the bound of what an agent may declare
		b.want("gpu001", Degraded)

		plan.set(0, "")
		a.inv.Store(&Inventory{UUIDs: uuids(0, 8)})
		time.Sleep(72 * time.Second)
		b.want("gpu001", Ready)

		plan.set(30*time.Minute, "GPUs released")
		a.inv.Store(&Inventory{Status: Unavailable, Reason: "released"})
		time.Sleep(time.Minute)
		b.want("gpu001", Maint)
		plan.set(0, "")
		a.inv.Store(&Inventory{UUIDs: uuids(0, 8)})
		time.Sleep(6 * time.Second)
		b.want("gpu001", Ready)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}
