// SPDX-License-Identifier: Apache-2.0
//
// Functions of the stand-in that RackPulse can do without, and those that only
// dcgm-exporter calls.

#include "fakedcgm.h"

#ifndef FAKE_OLD
dcgmReturn_t dcgmEntityGetLatestValues(dcgmHandle_t handle, dcgm_field_entity_group_t kind, int entity,
	unsigned short fields[], unsigned n, dcgmFieldValue_v1 values[])
{
	(void)handle;
	ENTER("kind=%d id=%d fields=%u", kind, entity, n);
	for (unsigned i = 0; i < n; i++) {
		dcgmFieldValue_v2 v;
		fill(&v, (dcgmGroupEntityPair_t){ kind, entity }, fields[i], 0);
		values[i].version = dcgmFieldValue_version1;
		values[i].fieldId = v.fieldId;
		values[i].fieldType = v.fieldType;
		values[i].status = v.status;
		values[i].ts = v.ts;
		memcpy(&values[i].value, &v.value, sizeof values[i].value);
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetLatestValuesForFields(dcgmHandle_t handle, int gpu, unsigned short fields[], unsigned n, dcgmFieldValue_v1 values[])
{
	return dcgmEntityGetLatestValues(handle, DCGM_FE_GPU, gpu, fields, n, values);
}

// Of samples only those of driver errors are kept, in the order of their times.
dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long since,
	long long *next, dcgmFieldValueEntityEnumeration_f each, void *data)
{
	(void)handle;
	ENTER("since=%lld", since);
	if (fields >= MAX_GROUPS || !field_groups[fields].used || group >= MAX_GROUPS || !groups[group].used)
		return leave(DCGM_ST_NOT_CONFIGURED);
	int64_t end = now_us();
	for (int i = 0; i < groups[group].n; i++)
		for (int f = 0; f < field_groups[fields].n; f++)
			for (int k = 0; k < nxid_samples; k++) {
				struct xid_sample *x = &xid_samples[k];
				dcgmGroupEntityPair_t e = groups[group].entities[i];
				if (field_groups[fields].ids[f] != DCGM_FI_DEV_XID_ERRORS || e.entityGroupId != DCGM_FE_GPU
					|| e.entityId != x->gpu || x->time < since || x->time > end)
					continue;
				dcgmFieldValue_v1 v = { .version = dcgmFieldValue_version1, .fieldId = DCGM_FI_DEV_XID_ERRORS,
					.fieldType = DCGM_FT_INT64, .ts = x->time };
				v.value.i64 = x->code;
				each(e.entityGroupId, e.entityId, &v, 1, data);
			}
	*next = end + 1;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmHealthSet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthSystems_t systems)
{
	(void)handle;
	(void)group;
	ENTER("systems=0x%x", systems);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmHealthGet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthSystems_t *systems)
{
	(void)handle;
	(void)group;
	ENTER("-");
	*systems = DCGM_HEALTH_WATCH_ALL;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmHealthCheck(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmHealthResponse_t *response)
{
	(void)handle;
	unsigned first = group < MAX_GROUPS && groups[group].n > 0 ? groups[group].entities[0].entityId : 0;
	ENTER("group=%lu gpu=%u", (unsigned long)group, first);
	if (response->version != dcgmHealthResponse_version5)
		return leave(DCGM_ST_VER_MISMATCH);
	response->overallHealth = DCGM_HEALTH_RESULT_PASS;
	response->incidentCount = 0;
	for (int i = 0; i < script.nincidents; i++)
		for (int k = 0; group < MAX_GROUPS && k < groups[group].n; k++) {
			struct incident *from = &script.incidents[i];
			if (groups[group].entities[k].entityId != from->gpu)
				continue;
			dcgmIncidentInfo_t *to = &response->incidents[response->incidentCount++];
			to->system = from->system;
			to->health = from->result;
			to->error.code = from->code;
			snprintf(to->error.msg, sizeof to->error.msg, "incident %d", from->code);
			to->entityInfo = groups[group].entities[k];
			if (from->result > (int)response->overallHealth)
				response->overallHealth = from->result;
		}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupGetInfo(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmGroupInfo_t *info)
{
	(void)handle;
	ENTER("%lu", (unsigned long)group);
	if (info->version != dcgmGroupInfo_version3)
		return leave(DCGM_ST_VER_MISMATCH);
	if (group != DCGM_GROUP_ALL_GPUS && (group >= MAX_GROUPS || !groups[group].used))
		return leave(DCGM_ST_NOT_CONFIGURED);
	if (group != DCGM_GROUP_ALL_GPUS) {
		info->count = groups[group].n;
		memcpy(info->entityList, groups[group].entities, groups[group].n * sizeof groups[group].entities[0]);
		return leave(DCGM_ST_OK);
	}
	info->count = script.gpus;
	for (int i = 0; i < script.gpus; i++)
		info->entityList[i] = (dcgmGroupEntityPair_t){ DCGM_FE_GPU, script.ids[i] };
	return leave(DCGM_ST_OK);
}
#endif
