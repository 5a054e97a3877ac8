// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"testing"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// TestFieldNames compares the list of names with go-dcgm's.
func TestFieldNames(t *testing.T) {
	if n := len(fieldNames()); n < 1000 {
		t.Errorf("only %d names", n)
	}
	for name, f := range fieldNames() {
		id, ok := dcgm.GetFieldID(name)
		if !ok || uint16(id) != f.id {
			t.Errorf("%s: id %d here, %d (%v) in go-dcgm", name, f.id, id, ok)
		}
	}
	// Renamed by DCGM 4.6; the metrics keep dcgm-exporter's names.
	for renamed, metric := range map[string]string{
		"DCGM_FI_DEV_BOARD_POWER_WATTS":         "DCGM_FI_DEV_POWER_USAGE",
		"DCGM_FI_DEV_GPU_UTIL_RATIO":            "DCGM_FI_DEV_GPU_UTIL",
		"DCGM_FI_SYSTEM_DRIVER_VERSION":         "DCGM_FI_DRIVER_VERSION",
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL":   "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
		"DCGM_FI_DEV_PCIE_REPLAY_TOTAL":         "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
		"DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": fieldSlowdown,
	} {
		if got := fieldNames()[renamed].metric; got != metric {
			t.Errorf("%s: metric %q, want %q", renamed, got, metric)
		}
	}
}
