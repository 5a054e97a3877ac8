// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

func uuids(from, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("GPU-%02d", from+i))
	}
	return out
}

// gpuBeat is a beat of gpu001 with the whole list.
func gpuBeat(list []string) beat {
	return beat{node: "gpu001", inv: beatInventory{uuids: list, full: true}}
}

// readyGPU is a world where gpu001 is ready with GPU-00..GPU-07.
func readyGPU(t *testing.T) *world {
	w := newWorld(t)
	w.beat(gpuBeat(uuids(0, 8)))
	w.beats(2, gpuBeat(uuids(0, 8)))
	w.want("gpu001", Ready)
	return w
}

func TestTrustOnFirstUse(t *testing.T) {
	w := readyGPU(t)
	r := w.node["gpu001"]
	if !slices.Equal(r.Accepted, uuids(0, 8)) || r.AcceptedBy != "registry" {
		t.Errorf("record %+v", r)
	}
	var accepts int
	for _, e := range w.events {
		if e.Kind == ledger.KindAccept {
			accepts++
		}
	}
	if accepts != 1 {
		t.Errorf("%d accept events", accepts)
	}

	w = newWorld(t) // one short of its class: never accepted
	w.beat(gpuBeat(uuids(0, 7)))
	w.beats(2, gpuBeat(uuids(0, 7)))
	w.want("gpu001", Degraded)
	if n := w.c.nodes["gpu001"]; n.gpus.expected != nil || n.reason != "7 GPUs, its class h100 has 8" {
		t.Errorf("expected %v, reason %q", n.gpus.expected, n.reason)
	}

	w = newWorld(t) // another model than its class has
	b := gpuBeat(uuids(0, 8))
	b.hello = &Hello{Facts: site.Facts{GPUModel: "A100"}}
	w.beat(b)
	w.beats(2, b)
	w.want("gpu001", Degraded)
	if r := w.c.nodes["gpu001"].reason; r != `GPU model "A100", its class h100 has "H100"` {
		t.Errorf("reason %q", r)
	}

	w = newWorld(t) // a stale list is not trusted, the fresh one after it is
	b = gpuBeat(uuids(0, 8))
	b.inv.status = Stale
	w.beat(b)
	if w.c.nodes["gpu001"].gpus.expected != nil {
		t.Error("a stale list was accepted")
	}
	w.beats(1, gpuBeat(uuids(0, 8)))
	if w.c.nodes["gpu001"].gpus.expected == nil {
		t.Error("the fresh list was not accepted")
	}
}

func TestLostAndSwappedGPU(t *testing.T) {
	w := readyGPU(t)
	other := append(uuids(0, 7), "GPU-99")
	if st := w.beats(1, gpuBeat(other)); st != Ready {
		t.Errorf("after one wrong beat %s", st)
	}
	if st := w.beats(1, gpuBeat(other)); st != Degraded {
		t.Errorf("after two wrong beats %s", st)
	}
	e := w.events[len(w.events)-1]
	if e.Reason != "missing GPU GPU-07; extra GPU GPU-99" || e.Evidence["missing"] != "GPU-07" || e.Evidence["extra"] != "GPU-99" {
		t.Errorf("event %+v", e)
	}
	if st := w.beats(12, gpuBeat(uuids(0, 8))); st != Degraded {
		t.Errorf("55 s after it is whole again %s", st)
	}
	if st := w.beats(1, gpuBeat(uuids(0, 8))); st != Ready {
		t.Errorf("60 s after it is whole again %s", st)
	}
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "resume"}) {
		t.Errorf("actions %v", got)
	}
}

func TestOrderOfGPUsIsNoMatter(t *testing.T) {
	w := readyGPU(t)
	list := uuids(0, 8)
	slices.Reverse(list)
	if st := w.beats(20, gpuBeat(list)); st != Ready {
		t.Errorf("reversed list: %s %s", st, w.c.nodes["gpu001"].reason)
	}
	// A single wrong beat between right ones never counts.
	for range 5 {
		w.beats(1, gpuBeat(uuids(0, 7)))
		if st := w.beats(1, gpuBeat(list)); st != Ready {
			t.Errorf("alternating: %s", st)
		}
	}
}

