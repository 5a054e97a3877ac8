// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// testSite has GPU nodes gpu001..gpu004 (8 GPUs), cpu001 (none) and devices.
func testSite() *site.Site {
	s := &site.Site{ID: "t1",
		NodeClasses: []site.NodeClass{{ID: "h100", GPUs: 8, GPUModel: "H100"}, {ID: "cpu"}},
		Nodes:       []site.Node{{ID: "cpu001", Rack: "r01", Class: "cpu"}, {ID: "ws01", Class: "cpu"}},
		PDUs:        []site.PDU{{ID: "r01-a", Rack: "r01"}, {ID: "r01-b", Rack: "r01"}},
	}
	for i := range 4 {
		s.Nodes = append(s.Nodes, site.Node{ID: fmt.Sprintf("gpu%03d", i+1), Rack: "r01", Class: "h100"})
	}
	return s
}

// world is a core with its own time, swept every 100 ms like the server does.
type world struct {
	t      *testing.T
	c      *core
	start  time.Time
	now    time.Time
	events []ledger.Event
	acts   []ledger.Intent
	node   map[string]ledger.NodeRecord
}

func newWorld(t *testing.T) *world {
	now := time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)
	return &world{t: t, c: newCore(Config{}, indexSite(testSite()), 1, now), start: now, now: now, node: map[string]ledger.NodeRecord{}}
}

func (w *world) drain() {
	for _, ch := range w.c.take() {
		w.events = append(w.events, ch.event)
		if ch.record != nil {
			w.node[ch.record.Node] = *ch.record
		}
		if ch.intent != nil {
			w.acts = append(w.acts, *ch.intent)
		}
	}
}

// pass lets d pass, sweeping every 100 ms.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(sweepInterval, end.Sub(w.now)))
		w.c.sweep(w.now)
	}
	w.drain()
}

// beat sends a beat now and returns the answer.
func (w *world) beat(b beat) (State, bool, *refusal) {
	w.t.Helper()
	if b.node == "" {
		b.node = "cpu001"
	}
	if b.stream == 0 {
		b.stream = 1
	}
	st, want, r := w.c.accept(&b, w.now)
	w.drain()
	return st, want, r
}

// beats sends n beats, each after 5 s.
func (w *world) beats(n int, b beat) (st State) {
	w.t.Helper()
	for range n {
		w.pass(5 * time.Second)
		var r *refusal
		if st, _, r = w.beat(b); r != nil {
			w.t.Fatalf("beat refused: %v", r)
		}
	}
	return st
}

func (w *world) want(id string, want State) {
	w.t.Helper()
	n := w.c.nodes[id]
	if n == nil || n.state != want {
		w.t.Fatalf("%s after %s: %+v, want %s", id, w.now.Sub(w.start), n, want)
	}
}

// until passes time until the node's state changes and returns how long it took.
func (w *world) until(id string, to State) time.Duration {
	w.t.Helper()
	from := w.now
	for w.c.nodes[id].state != to {
		if w.now.Sub(from) > 30*time.Minute {
			w.t.Fatalf("%s never became %s, it is %s", id, to, w.c.nodes[id].state)
		}
		w.pass(sweepInterval)
	}
	return w.now.Sub(from)
}

func (w *world) took(id string, to State, want time.Duration) {
	w.t.Helper()
	if got := w.until(id, to); got != want {
		w.t.Errorf("%s became %s after %s, want %s", id, to, got, want)
	}
}

// actions are the actions asked for so far.
func (w *world) actions() (names []string) {
	for _, i := range w.acts {
		names = append(names, i.Action)
	}
	return names
}

func TestJoinsAfterThreeGapFreeBeats(t *testing.T) {
	w := newWorld(t)
	w.beat(beat{})
	w.want("cpu001", Joining)
	if st := w.beats(1, beat{}); st != Joining {
		t.Errorf("after two beats %s", st)
	}
	w.pass(4 * time.Second) // 9 s since the last: a gap, counting starts anew
	if st := w.beats(1, beat{}); st != Joining {
		t.Errorf("after a gap %s", st)
	}
	if st := w.beats(1, beat{}); st != Joining {
		t.Errorf("after a gap and one more %s", st)
	}
	if st := w.beats(1, beat{}); st != Ready {
		t.Errorf("after three gap-free beats %s", st)
	}
	if len(w.acts) != 0 {
		t.Errorf("joining asked for %v", w.actions())
	}
}

