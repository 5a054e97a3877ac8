// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// TestRehearse compares what is permitted in each mode with what mode hard would
// permit: for one lost node, for half a rack, and for simulated nodes.
func TestRehearse(t *testing.T) {
	for _, tt := range []struct {
		mode       string
		soft, hard bool   // permitted
		rehearsed  string // mode that is told
	}{
		{ModeObserve, false, false, ModeObserve},
		{ModeSoft, true, false, ModeSoft},
		{ModeHard, true, true, ""},
	} {
		f := newHall(t, 100, 8, Policy{Mode: tt.mode, Witness: "none"})
		f.down["n042"] = true
		f.run(time.Minute)
		in := f.c.intents["n042"]
		if v := f.c.permit(in, ledger.WitnessSilent, f.now); v.Soft != tt.soft || v.Hard != tt.hard {
			t.Errorf("mode %s permits %+v", tt.mode, v)
		}
		v, mode := f.c.rehearse(in, ledger.WitnessSilent, f.now)
		if mode != tt.rehearsed || mode != "" && (!v.Soft || !v.Hard) {
			t.Errorf("mode %s rehearses %+v in %q", tt.mode, v, mode)
		}
		if tt.rehearsed == "" {
			continue
		}
		for _, id := range []string{"n000", "n001", "n002", "n003"} {
			f.down[id] = true
		}
		f.run(time.Minute)
		v, _ = f.c.rehearse(f.c.intents["n001"], ledger.WitnessSilent, f.now)
		if v.Soft || v.Hard || !v.Ask || !strings.Contains(v.Reason, "breaker of rack r00") {
			t.Errorf("mode %s, half a rack: rehearses %+v", tt.mode, v)
		}
		if v, _ = f.c.rehearse(f.c.intents["n001"], ledger.WitnessDead, f.now); !v.Hard {
			t.Errorf("mode %s, half a rack without power: rehearses %+v", tt.mode, v)
		}
		f.c.nodes["n042"].info = &Hello{Simulated: true}
		if v, mode := f.c.rehearse(in, ledger.WitnessDead, f.now); mode != "" || v.Soft || v.Hard {
			t.Errorf("a simulated node: rehearses %+v in %q", v, mode)
		}
	}
}

// TestBootIsTold tells by the event of a node's return whether it was booted
// meanwhile.
func TestBootIsTold(t *testing.T) {
	f := newHall(t, 10, 8, Policy{Mode: ModeObserve})
	for _, id := range []string{"n001", "n002", "n003", "n004"} {
		f.c.accept(&beat{node: id, stream: 1000, epoch: 7}, f.now)
		f.c.accept(&beat{node: id, stream: 1000, epoch: 7, hello: &Hello{BootID: "before"}}, f.now)
		f.down[id] = true
	}
	f.run(time.Minute)
	f.events = nil
	f.c.accept(&beat{node: "n001", stream: 1001, epoch: 8, hello: &Hello{BootID: "after"}}, f.now)
	f.c.accept(&beat{node: "n002", stream: 1001, epoch: 8, hello: &Hello{BootID: "before"}}, f.now)
	f.c.accept(&beat{node: "n003", stream: 1001, epoch: 8}, f.now)
	f.c.accept(&beat{node: "n004", stream: 1001, epoch: 7}, f.now) // it stood still, or its network did
	f.drain()
	boots := map[string]string{}
	for _, e := range f.events {
		if e.To == "RECOVERING" {
			boots[e.Node] = e.Evidence["boot"]
		}
	}
	if len(boots) != 4 || boots["n001"] != BootAnother || boots["n002"] != BootSame || boots["n003"] != "" || boots["n004"] != BootSame {
		t.Errorf("boots %v", boots)
	}
}
