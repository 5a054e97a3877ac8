// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// stall lets time pass without any sign of life of the registry.
func (w *world) stall(d time.Duration) { w.now = w.now.Add(d) }

func TestOwnPauseShiftsDeadlines(t *testing.T) {
	w := ready(t)
	w.pass(10 * time.Second)
	w.stall(12 * time.Second) // 22 s since the beat
	w.c.sweep(w.now)
	w.want("cpu001", Ready)
	if w.c.pauses != 1 {
		t.Errorf("%d pauses", w.c.pauses)
	}
	w.took("cpu001", Suspect, 7500*time.Millisecond)
	w.took("cpu001", Expired, 12500*time.Millisecond)
}

func TestBeatsThatQueuedUpComeFirst(t *testing.T) {
	w := ready(t)
	w.pass(17400 * time.Millisecond) // due in 100 ms
	w.stall(14 * time.Second)
	w.c.sweep(w.now)
	w.pass(900 * time.Millisecond)
	w.want("cpu001", Ready) // nothing is swept in the first second
	if st, _, _ := w.beat(beat{}); st != Ready || w.c.nodes["cpu001"].flaps != 0 {
		t.Errorf("the queued beat found %s", st)
	}
}

func TestBeatNoticesThePauseFirst(t *testing.T) {
	w := ready(t)
	w.stall(14 * time.Second)
	w.beat(beat{}) // before the sweeper runs again
	w.c.sweep(w.now)
	w.took("cpu001", Suspect, 17500*time.Millisecond)
}

func TestLongPauseRestoresEverybody(t *testing.T) {
	w := ready(t)
	w.beat(beat{node: "ws01", stream: 2})
	w.pass(time.Second)
	w.stall(15*time.Second + time.Millisecond) // more than half the TTL
	w.c.sweep(w.now)
	w.drain()
	w.want("cpu001", Restored)
	w.want("ws01", Restored)
	if up, ok := w.c.nodes["cpu001"].state.up(w.c.nodes["cpu001"].was); !up || !ok {
		t.Error("lease_up of a restored ready node is not 1")
	}
	if st, _, _ := w.beat(beat{}); st != Ready {
		t.Errorf("first beat after the pause: %s", st)
	}
	w.took("ws01", Expired, 60*time.Second)
}

// TestRestart takes every state through the ledger's records into a new core.
func TestRestart(t *testing.T) {
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		record        ledger.NodeRecord
		restored      State
		afterBeat     State
		silent        State
		silentAfter   time.Duration
		leaseUp, isUp bool
	}{
		{ledger.NodeRecord{State: "JOINING"}, Restored, Joining, Expired, 60 * time.Second, false, false},
		{ledger.NodeRecord{State: "READY"}, Restored, Ready, Expired, 60 * time.Second, true, true},
		{ledger.NodeRecord{State: "SUSPECT"}, Restored, Ready, Expired, 60 * time.Second, true, true},
		{ledger.NodeRecord{State: "RECOVERING"}, Restored, Recovering, Expired, 60 * time.Second, true, false},
		{ledger.NodeRecord{State: "DEGRADED"}, Restored, Degraded, Expired, 60 * time.Second, true, true},
		{ledger.NodeRecord{State: "DRAINING", Held: "eve"}, Restored, Draining, Left, 60 * time.Second, true, true},
		{ledger.NodeRecord{State: "RESTORED", Was: "READY"}, Restored, Ready, Expired, 60 * time.Second, true, true},
		{ledger.NodeRecord{State: "EXPIRED"}, Expired, Recovering, Expired, 0, true, false},
		{ledger.NodeRecord{State: "LEFT"}, Left, Joining, Left, 0, false, false},
		{ledger.NodeRecord{State: "LEFT", Held: "eve"}, Left, Draining, Left, 0, false, false},
		{ledger.NodeRecord{State: "MAINT", Was: "READY", Held: "eve", Until: now.Add(5 * time.Minute)}, Maint, Maint, Expired, 5 * time.Minute, true, true},
		{ledger.NodeRecord{State: "MAINT", Was: "READY", Until: now.Add(5 * time.Second)}, Maint, Ready, Expired, 60 * time.Second, true, true},
	} {
		tc.record.Node, tc.record.Since, tc.record.AgentEpoch = "cpu001", now.Add(-time.Hour), 3
		t.Run(tc.record.State+tc.record.Held, func(t *testing.T) {
			fresh := func() *world {
				w := newWorld(t)
				w.c.restore(ledger.State{Nodes: []ledger.NodeRecord{tc.record, {Node: "removed", State: "READY"}}}, w.now)
				w.want("cpu001", tc.restored)
				return w
			}
			w := fresh()
			n := w.c.nodes["cpu001"]
			if up, ok := n.state.up(n.was); ok != tc.leaseUp || up != tc.isUp {
				t.Errorf("lease_up %v %v", up, ok)
			}
			if len(w.c.nodes) != 1 {
				t.Error("a node that the site no longer names came back")
			}
			w.pass(time.Second)
			if st, _, r := w.beat(beat{stream: 8, epoch: 4}); r != nil || st != tc.afterBeat {
				t.Errorf("after a beat %s (%v), want %s", st, r, tc.afterBeat)
			}
			w = fresh()
			w.took("cpu001", tc.silent, tc.silentAfter)
		})
	}
}
