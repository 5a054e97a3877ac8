// SPDX-License-Identifier: Apache-2.0
//
// fakenvml is a stand-in for libnvidia-ml.so.1 in tests: the functions that
// RackPulse calls through go-nvml, under the names of all their versions, with
// faults on request. It answers as a hall node with H100 cards would, with the
// same values as the stand-in for DCGM.
//
// Faults and values come from a script, the file named by FAKENVML_SCRIPT. It is
// read again whenever it changes, so a test can act on a running process. Lines:
//
//   gpus N                  number of GPUs (2), ids 0..N-1
//   ids A,B,C               GPUs with these ids instead; the index is the place
//   model TEXT              model name of all GPUs
//   driver TEXT             driver version
//   init CODE               nvmlInit fails with this code
//   lost GPU                every call on this GPU says GPU_IS_LOST
//   mig GPU N               MIG is on, with N GPU instances
//   profile TEXT            their profile (1g.10gb)
//   value GPU KEY VALUE     a result; GPU an id or * for all; KEY the function, or
//                           function.what where it has several results; VALUE a
//                           number in NVML's unit, or notsupported, notfound,
//                           noperm, lost, unknown
//   process GPU KIND PID BYTES [GI CI]
//                           a process in the list compute, graphics or mps; BYTES may be
//                           unknown; a value KIND-list.gpu or .instance fails the lists
//   xid GPU CODE SEQ        a driver error; fires once when SEQ is new
//   fail FUNCTION CODE      this function fails
//   hang FUNCTION           this function does not return while the line stands
//   crash FUNCTION HOW      this function ends the process: segv, abort, exit
//
// FAKENVML_LOG names a file that gets one line for each call. FAKENVML_DEVICE names
// one that is open while NVML is started, as /dev/nvidia0 would be.
// Compiled with FAKE_OLD the library lacks what driver 390 lacked, with FAKE_LEAN
// what only further counters need, and with FAKE_BROKEN a function that nothing
// works without.

#include "fakenvml.h"

static struct nvmlDevice_st devices[MAX_GPUS];
static struct nvmlDevice_st mig_devices[MAX_GPUS][MAX_MIG];
static bool started;
static int device_file = -1;

// --- administration ---------------------------------------------------------

const char *nvmlErrorString(nvmlReturn_t result)
{
	static __thread char text[48];
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_UNKNOWN: return "Unknown Error";
	default: break;
	}
	snprintf(text, sizeof text, "NVML error %d", result);
	return text;
}

static nvmlReturn_t start(void)
{
	if (script.init != 0)
		return leave(script.init);
	for (unsigned i = 0; i < MAX_GPUS; i++) {
		devices[i] = (struct nvmlDevice_st){ i, -1 };
		for (int k = 0; k < MAX_MIG; k++)
			mig_devices[i][k] = (struct nvmlDevice_st){ i, k };
	}
	started = true;
	const char *path = getenv("FAKENVML_DEVICE");
	if (path != NULL && device_file < 0)
		device_file = open(path, O_RDONLY | O_CLOEXEC);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlInit(void)
{
	ENTER("-");
	return start();
}

nvmlReturn_t nvmlInit_v2(void)
{
	ENTER("-");
	return start();
}

nvmlReturn_t nvmlShutdown(void)
{
	ENTER("-");
	started = false;
	if (device_file >= 0)
		close(device_file);
	device_file = -1;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	ENTER("-");
	snprintf(version, length, "%s", script.driver);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	*version = 12040;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
	ENTER("-");
	snprintf(version, length, "12.%s", script.driver);
	return leave(NVML_SUCCESS);
}

// --- devices ----------------------------------------------------------------

static nvmlReturn_t count(unsigned *n)
{
	if (!started)
		return leave(NVML_ERROR_UNINITIALIZED);
	*n = script.gpus;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *n)
{
	ENTER("-");
	return count(n);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n)
{
	ENTER("-");
	return count(n);
}

static nvmlReturn_t handle(unsigned index, nvmlDevice_t *d)
{
	if (index >= (unsigned)script.gpus)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	struct nvmlDevice_st *device = d->handle = &devices[script.ids[index]];
	double number = 0;
	nvmlReturn_t result = value(device, "nvmlDeviceGetHandleByIndex", NULL, &number);
	return leave(result != NVML_SUCCESS ? result : check_device(device));
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *d)
{
	ENTER("index=%u", index);
	return handle(index, d);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *d)
{
	ENTER("index=%u", index);
	return handle(index, d);
}

#ifndef FAKE_BROKEN
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned length)
{
	ENTER_DEVICE(d);
	if (device->instance < 0)
		snprintf(uuid, length, "GPU-01000100-0000-0000-0000-%012u", device->id);
	else
		snprintf(uuid, length, "MIG-01000100-0000-0000-%04d-%012u", device->instance + 7, device->id);
	return leave(NVML_SUCCESS);
}
#endif

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned length)
{
	ENTER_DEVICE(d);
	if (device->instance < 0)
		snprintf(name, length, "%s", script.model);
	else
		snprintf(name, length, "%s MIG %s", script.model, script.profile);
	return leave(NVML_SUCCESS);
}

