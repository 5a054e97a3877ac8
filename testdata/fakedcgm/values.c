// SPDX-License-Identifier: Apache-2.0
//
// The fields of the stand-in and their values.

#include "fakedcgm.h"

bool profiling(unsigned short id)
{
	return id > 1000 && id < 1100;
}

static char field_type(unsigned short id)
{
	switch (id) {
	case DCGM_FI_DRIVER_VERSION: case DCGM_FI_NVML_VERSION: case DCGM_FI_DEV_NAME: case DCGM_FI_DEV_BRAND:
	case DCGM_FI_DEV_SERIAL: case DCGM_FI_DEV_UUID: case DCGM_FI_DEV_PCI_BUSID: case DCGM_FI_DEV_VBIOS_VERSION:
	case DCGM_FI_DEV_NVSWITCH_UUID: case DCGM_FI_DEV_CPU_MODEL:
		return DCGM_FT_STRING;
	case DCGM_FI_DEV_POWER_USAGE: case DCGM_FI_DEV_POWER_MGMT_LIMIT:
	case DCGM_FI_DEV_CPU_TEMP_CELSIUS: case DCGM_FI_DEV_CPU_POWER_WATTS:
		return DCGM_FT_DOUBLE;
	case 1009: case 1010: // PCIe bytes
		return DCGM_FT_INT64;
	}
	return profiling(id) || (id >= DCGM_FI_DEV_CPU_UTIL_RATIO && id < DCGM_FI_DEV_CPU_TEMP_CELSIUS) ? DCGM_FT_DOUBLE : DCGM_FT_INT64;
}

static dcgm_field_entity_group_t field_level(unsigned short id)
{
	if (id < DCGM_FI_DEV_NAME)
		return DCGM_FE_NONE;
	if ((id >= 780 && id < 825) || id == 865 || (id >= 870 && id < 878) || id == 1508 || (id >= 1525 && id < 1534))
		return DCGM_FE_LINK;
	if ((id >= 700 && id < 780) || (id >= 856 && id < 880))
		return DCGM_FE_SWITCH;
	if (id >= 1100 && id < 1110)
		return DCGM_FE_CPU_CORE;
	if (id >= 1110 && id < 1200)
		return DCGM_FE_CPU;
	return DCGM_FE_GPU;
}

int DcgmFieldsInit(void)
{
	log_call(__func__, "-");
	return 0;
}

int DcgmFieldsTerm(void)
{
	log_call(__func__, "-");
	return 0;
}

dcgm_field_meta_p DcgmFieldGetById(unsigned short id)
{
	static dcgm_field_meta_t metas[DCGM_FI_MAX_FIELDS];
	if (id == 0 || id >= DCGM_FI_MAX_FIELDS)
		return NULL;
	dcgm_field_meta_t *m = &metas[id];
	m->fieldId = id;
	m->fieldType = field_type(id);
	m->size = m->fieldType == DCGM_FT_STRING ? 0 : 8;
	snprintf(m->tag, sizeof m->tag, "field_%u", id);
	m->entityLevel = field_level(id);
	return m;
}

// default_number is an idle H100's value of a field.
static double default_number(unsigned short id, int gpu, enum blank *blank)
{
	switch (id) {
	case DCGM_FI_CUDA_DRIVER_VERSION: return 12040;
	case DCGM_FI_DEV_SM_CLOCK: return 345;
	case DCGM_FI_DEV_MEM_CLOCK: return 1593;
	case DCGM_FI_DEV_MEMORY_TEMP: return 32;
	case DCGM_FI_DEV_GPU_TEMP: return 34 + gpu;
	case DCGM_FI_DEV_GPU_TEMP_LIMIT: return 53 - gpu;
	case DCGM_FI_DEV_SLOWDOWN_TEMP: return 87;
	case DCGM_FI_DEV_POWER_USAGE: return 95 + gpu;
	case DCGM_FI_DEV_POWER_MGMT_LIMIT: return 700;
	case DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION: return 600000 + gpu;
	case DCGM_FI_DEV_FB_FREE: return 80896;
	case DCGM_FI_DEV_FB_RESERVED: return 1024;
	case DCGM_FI_DEV_FAN_SPEED: *blank = NOT_SUPPORTED; return 0; // passively cooled
	case DCGM_FI_DEV_PCIE_LINK_GEN: return 5;
	case DCGM_FI_DEV_PCIE_LINK_WIDTH: return 16;
	case DCGM_FI_DEV_CLOCK_THROTTLE_REASONS: return 1; // idle
	case DCGM_FI_DEV_VGPU_LICENSE_STATUS: *blank = BLANK; return 0;
	case DCGM_FI_DEV_XID_ERRORS:
		*blank = last_xid[gpu] ? NOT_BLANK : BLANK;
		return last_xid[gpu];
	}
	return 0;
}

