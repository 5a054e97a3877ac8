// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// signSet is everything out of the ordinary in a state, as "what:entity", by the
// thresholds of the standard rules: GPU 85 C, inlet 28 C, idle below 10 %, a
// quarter of a rack's GPUs.
type signSet map[string]bool

func (out signSet) mark(is bool, what, id string) {
	if is {
		out[what+":"+id] = true
	}
}

func signs(st *site.Site, s *State) signSet {
	out := signSet{}
	for _, sn := range st.Sensors {
		c, ok := s.Sensors[sn.ID]
		out.mark(!ok, "gone", sn.ID)
		out.mark(sn.Measures == "inlet_temperature" && c > 28, "inlet", sn.Rack)
		out.mark(sn.Measures == "leak" && c != 0, "leak", sn.ID)
	}
	hot, all := map[string]int{}, map[string]int{}
	for _, sn := range st.Nodes {
		n := s.Nodes[sn.ID]
		out.mark(!n.Up, "down", sn.ID)
		for i := range n.GPUs {
			if n.Up {
				all[sn.Rack]++
				hot[sn.Rack] += out.gpu(sn.ID, sn.Rack, &n.GPUs[i])
			}
		}
		if r := s.Racks[sn.Rack]; r != nil {
			rth, ok := meanRth(n, r.InletC)
			out.mark(ok && rth > .055, "rth", sn.ID)
		}
	}
	for rack, n := range hot {
		out.mark(n > 0 && 4*n >= all[rack], "rack-hot", rack)
	}
	out.facility(st, s)
	return out
}

// gpu returns 1 for a hot GPU.
func (out signSet) gpu(node, rack string, g *GPU) int {
	out.mark(g.ThermalSlowdown, "throttle", node)
	out.mark(g.PowerBrake, "brake", node)
	out.mark(!g.Present, "lost", node)
	for code := range g.XIDs {
		out.mark(true, fmt.Sprintf("xid%d", code), node)
	}
	out.mark(g.NVLinkCRC > 0, "crc", node)
	out.mark(g.ECCSBE > 0, "sbe", node)
	out.mark(g.RemapUncorr > 0, "remap", node)
	if g.TempC <= 85 {
		return 0
	}
	out.mark(true, "hot", node)
	out.mark(g.Util < .1 && out["inlet:"+rack], "idle-hot", rack)
	return 1
}

func (out signSet) facility(st *site.Site, s *State) {
	for _, p := range st.PDUs {
		pd := s.PDUs[p.ID]
		out.mark(!pd.Energised, "dark", p.ID)
		out.mark(!pd.Manageable, "mute", p.ID)
		for _, ph := range pd.Phases {
			out.mark(ph.Volts < 210, "dip", p.ID)
			out.mark(ph.Amperes > p.RatedAmperes, "over", p.ID)
		}
	}
	for id, c := range s.Cooling {
		out.mark(!c.Up, "stopped", id)
	}
	for id, sw := range s.Switches {
		for name, p := range sw.Ports {
			out.mark(!p.Up, "port", id+"/"+name)
			out.mark(p.Flaps > 0, "flap", id+"/"+name)
			out.mark(p.RxErrors > 0, "port-errors", id+"/"+name)
		}
	}
}

// expected holds, by scenario, each sign that must appear and the physics
// seconds after the onset by which it has; no other sign may.
var expected = map[string]map[string]int{
	"steady":    {},
	"load-only": {},
	"cooling-loss": with(each("inlet:%s", 240, "r01", "r02"), each("rack-hot:%s", 1500, "r01", "r02"),
		each("hot:%s", 1800, "gpu001", "gpu002", "gpu003", "gpu004", "gpu005", "gpu006", "gpu007", "gpu008"),
		each("throttle:%s", 1800, "gpu001", "gpu002", "gpu003", "gpu004", "gpu005", "gpu006", "gpu007", "gpu008"),
		each("stopped:%s", 0, "crah1")),
	"airflow-loss": with(each("inlet:%s", 200, "r01"), each("idle-hot:%s", 480, "r01"), each("rack-hot:%s", 540, "r01"),
		each("hot:%s", 720, "gpu001", "gpu002", "gpu003", "gpu004"),
		each("throttle:%s", 720, "gpu001", "gpu002", "gpu003", "gpu004")),
	"fan-failure": with(each("hot:%s", 300, "gpu001"), each("throttle:%s", 400, "gpu001"), each("rth:%s", 360, "gpu001")),
	"feed-loss": with(each("dark:%s", 0, "r01-a", "r02-a", "r03-a", "r04-a"),
		each("mute:%s", 0, "r01-a", "r02-a", "r03-a", "r04-a")),
	"dead-pdu-management": each("mute:%s", 0, "r01-a"),
	"phase-overload":      each("over:%s", 0, "r01-a"),
	"sag": with(each("dip:%s", 0, "r01-a", "r02-a", "r03-a", "r04-a"),
		each("brake:%s", 1, "gpu001", "gpu002", "gpu003", "gpu004", "gpu005", "gpu006", "gpu007", "gpu008",
			"gpu009", "gpu010", "gpu011", "gpu012", "gpu013", "gpu014", "gpu015", "gpu016")),
	"breaker-trip": with(each("dark:%s", 0, "r01-a"), each("mute:%s", 0, "r01-a")),
	"port-flap": with(each("port:%s", 0, "tor01/Ethernet1"), each("flap:%s", 0, "tor01/Ethernet1"),
		each("port-errors:%s", 10, "tor01/Ethernet1")),
	"gpu-lost": with(each("lost:%s", 0, "gpu001"), each("xid79:%s", 0, "gpu001")),
	"ecc-escalation": with(each("sbe:%s", 0, "gpu001"), each("xid48:%s", 75, "gpu001"),
		each("xid63:%s", 75, "gpu001"), each("xid94:%s", 75, "gpu001"), each("remap:%s", 75, "gpu001")),
	"nvlink-errors": with(each("crc:%s", 0, "gpu001"), each("xid74:%s", 75, "gpu001")),
	"node-crash":    with(each("down:%s", 0, "gpu001"), each("port:%s", 0, "tor01/Ethernet1")),
	"partition":     {},
	"clock-step":    {},
	"stale-sensor":  each("gone:%s", 315, "r01-in-top"),
	"moved-node": with(each("down:%s", 0, "gpu004"), each("port:%s", 0, "tor01/Ethernet4"),
		each("port:%s", 0, "tor04/Ethernet5")),
}

