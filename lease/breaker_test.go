// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// hall is a world of nodes n000.. in racks of perRack, all ready, each beating
// every 5 s with a phase of its own but those that down names.
type hall struct {
	*world
	down  map[string]bool
	tells []string // breaches that all tell
	phase map[string]time.Duration
	ids   []string
}

func newHall(t *testing.T, nodes, perRack int, p Policy) *hall {
	s := &site.Site{ID: "t1", Feeds: []site.Feed{{ID: "feed-a"}, {ID: "feed-b"}}}
	f := &hall{down: map[string]bool{}, phase: map[string]time.Duration{}}
	for i := range nodes {
		rack := fmt.Sprintf("r%02d", i/perRack)
		if i%perRack == 0 {
			s.PDUs = append(s.PDUs, site.PDU{ID: rack + "-a", Rack: rack, Feed: "feed-a"}, site.PDU{ID: rack + "-b", Rack: rack, Feed: "feed-b"})
		}
		n := site.Node{ID: fmt.Sprintf("n%03d", i), Rack: rack, Outlets: []string{rack + "-a/1", rack + "-b/1"}}
		if i%perRack == 0 { // the first of each rack hangs on one feed
			n.Outlets = n.Outlets[:1]
		}
		s.Nodes = append(s.Nodes, n)
		f.ids = append(f.ids, n.ID)
		f.phase[n.ID] = time.Duration(i*997%5000) * time.Millisecond
	}
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	f.world = &world{t: t, c: newCore(Config{Policy: p}, indexSite(s), 1, now), start: now, now: now, node: map[string]ledger.NodeRecord{}}
	f.c.restore(ledger.State{}, now) // as a registry starts, on an empty ledger
	f.run(20 * time.Second)
	for _, id := range f.ids {
		f.want(id, Ready)
	}
	f.acts, f.events = nil, nil
	return f
}

// run lets d pass.
func (f *hall) run(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(sweepInterval)
		since := f.now.Sub(f.start)
		for i, id := range f.ids {
			if !f.down[id] && (since-f.phase[id])%(5*time.Second) < sweepInterval && since >= f.phase[id] {
				f.c.accept(&beat{node: id, stream: uint64(i + 1), inv: beatInventory{breaches: f.tells}}, f.now)
			}
		}
		f.c.sweep(f.now)
		f.drain()
	}
}

// allowed says which nodes may be acted on now, and how many of them hard.
func (f *hall) allowed(w ledger.Witness) (soft, hard int) {
	for _, in := range f.c.intents {
		v := f.c.permit(in, w, f.now)
		if v.Soft && !v.Slow {
			soft++
		}
		if v.Hard {
			hard++
		}
	}
	return soft, hard
}

// most is the most that was allowed at any time within d.
func (f *hall) most(d time.Duration, w ledger.Witness) (soft, hard int) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.run(sweepInterval)
		s, h := f.allowed(w)
		soft, hard = max(soft, s), max(hard, h)
	}
	return soft, hard
}

func (f *hall) open() string {
	var out []string
	for _, b := range f.c.breakerList() {
		out = append(out, strings.TrimSpace(b.Scope+" "+b.ID))
	}
	return strings.Join(out, ",")
}

// TestOneOfAHundred: one dead node gets its soft action within 31 s, its hard one
// with a witness, or without one after the time for that.
func TestOneOfAHundred(t *testing.T) {
	f := newHall(t, 100, 8, Policy{Mode: ModeHard})
	f.down["n042"] = true
	if soft, hard := f.most(31*time.Second, ledger.WitnessSilent); soft != 1 || hard != 0 {
		t.Errorf("within 31 s %d soft and %d hard", soft, hard)
	}
	f.run(5 * time.Second)
	for _, tc := range []struct {
		w    ledger.Witness
		hard int
	}{{ledger.WitnessSilent, 0}, {ledger.WitnessAlive, 0}, {ledger.WitnessDead, 1}} {
		if soft, hard := f.allowed(tc.w); soft != 1 || hard != tc.hard {
			t.Errorf("witness %d: %d soft, %d hard", tc.w, soft, hard)
		}
	}
	f.run(290 * time.Second)
	if _, hard := f.allowed(ledger.WitnessSilent); hard != 0 {
		t.Error("hard before its time")
	}
	f.run(15 * time.Second)
	if _, hard := f.allowed(ledger.WitnessSilent); hard != 1 {
		t.Error("not hard 300 s after the expiry")
	}
	if v := f.c.permit(f.c.intents["n042"], ledger.WitnessSilent, f.now); !v.Ask {
		t.Error("a witness that may see it live is not asked")
	}
	if _, hard := f.allowed(ledger.WitnessAlive); hard != 0 {
		t.Error("hard although it draws power")
	}
	if f.open() != "" {
		t.Errorf("open: %s", f.open())
	}
	delete(f.down, "n042")
	f.run(10 * time.Second)
	if _, hard := f.allowed(ledger.WitnessDead); hard != 0 {
		t.Error("hard although it beats again")
	}
}

