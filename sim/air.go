// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"

	"github.com/rackpulse/rackpulse/site"
)

// Room air. The supply set point and the rackless nodes' room are assumed; the
// recommended inlet is 18-27 C (ASHRAE TC 9.9).
const (
	supplyC = 20.5
	officeC = 23.
	// rackHeatJ is the heat capacity of the air and metal around one rack: 40 kW
	// without cooling give 3 K/min (evidence: 1-3 K/min).
	rackHeatJ = 40000. * 60 / 3
	// leakW is the heat a rack's room loses per kelvin to the building, so that
	// a lost cooling unit ends somewhere (assumed: 40 kW at 80 K).
	leakW = 500.
	// Rack inlet: T = T_supply + sum D P. Own rack .05-.15, neighbours .01-.05
	// K/kW for racks of 40 kW; denser racks are built with better containment.
	denseW           = 40000.
	inletLag         = 60. // seconds, local air
	outletLag        = 30.
	chillLag         = 20. // a stopped unit's coil stays cold so long
	pullDown         = 120.
	coilRise         = 12. // K between supply and return at capacity (assumed)
	chillerCOP       = 5.  // HPE dc-rl
	coolFan          = .03 // of capacity, at full speed, cubic (assumed)
	losses           = .05 // of IT power: distribution, lights (assumed)
	dewPointC        = 10. // room humidity (ASHRAE: -9..15 C)
	daySec, weekSec  = 86400., 604800.
	dayAmp, weekAmp  = .7, .5 // K: diurnal 1-2 K, weekly wander 1 K peak to peak
	sensorOffset     = .2     // K either way
	gradLo, gradHi   = 1., 3. // K from bottom to top of a rack
	sensorNoise      = .03
	sensorMaxC       = 80. // the end of a rack sensor's range, where it sticks (assumed)
	topAt, midAt, lo = .95, .5, .05
)

type rack struct {
	id, row    string
	heightU    int
	stream     uint64
	nodes      []*node
	neighbours []*rack
	zone       *zone
	gradient   float64 // K from bottom to top
	self, near float64 // K per watt

	recirc float64 // control: share of its own exhaust in its inlet air

	watts, inlet, outlet float64
}

func newRack(sr *site.Rack, seed int64) *rack {
	s := hashName(seed, "rack/"+sr.ID)
	return &rack{
		id: sr.ID, row: sr.Row, heightU: sr.HeightU, stream: s,
		gradient: between(s, -1, gradLo, gradHi),
		self:     between(s, -2, .06, .09) / 1000, near: between(s, -3, .01, .02) / 1000,
		inlet: supplyC + 3, outlet: supplyC + 15,
	}
}

// finish scales the recirculation of a dense rack and returns its rated power.
func (r *rack) finish() float64 {
	rated := 0.0
	for _, nd := range r.nodes {
		rated += nd.rated
	}
	if rated > denseW {
		r.self *= denseW / rated
		r.near *= denseW / rated
	}
	return rated
}

// at is the inlet air at a height of 0..1.
func (r *rack) at(height float64) float64 { return r.inlet + r.gradient*(height-.5) }

// zone is the air of the racks that the same cooling units serve.
type zone struct {
	units  []*unit
	heat   []float64 // removed by each unit, watts
	racks  []*rack
	excess float64 // K above the set point
}

type unit struct {
	id       string
	stream   uint64
	capacity float64
	racks    []*rack

	stopped bool    // control
	left    float64 // control: share of the capacity that is left, unknown to the unit; 0: all

	output, fan, supply, ret float64
}

func (u *unit) electric() float64 {
	if u.stopped {
		return 0
	}
	return u.output/chillerCOP + coolFan*u.capacity*u.fan*u.fan*u.fan
}

// stepAir moves heat from racks to cooling units.
func (h *Hall) stepAir(n int64) {
	for _, r := range h.racks {
		r.watts = 0
		for _, nd := range r.nodes {
			r.watts += nd.watts
		}
	}
	for _, u := range h.units {
		u.output = 0
	}
	for _, z := range h.zones {
		z.step()
	}
	day := dayAmp*math.Sin(2*math.Pi*(float64(n)/daySec+uniform(uint64(h.seed), 1))) +
		weekAmp*math.Sin(2*math.Pi*(float64(n)/weekSec+uniform(uint64(h.seed), 2)))
	for _, r := range h.racks {
		r.step(day)
	}
	for _, u := range h.units {
		u.step()
	}
}

