// SPDX-License-Identifier: Apache-2.0

package facility

// morePDUFamilies are rack PDUs of Enlogic, CyberPower and HPE.
var morePDUFamilies = []family{
	{profile: "enlogic-pdu", device: "r01-a", more: []string{"chain: {2: r01-b, 3: r01-c}", `sensors: [{sensor: "1.1", device: r01-in-top}, {sensor: "1.2", device: r01-rh}, {sensor: "1.3", device: r01-x}, {sensor: "1.4", device: r01-y}, {sensor: "1.5", device: row-a-leak}, {sensor: "1.6", device: r01-out, measures: outlet_temperature}]`}, want: `
 branch_current[1] 4
 branch_current[2] 5
 current 9.1
 energy 1.8999936e+11
 line_current[1] 8.26
 line_current[2] 7.81
 line_current[3] 9.1
 outlet_current[1] 1.51
 outlet_power[1] 300
 phase_current[1-2] 4
 phase_current[2-3] 5
 phase_current[3-1] 5.5
 phase_power[1-2] 815
 phase_power[2-3] 1020
 phase_power[3-1] 1125
 phase_power_factor[1-2] 0.98
 phase_power_factor[2-3] 0.98
 phase_power_factor[3-1] 0.98
 phase_voltage[1-2] 208
 phase_voltage[2-3] 208
 phase_voltage[3-1] 209
 power 2960
r01-b current 10
r01-b line_current[1] 10
r01-b line_current[2] 8
r01-b line_current[3] 6
r01-b phase_current[1] 10
r01-b phase_current[2] 8
r01-b phase_current[3] 6
r01-b phase_power[1] 2185
r01-b phase_power[2] 1770
r01-b phase_power[3] 1335
r01-b phase_power_factor[1] 0.95
r01-b phase_power_factor[2] 0.96
r01-b phase_power_factor[3] 0.97
r01-b phase_voltage[1] 230
r01-b phase_voltage[2] 231
r01-b phase_voltage[3] 229
r01-b power 5290
r01-c current 4.72
r01-c energy 3.6e+06
r01-c line_current[1] 2.77
r01-c line_current[2] 4.72
r01-c line_current[3] 3.18
r01-c power 1120
r01-in-top inlet_temperature 23.5
r01-out outlet_temperature 25
r01-rh inlet_humidity 0.41
row-a-leak leak 1
`},
	{profile: "cyberpower-epdu", device: "r01-a", more: []string{`sensors: [{sensor: "1", device: r01-in-top}]`}, want: `
 branch_current[1] 5
 branch_current[2] 3.5
 current 8.5
 outlet_current[1] 2.1
 outlet_power[1] 480
 phase_current[1] 8.5
 phase_power[1] 1930
 phase_power_factor[1] 0.99
 phase_voltage[1] 229.5
 power 1930
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 23.5
`},
	{profile: "cyberpower-epdu", walk: "cyberpower-epdu-three", device: "r01-a", more: []string{`sensors: [{sensor: "1", device: r01-in-top}]`}, want: `
 current 16
 phase_current[1] 16
 phase_current[2] 8
 phase_current[3] 12.5
 phase_power[1] 3600
 phase_power[2] 1810
 phase_power[3] 2810
 phase_power_factor[1] 0.98
 phase_power_factor[2] 0.98
 phase_power_factor[3] 0.98
 phase_voltage[1] 230
 phase_voltage[2] 231
 phase_voltage[3] 229
 power 8220
`},
	{profile: "cyberpower-epdu2", device: "r01-a", more: []string{"chain: {2: r01-b}"}, want: `
 branch_current[1] 16
 current 16
 energy 7.08372e+09
 outlet_current[1] 2.1
 outlet_power[1] 480
 phase_current[1] 16
 phase_current[2] 8
 phase_current[3] 12.5
 phase_power[1] 3600
 phase_power[2] 1810
 phase_power[3] 2810
 phase_power_factor[1] 0.98
 phase_power_factor[2] 0.98
 phase_power_factor[3] 0.98
 phase_voltage[1] 230
 phase_voltage[2] 231
 phase_voltage[3] 229
 power 8220
 power_factor 0.98
r01-b current 4.5
r01-b energy 1.8e+06
r01-b phase_current[1] 4.5
r01-b phase_power[1] 1000
r01-b phase_power_factor[1] 0.97
r01-b phase_voltage[1] 230
r01-b power 1000
r01-b power_factor 0.97
`},
	{profile: "hpe-pdu2", device: "r01-a", more: []string{"chain: {1: r01-b, 2: r01-c}", `sensors: [{sensor: "0.1", device: r01-in-top}, {sensor: "0.2", device: r01-rh}]`}, want: `
 branch_current[1] 4
 current 9.1
 energy 2.94677748e+10
 line_current[1] 8.26
 line_current[2] 7.81
 line_current[3] 9.1
 outlet_current[1] 0.45
 outlet_power[1] 77
 phase_voltage[1-2] 208
 phase_voltage[2-3] 207.5
 phase_voltage[3-1] 209
 power 2990
 power_factor 0.98
r01-b current 0.535
r01-b line_current[1] 0.535
r01-b phase_current[1] 0.535
r01-b phase_current_rated[1] 16
r01-b phase_power[1] 97
r01-b phase_power_factor[1] -0.751
r01-b phase_voltage[1] 242.44
r01-b power 97
r01-b power_factor -0.751
r01-c current 10
r01-c line_current[1] 10
r01-c line_current[2] 8
r01-c line_current[3] 6
r01-c neutral_current 3.464
r01-c phase_current[1] 10
r01-c phase_current[2] 8
r01-c phase_current[3] 6
r01-c phase_power[1] 2185
r01-c phase_power[2] 1770
r01-c phase_power[3] 1335
r01-c phase_power_factor[1] 0.95
r01-c phase_power_factor[2] 0.958
r01-c phase_power_factor[3] 0.972
r01-c phase_voltage[1] 230
r01-c phase_voltage[2] 231
r01-c phase_voltage[3] 229
r01-c power 5290
r01-in-top inlet_humidity 0.413
r01-in-top inlet_temperature 23.5
`},
	{profile: "hpe-pdu3", device: "r01-a", more: []string{"chain: {2: r01-b}", `sensors: [{sensor: "1.1", device: r01-in-top}, {sensor: "1.2", device: r01-rh}]`}, want: `
 branch_current[1] 6.1
 current 10
 energy 1.69596e+10
 line_current[1] 10
 line_current[2] 8
 line_current[3] 6
 neutral_current 3.46
 outlet_current[1] 0.26
 outlet_power[1] 60
 phase_current[1] 10
 phase_current[2] 8
 phase_current[3] 6
 phase_current_rated[1] 32
 phase_current_rated[2] 32
 phase_current_rated[3] 32
 phase_power[1] 2185
 phase_power[2] 1770
 phase_power[3] 1335
 phase_power_factor[1] 0.95
 phase_power_factor[2] 0.96
 phase_power_factor[3] 0.97
 phase_voltage[1] 230
 phase_voltage[2] 231
 phase_voltage[3] 229
 power 5290
 power_factor 0.96
r01-b current 9.1
r01-b line_current[1] 8.26
r01-b line_current[2] 7.81
r01-b line_current[3] 9.1
r01-b phase_voltage[1-2] 208
r01-b phase_voltage[2-3] 207.5
r01-b phase_voltage[3-1] 209
r01-b power 2990
r01-b power_factor 0.98
r01-in-top inlet_humidity 0.38
r01-in-top inlet_temperature 23.5
`},
	{profile: "hpe-ipdu", device: "r01-a", want: `
 branch_current[1] 3.2
 branch_current[3] 1.75
 power 1587
`},
}
