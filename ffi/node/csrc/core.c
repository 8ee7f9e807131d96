/* Cores: all those of this process, by id. */
#include "engine.h"

#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Core *first = NULL;

/* Makes a finished core known to other threads. */
Core *core_add(Core *core) {
    pthread_mutex_lock(&lock);
    core->references = 1;
    core->next = first;
    first = core;
    pthread_mutex_unlock(&lock);
    return core;
}

/* The core of that id with a reference to it, or NULL where it is gone or was never here. */
Core *core_find(const uint8_t *id) {
    pthread_mutex_lock(&lock);
    Core *core = first;
    while (core != NULL && memcmp(core->id, id, ID_SIZE) != 0) core = core->next;
    if (core != NULL) core->references++;
    pthread_mutex_unlock(&lock);
    return core;
}

/* Replaces a description by that one, which becomes the core's. */
void core_describe(Core *core, uint32_t n, char *description) {
    pthread_mutex_lock(&lock);
    char *old = core->descriptions[n];
    core->descriptions[n] = description;
    pthread_mutex_unlock(&lock);
    free(old);
}

/* A copy of a description, to be freed; NULL where there is none. */
char *core_description(Core *core, uint32_t n) {
    pthread_mutex_lock(&lock);
    const char *description = core->descriptions[n];
    char *copy = description == NULL ? NULL : strdup(description);
    pthread_mutex_unlock(&lock);
    return copy;
}

void core_release(Core *core) {
    pthread_mutex_lock(&lock);
    unsigned left = --core->references;
    if (left == 0) {
        Core **link = &first;
        while (*link != core) link = &(*link)->next;
        *link = core->next;
    }
    pthread_mutex_unlock(&lock);
    if (left == 0) core_free(core);
}

/* Also of one that is half made. */
void core_free(Core *core) {
    if (core->memory != NULL) munmap(core->memory, core->size);
    for (int n = 0; n < LIMITS_MAX; n++) free(core->limit_names[n]);
    for (int n = 0; n < POLICIES_MAX; n++) free(core->policy_names[n]);
    for (int n = 0; n <= LIMITS_MAX; n++) free(core->descriptions[n]);
    pthread_mutex_destroy(&core->changing);
    free(core);
}