func TestUnavailableIsNotEmpty(t *testing.T) {
	w := readyGPU(t)
	b := beat{node: "gpu001", inv: beatInventory{full: true, status: Unavailable, reason: "child hangs"}}
	if st := w.beats(7, b); st != Ready { // 35 s: over for one beat
		t.Errorf("after 35 s %s: %s", st, w.c.nodes["gpu001"].reason)
	}
	if st := w.beats(1, b); st != Degraded {
		t.Errorf("after 40 s %s", st)
	}
	if r := w.c.nodes["gpu001"].reason; r != "inventory unavailable for more than 30s: child hangs" {
		t.Errorf("reason %q", r)
	}
	if len(w.c.nodes["gpu001"].gpus.missing) != 0 {
		t.Error("unavailable GPUs count as missing")
	}
}

func TestAgeOfInventory(t *testing.T) {
	w := readyGPU(t)
	b := gpuBeat(uuids(0, 8))
	b.inv.age = 26 * time.Second
	if st := w.beats(1, b); st != Ready {
		t.Errorf("inventory 26 s old: %s", st)
	}
	b.inv.age, b.inv.status = 31*time.Second, Stale
	if st := w.beats(1, b); st != Ready {
		t.Errorf("inventory 31 s old in one beat: %s", st)
	}
	if st := w.beats(1, b); st != Degraded {
		t.Errorf("inventory 31 s old in two beats: %s", st)
	}
	if r := w.c.nodes["gpu001"].reason; !strings.HasPrefix(r, "inventory stale for more than 30s") {
		t.Errorf("reason %q", r)
	}
}

// TestOldWordOfAReturnedNode holds that what an agent knew before it was stopped,
// or before it looked for the first time, does not prolong the cool-down.
func TestOldWordOfAReturnedNode(t *testing.T) {
	stopped := gpuBeat(uuids(0, 8))
	stopped.inv.age, stopped.inv.status = 40*time.Second, Stale
	started := beat{node: "gpu001", epoch: 9, inv: beatInventory{status: Unavailable, reason: "looking for GPUs"}}
	for _, first := range []beat{stopped, started} {
		w := readyGPU(t)
		w.pass(40 * time.Second)
		w.want("gpu001", Expired)
		if st, _, r := w.beat(first); st != Recovering || r != nil {
			t.Fatalf("%s beat: %s, %v", first.inv.status, st, r)
		}
		next := gpuBeat(uuids(0, 8))
		next.epoch = first.epoch
		w.beats(11, next)
		w.took("gpu001", Ready, 5*time.Second)
	}
}

func TestHashInsteadOfList(t *testing.T) {
	w := newWorld(t)
	full := gpuBeat(uuids(0, 8))
	full.inv.hash, full.inv.hashed = 77, true
	short := beat{node: "gpu001", inv: beatInventory{hash: 77, hashed: true}}
	if _, want, _ := w.beat(short); !want {
		t.Error("the list is not asked for")
	}
	w.pass(5 * time.Second)
	if _, want, _ := w.beat(full); want {
		t.Error("the list is asked for although it was told")
	}
	if st := w.beats(1, short); st != Ready {
		t.Errorf("state %s: %s", st, w.c.nodes["gpu001"].reason)
	}
	w.pass(5 * time.Second)
	short.inv.hash = 78
	if _, want, _ := w.beat(short); !want {
		t.Error("a changed hash does not ask for the list")
	}
	// A lost GPU told once, then by hash only: two beats in a row.
	lost := gpuBeat(uuids(0, 7))
	lost.inv.hash, lost.inv.hashed = 78, true
	w.beats(1, lost)
	if st := w.beats(1, short); st != Degraded {
		t.Errorf("state %s", st)
	}
}

func TestBreaches(t *testing.T) {
	w := readyGPU(t)
	b := gpuBeat(uuids(0, 8))
	b.inv.breaches = []string{"gpu_temp_slowdown"}
	if st := w.beats(2, b); st != Limited {
		t.Errorf("state %s", st)
	}
	if r := w.c.nodes["gpu001"].reason; r != "breach of gpu_temp_slowdown" {
		t.Errorf("reason %q", r)
	}
	// Another cause is noted, but flickering ones do not fill the ledger.
	before := len(w.events)
	for i := range 24 {
		b.inv.breaches = []string{fmt.Sprintf("limit%d", i%2)}
		w.beats(1, b)
	}
	if n := len(w.events) - before; n != 2 {
		t.Errorf("%d events in two minutes of flicker", n)
	}
}

