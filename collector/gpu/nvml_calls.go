// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// What a call speaks of.
type nvmlScope int

const (
	ofGPU        nvmlScope = iota
	notMIG                 // the whole GPU, and not where MIG is on: utilisations
	ofInstance             // a MIG instance where there are any: memory
	onlyInstance           // a MIG instance
)

// covers tells whether a call is one of the whole GPU's, as it is now.
func (s nvmlScope) covers(g *nvmlGPU) bool {
	switch s {
	case notMIG:
		return !g.mig
	case ofInstance:
		return len(g.instances) == 0
	case onlyInstance:
		return false
	}
	return true
}

// maxResults is how many fields one call gives at most.
const maxResults = 5

// nvmlCall is one function of NVML and the fields that it gives.
type nvmlCall struct {
	symbol string // which the library must have
	and    string // and this one
	fields []string
	read   nvmlRead
	scope  nvmlScope
	// instead: only if the call before it in the table gave nothing.
	instead bool

	missing bool // the library has no such function
	slow    bool // its fields are slow ones
	want    [maxResults]bool
}

// nvmlRead makes a call and puts its results into v, in the order of the fields.
type nvmlRead func(g *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return

// nvmlCalls is the table of the calls for the fields that most want; nvmlMore has the others. Units are DCGM's: NVML has milliwatts and
// bytes where DCGM has watts and MiB.
//
// DCGM_FI_PROF_PCIE_TX_BYTES and its sister are not here: they are means over
// the interval in bytes, while nvmlDeviceGetPcieThroughput looks at 20 ms and
// takes as long for it, and NVML's byte counters wrap without saying where. The
// 20 ms value has DCGM's name for it, DCGM_FI_DEV_PCIE_TX_THROUGHPUT, and is read
// when the counters file asks for it.
var nvmlCalls = []nvmlCall{
	{symbol: "nvmlDeviceGetTemperature", fields: []string{fieldTemp}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetTemperature(nvml.TEMPERATURE_GPU)
	})},
	{symbol: "nvmlDeviceGetTemperatureThreshold", fields: []string{fieldSlowdown}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	})},
	{symbol: "nvmlDeviceGetTemperatureThreshold", fields: []string{"DCGM_FI_DEV_SHUTDOWN_TEMP"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	})},
	{symbol: "nvmlDeviceGetMarginTemperature", fields: []string{fieldMargin}, read: readMargin},
	{symbol: "nvmlDeviceGetFieldValues", fields: []string{"DCGM_FI_DEV_MEMORY_TEMP"}, read: oneField(nvml.FI_DEV_MEMORY_TEMP)},
	{symbol: "nvmlDeviceGetPowerUsage", fields: []string{"DCGM_FI_DEV_POWER_USAGE"}, read: milli(nvml.Device.GetPowerUsage)},
	{symbol: "nvmlDeviceGetPowerManagementLimit", fields: []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT"}, read: milli(nvml.Device.GetPowerManagementLimit)},
	// Cards whose limit cannot be set still have one.
	{symbol: "nvmlDeviceGetEnforcedPowerLimit", fields: []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT"}, read: milli(nvml.Device.GetEnforcedPowerLimit), instead: true},
	{symbol: "nvmlDeviceGetEnforcedPowerLimit", fields: []string{"DCGM_FI_DEV_ENFORCED_POWER_LIMIT"}, read: milli(nvml.Device.GetEnforcedPowerLimit)},
	{symbol: "nvmlDeviceGetTotalEnergyConsumption", fields: []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}, read: one(nvml.Device.GetTotalEnergyConsumption)},
	{symbol: "nvmlDeviceGetUtilizationRates", fields: []string{"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"}, read: readUtilisation, scope: notMIG},
	{symbol: "nvmlDeviceGetEncoderUtilization", fields: []string{"DCGM_FI_DEV_ENC_UTIL"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		percent, _, ret := d.GetEncoderUtilization()
		return percent, ret
	}), scope: notMIG},
	{symbol: "nvmlDeviceGetDecoderUtilization", fields: []string{"DCGM_FI_DEV_DEC_UTIL"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		percent, _, ret := d.GetDecoderUtilization()
		return percent, ret
	}), scope: notMIG},
	{symbol: "nvmlDeviceGetClockInfo", fields: []string{"DCGM_FI_DEV_SM_CLOCK"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetClockInfo(nvml.CLOCK_SM)
	})},
	{symbol: "nvmlDeviceGetClockInfo", fields: []string{"DCGM_FI_DEV_MEM_CLOCK"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetClockInfo(nvml.CLOCK_MEM)
	})},
	{symbol: "nvmlDeviceGetMemoryInfo_v2", fields: []string{"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED_PERCENT"},
		read: readMemory2, scope: ofInstance},
	// The older call counts reserved memory as used.
	{symbol: "nvmlDeviceGetMemoryInfo", fields: []string{"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED"},
		read: readMemory, scope: ofInstance, instead: true},
	{symbol: "nvmlDeviceGetFanSpeed", fields: []string{"DCGM_FI_DEV_FAN_SPEED"}, read: one(nvml.Device.GetFanSpeed)},
	{symbol: "nvmlDeviceGetCurrPcieLinkGeneration", fields: []string{"DCGM_FI_DEV_PCIE_LINK_GEN"}, read: one(nvml.Device.GetCurrPcieLinkGeneration)},
	{symbol: "nvmlDeviceGetCurrPcieLinkWidth", fields: []string{"DCGM_FI_DEV_PCIE_LINK_WIDTH"}, read: one(nvml.Device.GetCurrPcieLinkWidth)},
	{symbol: "nvmlDeviceGetMaxPcieLinkGeneration", fields: []string{"DCGM_FI_DEV_PCIE_MAX_LINK_GEN"}, read: one(nvml.Device.GetMaxPcieLinkGeneration)},
	{symbol: "nvmlDeviceGetMaxPcieLinkWidth", fields: []string{"DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"}, read: one(nvml.Device.GetMaxPcieLinkWidth)},
	{symbol: "nvmlDeviceGetPcieReplayCounter", fields: []string{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER"}, read: one(nvml.Device.GetPcieReplayCounter)},
	{symbol: "nvmlDeviceGetPcieThroughput", fields: []string{"DCGM_FI_DEV_PCIE_TX_THROUGHPUT"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	})},
	{symbol: "nvmlDeviceGetPcieThroughput", fields: []string{"DCGM_FI_DEV_PCIE_RX_THROUGHPUT"}, read: one(func(d nvml.Device) (uint32, nvml.Return) {
		return d.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	})},
	{symbol: "nvmlDeviceGetTotalEccErrors", fields: []string{"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"}, read: ecc(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC)},
	{symbol: "nvmlDeviceGetTotalEccErrors", fields: []string{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"}, read: ecc(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)},
	{symbol: "nvmlDeviceGetTotalEccErrors", fields: []string{"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"}, read: ecc(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC)},
	{symbol: "nvmlDeviceGetTotalEccErrors", fields: []string{"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"}, read: ecc(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)},
	{symbol: "nvmlDeviceGetRemappedRows", fields: []string{"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
		"DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_ROW_REMAP_FAILURE"}, read: readRemappedRows},
	{symbol: "nvmlDeviceGetRetiredPages", fields: []string{"DCGM_FI_DEV_RETIRED_SBE"}, read: retired(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)},
	{symbol: "nvmlDeviceGetRetiredPages", fields: []string{"DCGM_FI_DEV_RETIRED_DBE"}, read: retired(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)},
	{symbol: "nvmlDeviceGetRetiredPagesPendingStatus", fields: []string{"DCGM_FI_DEV_RETIRED_PENDING"}, read: one(nvml.Device.GetRetiredPagesPendingStatus)},
	{symbol: "nvmlDeviceGetCurrentClocksEventReasons", fields: []string{fieldThrottle}, read: one(nvml.Device.GetCurrentClocksEventReasons)},
	// Its name before driver 535.
	{symbol: "nvmlDeviceGetCurrentClocksThrottleReasons", fields: []string{fieldThrottle}, read: one(nvml.Device.GetCurrentClocksThrottleReasons), instead: true},
	{symbol: "nvmlDeviceGetFieldValues", fields: []string{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"}, read: oneField(nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL)},
	{symbol: "nvmlDeviceGetNvLinkErrorCounter", fields: []string{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"}, and: "nvmlDeviceGetNvLinkState", read: sumOfErrors("crc_flit", nvml.NVLINK_ERROR_DL_CRC_FLIT), instead: true},
	{symbol: "nvmlDeviceGetFieldValues", fields: []string{"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"}, read: linkRate("both", allLinks, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX)},
}

// wanted returns the calls that give at least one of the configured fields.
func (s *nvmlSource) wanted() []nvmlCall {
	var list []nvmlCall
	for _, c := range slices.Concat(nvmlCalls, nvmlMore) {
		used := false
		for i, field := range c.fields {
			c.want[i] = slices.Contains(s.cfg.Fields, field)
			used = used || c.want[i]
		}
		if used {
			c.slow = isSlow(c.fields[0])
			c.missing = !s.has(c.symbol) || c.and != "" && !s.has(c.and)
			list = append(list, c)
		}
	}
	return list
}

// call makes one call unless it is known to be in vain, and appends what it gave.
func (c *nvmlCall) call(g *nvmlGPU, d nvml.Device, off *time.Time, values []Value, now time.Time) ([]Value, nvml.Return) {
	if c.missing || now.Before(*off) {
		return values, nvml.ERROR_NOT_SUPPORTED
	}
	var v [maxResults]float64
	ret := c.read(g, d, &v)
	if ret != nvml.SUCCESS {
		if unsupported(ret) {
			*off = now.Add(unsupportedFor)
		}
		return values, ret
	}
	for i, field := range c.fields {
		if c.want[i] {
			values = append(values, Value{Field: field, V: v[i]})
		}
	}
	return values, ret
}

// unsupported tells answers that mean "not on this card, with this driver or for
// this user" from those of a GPU in trouble.
func unsupported(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_FOUND, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_PERMISSION,
		nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return true
	}
	return false
}

type number interface {
	~int | ~int32 | ~uint32 | ~uint64
}

// one reads a single number.
func one[N number](get func(nvml.Device) (N, nvml.Return)) nvmlRead {
	return func(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		n, ret := get(d)
		v[0] = float64(n)
		return ret
	}
}

// milli reads milliwatts as watts.
func milli(get func(nvml.Device) (uint32, nvml.Return)) nvmlRead {
	return func(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		n, ret := get(d)
		v[0] = float64(n) / 1000
		return ret
	}
}

func ecc(kind nvml.MemoryErrorType, counter nvml.EccCounterType) nvmlRead {
	return one(func(d nvml.Device) (uint64, nvml.Return) { return d.GetTotalEccErrors(kind, counter) })
}

func retired(cause nvml.PageRetirementCause) nvmlRead {
	return one(func(d nvml.Device) (int, nvml.Return) {
		pages, ret := d.GetRetiredPages(cause)
		return len(pages), ret
	})
}

func readMargin(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	margin, ret := d.GetMarginTemperature()
	v[0] = float64(margin.MarginTemperature)
	return ret
}

func readUtilisation(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	u, ret := d.GetUtilizationRates()
	v[0], v[1] = float64(u.Gpu), float64(u.Memory)
	return ret
}

func readMemory2(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	m, ret := d.GetMemoryInfo_v2()
	v[0], v[1], v[2], v[3] = mebibytes(m.Total), mebibytes(m.Free), mebibytes(m.Used), mebibytes(m.Reserved)
	if m.Total > m.Reserved { // a ratio, whatever its name
		v[4] = float64(m.Used) / float64(m.Total-m.Reserved)
	}
	return ret
}

func readMemory(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	m, ret := d.GetMemoryInfo()
	v[0], v[1], v[2] = mebibytes(m.Total), mebibytes(m.Free), mebibytes(m.Used)
	return ret
}

// mebibytes cuts off as DCGM does.
func mebibytes(bytes uint64) float64 { return float64(bytes >> 20) }

func readRemappedRows(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
	correctable, uncorrectable, pending, failed, ret := d.GetRemappedRows()
	v[0], v[1] = float64(correctable), float64(uncorrectable)
	if pending {
		v[2] = 1
	}
	if failed {
		v[3] = 1
	}
	return ret
}

// oneField reads one field value.
func oneField(id uint32) nvmlRead {
	return func(_ *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		list := []nvml.FieldValue{{FieldId: id}}
		ret := d.GetFieldValues(list)
		if ret == nvml.SUCCESS {
			v[0], ret = fieldNumber(&list[0])
		}
		return ret
	}
}

// fieldNumber takes a field value by its type.
func fieldNumber(v *nvml.FieldValue) (float64, nvml.Return) {
	if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
		return 0, ret
	}
	bits := binary.NativeEndian.Uint64(v.Value[:])
	low := binary.NativeEndian.Uint32(v.Value[:4])
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return float64(low), nvml.SUCCESS
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(low)), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return float64(bits), nvml.SUCCESS
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits)), nvml.SUCCESS
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}