// TestRackOfEight: a dead rack is one incident; nothing is done until a witness
// says that it is dead.
func TestRackOfEight(t *testing.T) {
	f := newHall(t, 104, 8, Policy{Mode: ModeHard})
	for i := 16; i < 24; i++ {
		f.down[f.ids[i]] = true
	}
	if soft, hard := f.most(10*time.Minute, ledger.WitnessSilent); soft != 0 || hard != 0 {
		t.Errorf("without a witness %d soft and %d hard", soft, hard)
	}
	if !strings.Contains(f.open(), "rack r02") || strings.Contains(f.open(), "full") {
		t.Errorf("open: %s", f.open())
	}
	if soft, hard := f.allowed(ledger.WitnessAlive); soft != 0 || hard != 0 {
		t.Errorf("drawing power: %d soft, %d hard", soft, hard)
	}
	if _, hard := f.allowed(ledger.WitnessDead); hard != 8 {
		t.Errorf("dead: %d hard, want 8", hard)
	}
	opened := 0
	for _, e := range f.events {
		if e.Kind == ledger.KindBreaker && e.To == "open" && e.Evidence["scope"] == ScopeRack {
			opened++
		}
	}
	if opened != 1 {
		t.Errorf("the rack's breaker opened %d times", opened)
	}
	clear(f.down)
	f.run(10 * time.Minute)
	if f.open() != "" {
		t.Errorf("still open: %s", f.open())
	}
}

// TestAllSilent: when everybody is silent nothing is done, however long it lasts
// and whatever a witness says; and those who come back are given time.
func TestAllSilent(t *testing.T) {
	for _, nodes := range []int{2, 5, 100} {
		f := newHall(t, nodes, 8, Policy{Mode: ModeHard, Witness: "none"})
		for _, id := range f.ids {
			f.down[id] = true
		}
		for _, w := range []ledger.Witness{ledger.WitnessSilent, ledger.WitnessDead} {
			if soft, hard := f.most(10*time.Minute, w); soft != 0 || hard != 0 {
				t.Errorf("%d nodes: %d soft and %d hard", nodes, soft, hard)
			}
		}
		clear(f.down)
		soft, hard := 0, 0
		for range 3000 {
			f.run(sweepInterval)
			for _, in := range f.c.intents {
				if v := f.c.permit(in, ledger.WitnessSilent, f.now); in.Action != ledger.ActionResume && v.Hard {
					hard++
				} else if in.Action != ledger.ActionResume && v.Soft && !v.Slow {
					soft++
				}
			}
		}
		if soft != 0 || hard != 0 {
			t.Errorf("%d nodes, on their way back: %d soft and %d hard", nodes, soft, hard)
		}
	}
}

// TestHalfSilent and partly: a tenth makes it slow and never hard.
func TestPartial(t *testing.T) {
	f := newHall(t, 200, 40, Policy{Mode: ModeHard, Witness: "none"})
	for i := 1; i < 200; i += 10 { // 20 nodes, four of each rack
		f.down[f.ids[i]] = true
	}
	soft, hard := f.most(100*time.Second, ledger.WitnessSilent)
	if soft > 0 || hard > 0 {
		t.Errorf("%d soft and %d hard at full speed", soft, hard)
	}
	v := f.c.permit(f.c.intents["n001"], ledger.WitnessSilent, f.now)
	if !v.Soft || !v.Slow || v.Hard || !v.Ask {
		t.Errorf("verdict %+v", v)
	}
	f.run(10 * time.Minute)
	if f.open() != "" {
		t.Errorf("still open: %s", f.open())
	}
	if _, hard := f.allowed(ledger.WitnessSilent); hard != 20 {
		t.Errorf("%d hard after it closed", hard)
	}
}

// TestManyIsolated: a limit that is set wrong takes away nobody's work.
func TestManyIsolated(t *testing.T) {
	f := newHall(t, 100, 8, Policy{Mode: ModeHard})
	f.tells = []string{"xid_fatal"}
	soft, hard := f.most(15*time.Second, ledger.WitnessSilent)
	f.want("n007", Isolated)
	if soft > 10 || hard > 10 {
		t.Errorf("%d soft and %d hard before the breaker opened", soft, hard)
	}
	if soft, hard = f.most(time.Hour, ledger.WitnessSilent); soft != 0 || hard != 0 {
		t.Errorf("%d soft and %d hard", soft, hard)
	}
}

// TestPauseHoldsActions: after a pause of its own the registry waits longer.
func TestPauseHoldsActions(t *testing.T) {
	f := newHall(t, 100, 8, Policy{Mode: ModeSoft})
	f.down["n001"] = true
	f.run(5 * time.Second)
	f.now = f.now.Add(3 * time.Second) // the registry stands still
	f.run(15 * time.Second)
	f.want("n001", Suspect)
	if soft, _ := f.allowed(ledger.WitnessSilent); soft != 0 {
		t.Error("acted on a node after its own pause")
	}
	f.run(40 * time.Second)
	if soft, hard := f.allowed(ledger.WitnessSilent); soft != 1 || hard != 0 {
		t.Errorf("a minute later %d soft, %d hard", soft, hard)
	}
}

