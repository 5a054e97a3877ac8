// SPDX-License-Identifier: Apache-2.0
//
// fakedcgm is a stand-in for libdcgm.so.4 in tests: the functions that RackPulse
// calls through go-dcgm, with the behaviour that was seen of DCGM 4.6.0, and with
// faults on request. It answers as a whole hall node with H100 cards would.
//
// Faults and values come from a script, the file named by FAKEDCGM_SCRIPT. It is
// read again whenever it changes, so a test can act on a running process. Lines:
//
//   gpus N                  number of GPUs (2), ids 0..N-1
//   ids A,B,C               GPUs with these ids instead
//   model TEXT              model name of all GPUs
//   driver TEXT             driver version
//   lost GPU                lost: blank values with good status, off the supported list
//   unsupported GPU         not supported by DCGM
//   mig GPU N               N GPU instances 1g.10gb on this GPU
//   instance GPU ENTITY ID PROFILE   one GPU instance
//   switches N              number of NVSwitches, ids 0..N-1 (none)
//   cpus N CORES            number of Grace CPUs, and the cores of each (none)
//   links KIND ID N         N NVLinks that are up; KIND gpu or switch, ID * for all
//   link KIND ID INDEX STATE   one NVLink: up, down or disabled
//   value GPU FIELD VALUE   a field's value; GPU * for all; VALUE a number or
//                           blank, notfound, notsupported, noperm
//   value KIND ID FIELD VALUE   the same of a switch, cpu, core, or of all the
//                           links of a parent: gpulink, switchlink
//   refuse KIND ID CODE     reading this gpu, instance, switch, cpu or core fails,
//                           or a switch's links: switchlink
//   health GPU SYSTEM RESULT CODE   an incident of the next health checks
//   status GPU FIELD CODE   a value's status; GPU and FIELD * for all
//   frozen GPU FIELD AGE    a value is not refreshed any more and AGE seconds old now
//   clock SECONDS           the clock of the values is wrong by so much
//   xid GPU CODE SEQ        a driver error; fires once when SEQ is new
//   noprof [GPU]            no profiling fields, on this GPU or on all
//   profblank               a profiling field is blank in the first pass after its first watch
//   disconnected            the host engine is gone: every call fails with -21
//   fail FUNCTION CODE      this function fails
//   delay FUNCTION MS       this function takes so long
//   hang FUNCTION           this function does not return while the line stands
//   crash FUNCTION HOW      this function ends the process: segv, abort, exit
//
// FAKEDCGM_LOG names a file that gets one line for each call.
// Compiled with FAKE_OLD the library lacks what DCGM 4.0 lacked and all that is
// optional; with FAKE_BROKEN it lacks a function that nothing works without.

#include "fakedcgm.h"

struct group groups[MAX_GROUPS];
struct fields field_groups[MAX_GROUPS];
int watched[DCGM_FI_MAX_FIELDS];
bool shown[DCGM_FI_MAX_FIELDS];
static pthread_t poller;

// --- administration ---------------------------------------------------------

const char *errorString(dcgmReturn_t result)
{
	static __thread char text[48];
	switch (result) {
	case DCGM_ST_OK: return "Success";
	case DCGM_ST_CONNECTION_NOT_VALID: return "The connection to the host engine is not valid any longer";
	case DCGM_ST_NOT_SUPPORTED: return "This request is not supported";
	case DCGM_ST_GPU_IS_LOST: return "GPU is no longer reachable";
	case DCGM_ST_VER_MISMATCH: return "API version mismatch";
	case DCGM_ST_PROFILING_NOT_SUPPORTED: return "Profiling is not supported for this group of GPUs or GPU";
	default: break;
	}
	snprintf(text, sizeof text, "DCGM error %d", result);
	return text;
}

dcgmReturn_t dcgmInit(void)
{
	ENTER("-");
	bool start = !polling;
	polling = true;
	if (start)
		pthread_create(&poller, NULL, poll_script, NULL);
	return leave(DCGM_ST_OK);
}

static void forget(void)
{
	memset(groups, 0, sizeof groups);
	memset(field_groups, 0, sizeof field_groups);
	memset(watched, 0, sizeof watched);
	memset(shown, 0, sizeof shown);
	nxid_samples = 0;
}

