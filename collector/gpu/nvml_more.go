// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlMore are the calls for fields that the built-in counters do not name, but a
// counters file may. docs/gpu.md lists them.
var nvmlMore = slices.Concat(nvmlStates, nvmlECC(), nvmlViolations(), nvmlLinkCalls(), nvmlNodeFields())

// nvmlFieldValues is the function that gives most of what came after driver 418.
const nvmlFieldValues = "nvmlDeviceGetFieldValues"

// field is a call for one of NVML's field values.
func field(name string, id uint32) nvmlCall {
	return nvmlCall{symbol: nvmlFieldValues, fields: []string{name}, read: oneField(id)}
}

// nvmlStates are clocks, limits, modes and states.
var nvmlStates = []nvmlCall{
	{symbol: "nvmlDeviceGetPerformanceState", fields: []string{"DCGM_FI_DEV_PSTATE"}, read: readPState},
	{symbol: "nvmlDeviceGetClockInfo", fields: []string{"DCGM_FI_DEV_VIDEO_CLOCK"}, read: clock(nvml.Device.GetClockInfo, nvml.CLOCK_VIDEO)},
	{symbol: "nvmlDeviceGetMaxClockInfo", fields: []string{"DCGM_FI_DEV_MAX_SM_CLOCK"}, read: clock(nvml.Device.GetMaxClockInfo, nvml.CLOCK_SM)},
	{symbol: "nvmlDeviceGetMaxClockInfo", fields: []string{"DCGM_FI_DEV_MAX_MEM_CLOCK"}, read: clock(nvml.Device.GetMaxClockInfo, nvml.CLOCK_MEM)},
	{symbol: "nvmlDeviceGetMaxClockInfo", fields: []string{"DCGM_FI_DEV_MAX_VIDEO_CLOCK"}, read: clock(nvml.Device.GetMaxClockInfo, nvml.CLOCK_VIDEO)},
	{symbol: "nvmlDeviceGetApplicationsClock", fields: []string{"DCGM_FI_DEV_APP_SM_CLOCK"}, read: clock(nvml.Device.GetApplicationsClock, nvml.CLOCK_SM)},
	{symbol: "nvmlDeviceGetApplicationsClock", fields: []string{"DCGM_FI_DEV_APP_MEM_CLOCK"}, read: clock(nvml.Device.GetApplicationsClock, nvml.CLOCK_MEM)},
	{symbol: "nvmlDeviceGetTemperatureThreshold", fields: []string{"DCGM_FI_DEV_GPU_MAX_OP_TEMP"}, read: threshold(nvml.TEMPERATURE_THRESHOLD_GPU_MAX)},
	{symbol: "nvmlDeviceGetTemperatureThreshold", fields: []string{"DCGM_FI_DEV_MEM_MAX_OP_TEMP"}, read: threshold(nvml.TEMPERATURE_THRESHOLD_MEM_MAX)},
	{symbol: nvmlFieldValues, fields: []string{"DCGM_FI_DEV_POWER_USAGE_INSTANT"}, read: milliField(nvml.FI_DEV_POWER_INSTANT)},
	{symbol: "nvmlDeviceGetPowerManagementLimitConstraints", fields: []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"}, read: readLimits},
	{symbol: "nvmlDeviceGetPowerManagementDefaultLimit", fields: []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF"}, read: milli(nvml.Device.GetPowerManagementDefaultLimit)},
	{symbol: "nvmlDeviceGetBAR1MemoryInfo", fields: []string{"DCGM_FI_DEV_BAR1_TOTAL", "DCGM_FI_DEV_BAR1_FREE", "DCGM_FI_DEV_BAR1_USED"}, read: readBAR1},
	{symbol: "nvmlDeviceGetComputeMode", fields: []string{"DCGM_FI_DEV_COMPUTE_MODE"}, read: one(nvml.Device.GetComputeMode)},
	{symbol: "nvmlDeviceGetPersistenceMode", fields: []string{"DCGM_FI_DEV_PERSISTENCE_MODE"}, read: one(nvml.Device.GetPersistenceMode)},
	{symbol: "nvmlDeviceGetVirtualizationMode", fields: []string{"DCGM_FI_DEV_VIRTUAL_MODE"}, read: one(nvml.Device.GetVirtualizationMode)},
	{symbol: "nvmlDeviceGetMigMode", fields: []string{"DCGM_FI_DEV_MIG_MODE"}, read: one(func(d nvml.Device) (int, nvml.Return) {
		current, _, ret := d.GetMigMode()
		return current, ret
	})},
	{symbol: "nvmlDeviceGetMaxMigDeviceCount", fields: []string{"DCGM_FI_DEV_MIG_MAX_SLICES"}, read: one(nvml.Device.GetMaxMigDeviceCount)},
	{symbol: "nvmlDeviceGetGpuFabricInfo", fields: []string{"DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE", "DCGM_FI_DEV_FABRIC_CLIQUE_ID"}, read: readFabric},
	{symbol: "nvmlDeviceGetGpuFabricInfoV", fields: []string{"DCGM_FI_DEV_FABRIC_HEALTH_MASK", "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"}, read: readFabricHealth},
	{symbol: "nvmlDeviceGetAttributes_v2", fields: []string{fieldInstanceMemory, fieldInstanceSMs}, read: readAttributes, scope: onlyInstance},
}

// nvmlNodeFields are field values that mean the same here and there.
func nvmlNodeFields() []nvmlCall {
	return []nvmlCall{
		field(fieldRecovery, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION),
		field("DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS", nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS),
		field("DCGM_FI_DEV_C2C_LINK_COUNT", nvml.FI_DEV_C2C_LINK_COUNT),
		field("DCGM_FI_DEV_C2C_LINK_STATUS", nvml.FI_DEV_C2C_LINK_GET_STATUS),
		field("DCGM_FI_DEV_C2C_MAX_BANDWIDTH", nvml.FI_DEV_C2C_LINK_GET_MAX_BW),
	}
}

// nvmlECC are the memory errors by location, the threshold of the SRAM and the
// spare rows.
func nvmlECC() []nvmlCall {
	list := []nvmlCall{
		{symbol: "nvmlDeviceGetEccMode", fields: []string{"DCGM_FI_DEV_ECC_CURRENT", "DCGM_FI_DEV_ECC_PENDING"}, read: readECCMode},
		{symbol: "nvmlDeviceGetSramEccErrorStatus", fields: []string{fieldSRAM}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
			s, ret := d.GetSramEccErrorStatus()
			return s.BThresholdExceeded, ret
		})},
		{symbol: "nvmlDeviceGetRowRemapperHistogram", fields: []string{"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX", "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH",
			"DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL", "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW", "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE"}, read: readHistogram},
	}
	kinds := map[string]nvml.MemoryErrorType{"SBE": nvml.MEMORY_ERROR_TYPE_CORRECTED, "DBE": nvml.MEMORY_ERROR_TYPE_UNCORRECTED}
	counters := map[string]nvml.EccCounterType{"VOL": nvml.VOLATILE_ECC, "AGG": nvml.AGGREGATE_ECC}
	places := []struct {
		name     string
		location nvml.MemoryLocation
	}{
		{"L1", nvml.MEMORY_LOCATION_L1_CACHE}, {"L2", nvml.MEMORY_LOCATION_L2_CACHE}, {"DEV", nvml.MEMORY_LOCATION_DEVICE_MEMORY},
		{"REG", nvml.MEMORY_LOCATION_REGISTER_FILE}, {"TEX", nvml.MEMORY_LOCATION_TEXTURE_MEMORY}, {"SHM", nvml.MEMORY_LOCATION_TEXTURE_SHM},
		{"CBU", nvml.MEMORY_LOCATION_CBU}, {"SRM", nvml.MEMORY_LOCATION_SRAM},
	}
	for kindName, kind := range kinds {
		for counterName, counter := range counters {
			for _, place := range places {
				list = append(list, nvmlCall{symbol: "nvmlDeviceGetMemoryErrorCounter",
					fields: []string{fmt.Sprintf("DCGM_FI_DEV_ECC_%s_%s_%s", kindName, counterName, place.name)},
					read: one(func(d nvml.Device) (uint64, nvml.Return) {
						return d.GetMemoryErrorCounter(kind, counter, place.location)
					})})
			}
		}
	}
	return list
}

