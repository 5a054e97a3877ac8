// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"slices"

	"github.com/rackpulse/rackpulse/collector"
)

func gauge(name, metric, help, base string, kinds []string, lo, hi float64, why string) Quantity {
	return Quantity{
		Name: name, Base: base, Kinds: kinds, Why: why,
		Desc: &collector.Desc{Name: metric, Help: help, Type: collector.Gauge, Min: lo, Max: hi},
	}
}

func counter(name, metric, help, base string, kinds []string, hi float64, why string) Quantity {
	q := gauge(name, metric, help, base, kinds, 0, hi, why)
	q.Desc.Type = collector.Counter
	return q
}

// per gives a quantity parts: one series per phase, outlet, port, ...
func (q Quantity) per(label string) Quantity {
	q.PartLabel = label
	q.Desc.Labels = []string{label}
	return q
}

// saying gives an info quantity the label of its text.
func (q Quantity) saying(label string) Quantity {
	q.TextLabel = label
	q.Desc.Labels = append(q.Desc.Labels, label)
	return q
}

const (
	maxCount   = 1 << 64 // 64-bit counters
	maxPDUAmps = 400
	maxOutlet  = 100
)

var sensorQuantities = []Quantity{
	gauge("inlet_temperature", "rack_inlet_temperature_celsius", "Air temperature at the front of the rack.", UnitCelsius, sensor, -40, 80, whySensor),
	gauge("outlet_temperature", "rack_outlet_temperature_celsius", "Air temperature at the back of the rack.", UnitCelsius, sensor, -40, 80, whySensor),
	gauge("inlet_humidity", "rack_inlet_relative_humidity_ratio", "Relative humidity at the front of the rack, 0 to 1.", UnitRatio, sensor, 0, 1, whyRatio),
	gauge("leak", "facility_leak_detected", "Whether the leak sensor is wet (1) or dry (0); of a cooling unit: any of its own detectors.", UnitState, slices.Concat(sensor, cooling), 0, 1, whyState),
	gauge("node_power", "node_power_watt", "Input power of a server as its management controller measures it.", UnitWatt, sensor, 0, 30e3, whyNode).per("node"),
}

