// SPDX-License-Identifier: Apache-2.0
//
// What the stand-in has besides GPUs: MIG instances, NVSwitches, NVLinks, CPUs.

#include "fakedcgm.h"

struct instance *find_instance(unsigned entity)
{
	for (int i = 0; i < script.ninstances; i++)
		if (script.instances[i].entity == entity)
			return &script.instances[i];
	return NULL;
}

static void add_instance(int gpu, unsigned entity, unsigned gid, const char *profile)
{
	if (gpu < 0 || script.ninstances == MAX_INSTANCES)
		return;
	struct instance *i = &script.instances[script.ninstances++];
	i->gpu = gpu;
	i->entity = entity;
	i->gid = gid;
	snprintf(i->profile, sizeof i->profile, "%s", profile);
}

static void add_link(dcgm_field_entity_group_t kind, unsigned parent, unsigned index, int state)
{
	struct link *l = script.links;
	while (l < script.links + script.nlinks && (l->kind != kind || l->parent != parent || l->index != index))
		l++;
	if (l == script.links + sizeof script.links / sizeof script.links[0])
		return;
	if (l == script.links + script.nlinks)
		script.nlinks++;
	*l = (struct link){ kind, parent, index, state };
}

dcgm_field_entity_group_t kind_of(const char *word)
{
	return !strcmp(word, "gpu") ? DCGM_FE_GPU
		: !strcmp(word, "instance") ? DCGM_FE_GPU_I
		: !strcmp(word, "switch") ? DCGM_FE_SWITCH
		: !strcmp(word, "cpu") ? DCGM_FE_CPU
		: !strcmp(word, "core") ? DCGM_FE_CPU_CORE
		: !strcmp(word, "switchlink") || !strcmp(word, "gpulink") ? DCGM_FE_LINK : DCGM_FE_NONE;
}

bool read_entity(const char *line)
{
	unsigned a, b, c;
	int n, code;
	char kind[16], id[16], word[32];
	if (sscanf(line, "mig %u %d", &a, &n) == 2) {
		for (int k = 0; k < n && k < 8; k++)
			add_instance(slot(a), a * 8 + k, k + 7, "1g.10gb"); // ids are not 0..n-1
	} else if (sscanf(line, "instance %u %u %u %31s", &a, &b, &c, word) == 4) {
		add_instance(slot(a), b, c, word);
	} else if (sscanf(line, "switches %d", &n) == 1 && n >= 0 && n <= DCGM_MAX_NUM_SWITCHES) {
		script.switches = n;
	} else if (sscanf(line, "cpus %d %d", &n, &code) == 2 && n <= DCGM_MAX_NUM_CPUS && n * code <= DCGM_MAX_NUM_CPU_CORES) {
		script.cpus = n;
		script.cores = code;
	} else if (sscanf(line, "links %15s %15s %d", kind, id, &n) == 3) {
		int parents = kind_of(kind) == DCGM_FE_GPU ? script.gpus : script.switches;
		for (int p = 0; p < parents; p++) {
			unsigned parent = kind_of(kind) == DCGM_FE_GPU ? script.ids[p] : (unsigned)p;
			for (int i = 0; (id[0] == '*' || (unsigned)atoi(id) == parent) && i < n; i++)
				add_link(kind_of(kind), parent, i, DcgmNvLinkLinkStateUp);
		}
	} else if (sscanf(line, "link %15s %u %u %31s", kind, &a, &b, word) == 4) {
		add_link(kind_of(kind), a, b, !strcmp(word, "up") ? DcgmNvLinkLinkStateUp
			: !strcmp(word, "down") ? DcgmNvLinkLinkStateDown : DcgmNvLinkLinkStateDisabled);
	} else if (sscanf(line, "refuse %15s %u %d", kind, &a, &code) == 3 && script.nrefusals < MAX_LINES) {
		script.refusals[script.nrefusals++] = (struct refusal){ kind_of(kind), a, code };
	} else if (sscanf(line, "health %u %x %d %d", &a, &b, &n, &code) == 4 && script.nincidents < MAX_LINES) {
		script.incidents[script.nincidents++] = (struct incident){ a, b, n, code };
	} else {
		return false;
	}
	return true;
}

