// SPDX-License-Identifier: Apache-2.0
//
// What the files of the stand-in share.

#ifndef FAKEDCGM_H
#define FAKEDCGM_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "dcgm_agent.h"
#include "dcgm_errors.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#define MAX_GPUS 32
#define MAX_VALUES 512
#define MAX_FAULTS 32
#define MAX_GROUPS 256
#define MAX_INSTANCES 64
#define MAX_LINES 64
#define MAX_SAMPLES 1024
#define POLL_US 20000

enum blank { NOT_BLANK, BLANK, NOT_FOUND, NOT_SUPPORTED, NO_PERMISSION };
enum fault_kind { FAIL, HANG, CRASH, DELAY };

struct override {
	dcgm_field_entity_group_t kind; // DCGM_FE_GPU: instances as well
	int gpu;                        // or another entity's id; -1: all
	unsigned short field;
	enum blank blank;
	double number;
};

// marking is what a value has besides its number.
struct marking {
	int gpu; // -1: all
	int field; // -1: all
	int status;
	int64_t ts; // 0: the present
};

struct fault {
	enum fault_kind kind;
	char function[64];
	int code;
	char how[16];
};

struct instance {
	int gpu; // slot
	unsigned entity, gid;
	char profile[32];
};

struct link {
	dcgm_field_entity_group_t kind;
	unsigned parent, index;
	int state;
};

struct incident {
	unsigned gpu, system;
	int result, code;
};

struct refusal {
	dcgm_field_entity_group_t kind;
	unsigned entity;
	int code;
};

struct script {
	int gpus;
	unsigned ids[MAX_GPUS];
	char model[128], driver[64];
	bool lost[MAX_GPUS], unsupported[MAX_GPUS];
	struct instance instances[MAX_INSTANCES];
	int ninstances;
	int switches, cpus, cores; // cores of one CPU
	struct link links[MAX_GPUS * DCGM_NVLINK_MAX_LINKS_PER_GPU];
	int nlinks;
	struct incident incidents[MAX_LINES];
	int nincidents;
	struct refusal refusals[MAX_LINES];
	int nrefusals;
	bool noprof[MAX_GPUS], profblank, disconnected;
	int clock; // seconds that its clock is wrong
	struct override values[MAX_VALUES];
	int nvalues;
	struct marking markings[MAX_FAULTS];
	int nmarkings;
	struct fault faults[MAX_FAULTS];
	int nfaults;
	int xid_seq; // the newest
};

struct xid_sample {
	unsigned gpu; // its id
	int code;
	int64_t time;
};

struct group {
	bool used;
	dcgmGroupEntityPair_t entities[MAX_GPUS * 8];
	int n;
};

struct fields {
	bool used;
	unsigned short ids[128];
	int n;
};

#pragma GCC visibility push(hidden)

// The state of the library; mu guards all of it.
extern pthread_mutex_t mu;
extern struct script script;
extern struct group groups[MAX_GROUPS];
extern struct fields field_groups[MAX_GROUPS];
extern int watched[DCGM_FI_MAX_FIELDS]; // watches of a field
extern bool shown[DCGM_FI_MAX_FIELDS]; // read since it is watched
extern int last_xid[MAX_GPUS];
extern int64_t last_xid_time[MAX_GPUS];
extern struct xid_sample xid_samples[MAX_SAMPLES];
extern int nxid_samples;
extern bool polling; // poll_script is to go on

int64_t now_us(void);
int slot(unsigned id); // index of a GPU id, -1: no such GPU
struct instance *find_instance(unsigned entity); // NULL: no such GPU instance
dcgm_field_entity_group_t kind_of(const char *word);
bool read_entity(const char *line);              // takes a line about other entities than GPUs
void log_call(const char *function, const char *format, ...);
void *poll_script(void *unused);

// enter begins a call: it acts out the faults of the function and returns its
// result if it is to fail. The lock is held on return only with DCGM_ST_OK.
dcgmReturn_t enter(const char *function);
dcgmReturn_t leave(dcgmReturn_t result); // lets go of the lock

bool profiling(unsigned short field);
void bus_id(char *s, size_t n, int gpu);
void fill(dcgmFieldValue_v2 *v, dcgmGroupEntityPair_t e, unsigned short field, unsigned flags);

#pragma GCC visibility pop

#define ENTER(...) \
	do { \
		log_call(__func__, __VA_ARGS__); \
		dcgmReturn_t entered = enter(__func__); \
		if (entered != DCGM_ST_OK) \
			return entered; \
	} while (0)

#endif