// nvmlViolations are the times in ns for which the clocks were held back, since
// the driver was loaded.
func nvmlViolations() []nvmlCall {
	var list []nvmlCall
	for name, policy := range map[string]nvml.PerfPolicyType{
		"POWER": nvml.PERF_POLICY_POWER, "THERMAL": nvml.PERF_POLICY_THERMAL, "SYNC_BOOST": nvml.PERF_POLICY_SYNC_BOOST,
		"BOARD_LIMIT": nvml.PERF_POLICY_BOARD_LIMIT, "LOW_UTIL": nvml.PERF_POLICY_LOW_UTILIZATION, "RELIABILITY": nvml.PERF_POLICY_RELIABILITY,
		"TOTAL_APP_CLOCKS": nvml.PERF_POLICY_TOTAL_APP_CLOCKS, "TOTAL_BASE_CLOCKS": nvml.PERF_POLICY_TOTAL_BASE_CLOCKS,
	} {
		list = append(list, nvmlCall{symbol: "nvmlDeviceGetViolationStatus", fields: []string{"DCGM_FI_DEV_" + name + "_VIOLATION"},
			read: one(func(d nvml.Device) (uint64, nvml.Return) {
				v, ret := d.GetViolationStatus(policy)
				return v.ViolationTime, ret
			})})
	}
	for name, id := range map[string]uint32{
		"SW_POWER_CAP": nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP, "SYNC_BOOST": nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
		"SW_THERM_SLOWDOWN": nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, "HW_THERM_SLOWDOWN": nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
		"HW_POWER_BRAKE_SLOWDOWN": nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
	} {
		list = append(list, field("DCGM_FI_DEV_CLOCKS_EVENT_REASON_"+name+"_NS", id))
	}
	return list
}

