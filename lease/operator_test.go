// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLeave(t *testing.T) {
	w := ready(t)
	if st := w.beats(1, beat{intent: intentLeave}); st != Draining {
		t.Errorf("state %s", st)
	}
	w.c.streamEnded("cpu001", 1, w.now)
	w.drain()
	w.want("cpu001", Left)
	w.pass(time.Hour)
	w.want("cpu001", Left)
	if got := w.actions(); !slices.Equal(got, []string{"drain"}) {
		t.Errorf("actions %v", got)
	}
	if st, _, _ := w.beat(beat{intent: intentLeave, stream: 2}); st != Left {
		t.Errorf("a repeated leave is %s", st)
	}
	w.c.streamEnded("cpu001", 2, w.now)
	if st := w.beats(3, beat{stream: 3}); st != Ready {
		t.Errorf("joined anew: %s", st)
	}
	if got := w.actions(); !slices.Equal(got, []string{"drain", "resume"}) {
		t.Errorf("actions %v", got)
	}

	w = ready(t) // drains on, then falls silent: left, not lost
	w.beats(1, beat{intent: intentLeave})
	if st := w.beats(10, beat{}); st != Draining {
		t.Errorf("state %s", st)
	}
	w.took("cpu001", Left, 17500*time.Millisecond)
}

func TestAgentMaintenance(t *testing.T) {
	stopped := func() *world {
		w := ready(t)
		w.beats(1, beat{epoch: 0, intent: intentMaintenance, maint: time.Minute})
		w.want("cpu001", Maint)
		w.c.streamEnded("cpu001", 1, w.now)
		return w
	}
	w := stopped()
	w.took("cpu001", Expired, 60*time.Second)
	w = stopped() // the agent is back: ready at once
	w.pass(40 * time.Second)
	if st, _, _ := w.beat(beat{stream: 2, epoch: 5}); st != Ready {
		t.Errorf("state %s", st)
	}
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "resume"}) {
		t.Errorf("actions %v", got)
	}

	w = ready(t) // the bound holds, also for one that asks again and again
	w.beat(beat{intent: intentMaintenance, maint: time.Hour})
	for range 119 {
		w.beats(1, beat{intent: intentMaintenance, maint: time.Hour})
		w.want("cpu001", Maint)
	}
	w.pass(5 * time.Second)
	w.want("cpu001", Ready)
	if n := len(w.acts); n != 2 {
		t.Errorf("%d intents for one maintenance", n)
	}
}

func TestMaintenanceDoesNotSkipTheCooldown(t *testing.T) {
	w := ready(t)
	w.pass(31 * time.Second)
	w.beat(beat{})
	w.want("cpu001", Recovering)
	w.beats(1, beat{epoch: 0, intent: intentMaintenance, maint: 10 * time.Second})
	w.want("cpu001", Maint)
	if n := w.c.nodes["cpu001"]; true {
		if _, ok := n.state.up(n.was); ok {
			t.Error("a maintenance entered without a lease shows one")
		}
	}
	w.pass(10 * time.Second)
	w.want("cpu001", Recovering)
}

func TestOperatorMaintenance(t *testing.T) {
	w := ready(t)
	if err := w.c.maintenance("cpu001", 25*time.Hour, w.now, "", "eve"); err == nil || !strings.Contains(err.Error(), "up to 24h") {
		t.Errorf("25 h: %v", err)
	}
	if err := w.c.maintenance("cpu001", 2*time.Hour, w.now, "new fans", "eve"); err != nil {
		t.Fatal(err)
	}
	w.c.streamEnded("cpu001", 1, w.now)
	if st := w.beats(3, beat{stream: 2, epoch: 77}); st != Maint {
		t.Errorf("a new agent ended an operator's maintenance: %s", st)
	}
	if r := w.node["cpu001"]; r.Held != "eve" || r.Until.IsZero() {
		t.Errorf("record %+v", r)
	}
	if err := w.c.resumeNode("cpu001", w.now, "done early", "eve"); err != nil {
		t.Fatal(err)
	}
	w.want("cpu001", Ready)

	w.pass(40 * time.Second)
	w.want("cpu001", Expired)
	if err := w.c.maintenance("cpu001", 20*time.Minute, w.now, "it is on my bench", "eve"); err != nil {
		t.Fatal(err)
	}
	w.took("cpu001", Expired, 20*time.Minute)
}

func TestOperatorDrain(t *testing.T) {
	w := ready(t)
	if err := w.c.drain("cpu001", w.now, "bad DIMM", "eve"); err != nil {
		t.Fatal(err)
	}
	w.c.streamEnded("cpu001", 1, w.now)
	w.want("cpu001", Left)
	if st := w.beats(3, beat{stream: 2}); st != Draining { // rebooted: still drained
		t.Errorf("state %s", st)
	}
	if err := w.c.resumeNode("cpu001", w.now, "DIMM replaced", "eve"); err != nil {
		t.Fatal(err)
	}
	if st := w.beats(3, beat{stream: 2}); st != Ready {
		t.Errorf("state %s", st)
	}
	if err := w.c.resumeNode("cpu001", w.now, "", "eve"); !errors.Is(err, ErrState) {
		t.Errorf("resume of a ready node: %v", err)
	}
	w.pass(time.Minute)
	w.want("cpu001", Expired)
	if err := w.c.leave("cpu001", w.now, "scrapped", "eve"); err != nil {
		t.Fatal(err)
	}
	w.want("cpu001", Left)
}

