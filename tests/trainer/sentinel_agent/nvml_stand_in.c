/* The calls of NVIDIA's management library that one reading needs, for one device; an old driver, without a name. */
#include <string.h>

typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;

int nvmlInitWithFlags(unsigned int flags) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "stand-in"; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) { *handle = (void *)1; return index ? 2 : 0; }
int nvmlDeviceGetUtilizationRates(void *handle, nvmlUtilization_t *found) { found->gpu = 87; found->memory = 40; return 0; }
int nvmlDeviceGetMemoryInfo(void *handle, nvmlMemory_t *found) {
    found->total = 80ULL << 30; found->used = 60ULL << 30; found->free = 20ULL << 30; return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) { *milliwatts = 412500; return 0; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) { return 3; /* not supported */ }
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) { strncpy(uuid, "GPU-stand-in", length); return 0; }
