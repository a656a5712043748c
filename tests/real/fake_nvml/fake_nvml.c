/* A libnvidia-ml.so.1 that reads from a script what it answers.
 *
 * The file named by FAKE_NVML has lines `key value`, read again at every call, so a test changes a GPU by
 * writing the file anew (by rename):
 *
 *   count 2                       GPUs in this machine
 *   0.uuid GPU-...                of GPU 0; also name, bus, util, memory, ... (see the calls below)
 *   error.nvmlInit 9              that call answers this code on every GPU
 *   0.error.nvmlDeviceGetPowerUsage 3
 *   0.stall.nvmlDeviceGetTemperature 1    that call hangs until the line is gone
 *   driver 2                      loaded anew: what was opened before is forgotten, until all of it is closed
 *   xid 7 0 79                    event number 7: Xid 79 on GPU 0; reported once a number
 *
 * A value that the script does not hold is NOT_SUPPORTED. Two readings of one GPU at a time abort.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16
#define LINE 256

typedef struct { int index; int parent; int busy; } device;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} pci;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process;
typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    int type, code;
    union { double d; unsigned long long ull; } value;
} field;
typedef struct { device *device; unsigned long long type, data; unsigned int gi, ci; } event;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10
};

static device gpus[MOST], migs[MOST];
static int initialised, events;
static unsigned long long opened;

static int lookup(const char *key, char *value) {
    char line[LINE];
    size_t length = strlen(key);
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, LINE, file)) {
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        line[strcspn(line, "\n")] = 0;
        strcpy(value, line + length + 1);
        found = 1;
    }
    fclose(file);
    return found;
}

static int number(const char *key, unsigned long long *value) {
    char text[LINE];
    if (!lookup(key, text)) return 0;
    *value = strtoull(text, NULL, 0);
    return 1;
}

static int text_of(device *gpu, const char *name, char *value) {
    char key[LINE];
    snprintf(key, LINE, gpu->parent < 0 ? "%d.%s" : "mig%d.%s", gpu->index, name);
    return lookup(key, value);
}

static int number_of(device *gpu, const char *name, unsigned long long *value) {
    char text[LINE];
    if (!text_of(gpu, name, text)) return 0;
    *value = strtoull(text, NULL, 0);
    return 1;
}

/* What the script holds of a call: its error, after a stall. */
static int gate(device *gpu, const char *call) {
    char key[LINE], ignored[LINE];
    unsigned long long code = SUCCESS, driver = 0;
    number("driver", &driver);
    if (strcmp(call, "nvmlInit") && (!initialised || driver != opened)) return UNINITIALIZED;
    snprintf(key, LINE, "stall.%s", call);
    while (gpu ? text_of(gpu, key, ignored) : lookup(key, ignored)) usleep(2000);
    snprintf(key, LINE, "error.%s", call);
    if (number(key, &code)) return (int)code;
    if (gpu && number_of(gpu, key, &code)) return (int)code;
    if (gpu && number_of(gpu, "error", &code)) return (int)code;
    return SUCCESS;
}

/* One number of a GPU, asked by one call. */
static int reading(device *gpu, const char *call, const char *name, unsigned long long *value) {
    int code;
    if (__sync_fetch_and_add(&gpu->busy, 1)) {
        fprintf(stderr, "fake NVML: GPU %d is read twice at a time\n", gpu->index);
        abort();
    }
    code = gate(gpu, call);
    if (!code && !number_of(gpu, name, value)) code = NOT_SUPPORTED;
    __sync_fetch_and_sub(&gpu->busy, 1);
    return code;
}

static int reading32(device *gpu, const char *call, const char *name, unsigned int *value) {
    unsigned long long wide = 0;
    int code = reading(gpu, call, name, &wide);
    *value = (unsigned int)wide;
    return code;
}

int nvmlInitWithFlags(unsigned int flags) {
    int code = gate(NULL, "nvmlInit");
    (void)flags;
    for (int i = 0; i < MOST; i++) {
        gpus[i].index = migs[i].index = i;
        gpus[i].parent = -1;
        migs[i].parent = 0;
    }
    if (!code && !initialised++) {
        opened = 0;
        number("driver", &opened);
    }
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!initialised) return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    unsigned long long wide = 0;
    int code = gate(NULL, "nvmlDeviceGetCount");
    number("count", &wide);
    *count = (unsigned int)wide;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **handle) {
    unsigned long long count = 0;
    number("count", &count);
    if (index >= count) return INVALID_ARGUMENT;
    *handle = &gpus[index];
    return gate(*handle, "nvmlDeviceGetHandleByIndex");
}

int nvmlDeviceGetUUID(device *gpu, char *uuid, unsigned int size) {
    char text[LINE];
    int code = gate(gpu, "nvmlDeviceGetUUID");
    if (!code && !text_of(gpu, "uuid", text)) code = NOT_SUPPORTED;
    if (!code) snprintf(uuid, size, "%s", text);
    return code;
}

int nvmlDeviceGetName(device *gpu, char *name, unsigned int size) {
    char text[LINE];
    int code = gate(gpu, "nvmlDeviceGetName");
    if (!text_of(gpu, "name", text)) strcpy(text, "NVIDIA Fake");
    if (!code) snprintf(name, size, "%s", text);
    return code;
}

