// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"testing"
)

func maxAmperes(p *PDU) float64 {
	out := 0.0
	for _, ph := range p.Phases {
		out = max(out, ph.Amperes)
	}
	return out
}

// The flagship rule's literal branch: an idle rack stays hot behind a hot inlet
// for half an hour, and no node goes down.
func TestAirflowLossHolds(t *testing.T) {
	for seed := range int64(6) {
		h := newHall(t, Spec{Scenario: "airflow-loss", Seed: seed})
		for at := onset + 600; at <= onset+3000; at += 60 {
			s := after(h, at)
			hot := 0
			for _, sn := range h.site.Nodes[:4] {
				for _, g := range s.Nodes[sn.ID].GPUs {
					if g.TempC > 85 && g.Util < .1 && g.Present {
						hot++
					}
				}
			}
			if hot < 8 || s.Sensors["r01-in-bot"] < 40 || s.Sensors["r01-out"] < 70 || s.Sensors["r01-out"] > 80 {
				t.Errorf("seed %d, %d s: %d of 32 GPUs hot, inlet %v, outlet %v",
					seed, at, hot, s.Sensors["r01-in-bot"], s.Sensors["r01-out"])
			}
		}
	}
}

// Cooling loss: GPUs rise together under load at flat thermal resistance, the
// room by 1-3 K/min.
func TestCoolingLoss(t *testing.T) {
	for seed := range int64(3) {
		h := newHall(t, Spec{Scenario: "cooling-loss", Seed: seed})
		before, calm := after(h, onset-1), after(h, onset+300)
		pace := after(h, onset+360).Racks["r01"].InletC - calm.Racks["r01"].InletC
		near(t, "pace of the inlet, K/min", pace, 2, 1)
		late := after(h, onset+1000)
		for _, sn := range h.site.Nodes[:8] { // racks r01 and r02
			a, b := before.Nodes[sn.ID].GPUs[5], late.Nodes[sn.ID].GPUs[5]
			if b.TempC-a.TempC < 15 || b.Util < .7 {
				t.Errorf("seed %d: %s from %+v to %+v", seed, sn.ID, a, b)
			}
		}
		r0, ok0 := meanRth(before.Nodes["gpu003"], before.Racks["r01"].InletC)
		r1, ok1 := meanRth(late.Nodes["gpu003"], late.Racks["r01"].InletC)
		if !ok0 || !ok1 || r1 > r0*1.08 {
			t.Errorf("seed %d: R_th from %v to %v", seed, r0, r1)
		}
	}
}

// Throttling keeps all nodes alive without cooling.
func TestCoolingLossSettles(t *testing.T) {
	h := newHall(t, Spec{Scenario: "cooling-loss"})
	s := after(h, 4*3600)
	for _, sn := range h.site.Nodes[:8] {
		if n := s.Nodes[sn.ID]; !n.Up || n.GPUs[5].TempC > 92 {
			t.Errorf("%s after four hours: %+v", sn.ID, n)
		}
	}
}

// Load heat is not a cooling fault: GPUs warm up by ten and more kelvins, the
// inlet by less than 2, thermal resistance does not rise.
func TestLoadOnly(t *testing.T) {
	h := newHall(t, Spec{Scenario: "load-only", Seed: 2})
	before, s := after(h, onset-1), after(h, onset+900)
	for _, sn := range h.site.Nodes[:4] {
		a, b := before.Nodes[sn.ID].GPUs[6], s.Nodes[sn.ID].GPUs[6]
		if b.TempC-a.TempC < 8 || b.TempC < 57 || b.Util < .93 || b.PowerWatts < 650 {
			t.Errorf("%s: from %+v to %+v", sn.ID, a, b)
		}
	}
	near(t, "inlet rise", s.Racks["r01"].InletC-before.Racks["r01"].InletC, 1, 1)
}

// The other feed takes the load in one step, and no node notices.
func TestFeedLossAndBreakerTrip(t *testing.T) {
	for _, name := range []string{"feed-loss", "breaker-trip"} {
		h := newHall(t, Spec{Scenario: name, Seed: 1})
		before, s := after(h, onset-1), after(h, onset)
		for _, r := range h.site.Racks {
			step := s.PDUs[r.ID+"-b"].PowerWatts / before.PDUs[r.ID+"-b"].PowerWatts
			want := 2.0
			if name == "breaker-trip" && r.ID != "r01" {
				want = 1
			}
			near(t, name+" step on "+r.ID+"-b", step, want, .1)
		}
		dead := s.PDUs["r01-a"]
		if len(dead.Phases) != 0 || len(dead.Outlets) != 0 || dead.PowerWatts != 0 || dead.Manageable {
			t.Errorf("%s: r01-a %+v", name, dead)
		}
		if dead.EnergyJ < before.PDUs["r01-a"].EnergyJ {
			t.Errorf("%s: the dead PDU's counter fell", name)
		}
	}
}

