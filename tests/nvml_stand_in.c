/* NVIDIA's management library as a scenario says.
 *
 * NVML_SCENARIO names a file of lines "KEY VALUE", read anew at each call, so that whoever writes it drives the devices
 * over time. A key is "devices", "init", or a device's index and a name such as "0.power". A value is a number or text;
 * "error N" makes the call return N; "hang" makes it wait until the line has changed. What has no line is not supported.
 * "event.N DEVICE XID" is the N-th event. Compiled with OLD_DRIVER it lacks what drivers before 535 lacked, and more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, IS_LOST = 15 };

typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct {
    void *device; unsigned long long eventType, eventData; unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

static int find(const char *key, char *value) {
    char line[256], found[128];
    int known = 0, offset = 0;
    const char *path = getenv("NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && !known && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %n", found, &offset) == 1 && !strcmp(found, key)) {
            line[strcspn(line, "\n")] = 0;
            strcpy(value, line + offset);
            known = 1;
        }
    if (file) fclose(file);
    return known;
}

/* The value's text; hangs while the scenario says so. */
static int ask(const char *key, char *value) {
    int known, code;
    while ((known = find(key, value)) && !strcmp(value, "hang")) usleep(5000);
    if (!known) return NOT_SUPPORTED;
    return sscanf(value, "error %d", &code) == 1 ? code : SUCCESS;
}

static int ask_device(void *handle, const char *name, char *value) {
    char key[64];
    int index = (int)(size_t)handle - 1, code;
    snprintf(key, sizeof key, "%d.all", index);
    if ((code = ask(key, value)) != NOT_SUPPORTED) return code;
    snprintf(key, sizeof key, "%d.%s", index, name);
    return ask(key, value);
}

static int number(void *handle, const char *name, unsigned long long *found) {
    char value[256];
    int code = ask_device(handle, name, value);
    if (!code) *found = strtoull(value, NULL, 0);
    return code;
}

static int small(void *handle, const char *name, unsigned int *found) {
    unsigned long long wide = 0;
    int code = number(handle, name, &wide);
    if (!code) *found = (unsigned int)wide;
    return code;
}

static int text(void *handle, const char *name, char *found, unsigned int length) {
    char value[256];
    int code = ask_device(handle, name, value);
    if (!code) strncpy(found, value, length);
    return code;
}

const char *nvmlErrorString(int code) {
    return code == IS_LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : "stand-in error";
}
int nvmlInitWithFlags(unsigned int flags) { char value[256]; int code = ask("init", value); return code == NOT_SUPPORTED ? 0 : code; }
int nvmlDeviceGetCount_v2(unsigned int *count) {
    char value[256];
    int code = ask("devices", value);
    if (!code) *count = (unsigned int)atoi(value);
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    unsigned int count = 0;
    int code = nvmlDeviceGetCount_v2(&count);
    *handle = (void *)(size_t)(index + 1);
    return code ? code : index < count ? SUCCESS : INVALID_ARGUMENT;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    unsigned int count = 0;
    char found[256];
    nvmlDeviceGetCount_v2(&count);
    for (size_t index = 1; index <= count; index++)
        if (!text((void *)index, "uuid", found, sizeof found) && !strcmp(found, uuid)) { *handle = (void *)index; return 0; }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) { return text(handle, "uuid", uuid, length); }
int nvmlDeviceGetUtilizationRates(void *handle, nvmlUtilization_t *found) {
    found->memory = 0;
    return small(handle, "utilization", &found->gpu);
}
int nvmlDeviceGetMemoryInfo(void *handle, nvmlMemory_t *found) {
    int code = number(handle, "memory_used", &found->used);
    return code ? code : number(handle, "memory_total", &found->total);
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned int *found) { return small(handle, "power", found); }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *found) { return small(handle, "temperature", found); }
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned int *found) { return small(handle, "clock", found); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *found) { return number(handle, "throttle", found); }
int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *found) { return number(handle, "ecc", found); }

#ifndef OLD_DRIVER
int nvmlDeviceGetName(void *handle, char *name, unsigned int length) { return text(handle, "name", name, length); }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *found) { return number(handle, "throttle", found); }
int nvmlDeviceGetRemappedRows(void *handle, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed) {
    int code = small(handle, "remap_pending", pending);
    *corrected = *uncorrected = 0;
    return code ? code : small(handle, "remap_failed", failed);
}
int nvmlEventSetCreate(void **set) { *set = calloc(2, sizeof(unsigned long long)); return 0; }
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, unsigned long long *set) {
    set[0] |= 1ULL << ((size_t)handle - 1);
    return types == 8 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(unsigned long long *set, nvmlEventData_t *found, unsigned int milliseconds) {
    for (unsigned int waited = 0; waited <= milliseconds; waited += 5, usleep(5000)) {
        char key[64], value[256];
        unsigned int device, xid;
        int code;
        if (!find("event.wait", value) || sscanf(value, "error %d", &code) != 1) code = SUCCESS;
        if (code) return code;
        snprintf(key, sizeof key, "event.%llu", set[1] + 1);
        if (!find(key, value) || sscanf(value, "%u %u", &device, &xid) != 2) continue;
        set[1]++;
        if (!(set[0] >> device & 1)) continue;
        memset(found, 0, sizeof *found);
        found->device = (void *)(size_t)(device + 1);
        found->eventType = 8;
        found->eventData = xid;
        return SUCCESS;
    }
    return TIMEOUT;
}
#endif
