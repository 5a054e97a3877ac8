// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// pinned is a world whose class of cpu001 and ws01 has a baseline.
func pinned(t *testing.T) *world {
	w := newWorld(t)
	w.c.setSite(indexSite(pinnedSite("535.154.05")), w.now)
	return w
}

func pinnedSite(driver string) *site.Site {
	s := testSite()
	s.NodeClasses[1].Baseline = site.Baseline{Driver: site.Versions{driver}, Toolkit: site.Versions{">=1.14.3"}}
	return s
}

// tells is a beat with facts.
func tells(boot, driver, toolkit string) beat {
	return beat{hello: &Hello{BootID: boot, Facts: site.Facts{Driver: driver, Toolkit: toolkit}}}
}

const (
	wantDriver  = "driver 535.1, want 535.154.05"
	wantToolkit = "toolkit not told, want >=1.14.3"
	outsideCPU  = "outside the baseline of class cpu: "
)

func (w *world) reason(want string) {
	w.t.Helper()
	if got := w.c.nodes["cpu001"].reason; got != want {
		w.t.Errorf("after %s: reason %q, want %q", w.now.Sub(w.start), got, want)
	}
}

func TestOutsideTheBaselineStaysJoining(t *testing.T) {
	w := pinned(t)
	w.beat(tells("b1", "535.1", ""))
	w.beats(20, beat{})
	w.want("cpu001", Joining)
	w.reason(outsideCPU + wantDriver + "; " + wantToolkit)
	n := w.c.nodes["cpu001"]
	if _, ok := n.state.up(n.was); ok || n.state.schedulable(n.was) || len(w.acts) != 0 {
		t.Errorf("a node that was not admitted: up %t, actions %v", ok, w.actions())
	}
	var told []ledger.Event
	for _, e := range w.events {
		if e.From == "JOINING" && e.To == "JOINING" {
			told = append(told, e)
		}
	}
	if len(told) != 1 || !strings.HasSuffix(told[0].Reason, wantToolkit) {
		t.Errorf("history %+v", told)
	}
	w.beats(1, tells("b1", "", "1.14.3")) // what it does not tell again stands
	w.want("cpu001", Joining)
	w.reason(outsideCPU + wantDriver)
	if st := w.beats(1, tells("b1", "535.154.05", "")); st != Ready {
		t.Errorf("with facts that match %s", st)
	}
}

func TestClientWithoutFacts(t *testing.T) {
	w := pinned(t)
	w.beat(beat{})
	w.beats(10, beat{})
	w.want("cpu001", Joining)
	w.reason(outsideCPU + "its agent tells no facts")
	w.beat(beat{node: "gpu001"}) // its class has no baseline
	for range 3 {
		w.pass(5 * time.Second)
		w.beat(beat{node: "gpu001"})
		w.beat(beat{})
	}
	w.want("gpu001", Ready)
	w.c.setSite(indexSite(testSite()), w.now) // the baseline is gone
	w.beats(1, beat{})
	w.want("cpu001", Ready)
}

// admittedNode is a node that is READY.
func admittedNode(t *testing.T) *world {
	w := pinned(t)
	w.beat(tells("b1", "535.154.05", "1.17.5"))
	w.beats(2, beat{})
	w.want("cpu001", Ready)
	return w
}

func TestFactsLeaveTheBaseline(t *testing.T) {
	w := admittedNode(t)
	w.beats(1, tells("b1", "535.1", ""))
	w.want("cpu001", Ready)
	w.beats(1, beat{})
	w.want("cpu001", Degraded)
	w.reason(outsideCPU + wantDriver)
	if got := w.actions(); len(got) != 1 || got[0] != ledger.ActionSuspend {
		t.Errorf("actions %v", got)
	}
	w.beats(1, tells("b1", "535.154.05", ""))
	w.beats(11, beat{})
	w.want("cpu001", Degraded)
	w.beats(1, beat{}) // the cool-down of 60 s began with the beat that told
	w.want("cpu001", Ready)
}

func TestAgentStartedAgainKnowsNothingYet(t *testing.T) {
	w := admittedNode(t)
	w.c.streamEnded("cpu001", 1, w.now)
	again := tells("b1", "", "")
	again.stream, again.epoch = 2, 7
	w.beats(1, again)
	w.beats(20, beat{stream: 2, epoch: 7})
	w.want("cpu001", Ready)
	if got := w.c.nodes["cpu001"].info.Facts.Driver; got != "535.154.05" {
		t.Errorf("driver %q", got)
	}
}

func TestReloadedBaseline(t *testing.T) {
	w := admittedNode(t)
	before := w.c.status(w.c.nodes["cpu001"], w.now).Agent
	w.c.setSite(indexSite(pinnedSite("550")), w.now)
	w.beats(2, beat{})
	w.want("cpu001", Degraded)
	w.reason(outsideCPU + "driver 535.154.05, want 550")
	if before.outside != "" {
		t.Error("a status that was handed out has changed")
	}
}

