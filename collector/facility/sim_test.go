// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// simHall is a state with one device of each kind.
func simHall() *sim.State {
	return &sim.State{
		PDUs: map[string]*sim.PDU{
			"r01-a": {
				Energised: true, Manageable: true, PowerWatts: 6010, PowerFactor: 0.95, EnergyJ: 3.6e6,
				Phases:  []sim.Phase{{Amperes: 9, Volts: 231, Watts: 1975}, {Amperes: 10.5, Volts: 230, Watts: 2294}, {Amperes: 8, Volts: 229, Watts: 1741}},
				Outlets: map[string]float64{"1": 3000, "2": 3010},
			},
			"r01-b": {Energised: false, Manageable: false},
			"r02-a": {Energised: true, Manageable: true, PowerWatts: 1380, PowerFactor: 1, Phases: []sim.Phase{{Amperes: 6, Volts: 230, Watts: 1380}}},
		},
		Cooling:  map[string]*sim.Cooling{"crah1": {Manageable: true, SupplyC: 18, ReturnC: 31, OutputWatts: 50e3, FanRatio: 0.6}, "crah2": {}},
		Switches: map[string]*sim.Switch{"tor1": {Manageable: true, Ports: map[string]sim.Port{"Ethernet1": {Up: true, SpeedBytes: 12.5e9, Flaps: 2, RxBytes: 100, TxBytes: 200, RxErrors: 3, TxErrors: 4}, "Ethernet2": {}}}, "tor2": {}},
		Sensors:  map[string]float64{"r01-in-top": 22.5, "r01-rh": 0.45, "row-a-leak": 1},
		Meters:   map[string]float64{"main": 7.2e9},
	}
}

func TestSim(t *testing.T) {
	measures := map[string]string{"r01-in-top": "inlet_temperature", "r01-rh": "inlet_humidity", "row-a-leak": "leak", "r01-out": "outlet_temperature"}
	state := simHall()
	read := func(id string) ([]Reading, error) {
		p, err := newSim(FactoryConfig{
			Device:   site.Device{Entity: site.Entity{ID: id}},
			Decode:   func(any) error { return nil },
			SimState: func(time.Time) *sim.State { return state },
			Measures: func(id string) string { return measures[id] },
		})
		if err != nil || !p.Simulated {
			t.Fatal(p, err)
		}
		d, err := p.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.Read(t.Context())
	}
	for id, want := range map[string]string{
		"r01-a": ` current 10.5
 energy 3.6e+06
 line_current[1] 9
 line_current[2] 10.5
 line_current[3] 8
 outlet_power[1] 3000
 outlet_power[2] 3010
 phase_current[1] 9
 phase_current[2] 10.5
 phase_current[3] 8
 phase_power[1] 1975
 phase_power[2] 2294
 phase_power[3] 1741
 phase_voltage[1] 231
 phase_voltage[2] 230
 phase_voltage[3] 229
 power 6010
 power_factor 0.95
`,
		"r02-a":      " current 6\n energy 0\n line_current[1] 6\n phase_current[1] 6\n phase_power[1] 1380\n phase_voltage[1] 230\n power 1380\n power_factor 1\n",
		"crah1":      " cooling_output 50000\n cooling_up 0\n fan_speed 0.6\n return_temperature 31\n supply_temperature 18\n",
		"r01-in-top": " inlet_temperature 22.5\n",
		"r01-rh":     " inlet_humidity 0.45\n",
		"row-a-leak": " leak 1\n",
		"main":       " meter_energy 7.2e+09\n",
		"tor1": ` port_flaps[Ethernet1] 2
 port_flaps[Ethernet2] 0
 port_receive_bytes[Ethernet1] 100
 port_receive_bytes[Ethernet2] 0
 port_receive_errors[Ethernet1] 3
 port_receive_errors[Ethernet2] 0
 port_speed[Ethernet1] 1.25e+10
 port_transmit_bytes[Ethernet1] 200
 port_transmit_bytes[Ethernet2] 0
 port_transmit_errors[Ethernet1] 4
 port_transmit_errors[Ethernet2] 0
 port_up[Ethernet1] 1
 port_up[Ethernet2] 0
`,
	} {
		if got, err := read(id); err != nil || show(got) != want {
			t.Errorf("%s: %v\n%swant\n%s", id, err, show(got), want)
		}
	}
	// A dead feed or card, and a sensor that cannot be read, give no values.
	for id, want := range map[string]string{
		"r01-b": "no answer", "crah2": "no answer", "tor2": "no answer", "r01-out": "no answer",
		"r09-a": "the simulated hall has no device r09-a",
	} {
		got, err := read(id)
		wantErr(t, err, want)
		if len(got) > 0 {
			t.Errorf("%s: %v", id, got)
		}
	}
	state = nil
	_, err := read("r01-a")
	wantErr(t, err, "no state yet")
}

func TestSimNeedsHall(t *testing.T) {
	_, err := planOf(t, "facility:\n- {device: r01-a, driver: sim}\n")
	wantErr(t, err, "no hall is simulated")
}