func ready(t *testing.T) *world {
	w := newWorld(t)
	w.beat(beat{})
	w.beats(2, beat{})
	w.want("cpu001", Ready)
	return w
}

func TestSilence(t *testing.T) {
	w := ready(t)
	w.took("cpu001", Suspect, 17500*time.Millisecond)
	w.took("cpu001", Expired, 12500*time.Millisecond) // 30 s after the beat
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "evict"}) {
		t.Errorf("actions %v", got)
	}
	for _, i := range w.acts {
		if i.State != ledger.IntentHeld || i.Note != "mode observe" {
			t.Errorf("intent %+v is not held", i)
		}
	}
	w.pass(time.Hour)
	w.want("cpu001", Expired)
}

func TestStreamEnd(t *testing.T) {
	w := ready(t)
	w.c.streamEnded("cpu001", 1, w.now)
	w.took("cpu001", Suspect, 10*time.Second)
	w.took("cpu001", Expired, 20*time.Second) // 30 s after the last beat

	w = ready(t) // whichever comes first counts
	w.pass(15 * time.Second)
	w.c.streamEnded("cpu001", 1, w.now)
	w.took("cpu001", Suspect, 2500*time.Millisecond)

	w = newWorld(t) // the end of a stream that was replaced is no news
	w.beat(beat{epoch: 9})
	w.beats(2, beat{epoch: 9})
	w.beats(1, beat{epoch: 9, stream: 2})
	w.c.streamEnded("cpu001", 1, w.now)
	w.took("cpu001", Suspect, 17500*time.Millisecond)
}

func TestSuspectReturns(t *testing.T) {
	w := ready(t)
	w.pass(29900 * time.Millisecond)
	w.want("cpu001", Suspect)
	if st, _, _ := w.beat(beat{}); st != Ready {
		t.Errorf("a suspect that beats is %s", st)
	}
	if f := w.c.nodes["cpu001"].flaps; f != 1 {
		t.Errorf("%d flaps", f)
	}
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "resume"}) {
		t.Errorf("actions %v", got)
	}
}

func TestCooldown(t *testing.T) {
	expired := func() *world {
		w := ready(t)
		w.pass(31 * time.Second)
		w.want("cpu001", Expired)
		w.beat(beat{})
		w.want("cpu001", Recovering)
		return w
	}
	w := expired()
	if st := w.beats(11, beat{}); st != Recovering {
		t.Errorf("55 s after the return %s", st)
	}
	if up, ok := w.c.nodes["cpu001"].state.up(Unknown); up || !ok {
		t.Error("lease_up is not 0 in the cool-down")
	}
	if st := w.beats(1, beat{}); st != Ready {
		t.Errorf("60 s after the return %s", st)
	}
	w = expired()
	w.beats(9, beat{})
	w.pass(3 * time.Second) // 8 s: a gap
	if st := w.beats(1, beat{}); st != Recovering {
		t.Errorf("after a gap %s", st)
	}
	if st := w.beats(11, beat{}); st != Recovering {
		t.Errorf("55 s after the gap %s", st)
	}
	if st := w.beats(1, beat{}); st != Ready {
		t.Errorf("60 s after the gap %s", st)
	}
	w = expired()
	w.beats(11, beat{}) // 55 s; the next beat is late, but no gap
	w.took("cpu001", Ready, 5*time.Second)
	w = expired()
	w.beats(10, beat{}) // 50 s; at 60 s there is a gap of 10 s
	w.took("cpu001", Expired, 30*time.Second)
	w = expired()
	w.took("cpu001", Expired, 30*time.Second)
}