func TestRecoversOnlyInsideTheBaseline(t *testing.T) {
	w := admittedNode(t)
	w.pass(31 * time.Second)
	w.want("cpu001", Expired)
	booted := tells("b2", "", "1.17.5") // what was told before the boot does not count
	booted.stream, booted.epoch = 2, 7
	w.beat(booted)
	w.want("cpu001", Recovering)
	more := beat{stream: 2, epoch: 7}
	w.beats(20, more)
	w.want("cpu001", Recovering)
	w.reason(outsideCPU + "driver not told, want 535.154.05")
	again := tells("b2", "535.154.05", "")
	again.stream, again.epoch = 2, 7
	if st := w.beats(1, again); st != Ready {
		t.Errorf("with facts that match %s", st)
	}

	w = admittedNode(t) // facts that come within the cool-down do not shorten it
	w.pass(31 * time.Second)
	w.beat(booted)
	w.beats(3, more)
	w.beats(1, again)
	w.beats(7, more)
	w.took("cpu001", Ready, 5*time.Second)

	w = admittedNode(t) // a silent one that is outside is lost like any other
	w.pass(31 * time.Second)
	w.beat(booted)
	w.took("cpu001", Expired, 30*time.Second)
}

func TestBootInMaintenance(t *testing.T) {
	w := admittedNode(t)
	if err := w.c.maintenance("cpu001", time.Hour, w.now, "new driver", "alice"); err != nil {
		t.Fatal(err)
	}
	w.c.streamEnded("cpu001", 1, w.now)
	w.pass(5 * time.Minute)
	booted, more := tells("b2", "", "1.17.5"), beat{stream: 2, epoch: 7}
	booted.stream, booted.epoch = 2, 7
	w.beat(booted)
	w.beats(3, more)
	if err := w.c.resumeNode("cpu001", w.now, "done", "alice"); err != nil {
		t.Fatal(err)
	}
	w.want("cpu001", Joining)
	w.beats(3, more)
	w.want("cpu001", Joining)
	w.reason(outsideCPU + "driver not told, want 535.154.05")
	again := tells("b2", "535.154.05", "")
	again.stream, again.epoch = 2, 7
	if st := w.beats(1, again); st != Ready {
		t.Errorf("with facts that match %s", st)
	}
}

// TestRestoredKeepsReady lets the registry start again: who was ready stays so until
// its agent tells facts that differ.
func TestRestoredKeepsReady(t *testing.T) {
	for _, c := range []struct {
		what string
		b    beat
		want State
	}{
		{"no facts", beat{}, Ready},
		{"the same", tells("b1", "535.154.05", "1.17.5"), Ready},
		{"not all yet", tells("b1", "535.154.05", ""), Ready},
		{"others", tells("b1", "535.1", "1.17.5"), Degraded},
	} {
		w := admittedNode(t)
		st := ledger.State{Nodes: []ledger.NodeRecord{w.node["cpu001"]}}
		w.c = newCore(Config{}, indexSite(pinnedSite("535.154.05")), 2, w.now)
		w.c.restore(st, w.now)
		w.beats(1, c.b)
		w.want("cpu001", Ready)
		w.beats(3, beat{})
		t.Logf("%s: %s", c.what, w.c.nodes["cpu001"].reason)
		w.want("cpu001", c.want)
	}
}

// TestNobodySlipsIn lets a node tell random facts, boot, fall silent and be put into
// maintenance, and looks at every transition: out of JOINING and RECOVERING into service
// leads only meeting the baseline.
func TestNobodySlipsIn(t *testing.T) {
	w := pinned(t)
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	admitted, n := 0, beat{stream: 1, epoch: 1}
	boot, told := 1, site.Facts{} // what the registry can know of this boot
	look := func() {
		t.Helper()
		for _, e := range w.events {
			from := parseState(e.From)
			if from != Joining && from != Recovering || gravity(parseState(e.To)) < 0 {
				continue
			}
			admitted++
			if told.Driver != "535.154.05" || told.Toolkit != "1.14.3" {
				t.Fatalf("seed %d: %s to %s with %v: %s", seed, e.From, e.To, told.Texts(), e.Reason)
			}
		}
		w.events = nil
	}
	for range 20000 {
		b := n
		switch rng.IntN(40) {
		case 0: // silent for a while
			w.pass(time.Duration(rng.IntN(60)) * time.Second)
		case 1: // booted
			w.c.streamEnded("cpu001", n.stream, w.now)
			boot, told, n.stream, n.epoch = boot+1, site.Facts{}, n.stream+1, n.epoch+1
			b = n
			b.hello = &Hello{BootID: fmt.Sprint(boot)}
		case 2, 3, 4:
			f := site.Facts{Driver: []string{"", "535.1", "535.154.05", "535.154.05"}[rng.IntN(4)], Toolkit: []string{"", "1.14.3"}[rng.IntN(2)]}
			told = f.Or(told)
			b.hello = &Hello{BootID: fmt.Sprint(boot), Facts: f}
		case 5:
			_ = w.c.maintenance("cpu001", time.Minute, w.now, "r", "alice") // or it is no state for that
		case 6:
			_ = w.c.clear("cpu001", w.now, "r", "alice")
		}
		w.beat(b)
		look()
		w.pass(5 * time.Second)
		look()
	}
	if admitted < 20 {
		t.Errorf("seed %d: admitted %d times only", seed, admitted)
	}
}