// TestGraverBreach: a breach of the list takes the work away, at once; it counts
// for the cool-down; then the milder one does; alerts count as well.
func TestGraverBreach(t *testing.T) {
	w := readyGPU(t)
	b := gpuBeat(uuids(0, 8))
	b.inv.breaches = []string{"gpu_temp_slowdown GPU-a"}
	w.beats(2, b)
	w.want("gpu001", Limited)
	b.inv.breaches = []string{"ecc_uncorrected GPU-a", "gpu_temp_slowdown GPU-a"}
	w.beats(1, b)
	w.want("gpu001", Isolated)
	b.inv.breaches = b.inv.breaches[1:]
	w.beats(11, b)
	w.want("gpu001", Isolated)
	w.beats(1, b)
	w.want("gpu001", Limited)
	b.inv.breaches = nil
	w.beats(13, b)
	w.want("gpu001", Ready)
	if err := w.c.alert("gpu001", []string{"xid_fatal alert GPUXidFatal"}, time.Hour, w.now); err != nil {
		t.Fatal(err)
	}
	w.beats(2, b)
	w.want("gpu001", Isolated)
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "drain", "suspend", "resume", "drain"}) {
		t.Errorf("actions %v", got)
	}
	if err := w.c.alert("gpu001", nil, time.Hour, w.now); err != nil {
		t.Fatal(err)
	}
	w.beats(13, b)
	w.want("gpu001", Ready)
	// One that is not told again counts for its life only.
	if err := w.c.alert("gpu001", []string{"disk_full alert DiskFull"}, time.Minute, w.now); err != nil {
		t.Fatal(err)
	}
	w.beats(10, b)
	w.want("gpu001", Limited)
	w.beats(15, b)
	w.want("gpu001", Ready)
}

func TestDegradedNodeGoesSilent(t *testing.T) {
	w := readyGPU(t)
	w.beats(2, gpuBeat(uuids(0, 7)))
	w.took("gpu001", Suspect, 17500*time.Millisecond)
	if st, _, _ := w.beat(gpuBeat(uuids(0, 7))); st != Degraded {
		t.Errorf("a suspect with a lost GPU came back as %s", st)
	}
	w.took("gpu001", Expired, 30*time.Second)
	w.beat(gpuBeat(uuids(0, 7)))
	if st := w.beats(12, gpuBeat(uuids(0, 7))); st != Degraded {
		t.Errorf("recovered with a lost GPU as %s", st)
	}
}

func TestAccept(t *testing.T) {
	w := readyGPU(t)
	swapped := append(uuids(0, 7), "GPU-99")
	w.beats(2, gpuBeat(swapped))
	w.want("gpu001", Degraded)
	if err := w.c.acceptGPUs("gpu001", nil, w.now, "board 7 swapped", "eve"); err != nil {
		t.Fatal(err)
	}
	w.drain()
	w.want("gpu001", Ready) // a human vouches: no cool-down
	if r := w.node["gpu001"]; !slices.Equal(r.Accepted, swapped) || r.AcceptedBy != "eve" || r.AcceptedReason != "board 7 swapped" {
		t.Errorf("record %+v", r)
	}
	e := w.events[len(w.events)-2]
	if e.Kind != ledger.KindAccept || e.Evidence["added"] != "GPU-99" || e.Evidence["dropped"] != "GPU-07" {
		t.Errorf("audit %+v", e)
	}
	if st := w.beats(3, gpuBeat(swapped)); st != Ready {
		t.Errorf("state %s", st)
	}
	if st := w.beats(2, gpuBeat(uuids(0, 8))); st != Degraded {
		t.Errorf("the old set is %s", st)
	}
	if err := w.c.acceptGPUs("nobody", nil, w.now, "", "eve"); !errors.Is(err, ErrUnknownNode) {
		t.Errorf("unknown node: %v", err)
	}
	if err := w.c.acceptGPUs("gpu002", nil, w.now, "", "eve"); !errors.Is(err, ErrNoLease) {
		t.Errorf("node that never beat: %v", err)
	}
}

func TestNodeWithoutGPUs(t *testing.T) {
	w := ready(t)
	b := beat{inv: beatInventory{full: true, status: Unavailable}}
	if st := w.beats(20, b); st != Ready {
		t.Errorf("a node without GPUs is %s: %s", st, w.c.nodes["cpu001"].reason)
	}
	if st := w.beats(2, beat{inv: beatInventory{full: true, uuids: uuids(0, 1)}}); st != Degraded {
		t.Errorf("with a GPU that its class does not have: %s", st)
	}
}
