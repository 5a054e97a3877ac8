// SPDX-License-Identifier: Apache-2.0
//
// What the files of the stand-in share.

#ifndef FAKENVML_H
#define FAKENVML_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS // the functions have their real names
#include "nvml.h"

#define MAX_GPUS 32
#define MAX_MIG 7
#define MAX_VALUES 512
#define MAX_FAULTS 32
#define MAX_XIDS 64
#define MAX_PROCESSES 4096
#define POLL_US 20000

enum fault_kind { FAIL, HANG, CRASH };

struct override {
	int gpu; // -1: all
	char key[96];
	nvmlReturn_t result;
	double number;
};

struct fault {
	enum fault_kind kind;
	char function[64];
	int code;
	char how[16];
};

struct xid {
	unsigned gpu;
	int code, seq;
};

struct process {
	unsigned gpu, pid;
	char kind[16];
	unsigned long long bytes;
	int gi, ci; // -1: none
};

struct script {
	int gpus;
	unsigned ids[MAX_GPUS];
	char model[96], driver[64], profile[32];
	bool lost[MAX_GPUS]; // by id, as mig
	int mig[MAX_GPUS];
	bool migmode[MAX_GPUS];
	struct override values[MAX_VALUES];
	int nvalues;
	struct fault faults[MAX_FAULTS];
	int nfaults;
	struct xid xids[MAX_XIDS];
	int nxids;
	struct process processes[MAX_PROCESSES];
	int nprocesses;
	int init; // result of nvmlInit
};

// A device is a GPU, or a MIG device of one.
struct nvmlDevice_st {
	unsigned id;
	int instance; // -1: the GPU itself
};

#pragma GCC visibility push(hidden)

// The state of the library; mu guards all of it.
extern pthread_mutex_t mu;
extern struct script script;

void refresh(void); // reads the script if it changed; under mu
bool next_xid(struct xid *x); // takes a driver error that was not told yet; under mu
void log_call(const char *function, const char *format, ...);

// enter begins a call: it acts out the faults of the function and returns its
// result if it is to fail. The lock is held on return only with NVML_SUCCESS.
nvmlReturn_t enter(const char *function);
nvmlReturn_t leave(nvmlReturn_t result); // lets go of the lock

// check_device is NVML_SUCCESS for a device that answers.
nvmlReturn_t check_device(const struct nvmlDevice_st *device);

// value looks a result up, by "function" or "function.what"; number is the
// default and becomes the scripted value. Its result is that of the call.
nvmlReturn_t value(const struct nvmlDevice_st *device, const char *function, const char *what, double *number);

#pragma GCC visibility pop

#define ENTER(...) \
	do { \
		log_call(__func__, __VA_ARGS__); \
		nvmlReturn_t entered = enter(__func__); \
		if (entered != NVML_SUCCESS) \
			return entered; \
	} while (0)

// ENTER_DEVICE is ENTER for a function of the device d, and declares its data.
#define ENTER_DEVICE(d) \
	struct nvmlDevice_st *device = (d).handle; \
	do { \
		log_call(__func__, "gpu=%d", device ? (int)device->id : -1); \
		nvmlReturn_t entered = enter(__func__); \
		if (entered != NVML_SUCCESS) \
			return entered; \
		entered = check_device(device); \
		if (entered != NVML_SUCCESS) \
			return leave(entered); \
	} while (0)

// READING is a function with one result, NAME as what when it is asked with a
// selector, DEFAULT an idle H100's value.
#define READING(function, type, default_value) \
	nvmlReturn_t function(nvmlDevice_t d, type *result) \
	{ \
		ENTER_DEVICE(d); \
		double n = default_value; \
		nvmlReturn_t r = value(device, __func__, NULL, &n); \
		if (r == NVML_SUCCESS) \
			*result = n; \
		return leave(r); \
	}

#endif
