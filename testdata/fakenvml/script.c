// SPDX-License-Identifier: Apache-2.0
//
// The script of the stand-in: reading it, and acting out what it says.

#include <stdarg.h>

#include "fakenvml.h"

pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
struct script script;

static struct timespec script_time;
static bool script_known;
static int xid_seq; // the newest that was told

void log_call(const char *function, const char *format, ...)
{
	const char *path = getenv("FAKENVML_LOG");
	if (path == NULL)
		return;
	char line[256];
	int n = snprintf(line, sizeof line, "%s ", function);
	va_list args;
	va_start(args, format);
	n += vsnprintf(line + n, sizeof line - n - 1, format, args);
	va_end(args);
	FILE *f = fopen(path, "a");
	if (f == NULL)
		return;
	fprintf(f, "%s\n", line);
	fclose(f);
}

static void read_value(const char *line)
{
	char gpu[16], text[32];
	struct override *o = &script.values[script.nvalues];
	if (script.nvalues == MAX_VALUES || sscanf(line, "value %15s %95s %31s", gpu, o->key, text) != 3)
		return;
	script.nvalues++;
	o->gpu = gpu[0] == '*' ? -1 : atoi(gpu);
	o->number = atof(text);
	o->result = !strcmp(text, "notsupported") ? NVML_ERROR_NOT_SUPPORTED
		: !strcmp(text, "notfound") ? NVML_ERROR_NOT_FOUND
		: !strcmp(text, "noperm") ? NVML_ERROR_NO_PERMISSION
		: !strcmp(text, "lost") ? NVML_ERROR_GPU_IS_LOST
		: !strcmp(text, "unknown") ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

static void read_ids(char *list)
{
	script.gpus = 0;
	for (char *save = NULL, *s = strtok_r(list, ",", &save); s && script.gpus < MAX_GPUS; s = strtok_r(NULL, ",", &save))
		if (atoi(s) >= 0 && atoi(s) < MAX_GPUS)
			script.ids[script.gpus++] = atoi(s);
}

static void read_fault(const char *line)
{
	struct fault f = { 0 };
	if (sscanf(line, "fail %63s %d", f.function, &f.code) == 2)
		f.kind = FAIL;
	else if (sscanf(line, "hang %63s", f.function) == 1)
		f.kind = HANG;
	else if (sscanf(line, "crash %63s %15s", f.function, f.how) == 2)
		f.kind = CRASH;
	else
		return;
	if (script.nfaults < MAX_FAULTS)
		script.faults[script.nfaults++] = f;
}

static void read_process(const char *line)
{
	struct process p = { .gi = -1, .ci = -1 };
	char bytes[32];
	if (sscanf(line, "process %u %15s %u %31s %d %d", &p.gpu, p.kind, &p.pid, bytes, &p.gi, &p.ci) < 4)
		return;
	p.bytes = !strcmp(bytes, "unknown") ? NVML_VALUE_NOT_AVAILABLE : strtoull(bytes, NULL, 10);
	if (script.nprocesses < MAX_PROCESSES)
		script.processes[script.nprocesses++] = p;
}

static void read_line(char *line)
{
	unsigned a;
	int b, c;
	line[strcspn(line, "\r\n")] = 0;
	if (sscanf(line, "gpus %d", &b) == 1 && b >= 0 && b <= MAX_GPUS) {
		script.gpus = b;
		for (int i = 0; i < b; i++)
			script.ids[i] = i;
	} else if (!strncmp(line, "ids ", 4)) {
		read_ids(line + 4);
	} else if (!strncmp(line, "model ", 6)) {
		snprintf(script.model, sizeof script.model, "%.95s", line + 6);
	} else if (!strncmp(line, "driver ", 7)) {
		snprintf(script.driver, sizeof script.driver, "%.63s", line + 7);
	} else if (!strncmp(line, "profile ", 8)) {
		snprintf(script.profile, sizeof script.profile, "%.31s", line + 8);
	} else if (sscanf(line, "init %d", &b) == 1) {
		script.init = b;
	} else if (sscanf(line, "lost %u", &a) == 1 && a < MAX_GPUS) {
		script.lost[a] = true;
	} else if (sscanf(line, "mig %u %d", &a, &b) == 2 && a < MAX_GPUS && b >= 0 && b <= MAX_MIG) {
		script.migmode[a] = true;
		script.mig[a] = b;
	} else if (!strncmp(line, "value ", 6)) {
		read_value(line);
	} else if (!strncmp(line, "process ", 8)) {
		read_process(line);
	} else if (sscanf(line, "xid %u %d %d", &a, &b, &c) == 3 && script.nxids < MAX_XIDS) {
		script.xids[script.nxids++] = (struct xid){ a, b, c };
	} else {
		read_fault(line);
	}
}

// refresh: driver errors that stand there at the first reading are past.
void refresh(void)
{
	const char *path = getenv("FAKENVML_SCRIPT");
	struct stat st;
	bool first = !script_known;
	if (path == NULL || stat(path, &st) != 0) {
		if (!first)
			return;
		memset(&st, 0, sizeof st);
	} else if (!first && st.st_mtim.tv_sec == script_time.tv_sec && st.st_mtim.tv_nsec == script_time.tv_nsec) {
		return;
	}
	script_time = st.st_mtim;
	script_known = true;
	memset(&script, 0, sizeof script);
	script.gpus = 2;
	script.ids[1] = 1;
	strcpy(script.model, "NVIDIA H100 80GB HBM3");
	strcpy(script.driver, "550.163.01");
	strcpy(script.profile, "1g.10gb");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[256];
	while (f && fgets(line, sizeof line, f))
		read_line(line);
	if (f)
		fclose(f);
	for (int i = 0; first && i < script.nxids; i++)
		if (script.xids[i].seq > xid_seq)
			xid_seq = script.xids[i].seq;
}

bool next_xid(struct xid *x)
{
	bool found = false;
	for (int i = 0; i < script.nxids; i++)
		if (script.xids[i].seq > xid_seq && (!found || script.xids[i].seq < x->seq)) {
			*x = script.xids[i];
			found = true;
		}
	if (found)
		xid_seq = x->seq;
	return found;
}

static void crash(const char *how)
{
	if (!strcmp(how, "segv")) {
		volatile int *nowhere = NULL;
		*nowhere = 1;
	}
	if (!strcmp(how, "abort"))
		abort();
	_exit(3);
}

nvmlReturn_t enter(const char *function)
{
	for (;;) {
		nvmlReturn_t result = NVML_SUCCESS;
		bool hang = false;
		char how[16] = "";
		pthread_mutex_lock(&mu);
		refresh();
		for (int i = 0; i < script.nfaults; i++) {
			struct fault *f = &script.faults[i];
			if (strcmp(f->function, function))
				continue;
			if (f->kind == HANG)
				hang = true;
			else if (f->kind == CRASH)
				strcpy(how, f->how);
			else
				result = f->code;
		}
		if (!hang && !how[0] && result == NVML_SUCCESS)
			return result;
		pthread_mutex_unlock(&mu);
		if (how[0])
			crash(how);
		if (!hang)
			return result;
		usleep(POLL_US);
	}
}

nvmlReturn_t leave(nvmlReturn_t result)
{
	pthread_mutex_unlock(&mu);
	return result;
}

nvmlReturn_t check_device(const struct nvmlDevice_st *device)
{
	if (device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (script.lost[device->id])
		return NVML_ERROR_GPU_IS_LOST;
	for (int i = 0; i < script.gpus; i++)
		if (script.ids[i] == device->id)
			return device->instance < script.mig[device->id] ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	return NVML_ERROR_INVALID_ARGUMENT; // the handle went bad with its GPU
}

nvmlReturn_t value(const struct nvmlDevice_st *device, const char *function, const char *what, double *number)
{
	nvmlReturn_t result = NVML_SUCCESS;
	char key[96];
	snprintf(key, sizeof key, "%s.%s", function, what ? what : "");
	for (int i = 0; i < script.nvalues; i++) {
		struct override *o = &script.values[i];
		if (o->gpu >= 0 && (unsigned)o->gpu != device->id)
			continue;
		if (strcmp(o->key, function) && strcmp(o->key, key))
			continue;
		result = o->result;
		*number = o->number;
	}
	return result;
}
