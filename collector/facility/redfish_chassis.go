// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"strings"
)

// redfishNode gathers a server from its chassis.
type redfishNode struct {
	inlet    rfNumber // celsius
	power    rfNumber // watts, as the chassis says
	supplies rfNumber // watts, sum of the power supplies' inputs
}

// thermalMetrics takes the summary of a ThermalSubsystem.
func (p *redfishPoll) thermalMetrics(body []byte) error {
	var m struct {
		TemperatureSummaryCelsius struct{ Intake rfReading }
	}
	if err := rfDecode(body, &m); err != nil {
		return err
	}
	p.node.setInlet(m.TemperatureSummaryCelsius.Intake.Reading)
	return nil
}

func (n *redfishNode) setInlet(v rfNumber) {
	if v.ok && !n.inlet.ok {
		n.inlet = v
	}
}

// thermal takes the old Thermal resource.
func (p *redfishPoll) thermal(body []byte) error {
	var t struct {
		Temperatures []struct {
			Name            string
			PhysicalContext string
			Status          rfStatus
			ReadingCelsius  rfNumber
		}
	}
	if err := rfDecode(body, &t); err != nil {
		return err
	}
	var named rfNumber
	for _, s := range t.Temperatures {
		switch {
		case s.Status.gone():
		case s.PhysicalContext == "Intake":
			p.node.setInlet(s.ReadingCelsius)
		case !named.ok && inletName(s.Name):
			named = s.ReadingCelsius
		}
	}
	p.node.setInlet(named)
	return nil
}

// inletName says whether a sensor's name tells that it measures the air that
// enters the server. Vendors write "System Board Inlet Temp", "01-Inlet
// Ambient", "Inlet_Temp", "Front Ambient".
func inletName(name string) bool {
	name = strings.ToLower(name)
	for _, no := range []string{"psu", "ps1", "ps2", "power supply", "liquid", "coolant", "water"} {
		if strings.Contains(name, no) {
			return false
		}
	}
	return strings.Contains(name, "inlet") || strings.Contains(name, "intake") || strings.Contains(name, "ambient")
}

// environmentMetrics takes a chassis' EnvironmentMetrics. Its TemperatureCelsius
// may be of any sensor, a CPU's even, and is not read.
func (p *redfishPoll) environmentMetrics(body []byte) error {
	var m struct{ PowerWatts rfReading }
	if err := rfDecode(body, &m); err != nil {
		return err
	}
	p.node.setPower(m.PowerWatts.Reading)
	return nil
}

// setPower takes a server's power. A service that answers draws power, so 0
// stands for "not measured".
func (n *redfishNode) setPower(v rfNumber) {
	if v.ok && v.value > 0 && !n.power.ok {
		n.power = v
	}
}

// power takes the old Power resource.
func (p *redfishPoll) oldPower(body []byte) error {
	var m struct {
		PowerControl []struct {
			PowerConsumedWatts rfNumber
		}
		PowerSupplies []struct {
			Status          rfStatus
			PowerInputWatts rfNumber
		}
	}
	if err := rfDecode(body, &m); err != nil {
		return err
	}
	// The first entry is the whole chassis; others are parts of it.
	if len(m.PowerControl) > 0 {
		p.node.setPower(m.PowerControl[0].PowerConsumedWatts)
	}
	for _, s := range m.PowerSupplies {
		if !s.Status.gone() {
			p.node.supplies.plus(s.PowerInputWatts)
		}
	}
	return nil
}

// supplyMetrics takes the metrics of one power supply.
func (p *redfishPoll) supplyMetrics(body []byte) error {
	var m struct {
		Status          rfStatus
		InputPowerWatts rfReading
	}
	if err := rfDecode(body, &m); err != nil || m.Status.gone() {
		return err
	}
	p.node.supplies.plus(m.InputPowerWatts.Reading)
	return nil
}

func (p *redfishPoll) finishNode(node string) {
	p.add("inlet_temperature", "", p.node.inlet)
	p.node.setPower(p.node.supplies)
	if node != "" {
		p.add("node_power", node, p.node.power)
	}
}

// sensor takes a Sensor resource for a device of the site file. What it measures
// is told by ReadingType: its ReadingUnits are spelled differently everywhere.
func (p *redfishPoll) sensor(body []byte, s redfishSensor) error {
	var v struct {
		Status                    rfStatus
		ReadingType, ReadingUnits string
		Reading                   rfNumber
	}
	if err := rfDecode(body, &v); err != nil {
		return err
	}
	types, ok := rfSensorTypes[s.quantity.Base]
	factor, known := types[v.ReadingType]
	switch {
	case v.ReadingType == "":
		return errors.New("the sensor does not say what it measures")
	case !ok || !known:
		return fmt.Errorf("a sensor of type %s does not measure %s", clip(v.ReadingType, 40), s.Quantity)
	case v.Status.gone() || !v.Reading.ok:
		return nil
	}
	if v.ReadingType == "Heat" && v.ReadingUnits == "W" {
		factor = 1 // against the schema, which has it in kW
	}
	p.out = append(p.out, Reading{Device: s.Device, Quantity: s.Quantity, Part: s.Part, Value: v.Reading.value * factor})
	return nil
}

// rfSensorTypes are the values of ReadingType that measure a base unit, with the
// factor into it. They are those of the schema Sensor.
var rfSensorTypes = map[string]map[string]float64{
	UnitCelsius: {"Temperature": 1},
	UnitRatio:   {"Humidity": ratioOfPercent, "Percent": ratioOfPercent, "LiquidLevel": ratioOfPercent},
	UnitAmpere:  {"Current": 1},
	UnitVolt:    {"Voltage": 1},
	UnitWatt:    {"Power": 1, "Heat": wattPerKW},
	UnitJoule:   {"EnergyJoules": 1, "EnergyWh": 3600, "EnergykWh": joulePerKWh},
}
