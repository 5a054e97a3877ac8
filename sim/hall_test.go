// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func example(tb testing.TB) *site.Site {
	tb.Helper()
	s, err := site.Example()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newHall(tb testing.TB, spec Spec) *Hall {
	tb.Helper()
	if spec.Site == nil {
		spec.Site = example(tb)
	}
	spec.Epoch = epoch
	h, err := New(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// after is the state so many physics seconds after the epoch, at speed 1.
func after(h *Hall, seconds int) *State {
	return h.At(epoch.Add(time.Duration(seconds) * time.Second))
}

func TestNewRefuses(t *testing.T) {
	bare := &site.Site{ID: "x"}
	f := func(spec Spec, wants ...string) {
		t.Helper()
		_, err := New(spec)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New(%+v): error %v, want one with %q", spec, err, want)
			}
		}
	}
	f(Spec{}, "no site")
	f(Spec{Site: bare, Scenario: "meteor"}, `"meteor"`, "steady", "cooling-loss", "moved-node")
	f(Spec{Site: bare, Speed: -1}, "speed -1")
	f(Spec{Site: bare, Speed: math.NaN()}, "speed NaN")
	f(Spec{Site: bare, Speed: 1e6}, "speed 1e+06")
	f(Spec{Site: bare, Onset: -time.Second}, "onset -1s")
	for _, c := range Scenarios() {
		switch c.Name {
		case "steady":
			continue
		default:
			f(Spec{Site: bare, Scenario: c.Name}, "scenario "+c.Name, "site")
		}
	}
	f(Spec{Site: &site.Site{Nodes: []site.Node{{ID: "n1", Class: "c"}}}}, "node n1", `class "c"`)
}

// A site without anything, and one with a node that has neither rack nor power
// nor network, are legal.
func TestSmallSites(t *testing.T) {
	newHall(t, Spec{Site: &site.Site{ID: "x"}})
	h := newHall(t, Spec{Site: &site.Site{
		NodeClasses: []site.NodeClass{{ID: "ws", GPUs: 1, GPUModel: "NVIDIA GeForce RTX 4080 SUPER"}, {ID: "cpu"}},
		Nodes:       []site.Node{{ID: "ws1", Class: "ws"}, {ID: "login", Class: "cpu"}},
	}})
	s := after(h, 600)
	if n := s.Nodes["ws1"]; !n.Up || len(n.GPUs) != 1 || n.GPUs[0].PowerLimitWatts != 320 {
		t.Errorf("ws1: %+v", n)
	}
	if n := s.Nodes["login"]; !n.Up || len(n.GPUs) != 0 || n.PowerWatts < 50 || n.PowerWatts > 800 {
		t.Errorf("login: %+v", n)
	}
}

func TestCallPatternDoesNotMatter(t *testing.T) {
	const end = 400
	for _, c := range Scenarios() {
		stepwise := newHall(t, Spec{Scenario: c.Name, Seed: 7})
		for i := 0; i < end; i += 7 {
			after(stepwise, i)
		}
		atOnce := newHall(t, Spec{Scenario: c.Name, Seed: 7})
		a, b := after(stepwise, end), after(atOnce, end)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the state depends on how often it was asked for", c.Name)
		}
		if back := after(stepwise, 10); back != a {
			t.Errorf("%s: an earlier instant gives another state", c.Name)
		}
	}
}

func TestSeedMatters(t *testing.T) {
	a, b := newHall(t, Spec{Seed: 1}), newHall(t, Spec{Seed: 2})
	if reflect.DeepEqual(after(a, 60).Nodes, after(b, 60).Nodes) {
		t.Error("seeds 1 and 2 give the same nodes")
	}
	for id, n := range after(a, 60).Nodes {
		for i, g := range n.GPUs {
			if other := after(b, 60).Nodes[id].GPUs[i]; other.UUID != g.UUID {
				t.Errorf("%s GPU %d: the UUID depends on the seed", id, i)
			}
		}
	}
}

