// SPDX-License-Identifier: Apache-2.0

package facility

// climateFamilies are sensors and cooling units.
var climateFamilies = []family{
	{profile: "apc-env", device: "r01-in-top", more: []string{`sensors: [{sensor: uio1.1, device: r01-in-top}, {sensor: uio1.2, device: r01-x}, {sensor: uio2.1, device: r01-y}, {sensor: iem1, device: r01-rh}, {sensor: iem2, device: r01-z}, {sensor: iem3, device: main-rh}, {sensor: ems1, device: r01-out, measures: outlet_temperature}, {sensor: ems2, device: row-a-leak}]`}, want: `
main-rh inlet_humidity 0.38
main-rh inlet_temperature 20
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 24
r01-out outlet_temperature 18
r01-rh inlet_temperature 25
r01-x inlet_temperature 26
`},
	{profile: "apc-inrow-rc", device: "crah1", more: []string{`sensors: [{sensor: rack, device: r01-in-top}]`}, want: `
 cooling_output 12400
 cooling_up 1
 fan_speed 0.653
 leak 0
 return_temperature 31.6
 supply_temperature 18.2
r01-in-top inlet_temperature 21.4
`},
	{profile: "apc-cooling", device: "crah1", more: []string{`sensors: [{sensor: "1.8", device: r01-in-top}]`}, want: `
 cooling_output 10800
 cooling_up 1
 fan_speed 0.9
 return_temperature 28
 supply_temperature 19.4
r01-in-top inlet_temperature 20.9
`},
	{profile: "entity-sensor", device: "r01-in-top", more: []string{`sensors: [{sensor: "11", device: r01-in-top}, {sensor: "12", device: r01-x}, {sensor: "13", device: r01-y}, {sensor: "14", device: r01-z}, {sensor: "15", device: r01-out}, {sensor: "16", device: r01-rh}]`}, want: `
r01-in-top inlet_temperature 24.6
r01-rh inlet_humidity 0.415
r01-x inlet_temperature 23.5
r01-y inlet_temperature 25
`},
}
