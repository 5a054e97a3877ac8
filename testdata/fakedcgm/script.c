// SPDX-License-Identifier: Apache-2.0
//
// The script of the stand-in: reading it, and acting out what it says.

#include <stdarg.h>

#include "fakedcgm.h"

pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
struct script script;
int last_xid[MAX_GPUS];
int64_t last_xid_time[MAX_GPUS];
struct xid_sample xid_samples[MAX_SAMPLES];
int nxid_samples;
bool polling;

static struct timespec script_time;
static ino_t script_inode; // two files in the same tick have the same time
static bool script_known;

int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void log_call(const char *function, const char *format, ...)
{
	const char *path = getenv("FAKEDCGM_LOG");
	if (path == NULL)
		return;
	FILE *f = fopen(path, "a");
	if (f == NULL)
		return;
	fprintf(f, "%s ", function);
	va_list args;
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fputc('\n', f);
	fclose(f);
}

int slot(unsigned id)
{
	for (int i = 0; i < script.gpus; i++)
		if (script.ids[i] == id)
			return i;
	return -1;
}

// fire is a driver error. Those that a test finds in the script at its start are of
// the time before.
static void fire(int gpu, int code, bool tell)
{
	int64_t t = now_us();
	if (gpu < 0)
		return;
	last_xid[gpu] = code;
	last_xid_time[gpu] = t;
	if (tell && nxid_samples < MAX_SAMPLES)
		xid_samples[nxid_samples++] = (struct xid_sample){ script.ids[gpu], code, t };
}

static void read_value(const char *line)
{
	char kind[16], gpu[16], value[64];
	unsigned field;
	if (script.nvalues == MAX_VALUES)
		return;
	if (sscanf(line, "value %15[a-z] %15s %u %63s", kind, gpu, &field, value) != 4) {
		strcpy(kind, "gpu");
		if (sscanf(line, "value %15s %u %63s", gpu, &field, value) != 3)
			return;
	}
	struct override *o = &script.values[script.nvalues++];
	o->kind = kind_of(kind);
	o->gpu = gpu[0] == '*' ? -1 : atoi(gpu);
	o->field = field;
	o->blank = !strcmp(value, "blank") ? BLANK
		: !strcmp(value, "notfound") ? NOT_FOUND
		: !strcmp(value, "notsupported") ? NOT_SUPPORTED
		: !strcmp(value, "noperm") ? NO_PERMISSION : NOT_BLANK;
	o->number = atof(value);
}

static void read_marking(const char *line)
{
	char kind[16], gpu[16], field[16];
	int number;
	if (script.nmarkings == MAX_FAULTS || sscanf(line, "%15s %15s %15s %d", kind, gpu, field, &number) != 4)
		return;
	struct marking *m = &script.markings[script.nmarkings++];
	*m = (struct marking){ gpu[0] == '*' ? -1 : atoi(gpu), field[0] == '*' ? -1 : atoi(field), 0, 0 };
	if (!strcmp(kind, "status"))
		m->status = number;
	else
		m->ts = now_us() - (int64_t)number * 1000000;
}

static void read_ids(char *list)
{
	script.gpus = 0;
	for (char *save = NULL, *s = strtok_r(list, ",", &save); s && script.gpus < MAX_GPUS; s = strtok_r(NULL, ",", &save))
		script.ids[script.gpus++] = atoi(s);
}

struct pending_xid { unsigned gpu; int code, seq; };

