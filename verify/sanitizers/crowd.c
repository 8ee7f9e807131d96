/* Many threads call every function of callgate.h on one gate at once, for a sanitizer to watch; what
 * must add up whatever the order is checked at the end. GNU C11.
 *
 *   crowd THREADS ROUNDS              all of it
 *   crowd THREADS ROUNDS overwrite    while one more thread overwrites the gate's memory: then nothing
 *                                     must add up, but no access may go astray and nobody may hang
 *
 * Compiled with one of these, it does what must be reported:
 *   SEEDED_RACE_OUTPUT    all threads let the library write to one and the same decision
 *   SEEDED_RACE_MEMORY    one thread looks into the gate's memory as if it were its own
 *   SEEDED_OVERFLOW       a buffer is one byte shorter than the library is told
 *   SEEDED_UNDEFINED_C    a signed number overflows in the header's user
 *   SEEDED_UNDEFINED_RUST an array is said to be longer than memory is */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "callgate.h"

enum { RATE, SLOW, PLACES, UNITS, HOSTS, OFF, LIMITS };
enum { ALL, SHARED, QUOTAS, POLICIES };
enum { CALLERS = 40, CAPACITY = 32, SHELVES = 16, BATCH = 3, MOST_PLACES = 3, BURST = 500 };

#define SECOND UINT64_C(1000000000)

static callgate_gate gate;
static unsigned char *memory;
static size_t memory_size;
static int is_overwritten;
static unsigned rounds;
static atomic_int ended;

static atomic_int faults;

/* Permits that any thread may settle beside their owner. */
static _Atomic(callgate_permit *) shelves[SHELVES];

#define HOLDS(what)                                                                 \
    do {                                                                            \
        if (!(what) && !is_overwritten) {                                           \
            atomic_fetch_add_explicit(&faults, 1, memory_order_relaxed);                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);      \
        }                                                                           \
    } while (0)

/* Asked for by the standard library's `core`, which was built to unwind; nothing here does. */
void rust_eh_personality(void);
void rust_eh_personality(void) { abort(); }

/* The linker puts this in the place of the library's panic handler, which would loop for ever. */
void callgate_panicked(void);
void callgate_panicked(void) {
    fprintf(stderr, "the library panicked\n");
    abort();
}

/* What one thread does. It shares as little as can be with others, since whatever orders threads hides
 * their races from the sanitizer. */
typedef struct person {
    unsigned number;
    uint64_t random;
    callgate_permit *permits;
    size_t permit_count;
    uint64_t admitted[POLICIES], refused[POLICIES], cancelled, held, settled;
} person;

static uint64_t any(person *p, uint64_t below) {
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return p->random % below;
}

/* The gate's clocks, for the functions that take a time. */
static uint64_t read_clock(clockid_t clock) {
    struct timespec spec;
    clock_gettime(clock, &spec);
    return (uint64_t)spec.tv_sec * SECOND + (uint64_t)spec.tv_nsec;
}

static uint64_t now(void) { return read_clock(CLOCK_BOOTTIME); }
static uint64_t wall(void) { return read_clock(CLOCK_REALTIME); }

static callgate_key key(uint32_t domain, uint64_t number) {
    callgate_key made = {0, 0};
    HOLDS(callgate_key_make(&gate, domain, &number, sizeof number, &made) == CALLGATE_OK);
    return made;
}

static callgate_call call(person *p, uint32_t policy) {
    callgate_call made = {.struct_size = sizeof made, .policy = policy, .cost = 1, .reserve = 2};
    made.caller = key(CALLGATE_DOMAIN_CALLER, any(p, CALLERS));
    made.tool = key(CALLGATE_DOMAIN_TOOL, any(p, 3));
    return made;
}

static void settle(person *p, callgate_permit *permit) {
    uint32_t outcome = 1 + (uint32_t)any(p, 4);
    callgate_status status;
    status = any(p, 2) ? callgate_settle(&gate, permit, outcome, any(p, 5))
                       : callgate_settle_at(&gate, permit, outcome, any(p, 5), now(), wall());
    HOLDS(status == CALLGATE_OK || status == CALLGATE_ALREADY_SETTLED);
    if (status == CALLGATE_OK) {
        p->settled += 1;
        p->cancelled += outcome == CALLGATE_OUTCOME_CANCELLED;
    }
}

