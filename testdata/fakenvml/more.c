// SPDX-License-Identifier: Apache-2.0
//
// Readings of the stand-in that few ask for: clocks, limits, modes and states, memory
// errors by location, the fabric. Defaults are those of an idle H100 behind NVSwitch.
// Compiled with FAKE_LEAN the library has none of these functions.

#include "fakenvml.h"

#ifndef FAKE_LEAN

#define MIB (1024.0 * 1024.0)

READING(nvmlDeviceGetPerformanceState, nvmlPstates_t, 0)
READING(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
READING(nvmlDeviceGetComputeMode, nvmlComputeMode_t, 0)
READING(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, 1)
READING(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, 0)

// two reads two results of a function.
static nvmlReturn_t two(struct nvmlDevice_st *device, const char *function, const char *a, double *x, const char *b, double *y)
{
	nvmlReturn_t r = value(device, function, a, x);
	return r != NVML_SUCCESS ? r : value(device, function, b, y);
}

static const char *clock_name(nvmlClockType_t type)
{
	return type == NVML_CLOCK_MEM ? "mem" : type == NVML_CLOCK_VIDEO ? "video" : "sm";
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned *mhz)
{
	ENTER_DEVICE(d);
	double n = type == NVML_CLOCK_MEM ? 2619 : type == NVML_CLOCK_VIDEO ? 1545 : 1980;
	nvmlReturn_t r = value(device, __func__, clock_name(type), &n);
	*mhz = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t d, nvmlClockType_t type, unsigned *mhz)
{
	ENTER_DEVICE(d);
	double n = type == NVML_CLOCK_MEM ? 2619 : 1980;
	nvmlReturn_t r = value(device, __func__, clock_name(type), &n);
	*mhz = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, unsigned *least, unsigned *most)
{
	ENTER_DEVICE(d);
	double a = 200000, b = 700000;
	nvmlReturn_t r = two(device, __func__, "min", &a, "max", &b);
	*least = a;
	*most = b;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, nvmlBAR1Memory_t *m)
{
	ENTER_DEVICE(d);
	double total = 131072 * MIB, used = 5 * MIB;
	nvmlReturn_t r = two(device, __func__, "total", &total, "used", &used);
	m->bar1Total = total;
	m->bar1Used = used;
	m->bar1Free = total - used;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	ENTER_DEVICE(d);
	double a = 1, b = 1;
	nvmlReturn_t r = two(device, __func__, "current", &a, "pending", &b);
	*current = a;
	*pending = b;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t counter,
	nvmlMemoryLocation_t location, unsigned long long *count)
{
	ENTER_DEVICE(d);
	static const char *const names[2][2] = { { "sbe", "sbe_agg" }, { "dbe", "dbe_agg" } };
	char what[24];
	snprintf(what, sizeof what, "%s.%d", names[kind & 1][counter & 1], location);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, what, &n);
	*count = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t d, nvmlEccSramErrorStatus_t *status)
{
	ENTER_DEVICE(d);
	if (status->version != nvmlEccSramErrorStatus_v1)
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	status->bThresholdExceeded = n != 0;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t d, nvmlRowRemapperHistogramValues_t *h)
{
	ENTER_DEVICE(d);
	double max = 2560, high = 0, partial = 0, low = 0, none = 0;
	nvmlReturn_t r = two(device, __func__, "max", &max, "high", &high);
	if (r == NVML_SUCCESS)
		r = two(device, __func__, "partial", &partial, "low", &low);
	if (r == NVML_SUCCESS)
		r = value(device, __func__, "none", &none);
	*h = (nvmlRowRemapperHistogramValues_t){ max, high, partial, low, none };
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t d, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *time)
{
	ENTER_DEVICE(d);
	char what[8];
	snprintf(what, sizeof what, "%d", policy);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, what, &n);
	time->referenceTime = 1;
	time->violationTime = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *info)
{
	ENTER_DEVICE(d);
	double state = NVML_GPU_FABRIC_STATE_COMPLETED, status = NVML_SUCCESS;
	nvmlReturn_t r = two(device, __func__, "state", &state, "status", &status);
	info->state = state;
	info->status = status;
	info->cliqueId = 0;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t d, nvmlGpuFabricInfoV_t *info)
{
	ENTER_DEVICE(d);
	if (info->version != NVML_STRUCT_VERSION(GpuFabricInfo, 3))
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	double mask = 1, summary = NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY;
	nvmlReturn_t r = two(device, __func__, "mask", &mask, "summary", &summary);
	info->state = NVML_GPU_FABRIC_STATE_COMPLETED;
	info->healthMask = mask;
	info->healthSummary = summary;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	ENTER_DEVICE(d);
	if (device->instance < 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	double memory = 10240, multiprocessors = 16;
	nvmlReturn_t r = two(device, __func__, "memory", &memory, "multiprocessors", &multiprocessors);
	memset(a, 0, sizeof *a);
	a->memorySizeMB = memory;
	a->multiprocessorCount = multiprocessors;
	return leave(r);
}
#endif