// restarted is the hall after a registry's start, with n001 lost long before.
func restarted(t *testing.T, p Policy) *hall {
	old := newHall(t, 100, 8, p)
	old.down["n001"] = true
	old.run(8 * time.Minute)
	old.want("n001", Expired)
	f := newHall(t, 100, 8, p)
	f.c = newCore(Config{Policy: p}, f.c.site, 2, f.now)
	st := ledger.State{Intents: []ledger.Intent{*old.c.intents["n001"]}}
	for _, r := range old.node {
		st.Nodes = append(st.Nodes, r)
	}
	f.c.restore(st, f.now)
	f.down["n001"] = true
	return f
}

// TestRestartHoldsActions: a registry that starts again finds a node that was lost
// long ago; it may be back since, so nothing is done to it before it had time to
// say so.
func TestRestartHoldsActions(t *testing.T) {
	for _, p := range []Policy{{Mode: ModeHard, Witness: "none"}, {Mode: ModeHard}} {
		f := restarted(t, p)
		if soft, hard := f.most(59*time.Second, ledger.WitnessDead); soft != 0 || hard != 0 {
			t.Errorf("witness %q: %d soft and %d hard right after the start", p.Witness, soft, hard)
		}
		f.want("n001", Expired)
		f.run(2 * time.Second)
		want := 0
		if p.Witness == "none" {
			want = 1
		}
		if soft, hard := f.allowed(ledger.WitnessSilent); soft != 1 || hard != want {
			t.Errorf("witness %q: %d soft and %d hard a minute later, want 1 and %d", p.Witness, soft, hard, want)
		}
		delete(f.down, "n001")
		f.run(6 * time.Second)
		if _, hard := f.allowed(ledger.WitnessDead); hard != 0 {
			t.Error("hard although it beats again")
		}
	}
}

// TestRestartSeesDeaths: the time given after a start is for nodes that were not
// heard since; one that was, and then dies, is acted on as ever.
func TestRestartSeesDeaths(t *testing.T) {
	f := restarted(t, Policy{Mode: ModeHard, Witness: "none"})
	f.run(6 * time.Second)
	f.down["n050"] = true
	f.run(31 * time.Second)
	f.want("n050", Expired)
	for id, hard := range map[string]bool{"n001": false, "n050": true} {
		if out := f.c.permit(f.c.intents[id], ledger.WitnessSilent, f.now); out.Hard != hard {
			t.Errorf("%s: %+v", id, out)
		}
	}
}

// TestOperatorGoesFirst: breakers and holds never keep a node from coming back,
// nor an operator from acting.
func TestOperatorGoesFirst(t *testing.T) {
	f := newHall(t, 100, 8, Policy{Mode: ModeSoft})
	f.down["n001"] = true
	f.run(20 * time.Second)
	f.c.holdBreaker(f.now, "moving racks", "alice")
	if soft, _ := f.allowed(ledger.WitnessSilent); soft != 0 {
		t.Error("acted although held")
	}
	if err := f.c.drain("n002", f.now, "disk", "bob"); err != nil {
		t.Fatal(err)
	}
	if v := f.c.permit(f.c.intents["n002"], ledger.WitnessSilent, f.now); !v.Soft {
		t.Errorf("an operator's drain is held: %+v", v)
	}
	delete(f.down, "n001")
	f.run(6 * time.Second)
	if in := f.c.intents["n001"]; in.Action != ledger.ActionResume || !f.c.permit(in, ledger.WitnessSilent, f.now).Soft {
		t.Errorf("resume is held: %+v", in)
	}
	if err := f.c.resetBreaker(ScopeManual, "", f.now, "done", "alice"); err != nil || f.open() != "" {
		t.Errorf("reset: %v, open %q", err, f.open())
	}
	if err := f.c.resetBreaker(ScopeRack, "r01", f.now, "", "alice"); err == nil {
		t.Error("a closed breaker was reset")
	}
}

// TestFeedBreaker: nodes that hang on one feed alone are one group.
func TestFeedBreaker(t *testing.T) {
	f := newHall(t, 160, 8, Policy{Mode: ModeSoft})
	for i := 0; i < 160; i += 16 {
		f.down[f.ids[i]] = true // ten of the twenty on feed-a alone
	}
	f.run(40 * time.Second)
	if !strings.Contains(f.open(), "feed feed-a") || strings.Contains(f.open(), "rack") {
		t.Errorf("open: %s", f.open())
	}
	if soft, _ := f.allowed(ledger.WitnessSilent); soft != 0 {
		t.Errorf("%d soft", soft)
	}
}