// clock reads one of the clocks in MHz.
func clock(get func(nvml.Device, nvml.ClockType) (uint32, nvml.Return), kind nvml.ClockType) nvmlRead {
	return one(func(d nvml.Device) (uint32, nvml.Return) { return get(d, kind) })
}

// threshold reads a temperature in celsius at which the driver acts.
func threshold(kind nvml.TemperatureThresholds) nvmlRead {
	return one(func(d nvml.Device) (uint32, nvml.Return) { return d.GetTemperatureThreshold(kind) })
}

// milliField reads a field value in milliwatts as watts.
func milliField(id uint32) nvmlRead {
	read := oneField(id)
	return func(g *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		ret := read(g, d, v)
		v[0] /= 1000
		return ret
	}
}

func readPState(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	state, ret := d.GetPerformanceState()
	if ret == nvml.SUCCESS && state == nvml.PSTATE_UNKNOWN {
		return nvml.ERROR_NOT_SUPPORTED
	}
	v[0] = float64(state)
	return ret
}

func readLimits(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	least, most, ret := d.GetPowerManagementLimitConstraints()
	v[0], v[1] = float64(least)/1000, float64(most)/1000
	return ret
}

func readBAR1(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	m, ret := d.GetBAR1MemoryInfo()
	v[0], v[1], v[2] = mebibytes(m.Bar1Total), mebibytes(m.Bar1Free), mebibytes(m.Bar1Used)
	return ret
}

func readECCMode(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	current, pending, ret := d.GetEccMode()
	v[0], v[1] = float64(current), float64(pending)
	return ret
}

func readHistogram(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	h, ret := d.GetRowRemapperHistogram()
	*v = [maxResults]float64{float64(h.Max), float64(h.High), float64(h.Partial), float64(h.Low), float64(h.None)}
	return ret
}

// DCGM's states of the fabric manager (dcgmFabricManagerStatus_t); the first
// three are NVML's.
const (
	fabricSuccess = 3
	fabricFailure = 4
)

// readFabric tells DCGM's view of the GPU's registration with the fabric manager.
// A card without NVSwitch has none.
func readFabric(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	info, ret := d.GetGpuFabricInfo()
	if ret == nvml.SUCCESS && info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
		return nvml.ERROR_NOT_SUPPORTED
	}
	v[0], v[1], v[2] = float64(info.State), float64(info.Status), float64(info.CliqueId)
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED {
		v[0] = fabricSuccess
		if nvml.Return(info.Status) != nvml.SUCCESS {
			v[0] = fabricFailure
		}
	}
	return ret
}

func readFabricHealth(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	info, ret := d.GetGpuFabricInfoV().V3()
	if ret == nvml.SUCCESS && info.HealthSummary == nvml.GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED {
		return nvml.ERROR_NOT_SUPPORTED
	}
	v[0], v[1] = float64(info.HealthMask), float64(info.HealthSummary)
	return ret
}

// readAttributes tells what a MIG instance has of the GPU.
func readAttributes(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	a, ret := d.GetAttributes()
	v[0], v[1] = float64(a.MemorySizeMB)*(1<<20), float64(a.MultiprocessorCount)
	return ret
}