#ifndef FAKE_OLD
dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *h)
{
	(void)handle;
	ENTER("-");
	if (h->version != dcgmMigHierarchy_version2)
		return leave(DCGM_ST_VER_MISMATCH);
	h->count = 0;
	for (int i = 0; i < script.ninstances; i++) {
		dcgmMigHierarchyInfo_v2 *e = &h->entityList[h->count++];
		memset(e, 0, sizeof *e);
		e->entity.entityGroupId = DCGM_FE_GPU_I;
		e->entity.entityId = script.instances[i].entity;
		e->parent.entityGroupId = DCGM_FE_GPU;
		e->parent.entityId = script.ids[script.instances[i].gpu];
		e->info.nvmlInstanceId = script.instances[i].gid;
	}
	return leave(DCGM_ST_OK);
}

static int link_state(dcgm_field_entity_group_t kind, unsigned parent, unsigned index)
{
	for (int i = 0; i < script.nlinks; i++)
		if (script.links[i].kind == kind && script.links[i].parent == parent && script.links[i].index == index)
			return script.links[i].state;
	return kind == DCGM_FE_GPU ? DcgmNvLinkLinkStateNotSupported : DcgmNvLinkLinkStateDisabled; // DCGM's defaults
}

dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t handle, dcgmNvLinkStatus_v5 *s)
{
	(void)handle;
	ENTER("-");
	if (s->version != dcgmNvLinkStatus_version5)
		return leave(DCGM_ST_VER_MISMATCH);
	if (script.nlinks == 0)
		return leave(DCGM_ST_NOT_SUPPORTED);
	s->numGpus = script.gpus;
	for (int i = 0; i < script.gpus; i++) {
		s->gpus[i].entityId = script.ids[i];
		for (int k = 0; k < DCGM_NVLINK_MAX_LINKS_PER_GPU; k++)
			s->gpus[i].linkState[k] = link_state(DCGM_FE_GPU, script.ids[i], k);
	}
	s->numNvSwitches = script.switches;
	for (int i = 0; i < script.switches; i++) {
		s->nvSwitches[i].entityId = i;
		for (int k = 0; k < DCGM_NVLINK_MAX_LINKS_PER_NVSWITCH; k++)
			s->nvSwitches[i].linkState[k] = link_state(DCGM_FE_SWITCH, i, k);
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetNvLinkP2PStatus(dcgmHandle_t handle, dcgmNvLinkP2PStatus_v1 *s)
{
	(void)handle;
	ENTER("-");
	if (s->version != dcgmNvLinkP2PStatus_version1)
		return leave(DCGM_ST_VER_MISMATCH);
	s->numGpus = script.gpus;
	for (int i = 0; i < script.gpus; i++) {
		s->gpus[i].entityId = script.ids[i];
		for (int k = 0; k < script.gpus; k++) // the last one is out of it
			s->gpus[i].linkStatus[k] = i != k && (i == script.gpus - 1 || k == script.gpus - 1)
				? DcgmNvLinkP2pStatusTopologyNotSupported : DcgmNvLinkP2pStatusOK;
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetCpuHierarchy(dcgmHandle_t handle, dcgmCpuHierarchy_v1 *h)
{
	(void)handle;
	ENTER("-");
	if (h->version != dcgmCpuHierarchy_version1)
		return leave(DCGM_ST_VER_MISMATCH);
	if (script.cpus == 0)
		return leave(DCGM_ST_MODULE_NOT_LOADED);
	h->numCpus = script.cpus;
	for (int i = 0; i < script.cpus; i++) {
		h->cpus[i].cpuId = i;
		memset(h->cpus[i].ownedCores.bitmask, 0, sizeof h->cpus[i].ownedCores.bitmask);
		for (int k = i * script.cores; k < (i + 1) * script.cores; k++)
			h->cpus[i].ownedCores.bitmask[k / 64] |= 1ULL << k % 64;
	}
	return leave(DCGM_ST_OK);
}
#endif