// A node with all its outlets on the dead feed goes down.
func TestFeedLossTakesSingleFedNodes(t *testing.T) {
	s := example(t)
	s.Nodes[2].Outlets = s.Nodes[2].Outlets[:1]
	st := after(newHall(t, Spec{Site: s, Scenario: "feed-loss"}), onset+1)
	if n := st.Nodes["gpu003"]; n.Up || n.PowerWatts != 0 || n.GPUs[0].Present || n.GPUs[0].UUID == "" {
		t.Errorf("gpu003 without power: up %v, %v W, GPU 0 %+v", n.Up, n.PowerWatts, n.GPUs[0])
	}
}

func TestDeadManagementKeepsPower(t *testing.T) {
	h := newHall(t, Spec{Scenario: "dead-pdu-management"})
	before, s := after(h, onset-1), after(h, onset)
	p := s.PDUs["r01-a"]
	if !p.Energised || p.Manageable {
		t.Errorf("r01-a: %+v", p)
	}
	near(t, "power of r01-b", s.PDUs["r01-b"].PowerWatts, before.PDUs["r01-b"].PowerWatts, 300)
}

// The overload sits on one phase, 10 % above the rating of 63 A, and shows as
// power that no outlet accounts for.
func TestPhaseOverload(t *testing.T) {
	h := newHall(t, Spec{Scenario: "phase-overload", Seed: 4})
	p := after(h, onset+600).PDUs["r01-a"]
	near(t, "L1", p.Phases[0].Amperes, 1.1*63, 1)
	if p.Phases[1].Amperes > 40 || p.Phases[2].Amperes > 40 {
		t.Errorf("phases %+v", p.Phases)
	}
	sum := 0.0
	for _, w := range p.Outlets {
		sum += w
	}
	if p.PowerWatts-sum < 8000 {
		t.Errorf("outlets account for %v of %v W", sum, p.PowerWatts)
	}
}

// A sag lasts 2 s, the brake 30 s; both come again after 120 s.
func TestSag(t *testing.T) {
	h := newHall(t, Spec{Scenario: "sag", Seed: 1})
	busy := "gpu009"
	before := after(h, onset-1)
	for _, from := range []int{onset, onset + 120} {
		near(t, "volts in the sag", after(h, from+1).PDUs["r02-a"].Phases[1].Volts, .75*231, 2)
		s := after(h, from+10)
		near(t, "volts after it", s.PDUs["r02-a"].Phases[1].Volts, 231, 2)
		near(t, "volts on the other feed", s.PDUs["r02-b"].Phases[1].Volts, 231, 2)
		if n := s.Nodes[busy]; !n.GPUs[0].PowerBrake || n.PowerWatts > .8*before.Nodes[busy].PowerWatts {
			t.Errorf("brake: %v W after %v W", n.PowerWatts, before.Nodes[busy].PowerWatts)
		}
		if g := after(h, from+31).Nodes[busy].GPUs[0]; g.PowerBrake || g.SMClockMHz < 1900 {
			t.Errorf("after the brake: %+v", g)
		}
	}
}

func TestPortFlap(t *testing.T) {
	h := newHall(t, Spec{Scenario: "port-flap"})
	if p := after(h, onset+2).Switches["tor01"].Ports["Ethernet1"]; p.Up || p.Flaps != 1 {
		t.Errorf("down: %+v", p)
	}
	if u := after(h, onset+4).Nodes["gpu001"].GPUs[0].Util; u > .5 {
		t.Errorf("the job runs on at %v", u)
	}
	p := after(h, onset+95).Switches["tor01"].Ports["Ethernet1"]
	if !p.Up || p.Flaps != 4 || p.RxErrors < 200 || p.RxErrors > 400 {
		t.Errorf("after three half minutes: %+v", p)
	}
}

func TestGPULost(t *testing.T) {
	h := newHall(t, Spec{Scenario: "gpu-lost"})
	before := after(h, onset-1).Nodes["gpu001"]
	s := after(h, onset+30).Nodes["gpu001"]
	g := s.GPUs[0]
	if g.Present || g.LastXID != 79 || g.XIDs[79] != 1 || g.UUID != before.GPUs[0].UUID || g.PowerWatts != 0 {
		t.Errorf("the lost GPU: %+v", g)
	}
	if before.GPUs[1].Util < .7 || s.GPUs[1].Util != 0 || !s.GPUs[1].Present || !s.Up {
		t.Errorf("its neighbour works at %v, then %v", before.GPUs[1].Util, s.GPUs[1].Util)
	}
	if f := after(h, onset+30).Faults; f[0].UUID != g.UUID {
		t.Errorf("the fault names %q", f[0].UUID)
	}
}