static void note(person *p, uint32_t policy, const callgate_decision *decision) {
    HOLDS(decision->admitted == (decision->reason == CALLGATE_REASON_NONE));
    HOLDS(decision->reason <= CALLGATE_REASON_NEVER);
    *(decision->admitted ? &p->admitted[policy] : &p->refused[policy]) += 1;
}

static void admit(person *p) {
    uint32_t policy = (uint32_t)any(p, POLICIES);
    callgate_call made = call(p, policy);
    callgate_permit *permit = &p->permits[p->permit_count];
#ifdef SEEDED_RACE_OUTPUT
    static callgate_decision decision;
#else
    callgate_decision decision;
#endif
    callgate_status status = any(p, 2)
                                 ? callgate_admit(&gate, &made, permit, &decision)
                                 : callgate_admit_at(&gate, &made, now(), wall(), permit, &decision);
    HOLDS(status == CALLGATE_OK);
    if (status != CALLGATE_OK) return;
    note(p, policy, &decision);
    if (decision.admitted) {
        p->permit_count += 1;
        p->held += 1;
        atomic_store_explicit(&shelves[any(p, SHELVES)], permit, memory_order_release);
        if (any(p, 2)) settle(p, permit);
    }
}

static void admit_many(person *p) {
    callgate_call calls[BATCH];
    callgate_decision decisions[BATCH];
    callgate_permit *permits = &p->permits[p->permit_count];
    callgate_status status;
    size_t count = BATCH, n;
    for (n = 0; n < BATCH; n += 1) calls[n] = call(p, SHARED);
#ifdef SEEDED_UNDEFINED_RUST
    count = SIZE_MAX / sizeof calls[0];
#endif
    status = any(p, 2) ? callgate_admit_many(&gate, calls, count, permits, decisions)
                       : callgate_admit_many_at(&gate, calls, count, now(), wall(), permits, decisions);
    HOLDS(status == CALLGATE_OK);
    if (status != CALLGATE_OK) return;
    for (n = 0; n < BATCH; n += 1) {
        note(p, SHARED, &decisions[n]);
        if (decisions[n].admitted) {
            p->held += 1;
            settle(p, &permits[n]);
        }
    }
    p->permit_count += BATCH;
}

static void look(person *p) {
    callgate_call made = call(p, (uint32_t)any(p, POLICIES));
    callgate_decision decisions[CALLGATE_MAX_RULES];
    size_t count = 0;
    HOLDS(callgate_peek(&gate, &made, decisions, &count) == CALLGATE_OK && count > 0);
    HOLDS(callgate_peek_at(&gate, &made, now(), wall(), decisions, &count) == CALLGATE_OK);
}

static void settle_anothers(person *p) {
    size_t shelf = any(p, SHELVES);
    callgate_permit *permit = atomic_load_explicit(&shelves[shelf], memory_order_acquire);
    if (permit) settle(p, permit);
}

static void tell(person *p) {
    callgate_key caller = key(CALLGATE_DOMAIN_CALLER, any(p, CALLERS));
    uint32_t scope = CALLGATE_SCOPE_CALLER;
    uint64_t today = wall() / SECOND / 86400 * 86400;
    callgate_status status = callgate_seed(&gate, UNITS, scope, &caller, NULL, 1);
    HOLDS(status == CALLGATE_OK || status == CALLGATE_ALREADY_SEEDED || status == CALLGATE_TABLE_FULL);
    status = callgate_seed_at(&gate, HOSTS, scope, &caller, NULL, 1, now(), wall());
    HOLDS(status == CALLGATE_OK || status == CALLGATE_ALREADY_SEEDED || status == CALLGATE_TABLE_FULL);
    HOLDS(callgate_window_set(&gate, HOSTS, today + any(p, 9), today + 86400) == CALLGATE_OK);
}

