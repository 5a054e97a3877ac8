// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"strconv"
)

// voltNoise is the relative noise of a phase voltage (readings of a PDU wander by
// .5 %, the grid by less).
const voltNoise = .002

type feed struct {
	id        string
	lineVolts float64
	dead      bool    // control
	sag       float64 // control: share of the voltage that is left
}

type pdu struct {
	id     string
	rack   *rack
	feed   *feed
	stream uint64
	rated  float64 // amperes per line
	pf     float64

	tripped   bool    // control: its inlet breaker is open
	unmanaged bool    // control: its controller does not answer
	stray     float64 // control: watts on phase 0 that belong to no node

	watts   []float64 // by phase
	energy  float64
	outlets []outlet
}

// cordWatts is what one single-phase outlet can carry: 16 A (C19) at 230 V.
const cordWatts = 16 * 230

type outlet struct {
	name  string
	phase []float64 // share of its power by phase
	used  bool
	watts float64
}

// outlet returns the index of an outlet, which is added when it is new. Outlet n
// hangs on phase (n-1) modulo the number of phases.
func (p *pdu) outlet(name string) int {
	for i := range p.outlets {
		if p.outlets[i].name == name {
			return i
		}
	}
	n, err := strconv.Atoi(name)
	if err != nil || n < 1 {
		n = len(p.outlets) + 1
	}
	phase := make([]float64, len(p.watts))
	phase[(n-1)%len(phase)] = 1
	p.outlets = append(p.outlets, outlet{name: name, phase: phase})
	return len(p.outlets) - 1
}

// free is the name of an outlet that no node uses.
func (p *pdu) free() string {
	for _, o := range p.outlets {
		if !o.used {
			return o.name
		}
	}
	return strconv.Itoa(len(p.outlets) + 1)
}

// group makes an outlet stand for a group of cords, one on each phase, that
// share within 2 %: a node that needs more than one outlet can carry has them.
func (p *pdu) group(outlet int) {
	o, sum := &p.outlets[outlet], 0.
	for i := range o.phase {
		o.phase[i] = between(p.stream+uint64(outlet), int64(i), .97, 1.03)
		sum += o.phase[i]
	}
	for i := range o.phase {
		o.phase[i] /= sum
	}
}

func (p *pdu) load(outlet int, watts float64) {
	o := &p.outlets[outlet]
	o.watts += watts
	for i, share := range o.phase {
		p.watts[i] += watts * share
	}
}

func (p *pdu) energised() bool { return !p.feed.dead && !p.tripped }

// volts is the voltage of one phase, line to neutral: line voltage over the
// square root of 3. A single-phase PDU on a feed of up to 250 V has the whole.
func (p *pdu) volts(phase int, n int64) float64 {
	v := p.feed.lineVolts
	if len(p.watts) > 1 || v > 250 {
		v /= math.Sqrt(3)
	}
	return v * p.feed.sag * (1 + voltNoise*noise(p.stream+uint64(phase), n))
}

// stepPower shares each node's power over its live outlets and sums it up: the
// power supplies share evenly, and when a feed dies the others take all at once.
func (h *Hall) stepPower(dt float64) {
	for _, p := range h.pdus {
		clear(p.watts)
		for i := range p.outlets {
			p.outlets[i].watts = 0
		}
		if p.energised() {
			p.watts[0] = p.stray
		}
	}
	for _, nd := range h.nodes {
		live := 0
		for _, pl := range nd.plugs {
			if pl.pdu.energised() {
				live++
			}
		}
		for _, pl := range nd.plugs {
			if pl.pdu.energised() {
				pl.pdu.load(pl.outlet, nd.watts/float64(live))
			}
		}
	}
	for _, p := range h.pdus {
		for _, w := range p.watts {
			p.energy += w * dt
		}
	}
}
