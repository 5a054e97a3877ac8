// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// adapterPages are pages in the exporters' formats, written by hand with what
// their devices are known to get wrong, and the series that must come of them
// (name{labels that tell them apart}, then the value).
var adapterPages = []struct{ adapter, page, want string }{
	// The fourth infeed is the neutral, and not measured is -1.
	{"snmp-sentry3", `
infeedLoadValue{infeedID="AA",infeedIndex="1",infeedName="A",towerIndex="1"} 650
infeedLoadValue{infeedID="AB",infeedIndex="2",infeedName="B",towerIndex="1"} 700
infeedLoadValue{infeedID="AC",infeedIndex="3",infeedName="C",towerIndex="1"} -1
infeedLoadValue{infeedID="AD",infeedIndex="4",infeedName="N",towerIndex="1"} 1300
infeedLoadValue{infeedID="BA",infeedIndex="1",infeedName="A",towerIndex="2"} 2000
infeedPower{infeedID="AA",infeedIndex="1",infeedName="A",towerIndex="1"} 1450
infeedPower{infeedID="AB",infeedIndex="2",infeedName="B",towerIndex="1"} 1560
infeedPower{infeedID="AD",infeedIndex="4",infeedName="N",towerIndex="1"} -1
infeedPower{infeedID="BA",infeedIndex="1",infeedName="A",towerIndex="2"} 4000
`, `
facility_device_up{d1,snmp-sentry3} 1
pdu_current_ampere{} 7
pdu_line_current_ampere{1} 6.5
pdu_line_current_ampere{2} 7
pdu_power_watt{} 3010
`},
	// A second unit is linked; its series carry no index, only its letter. One
	// probe is lost (its last value is -41), one is set to Fahrenheit.
	{"snmp-sentry4", `
st4LineCurrent{st4InputCordID="AA",st4InputCordName="m",st4LineID="",st4LineIndex="1",st4LineLabel="AA:L1"} 1210
st4LineCurrent{st4InputCordID="BA",st4InputCordName="l",st4LineID="",st4LineIndex="1",st4LineLabel="BA:L1"} 3000
st4InputCordActivePower{st4InputCordID="AA",st4InputCordName="m"} 2500
st4InputCordActivePower{st4InputCordID="BA",st4InputCordName="l"} 9000
st4InputCordPowerFactor{st4InputCordID="AA",st4InputCordName="m"} 97
st4InputCordEnergy{st4InputCordID="AA",st4InputCordName="m"} 20
st4TempSensorValue{st4TempSensorIndex="1",st4UnitIndex="1"} 23.5
st4TempSensorStatus{st4TempSensorIndex="1",st4UnitIndex="1"} 0
st4TempSensorValue{st4TempSensorIndex="2",st4UnitIndex="1"} -41
st4TempSensorStatus{st4TempSensorIndex="2",st4UnitIndex="1"} 8
st4TempSensorValue{st4TempSensorIndex="3",st4UnitIndex="1"} 74.3
st4TempSensorStatus{st4TempSensorIndex="3",st4UnitIndex="1"} 0
`, `
facility_device_up{d1,snmp-sentry4} 1
pdu_current_ampere{} 12.1
pdu_energy_joules_total{} 7200000
pdu_line_current_ampere{1} 12.1
pdu_power_factor_ratio{} 0.97
pdu_power_watt{} 2500
rack_inlet_temperature_celsius{d1-1} 23.5
`},
	{"snmp-raritan-pdu2", `
measurementsInletSensorValue{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="rmsCurrent"} 16200
measurementsInletSensorIsAvailable{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="rmsCurrent"} 1
measurementsInletSensorValue{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="activePower"} 10900
measurementsInletSensorValue{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="powerFactor"} 0
measurementsInletSensorIsAvailable{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="powerFactor"} 2
measurementsInletSensorValue{inletId="1",inletLabel="I1",pduId="1",pduName="",sensorType="activeEnergy"} 1000
measurementsInletPoleSensorValue{inletId="1",inletLabel="I1",inletPoleIndex="1",pduId="1",pduName="",sensorType="rmsCurrent"} 16200
measurementsInletPoleSensorValue{inletId="1",inletLabel="I1",inletPoleIndex="4",pduId="1",pduName="",sensorType="rmsCurrent"} 900
`, `
facility_device_up{d1,snmp-raritan-pdu2} 1
pdu_current_ampere{} 16.2
pdu_energy_joules_total{} 3600000
pdu_line_current_ampere{1} 16.2
pdu_power_watt{} 10900
`},
	{"snmp-raritan", `
inletCurrent{inletIndex="1"} 2971
inletCurrent{inletIndex="2"} -1
inletActivePower{inletIndex="1"} 580
inletActivePower{inletIndex="2"} 4.294967295e+09
`, `
facility_device_up{d1,snmp-raritan} 1
pdu_current_ampere{} 2.971
pdu_line_current_ampere{1} 2.971
pdu_power_watt{} 580
`},
	{"snmp-liebert", `
lgpPduPsEntryPwrTotal{lgpPduEntryIndex="1",lgpPduPsEntryIndex="1"} 514
lgpPduPsLineEntryEcHundredths{lgpPduEntryIndex="1",lgpPduPsEntryIndex="1",lgpPduPsLineEntryIndex="2"} 242
`, `
facility_device_up{d1,snmp-liebert} 1
pdu_current_ampere{} 2.42
pdu_line_current_ampere{2} 2.42
pdu_power_watt{} 514
`},
	// Loopbacks are no ports; state 4 is unknown, 2 and 7 are down.
	{"snmp-if-mib", `
ifOperStatus{ifAlias="",ifDescr="Ethernet1",ifIndex="1",ifName="Ethernet1"} 1
ifType_info{ifAlias="",ifDescr="Ethernet1",ifIndex="1",ifName="Ethernet1",ifType="ethernetCsmacd"} 1
ifOperStatus{ifAlias="",ifDescr="Ethernet2",ifIndex="2",ifName="Ethernet2"} 7
ifType_info{ifAlias="",ifDescr="Ethernet2",ifIndex="2",ifName="Ethernet2",ifType="ethernetCsmacd"} 1
ifOperStatus{ifAlias="",ifDescr="Ethernet3",ifIndex="3",ifName="Ethernet3"} 4
ifType_info{ifAlias="",ifDescr="Ethernet3",ifIndex="3",ifName="Ethernet3",ifType="ethernetCsmacd"} 1
ifOperStatus{ifAlias="",ifDescr="Loopback0",ifIndex="9",ifName="Loopback0"} 1
ifType_info{ifAlias="",ifDescr="Loopback0",ifIndex="9",ifName="Loopback0",ifType="softwareLoopback"} 1
ifHighSpeed{ifAlias="",ifDescr="Ethernet1",ifIndex="1",ifName="Ethernet1"} 400000
ifHCInOctets{ifAlias="",ifDescr="Ethernet1",ifIndex="1",ifName="Ethernet1"} 5e+12
ifInErrors{ifAlias="",ifDescr="Ethernet1",ifIndex="1",ifName="Ethernet1"} 3
`, `
facility_device_up{d1,snmp-if-mib} 1
switch_port_receive_bytes_total{Ethernet1} 5000000000000
switch_port_receive_errors_total{Ethernet1} 3
switch_port_speed_bytes{Ethernet1} 50000000000
switch_port_up{Ethernet1} 1
switch_port_up{Ethernet2} 0
`},
	{"ipmi-exporter", `
ipmi_temperature_celsius{id="18",name="01-Inlet Ambient"} 22
ipmi_temperature_celsius{id="19",name="Exhaust Temp"} 41
ipmi_temperature_celsius{id="20",name="Inlet Temp 2"} NaN
ipmi_dcmi_power_consumption_current_watts 0
`, `
rack_inlet_temperature_celsius{d1-01-Inlet Ambient} 22
`},
	{"idrac-exporter", `
idrac_sensors_temperature{id="0",name="System Board Inlet Temp",units="celsius"} 21
idrac_sensors_temperature{id="1",name="System Board Exhaust Temp",units="celsius"} 33
idrac_power_control_consumed_watts{id="0",name="System Power Control"} 5200
`, `
node_power_watt{} 5200
rack_inlet_temperature_celsius{d1-System Board Inlet Temp} 21
`},
	{"nvidia-gpu-exporter", `
nvidia_smi_gpu_info{index="2",name="NVIDIA H100 80GB HBM3",uuid="aa-bb"} 1
nvidia_smi_temperature_gpu{uuid="aa-bb"} 61
nvidia_smi_temperature_gpu{uuid="no-info"} 62
nvidia_smi_power_draw_watts{uuid="aa-bb"} 550.5
nvidia_smi_utilization_gpu_ratio{uuid="aa-bb"} 0.97
`, `
DCGM_FI_DEV_GPU_TEMP{2,GPU-aa-bb,NVIDIA H100 80GB HBM3} 61
DCGM_FI_DEV_GPU_UTIL{2,GPU-aa-bb,NVIDIA H100 80GB HBM3} 97
DCGM_FI_DEV_POWER_USAGE{2,GPU-aa-bb,NVIDIA H100 80GB HBM3} 550.5
rackpulse_gpu_up{2,GPU-aa-bb} 1
`},
}

