// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"

	"github.com/rackpulse/rackpulse/site"
)

// Node figures, scaled from a DGX H100: 10.2 kW rated, 8.4 kW (82 %) measured at
// most; about 1105 CFM = .5215 m3/s of air. The fans take 10-15 % of the node at
// full speed; the base load (processors, memory, network) is what remains.
const (
	ratedPerTDP  = 10200. / (8 * 700)
	baseIdle     = .118 // of rated power
	baseLoad     = .088 // more at full utilisation
	fanShare     = .118
	flowPerRated = .5215 / 10200 // m3/s per watt
	cpuNodeRated = 800           // watts, a node without GPUs (assumed)
	standby      = 20.           // watts of the management controller (assumed)
	airHeat      = 1.2 * 1005    // J/(m3 K): density times heat capacity of air
	chassisLag   = 60.           // seconds; the metal in the air's way (assumed)
)

// Fan law: phi = clip(.3 + .02 (Tmax-45), .3, 1), lag 30 s.
const (
	fanMin, fanGain, fanFrom, fanLag = .3, .02, 45, 30
)

type plug struct {
	pdu    *pdu
	outlet int
}

type node struct {
	id     string
	class  *site.NodeClass
	model  *gpuModel
	stream uint64
	rack   *rack // nil: rackless
	group  *group
	gpus   []gpu
	plugs  []plug
	height float64 // in the rack, 0 bottom, 1 top
	rated  float64 // watts
	eta    float64 // of its power supplies

	load    float64 // control: utilisation; negative: the job's
	airflow float64 // control: share of the fans' airflow that is left
	fans    float64 // control: share of the fans that turn
	stir    float64 // control: exhaust air mixed inside the chassis
	brake   bool    // control: external power brake
	down    bool    // control: crashed

	dead    bool // a GPU passed its shutdown limit
	up      bool
	phi     float64
	util    float64 // mean
	watts   float64
	airFlow float64 // m3/s
	rise    float64 // K, of the air on its way through
}

func newNode(sn *site.Node, class *site.NodeClass, gpus []gpu, seed int64) *node {
	s := hashName(seed, "node/"+sn.ID)
	nd := &node{
		id: sn.ID, class: class, stream: s, gpus: gpus, model: modelOf(class.GPUModel),
		height: .5, rated: cpuNodeRated, load: -1, airflow: 1, fans: 1, phi: fanMin,
		eta: between(s, -1, .945, .955), // power supplies: 94-96 %
	}
	if len(gpus) > 0 {
		nd.rated = ratedPerTDP * float64(len(gpus)) * nd.model.tdp
	}
	for i := range gpus {
		gpus[i].init(sn.ID, i, nd.model, seed)
	}
	return nd
}

// plugIn adds one of the node's count outlets. Half of them must carry it.
func (nd *node) plugIn(p *pdu, name string, count int) {
	i := p.outlet(name)
	p.outlets[i].used = true
	if nd.rated > cordWatts*float64((count+1)/2) {
		p.group(i)
	}
	nd.plugs = append(nd.plugs, plug{p, i})
}

// powered says whether any of its outlets delivers; a node without declared
// outlets has a supply of its own.
func (nd *node) powered() bool {
	for _, p := range nd.plugs {
		if p.pdu.energised() {
			return true
		}
	}
	return len(nd.plugs) == 0
}

// inlet is the air in front of it.
func (nd *node) inlet() float64 {
	if nd.rack == nil {
		return officeC
	}
	return nd.rack.at(nd.height)
}

func (nd *node) step(n int64, dt float64) {
	powered := nd.powered()
	if nd.up = powered && !nd.down && !nd.dead; !nd.up {
		nd.rest(powered)
		return
	}
	util := nd.group.util
	if nd.load >= 0 {
		util = nd.load * nd.group.stall
	}
	flow := nd.phi * nd.fans * nd.airflow
	nd.airFlow = flow * flowPerRated * nd.rated
	nd.rise += (nd.watts/(airHeat*nd.airFlow) - nd.rise) / chassisLag
	factor := math.Pow(flow/fanAt, fanE)
	inlet := nd.inlet()
	var watts, hottest, sum float64
	for i := range nd.gpus {
		g := &nd.gpus[i]
		air := inlet + (g.share+(1-g.share)*nd.stir)*nd.rise
		if g.lost {
			g.off(air)
			continue
		}
		watts += g.step(nd.model, n, util, air, factor, nd.brake)
		hottest = max(hottest, g.tj)
		sum += g.util
		g.energy += g.watts * dt
		if g.over >= 5 {
			g.xid(79, 1)
			nd.dead = true
		}
	}
	nd.util = util
	if len(nd.gpus) > 0 {
		nd.util = sum / float64(len(nd.gpus))
	}
	fan := min(1, max(fanMin, fanMin+fanGain*(hottest-fanFrom)))
	nd.phi += (fan - nd.phi) / fanLag
	base := nd.rated * (baseIdle + baseLoad*nd.util) * (1 + .004*noise(nd.stream, n))
	watts += base + nd.rated*fanShare*nd.fans*nd.phi*nd.phi*nd.phi
	nd.watts = watts / nd.eta
}

// rest is one second of a node that does not run.
func (nd *node) rest(powered bool) {
	nd.watts, nd.util, nd.airFlow, nd.rise, nd.phi = 0, 0, 0, 0, fanMin
	if powered {
		nd.watts = standby
	}
	for i := range nd.gpus {
		nd.gpus[i].off(nd.inlet())
	}
}