dcgmReturn_t dcgmShutdown(void)
{
	log_call(__func__, "-");
	pthread_mutex_lock(&mu);
	bool stop = polling;
	polling = false;
	forget();
	pthread_mutex_unlock(&mu);
	if (stop)
		pthread_join(poller, NULL);
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle)
{
	ENTER("mode=%d", mode);
	*handle = 0x7fffffff;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle)
{
	ENTER("handle=%lu", (unsigned long)handle);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle)
{
	ENTER("%s unix=%u", address, params->addressIsUnixSocket);
	if (params->version != dcgmConnectV2Params_version2)
		return leave(DCGM_ST_VER_MISMATCH);
	*handle = 1;
	return leave(DCGM_ST_OK);
}

#ifndef FAKE_OLD
dcgmReturn_t dcgmConnect_v3(const char *address, dcgmConnectV3Params_t *params, dcgmHandle_t *handle)
{
	ENTER("%s", address);
	if (params->version != dcgmConnectV3Params_version1)
		return leave(DCGM_ST_VER_MISMATCH);
	*handle = 1;
	return leave(DCGM_ST_OK);
}
#endif

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle)
{
	ENTER("handle=%lu", (unsigned long)handle);
	return leave(DCGM_ST_OK);
}

// --- devices ----------------------------------------------------------------

dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t handle, unsigned ids[DCGM_MAX_NUM_DEVICES], int *count)
{
	(void)handle;
	ENTER("-");
	*count = script.gpus;
	memcpy(ids, script.ids, script.gpus * sizeof ids[0]);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t handle, unsigned ids[DCGM_MAX_NUM_DEVICES], int *count)
{
	(void)handle;
	ENTER("-");
	*count = 0;
	for (int i = 0; i < script.gpus; i++)
		if (!script.lost[i] && !script.unsupported[i])
			ids[(*count)++] = script.ids[i];
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t handle, dcgm_field_entity_group_t kind, dcgm_field_eid_t *ids,
	int *count, unsigned flags)
{
	(void)handle;
	ENTER("kind=%d flags=%u", kind, flags);
	*count = kind == DCGM_FE_GPU ? script.gpus : kind == DCGM_FE_SWITCH ? script.switches : 0;
	for (int i = 0; i < *count; i++)
		ids[i] = kind == DCGM_FE_GPU ? script.ids[i] : (unsigned)i;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t handle, unsigned id, DcgmEntityStatus_t *status)
{
	(void)handle;
	ENTER("gpu=%u", id);
	int gpu = slot(id);
	*status = gpu < 0 ? DcgmEntityStatusUnknown
		: script.lost[gpu] ? DcgmEntityStatusLost
		: script.unsupported[gpu] ? DcgmEntityStatusUnsupported : DcgmEntityStatusOk;
	return leave(DCGM_ST_OK);
}

#ifndef FAKE_OLD
dcgmReturn_t dcgmGetDeviceAttributes(dcgmHandle_t handle, unsigned id, dcgmDeviceAttributes_t *a)
{
	(void)handle;
	ENTER("gpu=%u", id);
	int gpu = slot(id);
	if (a->version != dcgmDeviceAttributes_version3)
		return leave(DCGM_ST_VER_MISMATCH);
	if (gpu < 0 || script.lost[gpu])
		return leave(DCGM_ST_GPU_IS_LOST);
	snprintf(a->identifiers.uuid, sizeof a->identifiers.uuid, "GPU-01000100-0000-0000-0000-%012d", gpu);
	snprintf(a->identifiers.deviceName, sizeof a->identifiers.deviceName, "%s", script.model);
	bus_id(a->identifiers.pciBusId, sizeof a->identifiers.pciBusId, gpu);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetDeviceTopology(dcgmHandle_t handle, unsigned id, dcgmDeviceTopology_t *t)
{
	(void)handle;
	(void)t;
	ENTER("gpu=%u", id);
	return leave(DCGM_ST_NOT_SUPPORTED);
}

dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t handle, dcgmProfGetMetricGroups_t *g)
{
	(void)handle;
	ENTER("gpu=%u", g->gpuId);
	g->numMetricGroups = 1;
	g->metricGroups[0].majorId = 1;
	g->metricGroups[0].numFieldIds = 5;
	static const unsigned short ids[] = { 1001, 1004, 1005, 1009, 1010 };
	memcpy(g->metricGroups[0].fieldIds, ids, sizeof ids);
	return leave(slot(g->gpuId) < 0 || script.noprof[slot(g->gpuId)] ? DCGM_ST_PROFILING_NOT_SUPPORTED : DCGM_ST_OK);
}
#endif

