// SPDX-License-Identifier: Apache-2.0
//
// The readings of the stand-in.

#include "fakenvml.h"

#define MIB (1024.0 * 1024.0)

READING(nvmlDeviceGetPowerUsage, unsigned, (95 + device->id) * 1000)
READING(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, 650000)
READING(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 5)
READING(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
READING(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
READING(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
READING(nvmlDeviceGetPcieReplayCounter, unsigned, 0)
READING(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1) // idle
#ifndef FAKE_OLD
READING(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 600000 + device->id)
READING(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1)
#endif

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t d, unsigned *percent)
{
	ENTER_DEVICE(d);
	double n = -1; // passively cooled
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	if (r == NVML_SUCCESS && n < 0)
		r = NVML_ERROR_NOT_SUPPORTED;
	*percent = n < 0 ? 0 : n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned *celsius)
{
	ENTER_DEVICE(d);
	if (sensor != NVML_TEMPERATURE_GPU)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	double n = 34 + device->id;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	*celsius = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t kind, unsigned *celsius)
{
	ENTER_DEVICE(d);
	static const struct {
		const char *name;
		double celsius;
	} kinds[] = { { "shutdown", 92 }, { "slowdown", 87 }, { "memmax", 95 }, { "gpumax", 85 } };
	if (kind > NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	double n = kinds[kind].celsius;
	nvmlReturn_t r = value(device, __func__, kinds[kind].name, &n);
	*celsius = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	ENTER_DEVICE(d);
	double gpu = 0, memory = 0;
	nvmlReturn_t r = value(device, __func__, "gpu", &gpu);
	if (r == NVML_SUCCESS)
		r = value(device, __func__, "memory", &memory);
	u->gpu = gpu;
	u->memory = memory;
	return leave(r); // 0 with MIG, although NVML says NOT_SUPPORTED there
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned *percent, unsigned *period)
{
	ENTER_DEVICE(d);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	*percent = n;
	*period = 167000;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned *percent, unsigned *period)
{
	ENTER_DEVICE(d);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	*percent = n;
	*period = 167000;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t type, unsigned *mhz)
{
	ENTER_DEVICE(d);
	double n = type == NVML_CLOCK_SM ? 345 : type == NVML_CLOCK_VIDEO ? 765 : 1593;
	nvmlReturn_t r = value(device, __func__, type == NVML_CLOCK_SM ? "sm" : type == NVML_CLOCK_VIDEO ? "video" : "mem", &n);
	*mhz = n;
	return leave(r);
}

// An instance has an eighth of the memory.
static nvmlReturn_t memory(struct nvmlDevice_st *device, const char *function, double *total, double *reserved, double *used)
{
	double part = device->instance < 0 ? 1 : 8;
	*total = 81920 * MIB / part;
	*reserved = 1024 * MIB / part;
	*used = 0;
	nvmlReturn_t r = value(device, function, "used", used);
	if (r == NVML_SUCCESS)
		r = value(device, function, "total", total);
	if (r == NVML_SUCCESS)
		r = value(device, function, "reserved", reserved);
	return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	ENTER_DEVICE(d);
	double total, reserved, used;
	nvmlReturn_t r = memory(device, __func__, &total, &reserved, &used);
	m->total = total;
	m->used = used + reserved;
	m->free = m->total - m->used;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t counter, unsigned *kilobytes)
{
	ENTER_DEVICE(d);
	bool tx = counter == NVML_PCIE_UTIL_TX_BYTES;
	double n = tx ? 1200 : 3400;
	nvmlReturn_t r = value(device, __func__, tx ? "tx" : "rx", &n);
	*kilobytes = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t kind, nvmlEccCounterType_t counter,
	unsigned long long *errors)
{
	ENTER_DEVICE(d);
	static const char *const names[2][2] = { { "sbe", "sbe_agg" }, { "dbe", "dbe_agg" } };
	double n = 0;
	nvmlReturn_t r = value(device, __func__, names[kind & 1][counter & 1], &n);
	*errors = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t d, nvmlPageRetirementCause_t cause, unsigned *n,
	unsigned long long *addresses)
{
	ENTER_DEVICE(d);
	double pages = 0;
	nvmlReturn_t r = value(device, __func__, cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? "dbe" : "sbe", &pages);
	if (r == NVML_SUCCESS && pages > *n) {
		*n = pages;
		return leave(NVML_ERROR_INSUFFICIENT_SIZE);
	}
	*n = pages;
	for (unsigned i = 0; i < *n; i++)
		addresses[i] = 0x1000 * (i + 1);
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *pending)
{
	ENTER_DEVICE(d);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	*pending = n != 0;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned link, nvmlEnableState_t *active)
{
	ENTER_DEVICE(d);
	if (link >= 18)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	char what[16];
	snprintf(what, sizeof what, "%u", link);
	double n = 1;
	nvmlReturn_t r = value(device, __func__, what, &n);
	*active = n != 0;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, unsigned link, nvmlNvLinkErrorCounter_t counter,
	unsigned long long *errors)
{
	ENTER_DEVICE(d);
	static const char *const kinds[] = { "replay.", "recovery.", "", "data." };
	if (link >= 18 || counter > NVML_NVLINK_ERROR_DL_CRC_DATA)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	char what[24];
	snprintf(what, sizeof what, "%s%u", kinds[counter], link);
	double n = 0;
	nvmlReturn_t r = value(device, __func__, what, &n);
	*errors = n;
	return leave(r);
}

#ifndef FAKE_OLD
nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *margin)
{
	ENTER_DEVICE(d);
	if (margin->version != nvmlMarginTemperature_v1)
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	double n = 53 - (int)device->id;
	nvmlReturn_t r = value(device, __func__, NULL, &n);
	margin->marginTemperature = n;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
	ENTER_DEVICE(d);
	if (m->version != nvmlMemory_v2)
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	double total, reserved, used;
	nvmlReturn_t r = memory(device, __func__, &total, &reserved, &used);
	m->total = total;
	m->reserved = reserved;
	m->used = used;
	m->free = m->total - m->reserved - m->used;
	return leave(r);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned *correctable, unsigned *uncorrectable,
	unsigned *pending, unsigned *failure)
{
	ENTER_DEVICE(d);
	double c = 0, u = 0, p = 0, f = 0;
	nvmlReturn_t r = value(device, __func__, "correctable", &c);
	if (r == NVML_SUCCESS)
		r = value(device, __func__, "uncorrectable", &u);
	if (r == NVML_SUCCESS)
		r = value(device, __func__, "pending", &p);
	if (r == NVML_SUCCESS)
		r = value(device, __func__, "failure", &f);
	*correctable = c;
	*uncorrectable = u;
	*pending = p;
	*failure = f;
	return leave(r);
}

// has tells whether an H100 with the driver of the stand-in has a field value: no
// counters of NVLink 5, no C2C links and no recovery action.
static bool has(unsigned id)
{
	return !(id >= 170 && id <= 172) && !(id >= 201 && id <= 225) && id != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && id < 260;
}

// field_value looks up a field value by its ID, or by ID.SCOPE.
static nvmlReturn_t field_value(struct nvmlDevice_st *device, const char *function, const nvmlFieldValue_t *v, double *number)
{
	unsigned id = v->fieldId;
	bool of_link = (id >= 138 && id <= 141) || (id >= 161 && id <= 166) || (id >= 201 && id <= 225);
	if (of_link && v->scopeId >= 18 && v->scopeId != UINT32_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	char what[32];
	snprintf(what, sizeof what, "%u", id);
	nvmlReturn_t result = value(device, function, what, number);
	if (result == NVML_SUCCESS && *number < 0)
		result = NVML_ERROR_NOT_SUPPORTED;
	snprintf(what, sizeof what, "%u.%u", id, v->scopeId);
	double scoped = -1;
	nvmlReturn_t special = value(device, function, what, &scoped);
	if (special == NVML_SUCCESS && scoped < 0)
		return result;
	*number = scoped;
	return special;
}

// Field values have their own results; KEY is nvmlDeviceGetFieldValues.ID or
// nvmlDeviceGetFieldValues.ID.SCOPE.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *list)
{
	ENTER_DEVICE(d);
	for (int i = 0; i < n; i++) {
		nvmlFieldValue_t *v = &list[i];
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		v->timestamp = t.tv_sec * 1000000LL + t.tv_nsec / 1000;
		double number = v->fieldId == NVML_FI_DEV_MEMORY_TEMP ? 32 : has(v->fieldId) ? 0 : -1;
		v->nvmlReturn = field_value(device, __func__, v, &number);
		if (v->fieldId == NVML_FI_DEV_MEMORY_TEMP || v->fieldId == NVML_FI_DEV_POWER_INSTANT) {
			v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			v->value.uiVal = number;
		} else {
			v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			v->value.ullVal = number;
		}
	}
	return leave(NVML_SUCCESS);
}
#endif
