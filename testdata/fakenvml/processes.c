// SPDX-License-Identifier: Apache-2.0
//
// The processes on the GPUs, under the names of all versions of the functions.

#include "fakenvml.h"

// fits tells whether a process of the script is one of the device's list.
static bool fits(const struct process *p, const struct nvmlDevice_st *device, const char *kind)
{
	return p->gpu == device->id && !strcmp(p->kind, kind) && (device->instance < 0 || p->gi == device->instance + 7);
}

// LIST defines one version of one list; FILL takes what the version has.
#define LIST(function, type, kind, FILL) \
	nvmlReturn_t function(nvmlDevice_t d, unsigned *count, type *infos) \
	{ \
		ENTER_DEVICE(d); \
		unsigned room = *count, n = 0; \
		double unused = 0; \
		nvmlReturn_t result = value(device, kind "-list", device->instance < 0 ? "gpu" : "instance", &unused); \
		if (result != NVML_SUCCESS) \
			return leave(result); \
		for (int i = 0; i < script.nprocesses; i++) { \
			struct process *p = &script.processes[i]; \
			if (!fits(p, device, kind)) \
				continue; \
			if (n < room) { \
				infos[n].pid = p->pid; \
				infos[n].usedGpuMemory = p->bytes; \
				FILL; \
			} \
			n++; \
		} \
		*count = n; \
		return leave(n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS); \
	}

#define INSTANCE infos[n].gpuInstanceId = p->gi, infos[n].computeInstanceId = p->ci

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, "compute", (void)0)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, "graphics", (void)0)

#ifndef FAKE_OLD
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, "compute", INSTANCE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, "graphics", INSTANCE)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, "compute", INSTANCE)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, "graphics", INSTANCE)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, "mps", INSTANCE)

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned *id)
{
	ENTER_DEVICE(d);
	*id = 0;
	return leave(device->instance < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS);
}

// A GPU instance is its MIG device, as each has one compute instance.
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t d, unsigned id, nvmlGpuInstance_t *instance)
{
	ENTER_DEVICE(d);
	if (id < 7 || (int)id - 7 >= script.mig[device->id])
		return leave(NVML_ERROR_NOT_FOUND);
	instance->handle = (struct nvmlGpuInstance_st *)(uintptr_t)(device->id << 8 | id);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	ENTER("-");
	memset(info, 0, sizeof *info);
	info->id = (uintptr_t)instance.handle & 0xff;
	info->profileId = 19;
	info->placement.start = info->id - 7;
	info->placement.size = 1;
	return leave(NVML_SUCCESS);
}
#endif
