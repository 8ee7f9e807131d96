/* Which of the system's clocks are read when, and what happens when they can't be: this program
 * brings the C library's function that reads them. C99 and C++17. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "check.h"

int checks_done;
int checks_failed;

/* The system's clocks, in this program: both stand still, unless it is their turn to fail. */
static int monotonic_reads, wall_reads, is_broken;

#ifdef __cplusplus
extern "C"
#endif
int clock_gettime(clockid_t clock, struct timespec *spec) {
    *(clock == CLOCK_REALTIME ? &wall_reads : &monotonic_reads) += 1;
    spec->tv_sec = 1000;
    spec->tv_nsec = 0;
    return is_broken ? -1 : 0;
}

/* Since it was asked the last time. */
#define READ(monotonic, wall)              \
    do {                                   \
        EQUAL(monotonic_reads, monotonic); \
        EQUAL(wall_reads, wall);           \
        monotonic_reads = wall_reads = 0;  \
    } while (0)

enum { RATE, PLACES, UNITS };

/* A policy for each limit. Without a quota where there are but two limits. */
static void open_world(world *w, uint32_t limit_count) {
    memset(w, 0, sizeof *w);
    w->limits[RATE].kind = CALLGATE_KIND_RATE;
    w->limits[RATE].count = 1;
    w->limits[RATE].period_ns = SECOND;
    w->limits[RATE].burst = 5;
    w->limits[PLACES].kind = CALLGATE_KIND_CONCURRENCY;
    w->limits[PLACES].max_in_flight = 2;
    w->limits[PLACES].lease_ns = 60 * SECOND;
    w->limits[PLACES].failure_trip = 1;
    w->limits[PLACES].cooldown_ns = 5 * SECOND;
    w->limits[UNITS].kind = CALLGATE_KIND_QUOTA;
    w->limits[UNITS].limit = 100;
    w->limits[UNITS].period_s = 86400;
    for (uint32_t n = 0; n < limit_count; n++) {
        w->policies[n].rule_count = 1;
        w->policies[n].rules[0].limit = n;
        w->policies[n].rules[0].scope = CALLGATE_SCOPE_SHARED;
    }
    w->config.struct_size = sizeof w->config;
    w->config.capacity = 10;
    memset(w->config.secret, 1, sizeof w->config.secret);
    w->config.limit_count = w->config.policy_count = limit_count;
    w->config.limits = w->limits;
    w->config.policies = w->policies;
    w->memory = w->buffer;
    while ((uintptr_t)w->memory % CALLGATE_ALIGNMENT != 0) w->memory += 1;
    EQUAL(callgate_init(w->memory, MEMORY_SIZE, &w->config, &w->gate), CALLGATE_OK);
    READ(0, 0);
}

static callgate_call usual_call(uint32_t policy) {
    callgate_call call;
    memset(&call, 0, sizeof call);
    call.struct_size = sizeof call;
    call.policy = policy;
    call.cost = call.reserve = 1;
    return call;
}

/* How many tokens there are, and how many calls in flight. */
static void holds(world *w, uint64_t tokens, uint64_t in_flight) {
    const uint64_t now_ns = 1000 * SECOND;
    callgate_call call = usual_call(RATE);
    callgate_decision decisions[CALLGATE_MAX_RULES];
    callgate_guards guards;
    size_t count;
    call.cost = 0;
    EQUAL(callgate_peek_at(&w->gate, &call, now_ns, now_ns, decisions, &count), CALLGATE_OK);
    EQUAL(decisions[0].remaining, tokens);
    EQUAL(callgate_guards_get_at(&w->gate, PLACES, now_ns, now_ns, &guards), CALLGATE_OK);
    EQUAL(guards.in_flight, in_flight);
}

static void admit(world *w, uint32_t policy, callgate_permit *permit) {
    callgate_call call = usual_call(policy);
    callgate_decision decision;
    EQUAL(callgate_admit(&w->gate, &call, permit, &decision), CALLGATE_OK);
    EQUAL(decision.admitted, 1);
}

static void each_clock_is_read_where_it_is_needed(void) {
    static world w;
    callgate_permit permit;
    for (uint32_t limit_count = 2; limit_count <= 3; limit_count++) {
        open_world(&w, limit_count);
        for (uint32_t policy = 0; policy < limit_count; policy++) {
            admit(&w, policy, &permit);
            READ(1, policy == UNITS);
            EQUAL(callgate_settle(&w.gate, &permit, CALLGATE_OUTCOME_SUCCESS, 1), CALLGATE_OK);
            READ(policy == PLACES, 0);
        }
        admit(&w, RATE, &permit);
        READ(1, 0);
        EQUAL(callgate_settle(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_OK);
        READ(1, 0);
        EQUAL(callgate_settle(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_ALREADY_SETTLED);
        READ(0, 0);
    }
}

static void without_a_clock_nothing_is_decided_and_everything_is_settled(void) {
    static world w;
    callgate_permit paid, held, again;
    callgate_decision decision;
    callgate_call call = usual_call(RATE);
    open_world(&w, 3);
    admit(&w, RATE, &paid);
    admit(&w, PLACES, &held);
    is_broken = 1;
    FAILS(callgate_admit(&w.gate, &call, &again, &decision), CALLGATE_CLOCK_FAILED, decision);
    holds(&w, 4, 1);
    EQUAL(callgate_settle(&w.gate, &paid, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_OK);
    EQUAL(callgate_settle(&w.gate, &held, CALLGATE_OUTCOME_SUCCESS, 0), CALLGATE_OK);
    holds(&w, 5, 0);
    /* The breaker opens at the time of the call, which is the latest that is known. */
    is_broken = 0;
    admit(&w, PLACES, &held);
    is_broken = 1;
    EQUAL(callgate_settle(&w.gate, &held, CALLGATE_OUTCOME_FAILURE, 0), CALLGATE_OK);
    is_broken = 0;
    call.policy = PLACES;
    EQUAL(callgate_admit(&w.gate, &call, &again, &decision), CALLGATE_OK);
    DECIDED(decision, CALLGATE_REASON_BREAKER_OPEN, PLACES, 5 * SECOND, 2, 2, 0);
}

int main(void) {
    each_clock_is_read_where_it_is_needed();
    without_a_clock_nothing_is_decided_and_everything_is_settled();
    printf("clock: %d checks, %d failed\n", checks_done, checks_failed);
    return checks_failed == 0 ? 0 : 1;
}
