// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"maps"
	"slices"
)

// redfishPoll gathers what one read of a service brought.
type redfishPoll struct {
	out   []Reading
	mains []rfCircuit
	power rfNumber // of the whole device, in watts
	cdu   redfishCDU
	node  redfishNode
}

func (p *redfishPoll) add(quantity, part string, n rfNumber) {
	p.addScaled(quantity, part, n, 1)
}

func (p *redfishPoll) addScaled(quantity, part string, n rfNumber, factor float64) {
	if n.ok {
		p.out = append(p.out, Reading{Quantity: quantity, Part: part, Value: n.value * factor})
	}
}

const (
	joulePerKWh    = 3.6e6
	wattPerKW      = 1000
	ratioOfPercent = 0.01
)

// pduMetrics takes a PowerDistributionMetrics: the totals of the device.
func (p *redfishPoll) pduMetrics(body []byte) error {
	var m struct{ PowerWatts, EnergykWh rfReading }
	if err := rfDecode(body, &m); err != nil {
		return err
	}
	p.power = m.PowerWatts.Reading
	p.add("power_factor", "", m.PowerWatts.PowerFactor)
	// The lifetime counter cannot be reset; the other one can.
	energy := m.EnergykWh.LifetimeReading
	if !energy.ok {
		energy = m.EnergykWh.Reading
	}
	p.addScaled("energy", "", energy, joulePerKWh)
	return nil
}

// mainsCircuit takes one of the device's inlets.
func (p *redfishPoll) mainsCircuit(body []byte) error {
	var c rfCircuit
	if err := rfDecode(body, &c); err != nil {
		return err
	}
	if !c.Status.gone() {
		p.mains = append(p.mains, c)
	}
	return nil
}

// branchCircuit takes a branch (bank, breaker, bus).
func (p *redfishPoll) branchCircuit(body []byte) error {
	var c rfCircuit
	if err := rfDecode(body, &c); err != nil {
		return err
	}
	if !c.Status.gone() {
		p.add("branch_current", c.ID, c.current())
	}
	return nil
}

// outlet takes one outlet.
func (p *redfishPoll) outlet(body []byte) error {
	var c rfCircuit
	if err := rfDecode(body, &c); err != nil {
		return err
	}
	if !c.Status.gone() {
		p.add("outlet_current", c.ID, c.current())
		p.add("outlet_power", c.ID, c.power())
	}
	return nil
}

// current is the highest line current; the neutral is no line.
func (c *rfCircuit) current() rfNumber {
	highest := c.CurrentAmps.Reading
	for _, line := range rfLines {
		highest.highest(c.PolyPhaseCurrentAmps[line].Reading)
	}
	return highest
}

// power is the circuit's active power. The powers between lines and those to
// neutral are of different loads and add up, unlike voltages and currents.
func (c *rfCircuit) power() rfNumber {
	sum := c.PowerWatts.Reading
	if sum.ok {
		return sum
	}
	for name := range rfPhases {
		sum.plus(c.PolyPhasePowerWatts[name].Reading)
	}
	return sum
}

// wye says that all load is between a line and neutral: then a phase carries
// the current of its line.
func (c *rfCircuit) wye() bool {
	neutral := false
	for name, part := range rfPhases {
		n := c.PolyPhasePowerWatts[name].Reading
		if len(part) > 1 && n.ok && n.value != 0 {
			return false
		}
		neutral = neutral || len(part) == 1 && (n.ok || c.PolyPhaseVoltage[name].Reading.ok)
	}
	return neutral
}

// finishPDU adds what is known once all resources are read. Lines and phases
// are of one inlet; of a device with several, such as a power shelf, they are of
// the one named mains, if any.
func (p *redfishPoll) finishPDU(mains string) {
	var highest, sum rfNumber
	for i := range p.mains {
		highest.highest(p.mains[i].current())
		sum.plus(p.mains[i].power())
	}
	p.add("current", "", highest)
	if !p.power.ok {
		p.power = sum
	}
	p.add("power", "", p.power)
	for i := range p.mains {
		if len(p.mains) == 1 || p.mains[i].ID == mains {
			p.inlet(&p.mains[i])
		}
	}
}

func (p *redfishPoll) inlet(c *rfCircuit) {
	wye, poly := c.wye(), false
	for i, name := range rfLines {
		n := c.PolyPhaseCurrentAmps[name].Reading
		part := string(rune('1' + i))
		p.add("line_current", part, n)
		if n.ok && wye {
			p.add("phase_current", part, n)
		}
		if n.ok {
			poly = true
			p.add("phase_current_rated", part, c.RatedCurrentAmps)
		}
	}
	p.add("neutral_current", "", c.PolyPhaseCurrentAmps["Neutral"].Reading)
	for _, name := range slices.Sorted(maps.Keys(rfPhases)) {
		p.add("phase_voltage", rfPhases[name], c.PolyPhaseVoltage[name].Reading)
		p.add("phase_power", rfPhases[name], c.PolyPhasePowerWatts[name].Reading)
	}
	if poly || len(c.PolyPhaseVoltage) > 0 {
		return
	}
	// One phase: it is the inlet.
	p.add("line_current", "1", c.CurrentAmps.Reading)
	p.add("phase_current", "1", c.CurrentAmps.Reading)
	p.add("phase_current_rated", "1", c.RatedCurrentAmps)
	p.add("phase_voltage", "1", c.Voltage.Reading)
	p.add("phase_power", "1", c.PowerWatts.Reading)
}
