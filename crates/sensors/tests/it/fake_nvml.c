// A driver's library with two cards, the second of which has fallen off the bus.
#include <string.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, LOST = 15, NO_VALUE = -1 };

static char cards[2];

static int lost(void *card) { return card == &cards[1]; }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = &cards[index]; return SUCCESS; }

int nvmlDeviceGetName(void *card, char *name, unsigned length) {
    strncpy(name, lost(card) ? "Lost" : "Made \"Up\" 9000", length);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *card, char *uuid, unsigned length) {
    strncpy(uuid, lost(card) ? "GPU-1" : "GPU-0", length);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *card, Memory *memory) {
    if (lost(card)) return LOST;
    memory->total = 48ull << 30;
    memory->reserved = 1ull << 30;
    memory->used = 41ull << 30;
    memory->free = 6ull << 30;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *card, Utilization *rates) {
    if (lost(card)) return LOST;
    rates->gpu = 87;
    rates->memory = 12;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *card, int sensor, unsigned *degrees) {
    if (lost(card)) return LOST;
    *degrees = 64;
    return SUCCESS;
}

static int list(unsigned *count, Process *processes, const Process *known, unsigned length) {
    if (*count < length) { *count = length; return INSUFFICIENT_SIZE; }
    memcpy(processes, known, length * sizeof(Process));
    *count = length;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *count, Process *processes) {
    static const Process known[] = {
        {77, 1ull << 30, NO_VALUE, NO_VALUE},
        {10, 40ull << 30, NO_VALUE, NO_VALUE},
        {78, ~0ull, NO_VALUE, NO_VALUE},
    };
    return lost(card) ? LOST : list(count, processes, known, 3);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *card, unsigned *count, Process *processes) {
    static const Process known[] = {{77, 2ull << 30, NO_VALUE, NO_VALUE}};
    return lost(card) ? LOST : list(count, processes, known, 1);
}