func each(format string, by int, ids ...string) map[string]int {
	out := map[string]int{}
	for _, id := range ids {
		out[fmt.Sprintf(format, id)] = by
	}
	return out
}

func with(parts ...map[string]int) map[string]int {
	out := map[string]int{}
	for _, p := range parts {
		maps.Copy(out, p)
	}
	return out
}

const onset = 120

func TestScenariosShowTheirSignsAndNoOther(t *testing.T) {
	for _, c := range Scenarios() {
		want, ok := expected[c.Name]
		if !ok || c.Summary == "" {
			t.Errorf("%s: nothing expected, or no summary", c.Name)
		}
		t.Run(c.Name, func(t *testing.T) {
			slowest := map[string]int{}
			until := onset + 600
			for _, by := range want {
				until = max(until, onset+by+300)
			}
			for seed := range int64(3) {
				h := newHall(t, Spec{Scenario: c.Name, Seed: seed})
				first := watch(h, until)
				for sign, at := range first {
					by, ok := want[sign]
					if !ok || at < onset || at-onset > by {
						t.Errorf("seed %d: %s after %d s, expected: %v by %d s", seed, sign, at-onset, ok, by)
					}
					what, _, _ := strings.Cut(sign, ":")
					slowest[what] = max(slowest[what], at-onset)
				}
				for sign := range want {
					if _, ok := first[sign]; !ok {
						t.Errorf("seed %d: no %s", seed, sign)
					}
				}
			}
			t.Log("slowest over the seeds:", slowest)
		})
	}
}

// watch returns when each sign appeared first: it looks every second near the
// onset, else every 15 s. Thermal resistance is defined on steady minutes only,
// so it must stay high for two.
func watch(h *Hall, until int) map[string]int {
	first, high := map[string]int{}, map[string]int{}
	for at := 0; at <= until; {
		s := after(h, at)
		now := signs(h.site, s)
		maps.DeleteFunc(high, func(sign string, _ int) bool { return !now[sign] })
		for sign := range now {
			since, ok := high[sign]
			if !ok {
				high[sign], since = at, at
			}
			if strings.HasPrefix(sign, "rth:") && at-since < 120 {
				continue
			}
			if _, ok := first[sign]; !ok {
				first[sign] = at
			}
		}
		if at >= onset-10 && at < onset+5 {
			at++
		} else {
			at += 15
		}
	}
	return first
}

func TestFaultsNameTheCause(t *testing.T) {
	f := func(scenario, kind, entity, id string) {
		t.Helper()
		h := newHall(t, Spec{Scenario: scenario, Onset: 50 * time.Second})
		if got := after(h, 49).Faults; len(got) != 0 {
			t.Errorf("%s: faults before the onset: %v", scenario, got)
		}
		got := after(h, 50).Faults
		if len(got) == 0 || got[0].Kind != kind || got[0].Entity != (site.Entity{Kind: entity, ID: id}) ||
			got[0].Since != 50*time.Second {
			t.Errorf("%s: faults %+v", scenario, got)
		}
	}
	f("load-only", "load_only", site.KindRack, "r01")
	f("cooling-loss", "cooling_loss", site.KindCooling, "crah1")
	f("airflow-loss", "airflow_loss", site.KindRack, "r01")
	f("fan-failure", "fan_failure", site.KindNode, "gpu001")
	f("feed-loss", "feed_loss", site.KindFeed, "feed-a")
	f("dead-pdu-management", "dead_pdu_management", site.KindPDU, "r01-a")
	f("phase-overload", "phase_overload", site.KindPDU, "r01-a")
	f("sag", "sag", site.KindFeed, "feed-a")
	f("breaker-trip", "breaker_trip", site.KindPDU, "r01-a")
	f("port-flap", "port_flap", site.KindSwitch, "tor01")
	f("gpu-lost", "gpu_lost", site.KindNode, "gpu001")
	f("ecc-escalation", "ecc_escalation", site.KindNode, "gpu001")
	f("nvlink-errors", "nvlink_errors", site.KindNode, "gpu001")
	f("node-crash", "node_crash", site.KindNode, "gpu001")
	f("partition", "partition", site.KindRack, "r01")
	f("clock-step", "clock_step", site.KindNode, "gpu001")
	f("stale-sensor", "stale_sensor", site.KindSensor, "r01-in-top")
	f("moved-node", "moved_node", site.KindNode, "gpu004")
}

func TestDocumentationNamesAllScenarios(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "simulator.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Scenarios() {
		if !strings.Contains(string(text), "\n| "+c.Name+" |") {
			t.Errorf("docs/simulator.md has no row for %s", c.Name)
		}
	}
}