func TestECCEscalation(t *testing.T) {
	h := newHall(t, Spec{Scenario: "ecc-escalation"})
	if g := after(h, onset+59).Nodes["gpu001"].GPUs[0]; g.ECCSBE < 2000 || g.LastXID != 0 || g.ECCDBE != 0 {
		t.Errorf("before the chain: %+v", g)
	}
	held := after(h, onset+59).Nodes["gpu001"].GPUs[0].XIDs
	g := after(h, onset+60+600).Nodes["gpu001"].GPUs[0]
	if g.XIDs[48] != 3 || g.XIDs[63] != 3 || g.XIDs[94] != 3 || g.LastXID != 94 || g.ECCDBE != 3 || g.RemapUncorr != 3 {
		t.Errorf("after three chains: %+v", g)
	}
	if len(held) != 0 {
		t.Errorf("an older state changed: %v", held)
	}
}

func TestNVLinkErrors(t *testing.T) {
	h := newHall(t, Spec{Scenario: "nvlink-errors", Speed: 10}) // onset after 12 s of wall time
	a, b := after(h, 22).Nodes["gpu001"].GPUs, after(h, 32).Nodes["gpu001"].GPUs
	if rate := (b[1].NVLinkCRC - a[1].NVLinkCRC) / 10; rate < 100 || rate > 200 {
		t.Errorf("%v CRC errors per second", rate)
	}
	if b[1].XIDs[74] != 1 || b[1].NVLinkMiBs > .8*b[2].NVLinkMiBs || b[2].NVLinkCRC != 0 {
		t.Errorf("GPU 1 %+v, GPU 2 %+v", b[1], b[2])
	}
}

func TestNodeCrash(t *testing.T) {
	s := after(newHall(t, Spec{Scenario: "node-crash"}), onset)
	if n := s.Nodes["gpu001"]; n.Up || n.PowerWatts > 50 {
		t.Errorf("%+v", n)
	}
	if s.PDUs["r01-a"].Outlets["1"] > 25 || s.Switches["tor01"].Ports["Ethernet1"].Up {
		t.Error("the crashed node still draws power or holds its port")
	}
}

func TestClockStepAndPartitionAreFaultsOnly(t *testing.T) {
	h := newHall(t, Spec{Scenario: "clock-step"})
	if f := after(h, onset).Faults; len(f) != 1 || f[0].Value != 90 {
		t.Errorf("faults %+v", f)
	}
	steady := after(newHall(t, Spec{}), 600)
	for _, name := range []string{"clock-step", "partition"} {
		s := after(newHall(t, Spec{Scenario: name}), 600)
		if s.Nodes["gpu001"].PowerWatts != steady.Nodes["gpu001"].PowerWatts || !s.Switches["tor01"].Manageable {
			t.Errorf("%s changes more than its faults", name)
		}
	}
}

func TestStaleSensor(t *testing.T) {
	h := newHall(t, Spec{Scenario: "stale-sensor"})
	frozen, other := after(h, onset).Sensors["r01-in-top"], map[float64]bool{}
	for at := onset; at < onset+300; at += 5 {
		s := after(h, at)
		if v := s.Sensors["r01-in-top"]; v != frozen {
			t.Fatalf("%d s: reads %v after %v", at, v, frozen)
		}
		other[s.Sensors["r02-in-top"]] = true
	}
	if len(other) < 2 {
		t.Error("a healthy sensor does not move either")
	}
	if _, ok := after(h, onset+300).Sensors["r01-in-top"]; ok {
		t.Error("the sensor did not vanish")
	}
}

// The moved node draws its power from the PDUs of its new rack and breathes the
// air there; rack r01's PDUs no longer feed it.
func TestMovedNode(t *testing.T) {
	h := newHall(t, Spec{Scenario: "moved-node", Seed: 1})
	before, s := after(h, onset-1), after(h, onset+600)
	n := s.Nodes["gpu004"]
	if !n.Up || before.PDUs["r01-a"].Outlets["4"] < 1000 || s.PDUs["r01-a"].Outlets["4"] != 0 {
		t.Errorf("gpu004: up %v, its old outlet %v W", n.Up, s.PDUs["r01-a"].Outlets["4"])
	}
	near(t, "its new outlets", s.PDUs["r04-a"].Outlets["5"]+s.PDUs["r04-b"].Outlets["5"], n.PowerWatts, 1e-6*n.PowerWatts)
	if ports := s.Switches["tor04"].Ports; !ports["Ethernet5"].Up || s.Switches["tor01"].Ports["Ethernet4"].Up {
		t.Errorf("ports %+v", ports)
	}
	if amps := maxAmperes(s.PDUs["r04-a"]); math.IsNaN(amps) || amps <= 0 || amps > 63 {
		t.Errorf("r04-a carries %v A", amps)
	}
}
