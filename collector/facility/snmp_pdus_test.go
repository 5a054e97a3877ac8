// SPDX-License-Identifier: Apache-2.0

package facility

// pduFamilies are rack PDUs other than APC's and Raritan's.
var pduFamilies = []family{
	{profile: "sentry3", device: "r01-a", more: []string{"chain: {2: r01-b, 3: r01-c}", `sensors: [{sensor: "1.1", device: r01-in-top}, {sensor: "1.2", device: r01-out, measures: outlet_temperature}, {sensor: "2.1", device: r01-rh}, {sensor: 1.water, device: row-a-leak}]`}, want: `
 branch_current[AA1] 6.1
 branch_current[AA2] 5
 current 11.1
 line_current[1] 11.1
 line_current[2] 4
 line_current[3] 5.9
 neutral_current 6.37
 outlet_current[AA1] 1.51
 outlet_current[AB1] 0
 outlet_power[AA1] 330
 outlet_power[AB1] 0
 phase_current[1] 11.1
 phase_current[2] 4
 phase_current[3] 5.9
 phase_power[1] 2563
 phase_power[2] 924
 phase_power[3] 1363
 phase_voltage[1-2] 400
 phase_voltage[2-3] 400
 phase_voltage[3-1] 400
 power 4850
r01-b current 2.5
r01-b energy 1.69596e+10
r01-b line_current[1] 2.5
r01-b phase_current[1] 2.5
r01-b phase_power[1] 506
r01-b phase_power_factor[1] 0.97
r01-b phase_voltage[1] 208.7
r01-b power 506
r01-b power_factor 0.97
r01-c current 9.1
r01-c energy 3.24e+10
r01-c line_current[1] 8.26
r01-c line_current[2] 7.81
r01-c line_current[3] 9.1
r01-c phase_current[1-2] 4
r01-c phase_current[2-3] 5
r01-c phase_current[3-1] 5.5
r01-c phase_power[1-2] 815
r01-c phase_power[2-3] 1022
r01-c phase_power[3-1] 1127
r01-c phase_power_factor[1-2] 0.98
r01-c phase_power_factor[2-3] 0.98
r01-c phase_power_factor[3-1] 0.98
r01-c phase_voltage[1-2] 208
r01-c phase_voltage[2-3] 208.5
r01-c phase_voltage[3-1] 209
r01-c power 2994
r01-c power_factor 0.98
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 23.5
row-a-leak leak 1
`},
	{profile: "sentry3", walk: "sentry3-old", device: "r01-a", more: []string{`sensors: [{sensor: "1.1", device: r01-in-top}]`}, want: `
 current 4
 line_current[1] 4
 line_current[2] 2.5
 phase_current[1] 4
 phase_current[2] 2.5
 phase_power[1] 915
 phase_power[2] 575
 phase_voltage[1] 230
 phase_voltage[2] 231
 power 1490
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 23.5
`},
	{profile: "raritan-pdu2", walk: "raritan-pdu2-single", device: "r01-a", want: `
 current 7.467
 phase_current[1] 7.467
 phase_voltage[1] 231
 power 1690
 power_factor 0.98
`},
	{profile: "sentry4", device: "r01-a", more: []string{"chain: {1.2: r01-b, 2.1: r01-c}", `sensors: [{sensor: "1.1", device: r01-rh}, {sensor: "1.2", device: r01-in-top}, {sensor: "1.3", device: r01-out, measures: outlet_temperature}, {sensor: 1.water1, device: row-a-leak}]`}, want: `
 branch_current[1] 4
 branch_current[2] 5
 current 9.1
 energy 4.4442e+09
 line_current[1] 8.26
 line_current[2] 7.81
 line_current[3] 9.1
 outlet_current[1] 1.32
 outlet_power[1] 270
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
 phase_voltage[2-3] 208.5
 phase_voltage[3-1] 209
 power 2960
 power_factor 0.98
r01-b current 13.38
r01-b line_current[1] 13.38
r01-b line_current[2] 12.8
r01-b line_current[3] 10.5
r01-b neutral_current 1.73
r01-b phase_current[1] 6
r01-b phase_current[1-2] 5
r01-b phase_current[2] 5
r01-b phase_current[2-3] 4
r01-b phase_current[3] 4
r01-b phase_current[3-1] 3.5
r01-b phase_power[1] 713
r01-b phase_power[1-2] 1030
r01-b phase_power[2] 594
r01-b phase_power[2-3] 824
r01-b phase_power[3] 475
r01-b phase_power[3-1] 721
r01-b phase_power_factor[1] 0.99
r01-b phase_power_factor[1-2] 0.99
r01-b phase_power_factor[2] 0.99
r01-b phase_power_factor[2-3] 0.99
r01-b phase_power_factor[3] 0.99
r01-b phase_power_factor[3-1] 0.99
r01-b phase_voltage[1] 120
r01-b phase_voltage[1-2] 208
r01-b phase_voltage[2] 120
r01-b phase_voltage[2-3] 208
r01-b phase_voltage[3] 120
r01-b phase_voltage[3-1] 208
r01-b power 4420
r01-b power_factor 0.99
r01-c current 8.3
r01-c energy 3.6e+07
r01-c line_current[1] 8.3
r01-c phase_current[1] 8.3
r01-c phase_power[1] 1700
r01-c phase_voltage[1] 209
r01-c power 1700
r01-in-top inlet_humidity 0.41
r01-in-top inlet_temperature 23.5
row-a-leak leak 1
`},
	{profile: "eaton-epdu", device: "r01-a", more: []string{"chain: {1: r01-b, 2: r01-c}", `sensors: [{sensor: "0.1", device: r01-in-top}, {sensor: "0.2", device: r01-rh}, {sensor: "1.1", device: r01-out, measures: outlet_temperature}, {sensor: emp1.1, device: row-a-leak}, {sensor: emp2.1, device: r01-x}]`}, want: `
 branch_current[1] 6.1
 current 10
 energy 2.94677748e+10
 line_current[1] 10
 line_current[2] 8
 line_current[3] 6
 neutral_current 3.464
 outlet_current[1] 0.79
 outlet_power[1] 80
 phase_current[1] 10
 phase_current[2] 8
 phase_current[3] 6
 phase_current_rated[1] 32
 phase_current_rated[2] 32
 phase_current_rated[3] 32
 phase_power[1] 2185
 phase_power[2] 1800
 phase_power[3] 1350
 phase_power_factor[1] -0.946
 phase_power_factor[3] 0.979
 phase_voltage[1] 231
 phase_voltage[2] 230.5
 phase_voltage[3] 229.8
 power 5335
 power_factor 0.968
r01-b current 9.1
r01-b line_current[1] 8.26
r01-b line_current[2] 7.81
r01-b line_current[3] 9.1
r01-b phase_voltage[1-2] 208
r01-b phase_voltage[2-3] 207.5
r01-b phase_voltage[3-1] 209
r01-b power 2990
r01-in-top inlet_humidity 0.413
r01-in-top inlet_temperature 23.5
r01-out outlet_temperature 25
r01-x inlet_humidity 0.385
row-a-leak inlet_temperature 26.7
`},
	{profile: "vertiv-v5", device: "r01-a", more: []string{`sensors: [{sensor: temp1, device: r01-in-top}, {sensor: temp2, device: r01-x}, {sensor: t3hd1, device: r01-rh}, {sensor: t3hd1.a, device: r01-out, measures: outlet_temperature}, {sensor: t3hd1.b, device: r01-y}, {sensor: a2d2, device: row-a-leak}]`}, want: `
 branch_current[1] 12
 branch_current[2] 9
 branch_current[3] 8
 branch_current[4] 8
 branch_current[5] 9
 branch_current[6] 8
 current 32.92
 energy 3.05420616e+10
 line_current[1] 31.24
 line_current[2] 32.92
 line_current[3] 29.46
 outlet_current[1] 2.1
 outlet_power[1] 421
 phase_current[1-2] 20
 phase_current[2-3] 18
 phase_current[3-1] 16
 phase_power[1-2] 4012
 phase_power[2-3] 3630
 phase_power[3-1] 3202
 phase_power_factor[1-2] 0.97
 phase_power_factor[2-3] 0.97
 phase_power_factor[3-1] 0.97
 phase_voltage[1-2] 206.8
 phase_voltage[2-3] 207.9
 phase_voltage[3-1] 206.3
 power 10844
 power_factor 0.97
r01-in-top inlet_temperature 25
r01-out outlet_temperature 24
r01-rh inlet_humidity 0.38
r01-rh inlet_temperature 23.5
row-a-leak leak 1
`},
	{profile: "vertiv-v5", walk: "vertiv-v5-wye", device: "r01-a", more: []string{`sensors: [{sensor: temp1, device: r01-in-top}, {sensor: airflow1, device: r01-rh}, {sensor: t3hd1, device: r01-x}, {sensor: t3hd1.a, device: r01-y}, {sensor: t3hd1.b, device: r01-out, measures: outlet_temperature}, {sensor: thd1, device: row-a-leak}]`}, want: `
 current 9.5
 energy 3.6e+06
 line_current[1] 9.5
 line_current[2] 5.6
 line_current[3] 5.4
 phase_current[1] 9.5
 phase_current[2] 5.6
 phase_current[3] 5.4
 phase_power[1] 2140
 phase_power[2] 1260
 phase_power[3] 1205
 phase_power_factor[1] 0.96
 phase_power_factor[2] 0.96
 phase_power_factor[3] 0.94
 phase_voltage[1] 235
 phase_voltage[2] 234.1
 phase_voltage[3] 236.5
 power 4605
 power_factor 0.96
r01-in-top inlet_temperature -5.5
r01-out outlet_temperature 24.4
r01-rh inlet_humidity 0.39
r01-rh inlet_temperature 23.1
row-a-leak inlet_humidity 0.42
row-a-leak inlet_temperature 22.6
`},
}