var pduQuantities = []Quantity{
	gauge("current", "pdu_current_ampere", "Highest line current of the PDU; the inlet current of a single-phase PDU.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent),
	gauge("power", "pdu_power_watt", "Active power of the whole PDU.", UnitWatt, pdu, 0, 150e3, whyPower),
	gauge("power_factor", "pdu_power_factor_ratio", "Power factor of the whole PDU; the sign tells leading from lagging on some devices.", UnitRatio, pdu, -1, 1, "a cosine; negative is legal"),
	counter("energy", "pdu_energy_joules_total", "Active energy of the whole PDU.", UnitJoule, pdu, 1e14, whyEnergy),
	gauge("phase_current", "pdu_phase_current_ampere", "Current of a phase.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("phase"),
	gauge("phase_voltage", "pdu_phase_voltage_volt", "Voltage of a phase to neutral (1), or between two phases (1-2).", UnitVolt, pdu, 0, 600, whyVoltage).per("phase"),
	gauge("phase_power", "pdu_phase_power_watt", "Active power of a phase.", UnitWatt, pdu, 0, 60e3, whyPhase).per("phase"),
	gauge("phase_power_factor", "pdu_phase_power_factor_ratio", "Power factor of a phase; the sign tells leading from lagging on some devices.", UnitRatio, pdu, -1, 1, "a cosine; negative is legal").per("phase"),
	gauge("phase_current_peak", "pdu_phase_current_peak_ampere", "Highest current of a phase in the trailing 60 seconds.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("phase"),
	gauge("phase_current_trough", "pdu_phase_current_trough_ampere", "Lowest current of a phase in the trailing 60 seconds.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("phase"),
	gauge("phase_current_rated", "pdu_phase_current_rated_ampere", "Rated current of a phase as the device reports it.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("phase"),
	gauge("line_current", "pdu_line_current_ampere", "Current of an inlet line; in a delta supply it differs from the phase currents.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("line"),
	gauge("neutral_current", "pdu_neutral_current_ampere", "Current of the neutral conductor.", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent),
	gauge("branch_current", "pdu_branch_current_ampere", "Current of a branch circuit (bank, breaker).", UnitAmpere, pdu, 0, maxPDUAmps, whyCurrent).per("branch"),
	gauge("outlet_current", "pdu_outlet_current_ampere", "Current of an outlet.", UnitAmpere, pdu, 0, maxOutlet, whyOutlet).per("outlet"),
	gauge("outlet_power", "pdu_outlet_power_watt", "Active power of an outlet.", UnitWatt, pdu, 0, 30e3, whyOutletW).per("outlet"),
	counter("power_transients", "pdu_power_transients_total", "Fast power swings seen by the device, by direction.", UnitCount, pdu, maxCount, whyCounter).per("direction"),
}

var upsQuantities = []Quantity{
	gauge("ups_on_battery", "ups_on_battery", "Whether the UPS runs from its battery (1) or from the mains (0).", UnitState, ups, 0, 1, whyState),
	gauge("ups_battery_charge", "ups_battery_charge_ratio", "Charge of the battery, 0 to 1.", UnitRatio, ups, 0, 1, whyRatio),
	gauge("ups_battery_runtime", "ups_battery_runtime_seconds", "Estimated time on battery at the present load.", UnitSecond, ups, 0, 7*86400, "a week is beyond any battery room"),
	gauge("ups_battery_temperature", "ups_battery_temperature_celsius", "Temperature of the battery.", UnitCelsius, ups, -40, 80, whySensor),
	gauge("ups_load", "ups_load_ratio", "Load as a share of the rating.", UnitRatio, ups, 0, 2, "RFC 1628 upsOutputPercentLoad goes to 200 %"),
	gauge("ups_input_voltage", "ups_input_voltage_volt", "Input voltage of a phase.", UnitVolt, ups, 0, 600, whyVoltage).per("phase"),
	gauge("ups_output_voltage", "ups_output_voltage_volt", "Output voltage of a phase.", UnitVolt, ups, 0, 600, whyVoltage).per("phase"),
	gauge("ups_output_current", "ups_output_current_ampere", "Output current of a phase.", UnitAmpere, ups, 0, 5000, "2 MVA at 400 V is 2887 A, with headroom").per("phase"),
	gauge("ups_output_phase_power", "ups_output_phase_power_watt", "Active output power of a phase.", UnitWatt, ups, 0, 1e6, "2 MW units are sold; a third of it, with headroom").per("phase"),
	gauge("ups_output_phase_load", "ups_output_phase_load_ratio", "Load of a phase as a share of its rating.", UnitRatio, ups, 0, 2, "RFC 1628 upsOutputPercentLoad goes to 200 %").per("phase"),
	gauge("ups_output_power", "ups_output_power_watt", "Active output power of the whole UPS.", UnitWatt, ups, 0, 3e6, "2 MW units are sold, with headroom"),
}

var coolingQuantities = []Quantity{
	gauge("cooling_up", "cooling_unit_up", "Whether the cooling unit runs (1) or stands still (0).", UnitState, cooling, 0, 1, whyState),
	gauge("supply_temperature", "cooling_unit_supply_temperature_celsius", "Temperature of the air or liquid that the unit supplies.", UnitCelsius, cooling, -40, 80, whySensor),
	gauge("return_temperature", "cooling_unit_return_temperature_celsius", "Temperature of the air or liquid that comes back to the unit.", UnitCelsius, cooling, -40, 80, whySensor),
	gauge("cooling_output", "cooling_unit_output_watt", "Heat that the unit removes.", UnitWatt, cooling, 0, 5e6, "the largest coolant distribution units remove 2 to 3 MW"),
	gauge("fan_speed", "cooling_unit_fan_speed_ratio", "Fan or pump speed as a share of full speed.", UnitRatio, cooling, 0, 1, whyRatio),
}

var switchQuantities = []Quantity{
	gauge("port_up", "switch_port_up", "Whether the port's link is up (1) or down (0).", UnitState, swtch, 0, 1, whyState).per("port"),
	gauge("port_speed", "switch_port_speed_bytes", "Speed of the port, in bytes per second.", UnitBytesPerSecond, swtch, 0, 1e12, whyPortSpeed).per("port"),
	counter("port_flaps", "switch_port_flaps_total", "Changes of the port's link from up to down.", UnitCount, swtch, maxCount, whyCounter).per("port"),
	counter("port_receive_bytes", "switch_port_receive_bytes_total", "Bytes received on the port.", UnitByte, swtch, maxCount, whyCounter).per("port"),
	counter("port_transmit_bytes", "switch_port_transmit_bytes_total", "Bytes sent on the port.", UnitByte, swtch, maxCount, whyCounter).per("port"),
	counter("port_receive_errors", "switch_port_receive_errors_total", "Packets received with errors.", UnitCount, swtch, maxCount, whyCounter).per("port"),
	counter("port_transmit_errors", "switch_port_transmit_errors_total", "Packets that could not be sent because of errors.", UnitCount, swtch, maxCount, whyCounter).per("port"),
	counter("port_receive_discards", "switch_port_receive_discards_total", "Packets without error that were dropped on receipt.", UnitCount, swtch, maxCount, whyCounter).per("port"),
	gauge("port_neighbor", "switch_port_neighbor_info", "The system at the other end of the cable, as it names itself by LLDP.", UnitInfo, swtch, 0, 1, whyInfo).per("port").saying("neighbor"),
	counter("port_transmit_discards", "switch_port_transmit_discards_total", "Packets without error that were dropped instead of sent.", UnitCount, swtch, maxCount, whyCounter).per("port"),
}

var meterQuantities = []Quantity{
	counter("meter_energy", "site_meter_energy_joules_total", "Energy that the meter has counted.", UnitJoule, meter, 1e18, whyMeter),
}
