// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// TestHoldSurvives restarts the registry while an operator holds all actions: the
// hold stands, with who and why, until it is reset.
func TestHoldSurvives(t *testing.T) {
	f := newHall(t, 10, 8, Policy{Mode: ModeHard, Witness: "none"})
	f.c.holdBreaker(f.now, "racks are moved", "eve")
	since := f.now
	batch := batchOf(f.c.take())
	if len(batch.Records) != 1 || len(batch.Events) != 1 || batch.Events[0].Kind != ledger.KindBreaker {
		t.Fatalf("written %+v", batch)
	}
	restart := func(records []ledger.Record) {
		f.now = f.now.Add(time.Minute)
		f.c = newCore(f.c.cfg, f.c.site, 2, f.now)
		f.c.restore(ledger.State{Records: records}, f.now)
		f.run(2 * time.Minute)
	}
	restart(batch.Records)
	open := f.c.breakerList()
	if len(open) != 1 || open[0].Scope != ScopeManual || open[0].HeldBy != "eve" || open[0].Reason != "racks are moved" || !open[0].Since.Equal(since) {
		t.Errorf("breakers %+v", open)
	}
	f.down["n001"] = true
	f.run(time.Minute)
	if v := f.c.permit(f.c.intents["n001"], ledger.WitnessDead, f.now); v.Soft || v.Hard || !strings.Contains(v.Reason, "held by eve: racks are moved") {
		t.Errorf("while held: %+v", v)
	}
	f.c.take()
	if err := f.c.resetBreaker(ScopeManual, "", f.now, "done", "eve"); err != nil {
		t.Fatal(err)
	}
	if batch = batchOf(f.c.take()); len(batch.Records) != 1 || batch.Records[0].Data != nil {
		t.Errorf("written %+v", batch)
	}
	restart(nil)
	if open := f.c.breakerList(); len(open) != 0 {
		t.Errorf("breakers %+v", open)
	}
	restart([]ledger.Record{{Kind: ledger.RecordHold, ID: ScopeManual, Data: []byte("{")}}) // better held than not
	if open := f.c.breakerList(); len(open) != 1 {
		t.Errorf("breakers %+v", open)
	}
}

// TestShedKeepsRecords gives up events, never the newest of a record.
func TestShedKeepsRecords(t *testing.T) {
	s := &Server{}
	for range maxPending + 10 {
		s.ledger.todo = append(s.ledger.todo, change{event: ledger.Event{Kind: "site"}})
	}
	for i, id := range []string{"a", "b", "a"} {
		s.ledger.todo[i] = change{other: &ledger.Record{Kind: ledger.RecordAgent, ID: id}}
	}
	s.shed()
	if n := len(s.ledger.todo); n != maxPending+2 || s.ledger.todo[0].other.ID != "b" || s.ledger.todo[1].other.ID != "a" {
		t.Errorf("%d changes are left, first %+v, %+v", n, s.ledger.todo[0].other, s.ledger.todo[1].other)
	}
}