func TestJoiningExpires(t *testing.T) {
	w := newWorld(t)
	w.beat(beat{})
	w.took("cpu001", Expired, 30*time.Second)
}

func TestUnknownNode(t *testing.T) {
	w := newWorld(t)
	_, _, r := w.beat(beat{node: "stranger"})
	if r == nil || r.text != `node "stranger" is not in the site file` || !r.final {
		t.Errorf("refusal %+v", r)
	}
	if len(w.c.nodes) != 0 || w.c.refusals[refusedUnknown] != 1 || len(w.events) != 0 {
		t.Errorf("a stranger left traces: %v, %v, %v", w.c.nodes, w.c.refusals, w.events)
	}
}

func TestOrderIsBySequence(t *testing.T) {
	w := newWorld(t)
	w.beat(beat{epoch: 9, seq: 5, sent: w.now.Add(24 * time.Hour).UnixNano()})
	w.pass(5 * time.Second)
	// The clock stepped back a day; the sequence went on: accepted.
	if _, _, r := w.beat(beat{epoch: 9, seq: 6, sent: w.now.Add(-24 * time.Hour).UnixNano()}); r != nil {
		t.Errorf("refused: %v", r)
	}
	if skew := time.Duration(w.c.nodes["cpu001"].skew); skew != -24*time.Hour {
		t.Errorf("skew %s", skew)
	}
	w.pass(5 * time.Second)
	if _, _, r := w.beat(beat{epoch: 9, seq: 6}); r == nil || r.final || r.reason != refusedOrder {
		t.Errorf("a repeated beat: %+v", r)
	}
	// It did not renew the lease: 30 s count from the beat before.
	w.took("cpu001", Expired, 25*time.Second)
}

func TestTwoAgentsOneNode(t *testing.T) {
	w := newWorld(t)
	w.beat(beat{stream: 1, epoch: 100})
	w.beats(2, beat{stream: 1, epoch: 100})
	w.pass(2 * time.Second)
	if st, want, r := w.beat(beat{stream: 2, epoch: 7}); r == nil || r.final || r.reason != refusedContended || st != Ready || !want {
		t.Errorf("first beat of the second agent: %s %v %v", st, want, r)
	}
	w.pass(3 * time.Second)
	w.beat(beat{stream: 1, epoch: 100}) // still accepted, and a conflict
	if w.c.conflicts["node"] != 1 || w.events[len(w.events)-1].Kind != ledger.KindConflict {
		t.Errorf("conflicts %v, events %+v", w.c.conflicts, w.events)
	}
	w.beat(beat{stream: 1, epoch: 100}) // counted once for each beat of the other
	if w.c.conflicts["node"] != 1 {
		t.Errorf("conflicts %v", w.c.conflicts)
	}
	w.pass(2 * time.Second)
	if _, _, r := w.beat(beat{stream: 2, epoch: 7}); r != nil {
		t.Errorf("second beat of the newer agent: %v", r)
	}
	w.pass(3 * time.Second)
	if _, _, r := w.beat(beat{stream: 1, epoch: 100}); r == nil || !r.final || r.reason != refusedSuperseded {
		t.Errorf("the older agent goes on: %+v", r)
	}
	if _, _, r := w.beat(beat{stream: 3, epoch: 100}); r == nil {
		t.Error("the older agent came back on a new stream")
	}
	// Once the newer one is gone, the older one may have the node again.
	w.c.streamEnded("cpu001", 2, w.now)
	if _, _, r := w.beat(beat{stream: 4, epoch: 100}); r != nil {
		t.Errorf("after the newer agent ended: %v", r)
	}
}

func TestRestartedAgentTakesOverAtOnce(t *testing.T) {
	w := ready(t)
	w.c.streamEnded("cpu001", 1, w.now)
	if st := w.beats(1, beat{stream: 2, epoch: 5}); st != Ready {
		t.Errorf("state %s", st)
	}
	if w.c.conflicts["node"] != 0 {
		t.Error("a restart counted as a conflict")
	}
	w.took("cpu001", Suspect, 17500*time.Millisecond) // the old end of stream is forgotten
}