static nvmlReturn_t pci_info(struct nvmlDevice_st *device, nvmlPciInfo_t *pci, bool has_bus_id)
{
	memset(pci, 0, has_bus_id ? sizeof *pci : offsetof(nvmlPciInfo_t, busId));
	static const unsigned char base[] = { 0x1a, 0x4a, 0x8a, 0xca }; // two GPUs behind each switch, as in many servers
	pci->bus = base[device->id / 2 % 4] + device->id % 2;
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
	if (has_bus_id)
		snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	ENTER_DEVICE(d);
	return pci_info(device, pci, false);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	ENTER_DEVICE(d);
	return pci_info(device, pci, false);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *minor)
{
	ENTER_DEVICE(d);
	double n = device->id;
	nvmlReturn_t result = value(device, __func__, NULL, &n);
	*minor = n;
	return leave(result);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *serial, unsigned length)
{
	ENTER_DEVICE(d);
	snprintf(serial, length, "165012300%04u", device->id);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *version, unsigned length)
{
	ENTER_DEVICE(d);
	snprintf(version, length, "96.00.89.00.01");
	return leave(NVML_SUCCESS);
}

#ifndef FAKE_OLD
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	ENTER_DEVICE(d);
	return pci_info(device, pci, true);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending)
{
	ENTER_DEVICE(d);
	double mode = script.migmode[device->id];
	nvmlReturn_t result = value(device, __func__, NULL, &mode);
	*current = *pending = mode;
	return leave(result);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *n)
{
	ENTER_DEVICE(d);
	*n = MAX_MIG;
	return leave(NVML_SUCCESS);
}

// MIG devices are not at 0..n-1: the first place is free.
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned index, nvmlDevice_t *mig)
{
	ENTER_DEVICE(d);
	if (index == 0 || index > (unsigned)script.mig[device->id])
		return leave(NVML_ERROR_NOT_FOUND);
	mig->handle = &mig_devices[device->id][index - 1];
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned *id)
{
	ENTER_DEVICE(d);
	*id = device->instance + 7;
	return leave(NVML_SUCCESS);
}
#endif

// --- events -----------------------------------------------------------------

struct nvmlEventSet_st {
	bool registered[MAX_GPUS];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	ENTER("-");
	set->handle = calloc(1, sizeof *set->handle);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	ENTER("-");
	free(set.handle);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	ENTER_DEVICE(d);
	double number = 0;
	nvmlReturn_t result = value(device, __func__, NULL, &number);
	if (result == NVML_SUCCESS && types == nvmlEventTypeXidCriticalError)
		set.handle->registered[device->id] = true;
	return leave(result);
}

static nvmlReturn_t wait_event(struct nvmlEventSet_st *set, nvmlEventData_t *data, unsigned timeout_ms, bool has_instance)
{
	for (unsigned waited = 0;; waited += POLL_US / 1000) { // the lock is held
		struct xid x = { 0 };
		bool lost = false;
		refresh();
		while (next_xid(&x))
			if (x.gpu < MAX_GPUS && set->registered[x.gpu]) {
				data->device.handle = &devices[x.gpu];
				data->eventType = nvmlEventTypeXidCriticalError;
				data->eventData = x.code;
				if (has_instance)
					data->gpuInstanceId = data->computeInstanceId = 0xffffffff;
				return leave(NVML_SUCCESS);
			}
		for (int i = 0; i < MAX_GPUS; i++)
			lost = lost || (set->registered[i] && script.lost[i]);
		if (lost)
			return leave(NVML_ERROR_GPU_IS_LOST);
		if (waited >= timeout_ms)
			return leave(NVML_ERROR_TIMEOUT);
		pthread_mutex_unlock(&mu);
		usleep(POLL_US);
		pthread_mutex_lock(&mu);
	}
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
	ENTER("timeout=%u", timeout_ms);
	return wait_event(set.handle, data, timeout_ms, false);
}

#ifndef FAKE_OLD
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
	ENTER("timeout=%u", timeout_ms);
	return wait_event(set.handle, data, timeout_ms, true);
}
#endif
