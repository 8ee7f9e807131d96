/* Checks that say where and what failed, and a closing summary. C99 and C++17. */
#ifndef CALLGATE_CHECK_H
#define CALLGATE_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "callgate.h"
#include "layout.h"

/* Kept in conformance.c. */
extern int checks_done;
extern int checks_failed;

static inline void check_true(int holds, const char *file, int line, const char *what) {
    checks_done += 1;
    if (!holds) {
        checks_failed += 1;
        printf("%s:%d: failed: %s\n", file, line, what);
    }
}

static inline void check_equal(uintmax_t is, uintmax_t expected, const char *file, int line,
                               const char *what) {
    checks_done += 1;
    if (is != expected) {
        checks_failed += 1;
        printf("%s:%d: failed: %s (%" PRIuMAX " is not %" PRIuMAX ")\n", file, line, what, is,
               expected);
    }
}

#define CHECK(holds) check_true((holds) ? 1 : 0, __FILE__, __LINE__, #holds)
#define EQUAL(is, expected) \
    check_equal((uintmax_t)(is), (uintmax_t)(expected), __FILE__, __LINE__, #is " == " #expected)

/* Outputs are stained before a call that must fail, and must be stained after it. */
static inline void stain(void *place, size_t size) { memset(place, 0xA5, size); }

static inline int is_stained(const void *place, size_t size) {
    const unsigned char *byte = (const unsigned char *)place;
    while (size > 0) {
        size -= 1;
        if (byte[size] != 0xA5) return 0;
    }
    return 1;
}

#define STAIN(place) stain(&(place), sizeof(place))
#define STAINED(place) CHECK(is_stained(&(place), sizeof(place)))

/* A call that must fail with that status and leave an output as it was. */
#define FAILS(call, status, output) \
    do {                            \
        STAIN(output);              \
        EQUAL(call, status);        \
        STAINED(output);            \
    } while (0)

/* The decision's whole content. */
#define DECIDED(decision, reason_, by_, retry_, limit_, remaining_, reset_) \
    do {                                                                    \
        const callgate_decision decided = (decision);                       \
        EQUAL(decided.admitted, (reason_) == CALLGATE_REASON_NONE);         \
        EQUAL(decided.reason, reason_);                                     \
        EQUAL(decided.by, by_);                                             \
        EQUAL(decided.retry_after_ns, retry_);                              \
        EQUAL(decided.limit, limit_);                                       \
        EQUAL(decided.remaining, remaining_);                               \
        EQUAL(decided.reset_after_ns, reset_);                              \
    } while (0)

#define SECOND UINT64_C(1000000000)
#define TIME_LIMIT (UINT64_C(1) << 61)

/* A gate for the checks, in memory of its own, with a canary behind it. */
enum { LIMITS = 4, POLICIES = 6, MEMORY_SIZE = 1 << 15, CANARY = 64 };
enum { PER_CALLER, PER_TOOL, PER_BOTH, SHARED_ONE, THREE_LIMITS, ALL_OFF };

typedef struct world {
    callgate_limit limits[LIMITS];
    callgate_policy policies[POLICIES];
    callgate_config config;
    callgate_gate gate;
    unsigned char buffer[MEMORY_SIZE + CANARY + CALLGATE_ALIGNMENT];
    unsigned char *memory;
    size_t size;
    callgate_key alice, bob, search;
} world;

/* conformance.c */
void world_plan(world *w, unsigned char secret);
void world_open(world *w, unsigned char secret);
callgate_call call_of(uint32_t policy, const callgate_key *caller, const callgate_key *tool);

/* conformance_kinds.c */
void places_and_quotas(void);

/* conformance_errors.c */
void errors_of_pointers(void);
void errors_of_configurations(void);
void errors_of_calls(void);
void errors_of_permits(void);
void errors_of_batches(void);
void errors_have_texts(void);

#endif
