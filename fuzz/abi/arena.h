/* Memory for one gate at a time, between pages that nobody may touch. It ends where the page behind
 * it begins; what lies before it up to the page in front is stained, and looked at afterwards. */
#ifndef CALLGATE_FUZZ_ARENA_H
#define CALLGATE_FUZZ_ARENA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA_SIZE = 1 << 16, ARENA_PAGE = 4096, ARENA_STAIN = 0xA5 };

static unsigned char *arena_start(void) {
    static unsigned char *start;
    if (start == NULL) {
        unsigned char *all = (unsigned char *)mmap(NULL, ARENA_SIZE + 2 * ARENA_PAGE, PROT_NONE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        start = all + ARENA_PAGE;
        if (all == MAP_FAILED || mprotect(start, ARENA_SIZE, PROT_READ | PROT_WRITE) != 0) {
            perror("mmap");
            exit(2);
        }
    }
    return start;
}

/* The last `size` bytes, a multiple of 32; all of it stained. */
static unsigned char *arena_take(size_t size) {
    memset(arena_start(), ARENA_STAIN, ARENA_SIZE);
    return arena_start() + ARENA_SIZE - size;
}

/* Whether what lies before the last `size` bytes is as `arena_take` left it. */
static int arena_is_intact(size_t size) {
    static unsigned char stained[ARENA_SIZE];
    if (stained[0] != ARENA_STAIN) memset(stained, ARENA_STAIN, sizeof stained);
    return memcmp(arena_start(), stained, ARENA_SIZE - size) == 0;
}

#endif
