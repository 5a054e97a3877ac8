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

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmFieldGrp_t fields, long long since,
	long long *next, dcgmFieldValueEntityEnumeration_f each, void *data)
{
	(void)handle;
	(void)group;
	(void)fields;
	(void)each;
	(void)data;
	ENTER("since=%lld", since);
	if (next)
		*next = now_us();
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

// --- policy -----------------------------------------------------------------

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

dcgmReturn_t dcgmPolicyGet(dcgmHandle_t handle, dcgmGpuGrp_t group, int count, dcgmPolicy_t *policy, dcgmStatus_t status)
{
	(void)handle;
	(void)group;
	(void)policy;
	(void)status;
	ENTER("count=%d", count);
	return leave(DCGM_ST_NOT_CONFIGURED);
}

dcgmReturn_t dcgmPolicySet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicy_t *policy, dcgmStatus_t status)
{
	(void)handle;
	(void)group;
	(void)status;
	ENTER("condition=0x%x action=%d", policy->condition, policy->action);
	return leave(policy->version == dcgmPolicy_version1 ? DCGM_ST_OK : DCGM_ST_VER_MISMATCH);
}

dcgmReturn_t dcgmPolicyRegister_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t condition, fpRecvUpdates cb, uint64_t data)
{
	(void)handle;
	(void)group;
	ENTER("condition=0x%x", condition);
	callback = cb;
	callback_data = data;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmPolicyUnregister(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t condition)
{
	(void)handle;
	(void)group;
	ENTER("condition=0x%x", condition);
	callback = NULL;
	return leave(DCGM_ST_OK);
}
#endif
