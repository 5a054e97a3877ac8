// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"

	"github.com/rackpulse/rackpulse/ledger"
)

// TestShedKeepsTheNewestOfEachNode overfills the queue of a ledger that takes
// nothing: the oldest events go, but of no node the newest change.
func TestShedKeepsTheNewestOfEachNode(t *testing.T) {
	s := &Server{}
	add := func(node string) {
		id := uint64(len(s.ledger.todo) + 1)
		s.ledger.todo = append(s.ledger.todo, change{record: &ledger.NodeRecord{Node: node, Epoch: id}, event: ledger.Event{ID: id, Node: node}})
	}
	add("once") // its only change is the oldest of all
	for range maxPending + 9 {
		add("flapping")
	}
	s.shed()
	if got := len(s.ledger.todo); got != maxPending+1 {
		t.Errorf("%d changes kept, want %d", got, maxPending+1)
	}
	if first := s.ledger.todo[0].event; first.ID != 1 || first.Node != "once" {
		t.Errorf("the first kept is %+v", first)
	}
	if second := s.ledger.todo[1].event.ID; second != 11 {
		t.Errorf("the second kept is %d, want 11", second)
	}
	if s.ledger.shed.Load() != 9 {
		t.Errorf("%d shed, want 9", s.ledger.shed.Load())
	}
}

func TestBatchTakesTheLastRecordOfANode(t *testing.T) {
	part := []change{
		{record: &ledger.NodeRecord{Node: "a", State: "SUSPECT"}, event: ledger.Event{ID: 1}, intent: &ledger.Intent{ID: 1}},
		{record: &ledger.NodeRecord{Node: "b", State: "READY"}, event: ledger.Event{ID: 2}},
		{event: ledger.Event{ID: 3}},
		{record: &ledger.NodeRecord{Node: "a", State: "READY"}, event: ledger.Event{ID: 4}, intent: &ledger.Intent{ID: 4}},
	}
	b := batchOf(part)
	if len(b.Events) != 4 || len(b.Intents) != 2 || len(b.Nodes) != 2 || b.Nodes[0].Node != "b" || b.Nodes[1].State != "READY" {
		t.Errorf("batch %+v", b)
	}
}
