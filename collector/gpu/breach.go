// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/rackpulse/rackpulse/site"
)

// Names of the breaches that the beat carries. docs/lease.md says which of them
// take a node's work away.
const (
	breachHot           = "gpu_hot"
	breachMemoryHot     = "gpu_memory_hot"
	breachThrottled     = "gpu_throttled"
	breachFan           = "gpu_fan_stopped"
	breachPCIe          = "pcie_below_speed"
	breachNVLink        = "nvlink_down"
	breachECC           = "ecc_uncorrected"
	breachRemap         = "row_remap_failure"
	breachRepair        = "memory_repair_pending"
	breachRecovery      = "recovery_action"
	breachXID           = "xid_fatal"
	breachLeakedMemory  = "leaked_memory"
	fanStoppedCelsius   = 70 // own choice: cards with a zero-rpm mode start their fans at 50 to 65 C
	leakedBytes         = 1 << 30
	xidBreachFor        = time.Hour // own choice: long enough to be looked at, for nothing tells of a reset
	maxBreachesReported = 64        // the beat's own bound
)

// BreachLimits are what a GPU's values are held against.
type BreachLimits struct {
	// Of returns the limits of a GPU model.
	Of func(model string) site.GPULimits
	// FatalXIDs are the codes after which a GPU cannot be trusted.
	FatalXIDs []string
}

// row is one series with its labels, and what is known of its GPU.
type row struct {
	value  float64
	labels map[string]string
	limits site.GPULimits
	page   *breachPage
	now    time.Time
}

// breachPage holds what several rules need.
type breachPage struct {
	models map[string]string  // by UUID
	temp   map[string]float64 // by UUID, celsius
}

// breachRules say, for each family, which breach a series of it is, "" for none.
var breachRules = map[string]func(r row) (name, detail string){
	"DCGM_FI_DEV_GPU_TEMP": func(r row) (string, string) {
		most := cmp.Or(r.limits.MaxOperatingCelsius, r.limits.HotCelsius)
		return when(most > 0 && r.value > most, breachHot), fmt.Sprintf("%g C of %g C", r.value, most)
	},
	"DCGM_FI_DEV_MEMORY_TEMP": func(r row) (string, string) {
		most := r.limits.MemoryHotCelsius
		return when(most > 0 && r.value > most, breachMemoryHot), fmt.Sprintf("%g C of %g C", r.value, most)
	},
	"rackpulse_gpu_throttle": func(r row) (string, string) {
		reason := r.labels["reason"]
		hard := reason == "hw_slowdown" || reason == "hw_thermal" || reason == "hw_power_brake" || reason == "sw_thermal"
		return when(hard && r.value > 0, breachThrottled), reason
	},
	"DCGM_FI_DEV_FAN_SPEED": func(r row) (string, string) {
		temp := r.page.temp[r.labels["UUID"]]
		return when(r.value == 0 && temp >= fanStoppedCelsius, breachFan), fmt.Sprintf("at %g C", temp)
	},
	"rackpulse_gpu_pcie_degraded": func(r row) (string, string) { return when(r.value > 0, breachPCIe), r.labels["what"] },
	"rackpulse_nvlink_up": func(r row) (string, string) {
		return when(r.value == 0 && r.labels["UUID"] != "", breachNVLink), "link " + r.labels["nvlink"]
	},
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":       func(r row) (string, string) { return when(r.value > 0, breachECC), fmt.Sprintf("%g", r.value) },
	"rackpulse_gpu_rma_flag":              func(r row) (string, string) { return when(r.value > 0, breachRemap), r.labels["cause"] },
	"rackpulse_gpu_memory_repair_pending": func(r row) (string, string) { return when(r.value > 0, breachRepair), "" },
	"rackpulse_gpu_recovery_action": func(r row) (string, string) {
		return when(r.value > 0 && r.labels["action"] != "none", breachRecovery), r.labels["action"]
	},
	"rackpulse_gpu_xid_last_timestamp_seconds": func(r row) (string, string) {
		age := r.now.Sub(time.UnixMilli(int64(r.value * 1000)))
		return when(age < xidBreachFor, breachXID), "XID " + r.labels["xid"]
	},
	"rackpulse_gpu_leaked_memory_bytes": func(r row) (string, string) {
		return when(r.value >= leakedBytes, breachLeakedMemory), fmt.Sprintf("%.1f GiB", r.value/(1<<30))
	},
}

func when(cond bool, name string) string {
	if cond {
		return name
	}
	return ""
}

// Breaches names the limits that the values of a page breach, as "NAME UUID
// DETAIL", sorted: temperatures over the model's limits (site's limits.yml),
// clocks held back by heat or the power brake, a stopped fan, links below speed
// or down, uncorrectable memory errors, failed or pending repairs, an XID of the
// given ones within the last hour, and memory that an idle GPU leaked.
func Breaches(families []*dto.MetricFamily, limits BreachLimits, now time.Time) []string {
	page := readBreachPage(families)
	var out []string
	for _, f := range families {
		rule := breachRules[f.GetName()]
		if rule == nil {
			continue
		}
		for _, m := range f.GetMetric() {
			r := row{value: metricValue(m), labels: labelsOf(m), page: page, now: now}
			if r.labels["GPU_I_ID"] != "" {
				continue // it is its GPU's
			}
			if f.GetName() == "rackpulse_gpu_xid_last_timestamp_seconds" && !slices.Contains(limits.FatalXIDs, r.labels["xid"]) {
				continue
			}
			r.limits = limits.Of(page.models[r.labels["UUID"]])
			if name, detail := rule(r); name != "" {
				text := name + " " + r.labels["UUID"]
				if detail != "" {
					text += " " + detail
				}
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxBreachesReported)]
}

func readBreachPage(families []*dto.MetricFamily) *breachPage {
	p := &breachPage{models: map[string]string{}, temp: map[string]float64{}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "rackpulse_gpu_info":
				l := labelsOf(m)
				p.models[l["UUID"]] = l["model"]
			case "DCGM_FI_DEV_GPU_TEMP":
				p.temp[labelsOf(m)["UUID"]] = metricValue(m)
			}
		}
	}
	return p
}

func labelsOf(m *dto.Metric) map[string]string {
	out := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// metricValue is the value of a gauge, counter or untyped metric.
func metricValue(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.GetUntyped().GetValue()
}
