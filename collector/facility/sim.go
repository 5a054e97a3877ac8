// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rackpulse/rackpulse/sim"
)

func init() {
	Register("sim", "a device of the simulated hall", newSim)
}

func newSim(fc FactoryConfig) (Plan, error) {
	if fc.SimState == nil {
		return Plan{}, errors.New("sim: no hall is simulated; start with --simulate")
	}
	if err := fc.Decode(&struct{}{}); err != nil {
		return Plan{}, err
	}
	d := &simDriver{id: fc.Device.ID, state: fc.SimState, measures: fc.Measures}
	return Plan{
		Open:      func(context.Context) (Driver, error) { return d, nil },
		Fastest:   MinSample,
		Simulated: true,
	}, nil
}

// simDriver reads one device of the simulated hall.
type simDriver struct {
	id       string
	state    func(now time.Time) *sim.State
	measures func(sensor string) string
}

// Read returns all that the device shows now.
func (d *simDriver) Read(context.Context) ([]Reading, error) {
	st := d.state(time.Now())
	if st == nil {
		return nil, errors.New("the simulated hall has no state yet")
	}
	if p := st.PDUs[d.id]; p != nil {
		return simPDU(p)
	}
	if c := st.Cooling[d.id]; c != nil {
		return simCooling(c)
	}
	if s := st.Switches[d.id]; s != nil {
		return simSwitch(s)
	}
	if joules, ok := st.Meters[d.id]; ok {
		return []Reading{{Quantity: "meter_energy", Value: joules}}, nil
	}
	return d.sensor(st)
}

// Close does nothing: the hall goes on without its readers.
func (d *simDriver) Close() error { return nil }

var errSilent = errors.New("no answer from the simulated device")

func (d *simDriver) sensor(st *sim.State) ([]Reading, error) {
	measures := ""
	if d.measures != nil {
		measures = d.measures(d.id)
	}
	v, ok := st.Sensors[d.id]
	switch {
	case ok && measures != "":
		// Sensors measure quantities by the quantities' own names.
		return []Reading{{Quantity: measures, Value: v}}, nil
	case ok:
		return nil, errors.New("it is not known what the simulated sensor measures")
	case measures != "":
		return nil, errSilent
	}
	return nil, fmt.Errorf("the simulated hall has no device %s", d.id)
}

func simPDU(p *sim.PDU) ([]Reading, error) {
	if !p.Manageable {
		return nil, errSilent
	}
	highest := 0.0
	out := []Reading{
		{Quantity: "power", Value: p.PowerWatts},
		{Quantity: "energy", Value: p.EnergyJ},
		{Quantity: "power_factor", Value: p.PowerFactor},
	}
	for i, ph := range p.Phases {
		part := strconv.Itoa(i + 1)
		highest = max(highest, ph.Amperes)
		out = append(out,
			Reading{Quantity: "phase_current", Part: part, Value: ph.Amperes},
			Reading{Quantity: "phase_voltage", Part: part, Value: ph.Volts},
			Reading{Quantity: "phase_power", Part: part, Value: ph.Watts},
			// The hall is wired in wye: a line carries its phase's current.
			Reading{Quantity: "line_current", Part: part, Value: ph.Amperes},
		)
	}
	if len(p.Phases) > 0 {
		out = append(out, Reading{Quantity: "current", Value: highest})
	}
	for _, outlet := range slices.Sorted(maps.Keys(p.Outlets)) {
		out = append(out, Reading{Quantity: "outlet_power", Part: outlet, Value: p.Outlets[outlet]})
	}
	return out, nil
}

func simCooling(c *sim.Cooling) ([]Reading, error) {
	if !c.Manageable {
		return nil, errSilent
	}
	return []Reading{
		{Quantity: "cooling_up", Value: truth(c.Up)},
		{Quantity: "supply_temperature", Value: c.SupplyC},
		{Quantity: "return_temperature", Value: c.ReturnC},
		{Quantity: "cooling_output", Value: c.OutputWatts},
		{Quantity: "fan_speed", Value: c.FanRatio},
	}, nil
}

func simSwitch(s *sim.Switch) ([]Reading, error) {
	if !s.Manageable {
		return nil, errSilent
	}
	var out []Reading
	for _, name := range slices.Sorted(maps.Keys(s.Ports)) {
		p := s.Ports[name]
		out = append(out,
			Reading{Quantity: "port_up", Part: name, Value: truth(p.Up)},
			Reading{Quantity: "port_flaps", Part: name, Value: p.Flaps},
			Reading{Quantity: "port_receive_bytes", Part: name, Value: p.RxBytes},
			Reading{Quantity: "port_transmit_bytes", Part: name, Value: p.TxBytes},
			Reading{Quantity: "port_receive_errors", Part: name, Value: p.RxErrors},
			Reading{Quantity: "port_transmit_errors", Part: name, Value: p.TxErrors},
		)
		if p.SpeedBytes > 0 {
			out = append(out, Reading{Quantity: "port_speed", Part: name, Value: p.SpeedBytes})
		}
	}
	return out, nil
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