static void report(person *p) {
    callgate_stats stats;
    callgate_guards guards;
    callgate_decisions decisions;
    char text[16384];
    size_t needed = 0;
    HOLDS(callgate_stats_get(&gate, &stats) == CALLGATE_OK);
    HOLDS(callgate_stats_get_at(&gate, now(), wall(), &stats) == CALLGATE_OK);
    HOLDS(callgate_guards_get(&gate, PLACES, &guards) == CALLGATE_OK);
    HOLDS(callgate_guards_get_at(&gate, PLACES, now(), wall(), &guards) == CALLGATE_OK);
    HOLDS(callgate_decisions_get(&gate, (uint32_t)any(p, POLICIES), &decisions) == CALLGATE_OK);
    HOLDS(callgate_metrics(&gate, NULL, NULL, text, sizeof text, &needed) == CALLGATE_OK);
    HOLDS(callgate_metrics_at(&gate, NULL, NULL, text, sizeof text, &needed, now(), wall()) ==
          CALLGATE_OK);
#ifdef SEEDED_OVERFLOW
    char *buffer = (char *)malloc(needed - 1);
    callgate_metrics(&gate, NULL, NULL, buffer, needed, &needed);
    free(buffer);
#endif
#ifdef SEEDED_UNDEFINED_C
    volatile int most = INT32_MAX;
    most = most + (int)needed;
#endif
#ifdef SEEDED_RACE_MEMORY
    uint64_t sum = 0;
    for (size_t n = 0; n < memory_size; n += 8) sum += *(const volatile uint64_t *)(memory + n);
    if (sum == 1) puts("");
#endif
}

/* Of the first thread only: a limit is not reconfigured by two at once. */
static void reconfigure(person *p) {
    callgate_limit to = {.kind = CALLGATE_KIND_RATE, .period_ns = SECOND, .burst = 20};
    to.count = 10 + any(p, 1000);
    HOLDS(callgate_reconfigure(&gate, RATE, &to) == CALLGATE_OK);
    HOLDS(callgate_reconfigure_at(&gate, RATE, &to, now(), wall()) == CALLGATE_OK);
    to.count = 0;
    HOLDS(callgate_reconfigure(&gate, RATE, &to) == CALLGATE_CONFIG_COUNT);
    HOLDS(callgate_strerror(CALLGATE_CONFIG_COUNT) && callgate_error_field(CALLGATE_CONFIG_COUNT));
    HOLDS(callgate_version() == CALLGATE_VERSION && callgate_is_lock_free() <= 1);
}

static void *take_part(void *of) {
    person *p = (person *)of;
    unsigned round;
    size_t n;
    for (round = 0; round < rounds; round += 1) {
        switch (any(p, 8)) {
            case 0: admit_many(p); break;
            case 1: look(p); break;
            case 2: settle_anothers(p); break;
            case 3: if (round % 4 == 0) tell(p); break;
            case 4: if (round % 16 == 0) report(p); break;
            case 5: if (p->number == 0) reconfigure(p); break;
            default: admit(p); break;
        }
    }
    for (n = 0; n < p->permit_count; n += 1) settle(p, &p->permits[n]);
    return NULL;
}

static void *overwrite(void *of) {
    person *p = (person *)of;
    while (!atomic_load(&ended)) {
        size_t at = any(p, memory_size), count = 1 + any(p, 64);
        count = count < memory_size - at ? count : memory_size - at;
        if (any(p, 64) == 0) at = 0, count = memory_size;
        for (; count > 0; count -= 1, at += 1) {
            ((volatile unsigned char *)memory)[at] = (unsigned char)(any(p, 2) ? any(p, 256) : 0xFF);
        }
    }
    return NULL;
}

static void open_gate(void) {
    callgate_limit limits[LIMITS] = {
        [RATE] = {.kind = CALLGATE_KIND_RATE, .count = 1000, .period_ns = SECOND, .burst = 20},
        /* Gives nothing back while this runs. */
        [SLOW] = {.kind = CALLGATE_KIND_RATE, .count = 1, .period_ns = UINT64_C(1) << 52, .burst = BURST},
        [PLACES] = {.kind = CALLGATE_KIND_CONCURRENCY, .max_in_flight = MOST_PLACES,
                    .lease_ns = 86400 * SECOND, .reject_trip = 60, .failure_trip = 5,
                    .cooldown_ns = SECOND / 1000, .half_open_probes = 2},
        [UNITS] = {.kind = CALLGATE_KIND_QUOTA, .limit = 100000, .period_s = UINT64_C(1) << 33},
        [HOSTS] = {.kind = CALLGATE_KIND_QUOTA, .limit = 100000},
        [OFF] = {.kind = CALLGATE_KIND_OFF},
    };
    callgate_policy policies[POLICIES] = {
        [ALL] = {.rule_count = 3, .rules = {{RATE, CALLGATE_SCOPE_CALLER_TOOL},
                                            {OFF, CALLGATE_SCOPE_CALLER},
                                            {PLACES, CALLGATE_SCOPE_SHARED}}},
        [SHARED] = {.rule_count = 1, .rules = {{SLOW, CALLGATE_SCOPE_SHARED}}},
        [QUOTAS] = {.rule_count = 2, .rules = {{UNITS, CALLGATE_SCOPE_CALLER},
                                               {HOSTS, CALLGATE_SCOPE_CALLER}}},
    };
    callgate_config config = {.struct_size = sizeof config, .capacity = CAPACITY,
                              .secret = "sixteen random b", .limit_count = LIMITS,
                              .policy_count = POLICIES, .limits = limits, .policies = policies};
    callgate_fault fault;
    HOLDS(callgate_check(&config, &fault) == CALLGATE_OK && fault.status == CALLGATE_OK);
    HOLDS(callgate_size(&config, &memory_size) == CALLGATE_OK);
    memory = (unsigned char *)aligned_alloc(CALLGATE_ALIGNMENT, memory_size);
    HOLDS(callgate_init(memory, memory_size, &config, &gate) == CALLGATE_OK);
}