// step balances a zone: C dT/dt = P_IT - Q - losses.
func (z *zone) step() {
	var watts, removed float64
	for _, r := range z.racks {
		watts += r.watts
	}
	heat := rackHeatJ * float64(len(z.racks))
	running := 0
	for _, u := range z.units {
		if !u.stopped {
			running++
		}
	}
	for i, u := range z.units {
		want := 0.0
		if !u.stopped {
			want = (watts + z.excess*heat/pullDown) / float64(running)
			want = min(u.capacity*cmp.Or(u.left, 1), max(0, want))
		}
		if z.heat[i] += (want - z.heat[i]) / chillLag; z.heat[i] < 1 {
			z.heat[i] = 0
		}
		u.output += z.heat[i]
		removed += z.heat[i]
	}
	if len(z.units) == 0 { // cooling that the site file does not name
		removed = watts
	}
	z.excess += (watts - removed - leakW*float64(len(z.racks))*z.excess) / heat
}

func (r *rack) step(day float64) {
	air := supplyC + r.zone.excess + day + r.self*r.watts
	flow, rise := 0.0, 0.0
	for _, near := range r.neighbours {
		air += r.near * near.watts
	}
	for _, nd := range r.nodes {
		flow += nd.airFlow
		rise += nd.airFlow * nd.rise
	}
	air = (1-r.recirc)*air + r.recirc*r.outlet
	r.inlet += (air - r.inlet) / inletLag
	out := r.inlet
	if flow > 0 {
		out += rise / flow
	}
	r.outlet += (out - r.outlet) / outletLag
}

func (u *unit) step() {
	if u.stopped { // its sensors read the still air around it
		air := 0.0
		for _, r := range u.racks {
			air += r.inlet / float64(len(u.racks))
		}
		u.fan = 0
		u.supply += (air - u.supply) / inletLag
		u.ret += (air + 1 - u.ret) / inletLag
		return
	}
	share := u.output / max(1, u.capacity)
	u.fan = .35 + .65*share
	u.supply = supplyC
	u.ret = supplyC + coilRise*share/u.fan
}

// sensor is an environmental sensor.
type sensor struct {
	*site.Sensor
	rack   *rack
	stream uint64
	frozen *float64 // control: the value it is stuck at
	gone   bool     // control: no longer readable
}

// read returns the value at step n; false when there is none.
func (s *sensor) read(n int64) (float64, bool) {
	if s.gone {
		return 0, false
	}
	if s.frozen != nil {
		return *s.frozen, true
	}
	inlet, outlet, gradient := supplyC+3, supplyC+15, 0.
	if s.rack != nil {
		inlet, outlet, gradient = s.rack.inlet, s.rack.outlet, s.rack.gradient
	}
	height := midAt
	switch s.Position {
	case "top":
		height = topAt
	case "bottom":
		height = lo
	}
	drift := between(s.stream, -1, -sensorOffset, sensorOffset) + sensorNoise*noise(s.stream, n)
	switch s.Measures {
	case "inlet_temperature":
		return tenth(inlet + gradient*(height-.5) + drift), true
	case "outlet_temperature":
		return tenth(outlet + gradient*(height-.5) + drift), true
	case "inlet_humidity":
		rh := saturation(dewPointC) / saturation(inlet)
		return math.Round(1000*min(1, rh*(1+drift/20))) / 1000, true
	case "leak":
		return 0, true
	}
	return 0, false
}

// saturation is the vapour pressure of water over a flat surface, hPa (Magnus
// formula with the WMO's constants).
func saturation(c float64) float64 { return 6.112 * math.Exp(17.62*c/(243.12+c)) }

// tenth is a reading in steps of .1 K, up to the sensor's end.
func tenth(c float64) float64 { return min(sensorMaxC, math.Round(10*c)/10) }

// meter is a building meter of energy.
type meter struct {
	*site.Meter
	joules float64
}

// stepMeters integrates IT, cooling and total power over wall time.
func (h *Hall) stepMeters(dt float64) {
	var it, cooling float64
	for _, nd := range h.nodes {
		it += nd.watts
	}
	for _, p := range h.pdus {
		if p.energised() {
			it += p.stray
		}
	}
	for _, u := range h.units {
		cooling += u.electric()
	}
	for _, m := range h.meters {
		switch m.Role {
		case "it":
			m.joules += it * dt
		case "cooling":
			m.joules += cooling * dt
		case "total":
			m.joules += (it*(1+losses) + cooling) * dt
		}
	}
}