func TestAdapterPages(t *testing.T) {
	telling := []string{"device", "phase", "line", "port", "sensor", "gpu", "UUID", "modelName", "driver"}
	for _, tc := range adapterPages {
		t.Run(tc.adapter, func(t *testing.T) {
			f := adapters(t, tc.adapter)
			st := f.store()
			st.rounds(2, func(p page) {
				kind := "pdu"
				if tc.adapter == "snmp-if-mib" {
					kind = "switch"
				}
				p[fmt.Sprintf(`rackpulse_facility_device_info{site="ams1",device="d1",kind=%q,rack_id="r01"}`, kind)] = 1
				p[`rackpulse_node_info{site="ams1",node="d1",rack_id="r01"}`] = 1
				f.scrape(p, tc.page, map[string]string{"job": tc.adapter, "instance": "10.0.0.1", "site": "ams1", "device": "d1", "node": "d1"})
			})
			got := map[string]float64{}
			for key, v := range st.vector(`{adapter!="",rack_id="r01",__name__!~"ALERTS.*"}`, append([]string{"__name__"}, telling...)...) {
				name, labels, _ := strings.Cut(key, "/")
				got[name+"{"+strings.Join(strings.FieldsFunc(labels, func(r rune) bool { return r == '/' }), ",")+"}"] = math.Round(v*1e6) / 1e6
			}
			var lines []string
			for _, key := range slices.Sorted(maps.Keys(got)) {
				lines = append(lines, fmt.Sprintf("%s %.10g", key, got[key]))
			}
			want := strings.Split(strings.TrimSpace(tc.want), "\n")
			for i, line := range want {
				key, v, _ := strings.Cut(line, "} ")
				var f float64
				if _, err := fmt.Sscan(v, &f); err != nil {
					t.Fatal(err)
				}
				want[i] = fmt.Sprintf("%s} %.10g", key, f)
			}
			if !slices.Equal(lines, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