// read_line takes one line of the script; a driver error is only noted.
static void read_line(char *line, struct pending_xid *xids, int *nxids)
{
	unsigned a;
	int b, c;
	struct fault f = { 0 };
	line[strcspn(line, "\r\n")] = 0;
	if (sscanf(line, "gpus %d", &b) == 1 && b >= 0 && b <= MAX_GPUS) {
		script.gpus = b;
		for (int i = 0; i < b; i++)
			script.ids[i] = i;
	} else if (!strncmp(line, "ids ", 4)) {
		read_ids(line + 4);
	} else if (!strncmp(line, "model ", 6)) {
		snprintf(script.model, sizeof script.model, "%.127s", line + 6);
	} else if (!strncmp(line, "driver ", 7)) {
		snprintf(script.driver, sizeof script.driver, "%.63s", line + 7);
	} else if (sscanf(line, "lost %u", &a) == 1 && slot(a) >= 0) {
		script.lost[slot(a)] = true;
	} else if (sscanf(line, "unsupported %u", &a) == 1 && slot(a) >= 0) {
		script.unsupported[slot(a)] = true;
	} else if (read_entity(line)) {
		return;
	} else if (!strncmp(line, "value ", 6)) {
		read_value(line);
	} else if (sscanf(line, "xid %u %d %d", &a, &b, &c) == 3 && *nxids < 64) {
		xids[(*nxids)++] = (struct pending_xid){ a, b, c };
	} else if (sscanf(line, "noprof %u", &a) == 1 && slot(a) >= 0) {
		script.noprof[slot(a)] = true;
	} else if (!strcmp(line, "noprof")) {
		memset(script.noprof, true, sizeof script.noprof);
	} else if (sscanf(line, "clock %d", &b) == 1) {
		script.clock = b;
	} else if (!strncmp(line, "status ", 7) || !strncmp(line, "frozen ", 7)) {
		read_marking(line);
	} else if (!strcmp(line, "profblank")) {
		script.profblank = true;
	} else if (!strcmp(line, "disconnected")) {
		script.disconnected = true;
	} else if (script.nfaults < MAX_FAULTS) {
		if (sscanf(line, "fail %63s %d", f.function, &f.code) == 2)
			f.kind = FAIL;
		else if (sscanf(line, "delay %63s %d", f.function, &f.code) == 2)
			f.kind = DELAY;
		else if (sscanf(line, "hang %63s", f.function) == 1)
			f.kind = HANG;
		else if (sscanf(line, "crash %63s %15s", f.function, f.how) == 2)
			f.kind = CRASH;
		else
			return;
		script.faults[script.nfaults++] = f;
	}
}

// refresh reads the script if it changed; called with the lock held. Driver
// errors that stand there at the first reading are past: they only set the field.
static void refresh(void)
{
	const char *path = getenv("FAKEDCGM_SCRIPT");
	struct stat st;
	bool first = !script_known;
	if (path == NULL || stat(path, &st) != 0) {
		if (!first)
			return;
		memset(&st, 0, sizeof st);
	} else if (!first && st.st_mtim.tv_sec == script_time.tv_sec && st.st_mtim.tv_nsec == script_time.tv_nsec && st.st_ino == script_inode) {
		return;
	}
	script_time = st.st_mtim;
	script_inode = st.st_ino;
	script_known = true;
	int seq = script.xid_seq;
	memset(&script, 0, sizeof script);
	script.gpus = 2;
	script.ids[1] = 1;
	strcpy(script.model, "NVIDIA H100 80GB HBM3");
	strcpy(script.driver, "550.163.01");
	struct pending_xid xids[64];
	int nxids = 0;
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[256];
	while (f && fgets(line, sizeof line, f))
		read_line(line, xids, &nxids);
	if (f)
		fclose(f);
	script.xid_seq = seq;
	for (int i = 0; i < nxids; i++)
		if (xids[i].seq > script.xid_seq)
			script.xid_seq = xids[i].seq;
	for (int i = 0; i < nxids; i++)
		if (xids[i].seq > seq)
			fire(slot(xids[i].gpu), xids[i].code, !first);
}

void *poll_script(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&mu);
		if (!polling) {
			pthread_mutex_unlock(&mu);
			return NULL;
		}
		refresh();
		pthread_mutex_unlock(&mu);
		usleep(POLL_US);
	}
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

dcgmReturn_t enter(const char *function)
{
	int64_t begin = now_us();
	for (;;) {
		dcgmReturn_t result = DCGM_ST_OK;
		bool hang = false;
		char how[16] = "";
		pthread_mutex_lock(&mu);
		refresh();
		if (script.disconnected)
			result = DCGM_ST_CONNECTION_NOT_VALID;
		for (int i = 0; i < script.nfaults; i++) {
			struct fault *f = &script.faults[i];
			if (strcmp(f->function, function))
				continue;
			if (f->kind == HANG || (f->kind == DELAY && now_us() - begin < f->code * 1000LL))
				hang = true;
			else if (f->kind == DELAY)
				continue;
			else if (f->kind == CRASH)
				strcpy(how, f->how);
			else
				result = f->code;
		}
		if (!hang && !how[0] && result == DCGM_ST_OK)
			return result;
		pthread_mutex_unlock(&mu);
		if (how[0])
			crash(how);
		if (!hang)
			return result;
		usleep(POLL_US);
	}
}

dcgmReturn_t leave(dcgmReturn_t result)
{
	pthread_mutex_unlock(&mu);
	return result;
}
