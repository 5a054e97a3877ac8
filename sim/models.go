// SPDX-License-Identifier: Apache-2.0

package sim

import "strings"

// gpuModel holds what the model name decides. Limits, memory offset and clocks
// of H100, H200 and A100 come from dumps of real nodes (idle H100: 345 MHz,
// 70-78 W; 1980 MHz at load); TDP, memory size and clocks of the others are the
// makers' data sheets.
type gpuModel struct {
	match            string  // part of the NVML name
	tdp              float64 // watts
	maxOp            float64 // celsius where the margin is 0
	slow, shut       float64 // margins at hardware slowdown and shutdown, K
	memOffset        float64 // HBM minus GPU temperature at full load, K
	smMHz, memMHz    float64
	fbMiB, reservMiB float64
	pcieGen          int
	nvlinkMiBs       float64 // all links at full load, MiB/s; 0: no NVLink
}

// gpuModels is searched in order; the last entry matches every name.
// Thermal limits: H100 and H200 87/-2/-8 and L40S 88/-2/-5 as T.Limit in DCGM
// dumps; A100 85/89/92, T4 85/93/96, RTX 4080 SUPER 90/96/101 as absolute limits.
var gpuModels = []gpuModel{
	{"H200", 700, 87, -2, -8, -11, 1980, 3201, 143771, 620, 5, 100000},
	{"H100", 700, 87, -2, -8, -4, 1980, 2619, 81559, 540, 5, 100000},
	{"B200", 1000, 87, -2, -8, -4, 1965, 3996, 183359, 700, 5, 200000},
	{"A100", 400, 85, -4, -7, -4, 1410, 1593, 81920, 600, 4, 60000},
	{"L40S", 350, 88, -2, -5, -4, 2520, 9001, 46068, 480, 4, 0},
	{"RTX 4080", 320, 90, -6, -11, 2, 3105, 11501, 16376, 330, 4, 0},
	{"T4", 70, 85, -8, -11, 2, 1590, 5001, 15360, 300, 3, 0},
	{"", 300, 87, -2, -8, 2, 1800, 7001, 24576, 350, 4, 0},
}

const idleSMMHz, minSMMHz = 345, 345 // idle H100 [dump]; floor of the slowdown

func modelOf(name string) *gpuModel {
	for i := range gpuModels {
		if strings.Contains(name, gpuModels[i].match) {
			return &gpuModels[i]
		}
	}
	return &gpuModels[len(gpuModels)-1]
}

// busIDs are the PCI addresses of an 8-GPU HGX board, in DCGM's form.
var busIDs = [...]string{"1B", "43", "52", "61", "9D", "C3", "D1", "DF"}
