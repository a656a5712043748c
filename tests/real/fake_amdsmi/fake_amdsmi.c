/* AMD's library with one MI300X, as the header of 7.0 has it; what a test does not need is a stub beside this. */
#include <stdint.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 2 };
#define GIB (1ull << 30)
#define NONE 0xFFFFFFFFu

static int gpu, socket_of_it;

uint32_t amdsmi_init(uint64_t flags) { return flags == 2 ? OK : NOT_SUPPORTED; }
uint32_t amdsmi_shut_down(void) { return OK; }

static uint32_t one(uint32_t *count, void **handles, void *handle) {
    if (handles) handles[0] = handle;
    *count = 1;
    return OK;
}
uint32_t amdsmi_get_socket_handles(uint32_t *count, void **handles) { return one(count, handles, &socket_of_it); }
uint32_t amdsmi_get_processor_handles(void *of, uint32_t *count, void **handles) {
    return of == &socket_of_it ? one(count, handles, &gpu) : NOT_SUPPORTED;
}
uint32_t amdsmi_get_gpu_device_uuid(void *of, uint32_t *length, char *uuid) {
    (void)of;
    strncpy(uuid, "4dff74a1-0000-1000-80d2-0123456789ab", *length);
    return OK;
}
uint32_t amdsmi_get_gpu_device_bdf(void *of, uint64_t *bdf) {
    (void)of;
    *bdf = 0xC1ull << 8; /* function 3 bits, device 5, bus 8, domain 48 */
    return OK;
}
struct numbers {
    uint32_t drm_render, drm_card, hsa_id, hip_id;
    char hip_uuid[256];
};
uint32_t amdsmi_get_gpu_enumeration_info(void *of, struct numbers *info) {
    (void)of;
    *info = (struct numbers){128, 1, 4, 0, "GPU-60ff61d9a2b3c4e5"};
    return OK;
}
uint32_t amdsmi_get_gpu_asic_info(void *of, char *info) {
    (void)of;
    strcpy(info, "AMD Instinct MI300X");
    return OK;
}
uint32_t amdsmi_get_gpu_activity(void *of, uint32_t *usage) {
    (void)of;
    usage[0] = 37, usage[1] = 5, usage[2] = 0xFFFF;
    return OK;
}
struct power {
    uint64_t socket_power;
    uint32_t current, average;
};
uint32_t amdsmi_get_power_info(void *of, struct power *power) {
    (void)of;
    *power = (struct power){250, 0xFFFF, 251};
    return OK;
}
uint32_t amdsmi_get_power_cap_info(void *of, uint32_t sensor, uint64_t *cap) {
    (void)of, (void)sensor;
    cap[0] = 750000000;
    return OK;
}
uint32_t amdsmi_get_clock_info(void *of, uint32_t kind, uint32_t *clock) {
    (void)of;
    if (kind) return NOT_SUPPORTED;
    clock[0] = 1200, clock[1] = 500, clock[2] = NONE;
    return OK;
}
uint32_t amdsmi_get_temp_metric(void *of, uint32_t sensor, uint32_t metric, int64_t *celsius) {
    (void)of, (void)metric;
    if (sensor != 1) return NOT_SUPPORTED; /* the hottest spot only */
    *celsius = 60;
    return OK;
}
uint32_t amdsmi_get_gpu_memory_total(void *of, uint32_t kind, uint64_t *bytes) {
    (void)of;
    *bytes = 192 * GIB;
    return kind ? NOT_SUPPORTED : OK;
}
uint32_t amdsmi_get_gpu_memory_usage(void *of, uint32_t kind, uint64_t *bytes) {
    (void)of;
    *bytes = 4 * GIB;
    return kind ? NOT_SUPPORTED : OK;
}
struct process {
    char name[256];
    uint32_t pid;
    uint64_t mem, engine_usage[8], gtt_mem, cpu_mem, vram_mem;
};
uint32_t amdsmi_get_gpu_process_list(void *of, uint32_t *most, struct process *found) {
    (void)of;
    found->pid = 4711, found->mem = 2 * GIB, found->vram_mem = GIB;
    *most = 1;
    return OK;
}