// --- groups and watches -----------------------------------------------------

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *id)
{
	(void)handle;
	ENTER("type=%d %s", type, name);
	for (int i = 1; i < MAX_GROUPS; i++)
		if (!groups[i].used) {
			memset(&groups[i], 0, sizeof groups[i]);
			groups[i].used = true;
			*id = i;
			return leave(DCGM_ST_OK);
		}
	return leave(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t id)
{
	(void)handle;
	ENTER("%lu", (unsigned long)id);
	if (id >= MAX_GROUPS || !groups[id].used)
		return leave(DCGM_ST_NOT_CONFIGURED);
	groups[id].used = false;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t id, dcgm_field_entity_group_t kind, dcgm_field_eid_t entity)
{
	(void)handle;
	ENTER("%lu kind=%d id=%u", (unsigned long)id, kind, entity);
	if (id >= MAX_GROUPS || !groups[id].used || groups[id].n == MAX_GPUS * 8)
		return leave(DCGM_ST_BADPARAM);
	groups[id].entities[groups[id].n++] = (dcgmGroupEntityPair_t){ kind, entity };
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupAddDevice(dcgmHandle_t handle, dcgmGpuGrp_t id, unsigned gpu)
{
	return dcgmGroupAddEntity(handle, id, DCGM_FE_GPU, gpu);
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *id)
{
	(void)handle;
	ENTER("n=%d %s", n, name);
	if (n < 1 || n > 128)
		return leave(DCGM_ST_BADPARAM);
	for (int i = 1; i < MAX_GROUPS; i++)
		if (!field_groups[i].used) {
			field_groups[i].used = true;
			field_groups[i].n = n;
			memcpy(field_groups[i].ids, ids, n * sizeof ids[0]);
			*id = i;
			return leave(DCGM_ST_OK);
		}
	return leave(DCGM_ST_MAX_LIMIT);
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t id)
{
	(void)handle;
	ENTER("%lu", (unsigned long)id);
	if (id >= MAX_GROUPS || !field_groups[id].used)
		return leave(DCGM_ST_NOT_CONFIGURED);
	field_groups[id].used = false;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t id, long long freq, double age, int samples)
{
	(void)handle;
	ENTER("freq=%lld age=%.3f samples=%d", freq, age, samples);
	if (id >= MAX_GROUPS || !field_groups[id].used || group >= MAX_GROUPS || !groups[group].used)
		return leave(DCGM_ST_NOT_CONFIGURED);
	struct fields *f = &field_groups[id];
	for (int i = 0; i < f->n; i++)
		for (int k = 0; profiling(f->ids[i]) && k < groups[group].n; k++) {
			dcgmGroupEntityPair_t *e = &groups[group].entities[k];
			struct instance *mig = e->entityGroupId == DCGM_FE_GPU_I ? find_instance(e->entityId) : NULL;
			int gpu = mig ? mig->gpu : slot(e->entityId);
			if (gpu >= 0 && script.noprof[gpu])
				return leave(DCGM_ST_PROFILING_NOT_SUPPORTED);
		}
	for (int i = 0; i < f->n; i++)
		if (f->ids[i] < DCGM_FI_MAX_FIELDS)
			watched[f->ids[i]]++;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t id)
{
	(void)handle;
	(void)group;
	ENTER("%lu", (unsigned long)id);
	if (id >= MAX_GROUPS || !field_groups[id].used)
		return leave(DCGM_ST_NOT_WATCHED);
	struct fields *f = &field_groups[id];
	for (int i = 0; i < f->n; i++)
		if (f->ids[i] < DCGM_FI_MAX_FIELDS && watched[f->ids[i]] > 0 && --watched[f->ids[i]] == 0)
			shown[f->ids[i]] = false;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait)
{
	(void)handle;
	ENTER("wait=%d", wait);
	return leave(DCGM_ST_OK);
}