func fingerprint(t *testing.T) string {
	h := newHall(t, Spec{Scenario: "ecc-escalation", Seed: 3, Speed: 20})
	data, err := json.Marshal(h.At(epoch.Add(45 * time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// Another process must see the same hall: no map order, no address, no clock.
func TestProcessesAgree(t *testing.T) {
	const marker = "fingerprint "
	if os.Getenv("SIM_FINGERPRINT") != "" {
		fmt.Println(marker + fingerprint(t))
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := marker + fingerprint(t)
	for range 3 {
		cmd := exec.Command(self, "-test.run=^TestProcessesAgree$")
		cmd.Env = append(os.Environ(), "SIM_FINGERPRINT=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("another process says %s (%v), want %s", out, err, want)
		}
	}
}

func TestConcurrentCallers(t *testing.T) {
	h := newHall(t, Spec{Seed: 5})
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			last := time.Duration(-1)
			for i := range 60 {
				s := after(h, i*(k+1))
				if s.Physics < last || s.Physics < time.Duration(i*(k+1))*time.Second {
					t.Errorf("caller %d: state of %v after %v", k, s.Physics, last)
				}
				last = s.Physics
			}
		})
	}
	wg.Wait()
	fresh := newHall(t, Spec{Seed: 5})
	if !reflect.DeepEqual(after(h, 600), after(fresh, 600)) {
		t.Error("concurrent callers changed the course of events")
	}
}

func TestSpeed(t *testing.T) {
	h := newHall(t, Spec{Speed: 60, Scenario: "node-crash"})
	s := h.At(epoch.Add(1900 * time.Millisecond)) // 114 s of physics, shown in steps of 30
	if s.Physics != 90*time.Second || !s.Wall.Equal(epoch.Add(1500*time.Millisecond)) || len(s.Faults) != 0 {
		t.Errorf("after 1.9 s at speed 60: physics %v, wall %v, faults %v", s.Physics, s.Wall, s.Faults)
	}
	if again := h.At(epoch.Add(1999 * time.Millisecond)); again != s {
		t.Error("a new state within the same half second")
	}
	s = h.At(epoch.Add(2 * time.Second))
	if s.Physics != 120*time.Second || len(s.Faults) != 1 || s.Nodes["gpu001"].Up {
		t.Errorf("after 2 s at speed 60: physics %v, faults %v", s.Physics, s.Faults)
	}
	slow := newHall(t, Spec{Speed: .5})
	if s := slow.At(epoch.Add(9 * time.Second)); s.Physics != 4*time.Second || !s.Wall.Equal(epoch.Add(8*time.Second)) {
		t.Errorf("after 9 s at speed .5: physics %v, wall %v", s.Physics, s.Wall)
	}
}

// A jump beyond the bound leaves steps out: the hall is as it would be, and
// counters go on at the present rates.
func TestLongJump(t *testing.T) {
	const end = 6 * 3600
	walker, jumper := newHall(t, Spec{Seed: 4}), newHall(t, Spec{Seed: 4})
	before := after(jumper, 0)
	for i := 0; i <= end; i += 3600 {
		after(walker, i)
	}
	a, b := after(walker, end), after(jumper, end)
	for id, n := range a.Nodes {
		for i, g := range n.GPUs {
			o := b.Nodes[id].GPUs[i]
			if math.Abs(g.TempC-o.TempC) > 1 || math.Abs(g.PowerWatts-o.PowerWatts) > 1 {
				t.Errorf("%s GPU %d: %v C %v W, after a jump %v C %v W", id, i, g.TempC, g.PowerWatts, o.TempC, o.PowerWatts)
			}
			if mean := (o.EnergyJoules - before.Nodes[id].GPUs[i].EnergyJoules) / end; mean < 60 || mean > 710 {
				t.Errorf("%s GPU %d: mean power over the jump %v W", id, i, mean)
			}
		}
	}
	if jumper.now != end {
		t.Errorf("stands at step %d", jumper.now)
	}
}