static void set_number(dcgmFieldValue_v2 *v, double number, enum blank blank)
{
	if (v->fieldType == DCGM_FT_DOUBLE)
		v->value.dbl = blank ? DCGM_FP64_BLANK + (blank - 1) : number;
	else
		v->value.i64 = blank ? DCGM_INT64_BLANK + (blank - 1) : (int64_t)number;
}

// bus_id writes a GPU's PCI address; the buses are those of a DGX H100.
void bus_id(char *s, size_t n, int gpu)
{
	static const unsigned char buses[] = { 0x1a, 0x1b, 0x4a, 0x4b, 0x8a, 0x8b, 0xca, 0xcb };
	snprintf(s, n, "%08X:%02X:00.0", gpu / 8, buses[gpu % 8]);
}

// other_number is the value of a field of another entity than a GPU.
static double other_number(unsigned short id, dcgmGroupEntityPair_t e, enum blank *blank)
{
	unsigned parent = e.entityId >> 24, index = e.entityId >> 8 & 0xffff; // dcgm_link_t
	switch (id) {
	case DCGM_FI_DEV_NVSWITCH_TEMP_CELSIUS: return 40 + e.entityId;
	case DCGM_FI_DEV_NVSWITCH_THROUGHPUT_TX: return 1000 + e.entityId;
	case DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX: // of a switch's links only
		*blank = (e.entityId & 0xff) == DCGM_FE_SWITCH ? NOT_BLANK : NOT_SUPPORTED;
		return 100 * parent + index;
	case DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL: // of a GPU's links only
		*blank = (e.entityId & 0xff) == DCGM_FE_GPU ? NOT_BLANK : NOT_SUPPORTED;
		return 100 * parent + index;
	case DCGM_FI_DEV_CPU_UTIL_RATIO: return e.entityGroupId == DCGM_FE_CPU ? 0.25 : e.entityId / 256.;
	case DCGM_FI_DEV_CPU_TEMP_CELSIUS: return 50 + e.entityId;
	case DCGM_FI_DEV_CPU_POWER_WATTS: return 120.5 + e.entityId;
	}
	*blank = NOT_SUPPORTED;
	return 0;
}

static bool exists(dcgmGroupEntityPair_t e)
{
	int parent = e.entityId >> 24;
	switch (e.entityGroupId) {
	case DCGM_FE_SWITCH: return (int)e.entityId < script.switches;
	case DCGM_FE_CPU: return (int)e.entityId < script.cpus;
	case DCGM_FE_CPU_CORE: return (int)e.entityId < script.cpus * script.cores;
	case DCGM_FE_LINK: return (e.entityId & 0xff) == DCGM_FE_GPU ? slot(parent) >= 0 : parent < script.switches;
	default: return false;
	}
}

// concerns tells whether a value of the script is for an entity that is no GPU.
static bool concerns(struct override *o, dcgmGroupEntityPair_t e)
{
	unsigned id = e.entityGroupId == DCGM_FE_LINK ? e.entityId >> 24 : e.entityId;
	return o->kind == e.entityGroupId && (o->gpu < 0 || (unsigned)o->gpu == id);
}

static void fill_other(dcgmFieldValue_v2 *v, dcgmGroupEntityPair_t e, enum blank blank)
{
	if (!exists(e))
		blank = NOT_FOUND;
	if (v->fieldType == DCGM_FT_STRING) {
		snprintf(v->value.str, sizeof v->value.str, blank ? DCGM_STR_NOT_FOUND : "text%u-%u", v->fieldId, e.entityId);
		return;
	}
	double number = 0;
	if (!blank)
		number = other_number(v->fieldId, e, &blank);
	for (int i = 0; i < script.nvalues; i++)
		if (script.values[i].field == v->fieldId && concerns(&script.values[i], e)) {
			number = script.values[i].number;
			blank = script.values[i].blank;
		}
	set_number(v, number, blank);
}

static void set_text(dcgmFieldValue_v2 *v, int gpu, enum blank blank)
{
	char *s = v->value.str;
	size_t n = sizeof v->value.str;
	if (blank) {
		snprintf(s, n, "%s", DCGM_STR_BLANK);
		return;
	}
	switch (v->fieldId) {
	case DCGM_FI_DRIVER_VERSION: snprintf(s, n, "%s", script.driver); break;
	case DCGM_FI_DEV_NAME: snprintf(s, n, "%s", script.model); break;
	case DCGM_FI_DEV_UUID: snprintf(s, n, "GPU-01000100-0000-0000-0000-%012d", gpu); break;
	case DCGM_FI_DEV_PCI_BUSID: bus_id(s, n, gpu); break;
	case DCGM_FI_DEV_SERIAL: snprintf(s, n, "165012300%04d", gpu); break;
	default: snprintf(s, n, "text%u", v->fieldId); break;
	}
}

