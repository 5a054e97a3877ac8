// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"slices"
	"time"
)

// state makes the snapshot of the present step.
func (h *Hall) state() *State {
	physics := time.Duration(h.now) * time.Second
	s := &State{
		Wall:     h.epoch.Add(time.Duration(math.Round(float64(h.now) * h.stepSec * 1e9))),
		Physics:  physics,
		Nodes:    make(map[string]*Node, len(h.nodes)),
		Racks:    make(map[string]*Rack, len(h.racks)),
		PDUs:     make(map[string]*PDU, len(h.pdus)),
		Cooling:  make(map[string]*Cooling, len(h.units)),
		Switches: make(map[string]*Switch, len(h.switches)),
		Sensors:  make(map[string]float64, len(h.sensors)),
		Meters:   make(map[string]float64, len(h.meters)),
	}
	gpus := make([]GPU, len(h.gpus))
	nodes := make([]Node, len(h.nodes))
	for i, nd := range h.nodes {
		nodes[i] = Node{Up: nd.up, PowerWatts: nd.watts, GPUs: gpus[:len(nd.gpus):len(nd.gpus)]}
		gpus = gpus[len(nd.gpus):]
		for k := range nd.gpus {
			nd.gpus[k].state(nd, &nodes[i].GPUs[k])
		}
		s.Nodes[nd.id] = &nodes[i]
	}
	for _, r := range h.racks {
		s.Racks[r.id] = &Rack{InletC: r.inlet, OutletC: r.outlet, PowerWatts: r.watts}
	}
	for _, p := range h.pdus {
		s.PDUs[p.id] = p.state(h.now)
	}
	for _, u := range h.units {
		s.Cooling[u.id] = &Cooling{
			Up: !u.stopped, Manageable: true, SupplyC: u.supply + .1*noise(u.stream, h.now),
			ReturnC: u.ret + .1*noise(u.stream+1, h.now), OutputWatts: u.output, FanRatio: u.fan,
		}
	}
	for _, sw := range h.switches {
		s.Switches[sw.id] = sw.state()
	}
	for _, sn := range h.sensors {
		if v, ok := sn.read(h.now); ok {
			s.Sensors[sn.ID] = v
		}
	}
	for _, m := range h.meters {
		if slices.Contains([]string{"it", "cooling", "total"}, m.Role) {
			s.Meters[m.ID] = m.joules
		}
	}
	for i := range h.courses {
		if c := &h.courses[i]; c.active(h.now) {
			s.Faults = append(s.Faults, c.faults...)
		}
	}
	return s
}

// state fills out. A GPU of a node that is down, or off the bus, keeps its
// identity and counters only.
func (g *gpu) state(nd *node, out *GPU) {
	m := nd.model
	*out = GPU{
		Index: g.index, UUID: g.uuid, PCIBusID: g.bus, Model: nd.class.GPUModel,
		Present:      nd.up && !g.lost,
		EnergyJoules: g.energy, PCIeReplays: g.replays, NVLinkCRC: g.crc,
		ECCSBE: g.sbe, ECCDBE: g.dbe, RemapCorr: g.remapCorr, RemapUncorr: g.remapUncorr,
		LastXID: g.lastXID, XIDs: g.xids,
	}
	if !out.Present {
		return
	}
	grp := nd.group
	out.TempC = math.Round(g.tj)
	// HBM runs 4-8 K above an idle GPU and memOffset from a busy one (gpu-burn).
	out.MemTempC = math.Round(g.tj + 6 + (m.memOffset-6)*g.util)
	out.MarginC = math.Round(g.margin)
	out.PowerWatts = math.Round(1000*g.watts) / 1000
	out.PowerLimitWatts = m.tdp
	out.Util = math.Round(100*g.util) / 100
	out.MemUtil = math.Round(100*g.util*grp.dram) / 100
	out.TensorActive, out.DRAMActive = g.util*grp.tensor, g.util*grp.dram
	out.SMClockMHz, out.MemClockMHz = math.Round(g.clock), m.memMHz
	out.FBReservedMiB = m.reservMiB
	if g.util > 0 {
		out.FBUsedMiB = math.Round(m.fbMiB * (.55 + .35*grp.dram))
	}
	out.FBFreeMiB = m.fbMiB - m.reservMiB - out.FBUsedMiB
	out.FanRatio = nd.phi * nd.fans
	out.PCIeGen, out.PCIeWidth = m.pcieGen, 16
	// Host traffic of training is a small share of the link (assumed 4 % and
	// 3 %); x16 carries 64 GB/s at generation 5 and half of it a generation less.
	link := 2e9 * math.Exp2(float64(m.pcieGen))
	out.PCIeTxBytes, out.PCIeRxBytes = link*.04*g.util, link*.03*g.util
	out.NVLinkMiBs = m.nvlinkMiBs * g.nvlink * g.util
	out.ThermalSlowdown = g.swThermal || g.hwThermal
	out.PowerBrake, out.PowerCap = nd.brake, g.powerCap
}

func (p *pdu) state(n int64) *PDU {
	out := &PDU{Energised: p.energised(), EnergyJ: p.energy}
	if !out.Energised { // the controller is fed by what it measures
		return out
	}
	out.Manageable = !p.unmanaged
	out.PowerFactor = p.pf
	out.Phases = make([]Phase, len(p.watts))
	for i, w := range p.watts {
		v := p.volts(i, n)
		out.Phases[i] = Phase{Amperes: w / (v * p.pf), Volts: v, Watts: w}
		out.PowerWatts += w
	}
	out.Outlets = make(map[string]float64, len(p.outlets))
	for _, o := range p.outlets {
		out.Outlets[o.name] = o.watts
	}
	return out
}

func (s *netSwitch) state() *Switch {
	out := &Switch{Manageable: !s.unmanaged, Ports: make(map[string]Port, len(s.ports))}
	for _, p := range s.ports {
		out.Ports[p.name] = Port{
			Up: p.up, SpeedBytes: p.speed, Flaps: p.flaps,
			RxBytes: math.Floor(p.rx), TxBytes: math.Floor(p.tx),
			RxErrors: math.Floor(p.rxErrors), TxErrors: math.Floor(p.txErrors),
		}
	}
	return out
}
