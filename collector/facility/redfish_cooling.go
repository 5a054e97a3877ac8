// SPDX-License-Identifier: Apache-2.0

package facility

import "path"

// redfishCDU gathers a cooling unit from its parts.
type redfishCDU struct {
	supply, back      rfNumber // highest of the secondary connectors, celsius
	secondary, source rfNumber // heat removed at the secondary and primary side, kW
	pump              rfNumber // the fastest pump that runs, percent
	wet, watched      bool     // detectors that have no sensor of their own
}

// coolingUnit takes the unit itself.
func (p *redfishPoll) coolingUnit(body []byte) error {
	var u struct{ Status rfStatus }
	if err := rfDecode(body, &u); err != nil {
		return err
	}
	switch u.Status.State {
	case "Enabled", "InTest", "Deferring", "Degraded":
		p.add("cooling_up", "", rfNumber{value: 1, ok: true})
	case "Disabled", "StandbyOffline", "StandbySpare", "UnavailableOffline":
		p.add("cooling_up", "", rfNumber{value: 0, ok: true})
	}
	return nil
}

type rfConnector struct {
	Status                                             rfStatus
	SupplyTemperatureCelsius, ReturnTemperatureCelsius rfReading
	HeatRemovedkW                                      rfReading
}

// secondaryConnector takes a connector to the equipment that is cooled; its
// supply is what the unit supplies.
func (p *redfishPoll) secondaryConnector(body []byte) error {
	var c rfConnector
	if err := rfDecode(body, &c); err != nil || c.Status.gone() {
		return err
	}
	p.cdu.supply.highest(c.SupplyTemperatureCelsius.Reading)
	p.cdu.back.highest(c.ReturnTemperatureCelsius.Reading)
	p.cdu.secondary.plus(c.HeatRemovedkW.Reading)
	return nil
}

// primaryConnector takes a connector to the building's loop.
func (p *redfishPoll) primaryConnector(body []byte) error {
	var c rfConnector
	if err := rfDecode(body, &c); err != nil || c.Status.gone() {
		return err
	}
	p.cdu.source.plus(c.HeatRemovedkW.Reading)
	return nil
}

// pump takes a pump of the unit.
func (p *redfishPoll) pump(body []byte) error {
	var u struct {
		Status           rfStatus
		PumpSpeedPercent rfReading
	}
	if err := rfDecode(body, &u); err != nil || u.Status.gone() {
		return err
	}
	p.cdu.pump.highest(u.PumpSpeedPercent.Reading)
	return nil
}

// leakDetector takes a detector. One that is listed in leak_sensors is a sensor
// of its own; the others together tell whether the unit is wet.
func (p *redfishPoll) leakDetector(body []byte, sensors map[string]string) error {
	var d struct {
		ID            string `json:"Id"`
		Status        rfStatus
		DetectorState string
	}
	if err := rfDecode(body, &d); err != nil || d.Status.gone() {
		return err
	}
	p.leak(d.ID, d.DetectorState, sensors)
	return nil
}

// leakGroups takes a LeakDetection with its detectors inside; they are named by
// the end of the path that they link to.
func (p *redfishPoll) leakGroups(body []byte, sensors map[string]string) error {
	var l struct {
		LeakDetectorGroups []struct {
			Detectors []struct {
				DataSourceURI string `json:"DataSourceUri"`
				DeviceName    string
				DetectorState string
			}
		}
	}
	if err := rfDecode(body, &l); err != nil {
		return err
	}
	for _, g := range l.LeakDetectorGroups {
		for _, d := range g.Detectors {
			id := path.Base(d.DataSourceURI)
			if d.DataSourceURI == "" {
				id = d.DeviceName
			}
			p.leak(id, d.DetectorState, sensors)
		}
	}
	return nil
}

func (p *redfishPoll) leak(id, state string, sensors map[string]string) {
	wet := state == "Warning" || state == "Critical"
	if !wet && state != "OK" {
		return // not known
	}
	if sensor := sensors[id]; sensor != "" {
		p.out = append(p.out, Reading{Device: sensor, Quantity: "leak", Value: truth(wet)})
		return
	}
	p.cdu.watched, p.cdu.wet = true, p.cdu.wet || wet
}

func (p *redfishPoll) finishCooling() {
	p.add("supply_temperature", "", p.cdu.supply)
	p.add("return_temperature", "", p.cdu.back)
	heat := p.cdu.secondary
	if !heat.ok {
		heat = p.cdu.source
	}
	p.addScaled("cooling_output", "", heat, wattPerKW)
	p.addScaled("fan_speed", "", p.cdu.pump, ratioOfPercent)
	if p.cdu.watched {
		p.out = append(p.out, Reading{Quantity: "leak", Value: truth(p.cdu.wet)})
	}
}
