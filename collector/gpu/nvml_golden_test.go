// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// nvmlNodes are three kinds of cards as NVML shows them, by the names of their
// golden pages, with what must be on the page whatever the golden file says.
var nvmlNodes = map[string]struct {
	script []string
	gpus   string
	shows  []string // series and value
	absent []string
}{
	"gpu-nvml-h100": {
		script: []string{"gpus 2", "value * nvmlDeviceGetUtilizationRates.gpu 88", "value * nvmlDeviceGetPowerUsage 612345",
			"value 1 nvmlDeviceGetCurrPcieLinkWidth 8", "value 1 nvmlDeviceGetNvLinkState.4 0", "value 1 nvmlDeviceGetFieldValues.230 1"},
		gpus: "11",
		shows: []string{`rackpulse_nvlinks{gpu="0",state="up"} 18`, `rackpulse_nvlinks{gpu="1",state="down"} 1`, `DCGM_FI_DEV_POWER_USAGE{gpu="0"} 612.345`,
			`rackpulse_gpu_recovery_action{gpu="1",action="gpu_reset"} 1`, `DCGM_FI_DEV_MEMORY_TEMP{gpu="1"} 32`},
		absent: []string{"DCGM_FI_DEV_FAN_SPEED", "rackpulse_gpu_idle_since_timestamp_seconds"},
	},
	"gpu-nvml-a100-mig": {
		script: []string{"gpus 2", "model NVIDIA A100-SXM4-40GB", "driver 535.183.06", "profile 2g.10gb", "mig 1 3",
			"value * nvmlDeviceGetMemoryInfo_v2.total 42949672960", "value * nvmlDeviceGetMemoryInfo_v2.reserved 643825664",
			"value * nvmlDeviceGetAttributes_v2.memory 9984", "value * nvmlDeviceGetAttributes_v2.multiprocessors 28",
			"value 1 nvmlDeviceGetUtilizationRates notsupported", "value 1 nvmlDeviceGetRemappedRows notsupported",
			"value * nvmlDeviceGetMarginTemperature notsupported", "value * nvmlDeviceGetTemperatureThreshold.slowdown 95"},
		gpus: "11",
		shows: []string{`DCGM_FI_DEV_FB_USED{gpu="1",GPU_I_PROFILE="2g.10gb",GPU_I_ID="7"} 0`, `DCGM_FI_DEV_FB_RESERVED{gpu="0"} 614`,
			`rackpulse_gpu_instance_memory_bytes{gpu="1",GPU_I_PROFILE="2g.10gb",GPU_I_ID="9"} 1.0468982784e+10`,
			`rackpulse_gpu_instance_multiprocessors{gpu="1",GPU_I_ID="8"} 28`, `rackpulse_gpu_thermal_margin_celsius{gpu="0"} 61`},
		absent: []string{`DCGM_FI_DEV_GPU_UTIL{gpu="1"`, `DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1"`, `rackpulse_gpu_instance_memory_bytes{UUID="GPU-01000100-0000-0000-0000-000000000000"`},
	},
	"gpu-nvml-geforce": {
		script: []string{"gpus 1", "model NVIDIA GeForce RTX 4090", "driver 550.163.01", "value * nvmlDeviceGetTotalEccErrors notsupported",
			"value * nvmlDeviceGetRemappedRows notsupported", "value * nvmlDeviceGetRetiredPages notsupported", "value * nvmlDeviceGetRetiredPagesPendingStatus notsupported",
			"value * nvmlDeviceGetSramEccErrorStatus notsupported", "value * nvmlDeviceGetNvLinkState notsupported", "value * nvmlDeviceGetNvLinkErrorCounter notsupported",
			"value * nvmlDeviceGetFieldValues notsupported", "value * nvmlDeviceGetMigMode notsupported", "value * nvmlDeviceGetMarginTemperature notsupported",
			"value * nvmlDeviceGetFanSpeed 30", "value * nvmlDeviceGetTemperatureThreshold.slowdown 97", "value * nvmlDeviceGetCurrPcieLinkGeneration 1",
			"value * nvmlDeviceGetMaxPcieLinkGeneration 4", "value * nvmlDeviceGetMemoryInfo_v2.total 25757220864", "value * nvmlDeviceGetMemoryInfo_v2.reserved 422576128"},
		gpus: "1",
		shows: []string{`DCGM_FI_DEV_FAN_SPEED{gpu="0",modelName="NVIDIA GeForce RTX 4090"} 30`, `rackpulse_gpu_thermal_margin_celsius{gpu="0"} 63`,
			`DCGM_FI_DEV_FB_RESERVED{gpu="0"} 403`},
		absent: []string{"DCGM_FI_DEV_ECC_", "REMAP", "rackpulse_gpu_rma_flag", "rackpulse_gpu_memory_repair_pending", "rackpulse_nvlink", "DCGM_FI_DEV_NVLINK_",
			"rackpulse_gpu_recovery_action", "rackpulse_gpu_pcie_degraded", "DCGM_FI_DEV_MEMORY_TEMP", "GPU_I_ID"},
	},
}

// TestNVMLGolden reads each kind of card through the real loader in a real child.
func TestNVMLGolden(t *testing.T) {
	for name, n := range nvmlNodes {
		t.Run(name, func(t *testing.T) {
			useNVML(t, "", n.script...)
			_, rec := startNVML(t, Config{})
			links := name != "gpu-nvml-geforce"
			eventually(t, "GPUs and a rate", func() bool {
				page := rec.page(t)
				return strings.HasPrefix(ups(t, rec), n.gpus) && (!links || len(series(page, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")) >= len(n.gpus))
			})
			page := rec.page(t)
			parsed(t, page)
			for _, want := range n.shows {
				family, rest, _ := strings.Cut(want, "{")
				labels, value, _ := strings.Cut(rest, "} ")
				got := series(page, family, strings.Split(labels, ",")...)
				if len(got) == 0 || got[0] != value {
					t.Errorf("%s: %q", want, got)
				}
			}
			for _, line := range strings.Split(page, "\n") {
				for _, absent := range n.absent {
					if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "rackpulse_gpu_field_supported{") && strings.Contains(line, absent) {
						t.Errorf("on the page: %s", line)
					}
				}
			}
			compare(t, name+".prom", goldenPage(page))
		})
	}
}

// compare holds a page against a golden file, or writes that with -update.
func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join(testtool.Root(), "testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(golden) {
		t.Errorf("%s differs; the page now:\n%s", name, got)
	}
}