func TestSiteReload(t *testing.T) {
	w := ready(t)
	w.beat(gpuBeat(uuids(0, 8)))
	s := testSite()
	s.Nodes = s.Nodes[1:] // without cpu001
	w.c.setSite(indexSite(s), w.now)
	w.drain()
	if w.c.nodes["cpu001"] != nil || w.node["cpu001"].State != "LEFT" || w.node["cpu001"].Reason != "it was removed from the site file" {
		t.Errorf("record %+v", w.node["cpu001"])
	}
	w.pass(time.Minute)
	if _, _, r := w.beat(beat{}); r == nil {
		t.Error("a removed node may beat on")
	}
}

// poll sends a beat of a facility-only agent; nil devices means no hello.
func (w *world) poll(agent string, stream uint64, devices ...string) (map[string]string, bool) {
	w.t.Helper()
	b := beat{node: agent, stream: stream}
	if devices != nil {
		b.hello = &Hello{Roles: []string{RoleFacility}, Advertise: agent + ":9400", Devices: devices}
	}
	refused, tell, r := w.c.pollDevices(&b, false, w.now)
	if r != nil {
		w.t.Fatal(r)
	}
	return refused, tell
}

func TestDeviceHasOneOwner(t *testing.T) {
	w := newWorld(t)
	if refused, tell := w.poll("fac1", 1, "r01-a", "ghost"); !tell || !maps.Equal(refused, map[string]string{"ghost": "it is not in the site file"}) {
		t.Errorf("refused %v", refused)
	}
	if refused, _ := w.poll("fac2", 2, "r01-a", "r01-b"); !maps.Equal(refused, map[string]string{"r01-a": "agent fac1 polls it already"}) {
		t.Errorf("refused %v", refused)
	}
	if w.c.conflicts["device"] != 1 || len(w.c.nodes) != 0 {
		t.Errorf("conflicts %v, leases %v", w.c.conflicts, w.c.nodes)
	}
	list := w.c.deviceList(w.now)
	var got []string
	for _, d := range list {
		got = append(got, d.ID+" "+d.Agent+" "+d.Address)
	}
	if !slices.Equal(got, []string{"r01-a fac1 fac1:9400", "r01-b fac2 fac2:9400"}) {
		t.Errorf("devices %v", got)
	}
	// fac1 falls silent: after the TTL its device goes to who still asks.
	for range 5 {
		w.pass(5 * time.Second)
		if _, tell := w.poll("fac2", 2); tell {
			t.Errorf("the refusal was told again after %s", w.now.Sub(w.start))
		}
	}
	w.pass(5 * time.Second)
	if refused, tell := w.poll("fac2", 2); !tell || len(refused) != 0 {
		t.Errorf("30 s later: %v %v", refused, tell)
	}
	if list := w.c.deviceList(w.now); list[0].Agent != "fac2" {
		t.Errorf("devices %+v", list)
	}
}

func TestFacilityAgentsEnd(t *testing.T) {
	w := newWorld(t)
	w.poll("fac2", 2, "r01-b")
	// A second agent of the same name is refused while the first is live.
	if _, _, r := w.c.pollDevices(&beat{node: "fac2", stream: 9, hello: &Hello{Devices: []string{"r01-b"}}}, false, w.now); r == nil {
		t.Error("two live agents of one name")
	}
	w.c.streamEnded("fac2", 2, w.now)
	w.poll("fac2", 9, "r01-b")
	w.c.streamEnded("fac2", 9, w.now)
	w.pass(9900 * time.Millisecond)
	if list := w.c.deviceList(w.now); len(list) != 1 {
		t.Errorf("devices 9.9 s after the end of the stream: %+v", list)
	}
	w.pass(100 * time.Millisecond)
	if list := w.c.deviceList(w.now); len(list) != 0 {
		t.Errorf("devices of a dead agent: %+v", list)
	}
	w.pass(6 * time.Minute)
	if len(w.c.agents) != 0 {
		t.Errorf("agents gone for good are kept: %v", w.c.agents)
	}
}

// TestAgentEndsMaintenance: GPUs that their agent gave back for a while are no
// fault of the node, until the time for it is over.
func TestAgentEndsMaintenance(t *testing.T) {
	away := func() beat {
		return beat{node: "gpu001", inv: beatInventory{status: Unavailable, reason: "released"}}
	}
	w := readyGPU(t)
	b := away()
	b.intent, b.maint = intentMaintenance, 5*time.Minute
	w.beats(1, b)
	w.beats(24, away()) // two minutes
	w.want("gpu001", Maint)
	w.beat(gpuBeat(uuids(0, 8)))
	w.want("gpu001", Maint)
	b = gpuBeat(uuids(0, 8))
	b.intent = intentMaintenance
	w.beats(1, b)
	w.want("gpu001", Ready)
	w.beats(3, b) // there is none to end
	w.want("gpu001", Ready)
	if n := w.c.nodes["gpu001"]; n.bad() || len(n.gpus.missing) > 0 {
		t.Errorf("%+v", n.gpus)
	}
	if got := w.actions(); !slices.Equal(got, []string{"suspend", "resume"}) {
		t.Errorf("actions %v", got)
	}

	w = readyGPU(t) // one that does not end
	b = away()
	b.intent, b.maint = intentMaintenance, time.Minute
	w.beats(1, b)
	w.beats(11, away())
	w.want("gpu001", Maint)
	w.beats(4, away())
	w.want("gpu001", Degraded)
	if r := w.c.nodes["gpu001"].reason; r != "inventory unavailable for more than 30s: released" {
		t.Errorf("reason %q", r)
	}
}
