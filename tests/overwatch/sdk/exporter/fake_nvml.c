/* A libnvidia-ml.so with two GPUs, enough for the sampler. The second has no power reading. */

#include <stddef.h>

typedef struct { int index; } device;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

static device devices[2] = {{0}, {1}};

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "fake error"; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **handle) {
    if (index > 1) return INVALID_ARGUMENT;
    *handle = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device *handle, utilization *rates) {
    rates->gpu = handle->index ? 100 : 37;
    rates->memory = 5;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device *handle, memory *info) {
    (void)handle;
    info->total = 16ull << 30;
    info->used = 4ull << 30;
    info->free = 12ull << 30;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(device *handle, int sensor, unsigned int *degrees) {
    (void)sensor;
    *degrees = handle->index ? 81 : 60;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(device *handle, unsigned int *milliwatts) {
    if (handle->index) return NOT_SUPPORTED;
    *milliwatts = 250500;
    return SUCCESS;
}
