// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/site"
)

// breachText is a page of an H100 (limit 87 C) and a card of no known model.
const breachText = `rackpulse_gpu_info{UUID="GPU-a",gpu="0",model="NVIDIA H100 80GB HBM3"} 1
rackpulse_gpu_info{UUID="GPU-b",gpu="1",model="Some Card"} 1
`

func TestBreaches(t *testing.T) {
	limits := BreachLimits{Of: site.DefaultLimits().GPU, FatalXIDs: []string{"79", "48"}}
	now := time.Unix(1_700_000_000, 0)
	for _, tc := range []struct {
		page string
		want []string
	}{
		{`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 87`, nil},
		{`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 88`, []string{"gpu_hot GPU-a 88 C of 87 C"}},
		{`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-b"} 86`, []string{"gpu_hot GPU-b 86 C of 85 C"}},
		{`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",GPU_I_ID="1"} 99`, nil},
		{`DCGM_FI_DEV_MEMORY_TEMP{UUID="GPU-a"} 96`, []string{"gpu_memory_hot GPU-a 96 C of 95 C"}},
		{`rackpulse_gpu_throttle{UUID="GPU-a",reason="sw_power_cap"} 1`, nil},
		{`rackpulse_gpu_throttle{UUID="GPU-a",reason="hw_power_brake"} 1`, []string{"gpu_throttled GPU-a hw_power_brake"}},
		{`rackpulse_gpu_throttle{UUID="GPU-a",reason="hw_thermal"} 0`, nil},
		{"DCGM_FI_DEV_FAN_SPEED{UUID=\"GPU-b\"} 0\nDCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-b\"} 45", nil},
		{"DCGM_FI_DEV_FAN_SPEED{UUID=\"GPU-b\"} 0\nDCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-b\"} 75", []string{"gpu_fan_stopped GPU-b at 75 C"}},
		{`rackpulse_gpu_pcie_degraded{UUID="GPU-a",what="width"} 1`, []string{"pcie_below_speed GPU-a width"}},
		{`rackpulse_nvlink_up{UUID="GPU-a",nvlink="3"} 0`, []string{"nvlink_down GPU-a link 3"}},
		{`rackpulse_nvlink_up{UUID="",nvswitch="1",nvlink="3"} 0`, nil},
		{`DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{UUID="GPU-a"} 2`, []string{"ecc_uncorrected GPU-a 2"}},
		{`rackpulse_gpu_rma_flag{UUID="GPU-a",cause="remapped_rows"} 1`, []string{"row_remap_failure GPU-a remapped_rows"}},
		{`rackpulse_gpu_memory_repair_pending{UUID="GPU-a"} 1`, []string{"memory_repair_pending GPU-a"}},
		{`rackpulse_gpu_recovery_action{UUID="GPU-a",action="none"} 1`, nil},
		{`rackpulse_gpu_recovery_action{UUID="GPU-a",action="gpu_reset"} 1`, []string{"recovery_action GPU-a gpu_reset"}},
		{`rackpulse_gpu_xid_last_timestamp_seconds{UUID="GPU-a",xid="79"} 1699999000`, []string{"xid_fatal GPU-a XID 79"}},
		{`rackpulse_gpu_xid_last_timestamp_seconds{UUID="GPU-a",xid="79"} 1699990000`, nil},
		{`rackpulse_gpu_xid_last_timestamp_seconds{UUID="GPU-a",xid="31"} 1699999999`, nil},
		{`rackpulse_gpu_leaked_memory_bytes{UUID="GPU-a"} 5e8`, nil},
		{`rackpulse_gpu_leaked_memory_bytes{UUID="GPU-a"} 4294967296`, []string{"leaked_memory GPU-a 4.0 GiB"}},
	} {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		parsed, err := parser.TextToMetricFamilies(strings.NewReader(breachText + tc.page + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		var families []*dto.MetricFamily
		for _, f := range parsed {
			families = append(families, f)
		}
		if got := Breaches(families, limits, now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.page, got, tc.want)
		}
	}
}
