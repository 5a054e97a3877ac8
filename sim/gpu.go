// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"math"
	"strconv"
)

// Thermal model: two nodes, junction and heat sink.
//
//	C1 dTj/dt = P - (Tj-Th)/R1
//	C2 dTh/dt = (Tj-Th)/R1 - (Th-Ta)/Rv,  Rv = Rv0 (phi/.5)^-.7
//
// R1+Rv0 = .044 K/W at 700 W TDP, from an H200 capture ((52-28) K / (627-78) W);
// scaled by TDP it gives .077 for an A100 (.07-.083 by matching Acme's
// quantiles). R1:Rv = 40:60, tau1 = 8 s and tau2 = 45 s are estimates, read off
// Summit's 7 MW edge.
const (
	rise  = .044 * 700 // kelvins above the air at TDP
	r1    = .4 * rise  // K at TDP over the junction's resistance
	rv    = .6 * rise  // K at TDP over the heat sink's
	tau1  = 8.         // seconds
	tau2  = 45.
	fanE  = -.7 // exponent of the convective resistance over the airflow
	fanAt = .5  // airflow ratio at which rv holds
)

// Power: P = floor + dynamic + leakage 2^((T-60)/25), leakage 8 % of TDP
// (estimate). floor and idleLeak give an idle H100 the 70-78 W of the dumps;
// dynamic brings full load at 60 C to the TDP.
const (
	floorShare = .09
	dynShare   = .85
	leakShare  = .08
	clockShare = .05 // of dynamic power: clocks up, no work
	idleLeak   = .4  // lower voltage when idle
)

// clockRate is the pace of the software slowdown, MHz per second; it ends at a
// margin above throttleEnd (estimates).
const clockRate, throttleEnd = 15, 2

type gpu struct {
	index     int
	uuid, bus string
	stream    uint64
	share     float64 // of the node's air rise that preheats it
	r1, rv    float64 // K/W
	c1, c2    float64 // J/K
	utilBias  float64
	marginOff float64

	lost   bool    // control: off the bus
	nvlink float64 // control: share of the links' speed

	util, tj, th, margin, clock, cap float64
	watts, energy                    float64
	swThermal, hwThermal, powerCap   bool
	over                             int // seconds past the shutdown limit
	replays, crc, sbe                float64
	dbe, remapCorr, remapUncorr      float64
	lastXID                          int
	xids                             map[int]int // never written once set
}

func (g *gpu) init(node string, index int, m *gpuModel, seed int64) {
	name := node + "/gpu" + strconv.Itoa(index)
	id := hashName(0, name) // not the seed: the same site keeps its UUIDs
	low := mix(id)
	s := hashName(seed, name)
	spread := between(s, -1, .96, 1.04) // paste and mounting
	*g = gpu{
		index: index, stream: s, nvlink: 1,
		uuid: fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x",
			uint32(id>>32), uint16(id>>16), uint16(id), uint16(low>>48), low&(1<<48-1)),
		bus:   "00000000:" + busIDs[index%len(busIDs)] + ":00." + strconv.Itoa(index/len(busIDs)),
		share: .15, r1: spread * r1 / m.tdp, rv: spread * rv / m.tdp,
		utilBias: between(s, -2, -.015, .015), marginOff: between(s, -3, -.4, .4),
		cap: m.smMHz, tj: 35, th: 33,
		remapCorr: math.Floor(between(s, -4, 0, 1.05)),
	}
	// The rear half of the board sits in the air of the front half: .4 of the
	// node's air rise (estimate), 5-8 K at load; the front .15, 2-3 K.
	if index%8 >= 4 {
		g.share = .4
	}
	g.c1, g.c2 = tau1/g.r1, tau2/g.rv
}

// step advances one second at a job's utilisation, the node's air inlet and
// rise, and the airflow's factor on rv. It returns the electrical power.
func (g *gpu) step(m *gpuModel, n int64, util, air, flow float64, brake bool) float64 {
	if util > 0 {
		util += (g.utilBias + .03*noise(g.stream, n)) * min(1, 5*util)
	}
	g.util = min(1, max(0, g.util+.3*(util-g.util)))
	if util <= 0 && g.util < .02 {
		g.util = 0
	}
	g.throttle(m)
	g.watts = g.power(m, brake)
	junction := (g.tj - g.th) / g.r1
	g.tj += (g.watts - junction) / g.c1
	g.th += (junction - (g.th-air)/(g.rv*flow)) / g.c2
	return g.watts
}

// throttle applies the thermal limits: software slowdown at margin 0, hardware
// slowdown and shutdown at the model's margins.
func (g *gpu) throttle(m *gpuModel) {
	g.margin = m.maxOp - g.tj - g.marginOff
	if g.margin <= 0 {
		g.swThermal = true
	} else if g.margin > throttleEnd {
		g.swThermal = false
	}
	if g.swThermal {
		g.cap = max(minSMMHz, g.cap-clockRate)
	} else {
		g.cap = min(m.smMHz, g.cap+clockRate)
	}
	if g.margin <= m.slow {
		g.hwThermal = true
	} else if g.margin > 0 {
		g.hwThermal = false
	}
	if g.margin <= m.shut {
		g.over++
	} else {
		g.over = 0
	}
}

// power sets the clock and returns the power it leads to, never above the TDP.
func (g *gpu) power(m *gpuModel, brake bool) float64 {
	g.powerCap = false
	g.clock = g.cap
	if g.util == 0 {
		g.clock = min(g.cap, idleSMMHz)
	} else if g.hwThermal || brake {
		g.clock = max(minSMMHz, g.cap/2)
	}
	busy := min(1, 5*g.util)
	rest := m.tdp * (floorShare + leakShare*math.Exp((g.tj-60)*math.Ln2/25)*(idleLeak+(1-idleLeak)*busy))
	ratio := g.clock / m.smMHz
	dyn := m.tdp * dynShare * (clockShare*busy + (1-clockShare)*g.util) * ratio * ratio
	if rest+dyn > m.tdp && dyn > 0 {
		left := max(.04, (m.tdp-rest)/dyn)
		g.clock *= math.Sqrt(left)
		dyn *= left
		g.powerCap = true
	}
	return rest + dyn
}

// off is one second without power.
func (g *gpu) off(air float64) {
	g.util, g.watts, g.powerCap, g.swThermal, g.hwThermal = 0, 0, false, false, false
	g.tj += (air - g.tj) / tau2
	g.th = g.tj
}

// xid records that a code has had so many episodes.
func (g *gpu) xid(code, episodes int) {
	if g.xids[code] >= episodes {
		return
	}
	next := maps.Clone(g.xids)
	if next == nil {
		next = map[int]int{}
	}
	next[code] = episodes
	g.xids, g.lastXID = next, code
}