int nvmlDeviceGetPciInfo_v3(device *gpu, pci *info) {
    unsigned long long bus = (unsigned long long)gpu->index;
    int code = gate(gpu, "nvmlDeviceGetPciInfo");
    number_of(gpu, "bus", &bus);
    memset(info, 0, sizeof *info);
    info->bus = (unsigned int)bus;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", (unsigned int)bus);
    return code;
}

int nvmlDeviceGetMigMode(device *gpu, unsigned int *now, unsigned int *later) {
    unsigned long long mode = 0;
    if (!number_of(gpu, "mig", &mode)) return NOT_SUPPORTED;
    *now = *later = mode > 0;
    return gate(gpu, "nvmlDeviceGetMigMode");
}
int nvmlDeviceGetMaxMigDeviceCount(device *gpu, unsigned int *count) {
    (void)gpu;
    *count = 7;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, unsigned int index, device **handle) {
    unsigned long long first = 0;
    char ignored[LINE];
    if (!number_of(gpu, "mig", &first)) return NOT_SUPPORTED;
    if (first - 1 + index >= MOST) return NOT_FOUND;
    *handle = &migs[first - 1 + index];
    return text_of(*handle, "uuid", ignored) ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(device *gpu, utilization *rates) {
    rates->memory = 0;
    return reading32(gpu, "nvmlDeviceGetUtilizationRates", "util", &rates->gpu);
}
int nvmlDeviceGetMemoryInfo(device *gpu, memory *info) {
    unsigned long long total = 0;
    number_of(gpu, "memory_total", &total);
    info->total = total;
    info->free = 0;
    return reading(gpu, "nvmlDeviceGetMemoryInfo", "memory", &info->used);
}
int nvmlDeviceGetTemperature(device *gpu, int sensor, unsigned int *degrees) {
    (void)sensor;
    return reading32(gpu, "nvmlDeviceGetTemperature", "temperature", degrees);
}
int nvmlDeviceGetPowerUsage(device *gpu, unsigned int *milliwatts) {
    return reading32(gpu, "nvmlDeviceGetPowerUsage", "power", milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(device *gpu, unsigned int *milliwatts) {
    return reading32(gpu, "nvmlDeviceGetEnforcedPowerLimit", "power_limit", milliwatts);
}
int nvmlDeviceGetClockInfo(device *gpu, int kind, unsigned int *mhz) {
    return kind == 1 ? reading32(gpu, "nvmlDeviceGetClockInfo", "clock", mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(device *gpu, int kind, unsigned int *mhz) {
    return kind == 1 ? reading32(gpu, "nvmlDeviceGetMaxClockInfo", "clock_max", mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device *gpu, unsigned long long *reasons) {
    return reading(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons", "throttle", reasons);
}
int nvmlDeviceGetTotalEccErrors(device *gpu, int kind, int counter, unsigned long long *count) {
    if (kind != 1 || counter != 0) return NOT_SUPPORTED;
    return reading(gpu, "nvmlDeviceGetTotalEccErrors", "ecc", count);
}
int nvmlDeviceGetPcieThroughput(device *gpu, int counter, unsigned int *kib) {
    return reading32(gpu, "nvmlDeviceGetPcieThroughput", counter ? "pcie_rx" : "pcie_tx", kib);
}
int nvmlDeviceGetFieldValues(device *gpu, int count, field *fields) {
    int code = gate(gpu, "nvmlDeviceGetFieldValues");
    for (int i = 0; i < count; i++) {
        const char *name = fields[i].field == 138 ? "nvlink_tx" : fields[i].field == 139 ? "nvlink_rx" : "";
        fields[i].code = NOT_SUPPORTED;
        if (number_of(gpu, name, &fields[i].value.ull)) fields[i].code = SUCCESS;
        fields[i].type = 3;
    }
    return code;
}
/* `process <pid> <bytes>` of a GPU, one. */
int nvmlDeviceGetComputeRunningProcesses_v3(device *gpu, unsigned int *count, process *found) {
    char text[LINE], *rest;
    int code = gate(gpu, "nvmlDeviceGetComputeRunningProcesses");
    if (code) return code;
    if (!text_of(gpu, "process", text)) { *count = 0; return SUCCESS; }
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    memset(found, 0, sizeof *found);
    found->pid = (unsigned int)strtoul(text, &rest, 10);
    found->used = strtoull(rest, NULL, 10);
    return SUCCESS;
}

int nvmlEventSetCreate(int **set) { *set = &events; return gate(NULL, "nvmlEventSetCreate"); }
int nvmlEventSetFree(int *set) { (void)set; return SUCCESS; }
int nvmlDeviceRegisterEvents(device *gpu, unsigned long long kinds, int *set) {
    (void)kinds;
    (void)set;
    return gate(gpu, "nvmlDeviceRegisterEvents");
}
int nvmlEventSetWait_v2(int *set, event *data, unsigned int timeout) {
    char text[LINE];
    int sequence, gpu, code = gate(NULL, "nvmlEventSetWait");
    unsigned long long xid;
    (void)timeout;
    if (code) return code;
    if (!lookup("xid", text) || sscanf(text, "%d %d %llu", &sequence, &gpu, &xid) != 3) return TIMEOUT;
    if (sequence <= *set) return TIMEOUT;
    *set = sequence;
    memset(data, 0, sizeof *data);
    data->device = &gpus[gpu];
    data->type = 8;
    data->data = xid;
    return SUCCESS;
}
