// SPDX-License-Identifier: Apache-2.0

package hall

import (
	"strconv"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// driver is the label of simulated devices.
const driver = "sim"

// Facility writes the page of the agent that polls all devices.
func (v *View) Facility(p Page, st *sim.State) {
	for _, s := range v.Site.Sensors {
		c, ok := st.Sensors[s.ID]
		p.Set("facility_device_up", bit(ok), L("device", s.ID, "driver", driver, "rack_id", s.Rack, "sensor", s.ID, "position", s.Position))
		if ok && s.Measures == "inlet_temperature" {
			c += v.noise(InletKelvin)
			p.Set("rack_inlet_temperature_celsius", float64(int(10*c+.5))/10, L("rack_id", s.Rack, "sensor", s.ID, "position", s.Position))
		}
	}
	for id, c := range st.Cooling {
		p.Set("facility_device_up", bit(c.Manageable), L("device", id, "driver", driver, "cooling_unit", id))
		if c.Manageable {
			l := L("cooling_unit", id)
			p.Set("cooling_unit_up", bit(c.Up), l)
			p.Set("cooling_unit_supply_temperature_celsius", c.SupplyC, l)
			p.Set("cooling_unit_return_temperature_celsius", c.ReturnC, l)
		}
	}
	for _, d := range v.Site.PDUs {
		v.pdu(p, &d, st.PDUs[d.ID])
	}
	for _, s := range v.Site.Switches {
		v.switchPorts(p, &s, st.Switches[s.ID])
	}
}

func (v *View) pdu(p Page, d *site.PDU, now *sim.PDU) {
	id := L("pdu_id", d.ID, "rack_id", d.Rack)
	p.Set("facility_device_up", bit(now.Manageable), id.And("device", d.ID, "driver", driver))
	if !now.Manageable {
		return
	}
	factor := 1 + v.noise(PDURatio)
	top := 0.0
	for i, ph := range now.Phases {
		amps := ph.Amperes * factor
		top = max(top, amps)
		part := strconv.Itoa(i + 1)
		p.Set("pdu_line_current_ampere", amps, id.And("line", part))
		p.Set("pdu_phase_current_ampere", amps, id.And("phase", part))
		p.Set("pdu_phase_voltage_volt", ph.Volts, id.And("phase", part))
	}
	p.Set("pdu_current_ampere", top, id)
	p.Set("pdu_power_watt", now.PowerWatts*factor, id)
	if t := v.peaks[d.ID]; t != nil && len(t.amps) > 0 {
		for i, l := range t.parts {
			high, low := t.amps[0][i], t.amps[0][i]
			for _, a := range t.amps {
				high, low = max(high, a[i]), min(low, a[i])
			}
			p.Set("pdu_phase_current_peak_ampere", high*factor, l)
			p.Set("pdu_phase_current_trough_ampere", low*factor, l)
		}
	}
}

func (v *View) switchPorts(p Page, s *site.Switch, now *sim.Switch) {
	id := L("switch", s.ID, "rack_id", s.Rack)
	p.Set("facility_device_up", bit(now.Manageable), id.And("device", s.ID, "driver", driver))
	if !now.Manageable {
		return
	}
	for name, one := range now.Ports {
		l := id.And("port", name)
		p.Set("switch_port_up", bit(one.Up), l)
		p.Set("switch_port_flaps_total", one.Flaps, l)
		p.Set("switch_port_receive_errors_total", one.RxErrors, l)
		p.Set("switch_port_transmit_errors_total", one.TxErrors, l)
	}
}