static void join(person *all, const person *p) {
    for (uint32_t policy = 0; policy < POLICIES; policy += 1) {
        all->admitted[policy] += p->admitted[policy];
        all->refused[policy] += p->refused[policy];
    }
    all->cancelled += p->cancelled;
    all->held += p->held;
    all->settled += p->settled;
}

/* What must be so once nobody calls any more. */
static void add_up(const person *all) {
    uint32_t policy;
    callgate_guards guards;
    callgate_stats stats;
    for (policy = 0; policy < POLICIES; policy += 1) {
        callgate_decisions counted;
        unsigned long long sum = 0;
        HOLDS(callgate_decisions_get(&gate, policy, &counted) == CALLGATE_OK);
        for (size_t n = 0; n < CALLGATE_MAX_RULES * 8; n += 1) sum += counted.refused[n / 8][n % 8];
        HOLDS(counted.admitted == all->admitted[policy]);
        HOLDS(sum == all->refused[policy]);
    }
    HOLDS(all->admitted[ALL] > 0 && all->refused[ALL] > 0);
    HOLDS(all->admitted[SHARED] <= BURST + all->cancelled);
    HOLDS(all->admitted[SHARED] >= BURST || rounds < 1000);
    HOLDS(all->held == all->settled);
    HOLDS(callgate_guards_get(&gate, PLACES, &guards) == CALLGATE_OK && guards.in_flight == 0);
    HOLDS(callgate_stats_get(&gate, &stats) == CALLGATE_OK && stats.claimed == 0);
    HOLDS(stats.slots == stats.live + stats.at_rest + stats.empty);
}

int main(int argc, char **argv) {
    unsigned count = argc > 2 ? (unsigned)atoi(argv[1]) : 0, n;
    pthread_t threads[65];
    static person people[65], all;
    rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (count < 1 || count > 64 || rounds < 1) {
        fprintf(stderr, "usage: crowd THREADS ROUNDS [overwrite]\n");
        return 2;
    }
    open_gate();
    is_overwritten = argc > 3 && strcmp(argv[3], "overwrite") == 0;
    for (n = 0; n <= count; n += 1) {
        people[n].number = n;
        people[n].random = UINT64_C(0x9e3779b97f4a7c15) * (n + 1);
        people[n].permits = (callgate_permit *)calloc((size_t)(rounds + 1) * BATCH, sizeof *people[n].permits);
    }
    for (n = 0; n < count; n += 1) pthread_create(&threads[n], NULL, take_part, &people[n]);
    if (is_overwritten) pthread_create(&threads[count], NULL, overwrite, &people[count]);
    for (n = 0; n < count; n += 1) pthread_join(threads[n], NULL);
    atomic_store(&ended, 1);
    if (is_overwritten) pthread_join(threads[count], NULL);
    for (n = 0; n < count; n += 1) join(&all, &people[n]);
    add_up(&all);
    for (n = 0; n <= count; n += 1) free(people[n].permits);
    free(memory);
    printf("crowd: %u threads, %u rounds each, %llu permits, %d faults\n", count, rounds,
           (unsigned long long)all.held, atomic_load(&faults));
    return atomic_load(&faults) == 0 ? 0 : 1;
}