void fill(dcgmFieldValue_v2 *v, dcgmGroupEntityPair_t e, unsigned short field, unsigned flags)
{
	memset(v, 0, offsetof(dcgmFieldValue_v2, value) + 64);
	v->version = dcgmFieldValue_version2;
	v->entityGroupId = e.entityGroupId;
	v->entityId = e.entityId;
	v->fieldId = field;
	v->fieldType = field_type(field);
	v->ts = now_us() + (int64_t)script.clock * 1000000;
	bool instance = e.entityGroupId == DCGM_FE_GPU_I;
	struct instance *mig = instance ? find_instance(e.entityId) : NULL;
	int gpu = mig ? mig->gpu : instance ? -1 : slot(e.entityId);
	enum blank blank = gpu < 0 || script.lost[gpu] ? BLANK : NOT_BLANK;
	bool lacks = gpu >= 0 && script.noprof[gpu] && profiling(field);
	if (!(flags & DCGM_FV_FLAG_LIVE_DATA) && (field >= DCGM_FI_MAX_FIELDS || !watched[field] || lacks)) {
		v->status = DCGM_ST_NOT_WATCHED;
		blank = BLANK;
		v->ts = 0;
	}
	if (e.entityGroupId != DCGM_FE_GPU && !instance) {
		fill_other(v, e, v->ts ? NOT_BLANK : BLANK);
		return;
	}
	for (int i = 0; gpu >= 0 && i < script.nmarkings; i++) {
		struct marking *m = &script.markings[i];
		if ((m->gpu < 0 || (unsigned)m->gpu == script.ids[gpu]) && (m->field < 0 || m->field == field)) {
			v->status = m->status;
			v->ts = m->ts ? m->ts : v->ts;
		}
	}
	if (v->fieldType == DCGM_FT_STRING) {
		if (mig && field == DCGM_FI_DEV_NAME && !blank)
			strcpy(v->value.str, mig->profile);
		else
			set_text(v, gpu, blank);
		return;
	}
	double number = 0;
	if (!blank)
		number = default_number(field, gpu, &blank);
	if (mig && field >= DCGM_FI_DEV_GPU_UTIL && field <= DCGM_FI_DEV_DEC_UTIL)
		blank = NOT_SUPPORTED; // utilisations are the whole GPU's
	if (field == DCGM_FI_DEV_XID_ERRORS && gpu >= 0) {
		v->ts = last_xid_time[gpu];
		blank = last_xid[gpu] ? NOT_BLANK : BLANK; // outlives the GPU
		number = last_xid[gpu];
	}
	for (int i = 0; i < script.nvalues; i++) {
		struct override *o = &script.values[i];
		if (gpu >= 0 && !script.lost[gpu] && o->kind == DCGM_FE_GPU && o->field == field && (o->gpu < 0 || (unsigned)o->gpu == script.ids[gpu])) {
			number = o->number;
			blank = o->blank;
		}
	}
	if (script.profblank && profiling(field) && !shown[field])
		blank = BLANK;
	set_number(v, number, blank);
}

#ifndef FAKE_BROKEN
static bool refuses(struct refusal *r, dcgmGroupEntityPair_t e)
{
	if (e.entityGroupId == DCGM_FE_LINK) // those of a switch
		return r->kind == DCGM_FE_LINK && (e.entityId & 0xff) == DCGM_FE_SWITCH && e.entityId >> 24 == r->entity;
	return r->kind == e.entityGroupId && r->entity == e.entityId;
}

dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned nentities,
	unsigned short fields[], unsigned nfields, unsigned flags, dcgmFieldValue_v2 values[])
{
	(void)handle;
	ENTER("entities=%u fields=%u flags=%u", nentities, nfields, flags);
	if (nfields > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP)
		return leave(DCGM_ST_BADPARAM);
	for (unsigned i = 0; i < nentities; i++)
		for (int k = 0; k < script.nrefusals; k++)
			if (refuses(&script.refusals[k], entities[i]))
				return leave(script.refusals[k].code);
	for (unsigned i = 0; i < nentities; i++)
		for (unsigned j = 0; j < nfields; j++)
			fill(&values[i * nfields + j], entities[i], fields[j], flags);
	for (unsigned j = 0; j < nfields; j++)
		shown[fields[j]] = true;
	return leave(DCGM_ST_OK);
}
#endif
