/* What Go calls: the library, and what spares a second crossing. */
#ifndef CALLGATE_CROSSING_H
#define CALLGATE_CROSSING_H

#if defined(CALLGATE_SYSTEM)
#include <callgate.h>
#elif defined(__has_include) && !__has_include("library.h")
#error "the callgate library is not built: run ffi/go/build.sh in a clone (it needs cargo), or build with -tags callgate_system where pkg-config knows callgate"
#else
#include "library.h"
#endif

/* A time of the caller's, or the system's clock. */
typedef struct {
    uint64_t now_ns;
    uint64_t unix_ns;
    uint32_t is_given;
} crossing_time;

/* Where the identities of one call of a batch lie among the bytes of all. */
typedef struct {
    uint64_t caller_start;
    uint64_t caller_size; /* 0: the key in the call holds */
    uint64_t tool_start;
    uint64_t tool_size;
} crossing_names;

static inline callgate_status crossing_keys(const callgate_gate *gate, callgate_call *call,
                                            const char *caller, size_t caller_size,
                                            const char *tool, size_t tool_size) {
    callgate_status status = CALLGATE_OK;
    if (caller_size != 0) {
        status = callgate_key_make(gate, CALLGATE_DOMAIN_CALLER, caller, caller_size, &call->caller);
    }
    if (status == CALLGATE_OK && tool_size != 0) {
        status = callgate_key_make(gate, CALLGATE_DOMAIN_TOOL, tool, tool_size, &call->tool);
    }
    return status;
}

static inline callgate_status crossing_admit(const callgate_gate *gate, callgate_call *call,
                                             const char *caller, size_t caller_size,
                                             const char *tool, size_t tool_size,
                                             const crossing_time *at, callgate_permit *permit,
                                             callgate_decision *decision) {
    callgate_status status = crossing_keys(gate, call, caller, caller_size, tool, tool_size);
    if (status != CALLGATE_OK) return status;
    if (!at->is_given) return callgate_admit(gate, call, permit, decision);
    return callgate_admit_at(gate, call, at->now_ns, at->unix_ns, permit, decision);
}

static inline callgate_status crossing_settle(const callgate_gate *gate, callgate_permit *permit,
                                              uint32_t outcome, uint64_t used,
                                              const crossing_time *at) {
    if (!at->is_given) return callgate_settle(gate, permit, outcome, used);
    return callgate_settle_at(gate, permit, outcome, used, at->now_ns, at->unix_ns);
}

/* The arguments of callgate_admit, crossing_admit and crossing_settle in one piece, for package
 * internal/direct. */
typedef struct {
    callgate_call call;
    callgate_decision decision;
    const callgate_gate *gate;
    callgate_permit *permit;
} crossing_admission;

typedef struct {
    crossing_admission *of;
    const char *caller;
    size_t caller_size;
    const char *tool;
    size_t tool_size;
    crossing_time at;
} crossing_unusual;

typedef struct {
    const callgate_gate *gate;
    callgate_permit *permit;
    uint64_t used;
    uint32_t outcome;
    crossing_time at;
} crossing_settlement;

/* By keys, at the system's time. */
static int32_t crossing_admit_direct(void *arguments) {
    crossing_admission *a = arguments;
    return callgate_admit(a->gate, &a->call, a->permit, &a->decision);
}

static int32_t crossing_admit_unusual_direct(void *arguments) {
    const crossing_unusual *u = arguments;
    crossing_admission *a = u->of;
    return crossing_admit(a->gate, &a->call, u->caller, u->caller_size, u->tool, u->tool_size, &u->at,
                          a->permit, &a->decision);
}

static int32_t crossing_settle_direct(void *arguments) {
    const crossing_settlement *s = arguments;
    return crossing_settle(s->gate, s->permit, s->outcome, s->used, &s->at);
}

/* Where they are. */
static inline void *crossing_admit_address(void) { return (void *)crossing_admit_direct; }
static inline void *crossing_admit_unusual_address(void) { return (void *)crossing_admit_unusual_direct; }
static inline void *crossing_settle_address(void) { return (void *)crossing_settle_direct; }

static inline callgate_status crossing_admit_many(const callgate_gate *gate, callgate_call *calls,
                                                  size_t count, const char *bytes,
                                                  const crossing_names *names,
                                                  const crossing_time *at,
                                                  callgate_permit *permits,
                                                  callgate_decision *decisions) {
    for (size_t n = 0; n < count; n++) {
        callgate_status status =
            crossing_keys(gate, &calls[n], bytes + names[n].caller_start, names[n].caller_size,
                          bytes + names[n].tool_start, names[n].tool_size);
        if (status != CALLGATE_OK) return status;
    }
    if (!at->is_given) return callgate_admit_many(gate, calls, count, permits, decisions);
    return callgate_admit_many_at(gate, calls, count, at->now_ns, at->unix_ns, permits, decisions);
}

static inline callgate_status crossing_peek(const callgate_gate *gate, callgate_call *call,
                                            const char *caller, size_t caller_size,
                                            const char *tool, size_t tool_size,
                                            const crossing_time *at, callgate_decision *decisions,
                                            size_t *count) {
    callgate_status status = crossing_keys(gate, call, caller, caller_size, tool, tool_size);
    if (status != CALLGATE_OK) return status;
    if (!at->is_given) return callgate_peek(gate, call, decisions, count);
    return callgate_peek_at(gate, call, at->now_ns, at->unix_ns, decisions, count);
}

static inline callgate_status crossing_seed(const callgate_gate *gate, uint32_t limit,
                                            uint32_t scope, callgate_call *of, const char *caller,
                                            size_t caller_size, const char *tool, size_t tool_size,
                                            const crossing_time *at, uint64_t used) {
    callgate_status status = crossing_keys(gate, of, caller, caller_size, tool, tool_size);
    if (status != CALLGATE_OK) return status;
    if (!at->is_given) return callgate_seed(gate, limit, scope, &of->caller, &of->tool, used);
    return callgate_seed_at(gate, limit, scope, &of->caller, &of->tool, used, at->now_ns,
                            at->unix_ns);
}

/* A configuration in one piece, so that no Go memory holds pointers. */
static inline void crossing_config(callgate_config *config, uint32_t capacity, const uint8_t *secret,
                                   const callgate_limit *limits, uint32_t limit_count,
                                   const callgate_policy *policies, uint32_t policy_count) {
    *config = (callgate_config){.struct_size = sizeof *config,
                                .capacity = capacity,
                                .limit_count = limit_count,
                                .policy_count = policy_count,
                                .limits = limits,
                                .policies = policies};
    for (size_t n = 0; n < sizeof config->secret; n++) config->secret[n] = secret[n];
}

/* What the engine finds wrong with a configuration, or CALLGATE_OK and how much memory it needs. */
static inline callgate_status crossing_plan(uint32_t capacity, const uint8_t *secret,
                                            const callgate_limit *limits, uint32_t limit_count,
                                            const callgate_policy *policies, uint32_t policy_count,
                                            callgate_fault *fault, size_t *size) {
    callgate_config config;
    crossing_config(&config, capacity, secret, limits, limit_count, policies, policy_count);
    callgate_status status = callgate_check(&config, fault);
    if (status == CALLGATE_OK) status = fault->status;
    return status == CALLGATE_OK ? callgate_size(&config, size) : status;
}

static inline callgate_status crossing_init(void *memory, size_t size, uint32_t capacity,
                                            const uint8_t *secret, const callgate_limit *limits,
                                            uint32_t limit_count, const callgate_policy *policies,
                                            uint32_t policy_count, callgate_gate *gate) {
    callgate_config config;
    crossing_config(&config, capacity, secret, limits, limit_count, policies, policy_count);
    return callgate_init(memory, size, &config, gate);
}

/* The names lie one after the other, each ended by a NUL. */
static inline callgate_status crossing_metrics(const callgate_gate *gate, const char *policies,
                                               uint32_t policy_count, const char *limits,
                                               uint32_t limit_count, const crossing_time *at,
                                               char *buffer, size_t size, size_t *needed) {
    const char *policy_names[64], *limit_names[64];
    for (uint32_t n = 0; n < policy_count && n < 64; n++) {
        policy_names[n] = policies;
        while (*policies++ != 0) {}
    }
    for (uint32_t n = 0; n < limit_count && n < 64; n++) {
        limit_names[n] = limits;
        while (*limits++ != 0) {}
    }
    if (!at->is_given) {
        return callgate_metrics(gate, policy_names, limit_names, buffer, size, needed);
    }
    return callgate_metrics_at(gate, policy_names, limit_names, buffer, size, needed, at->now_ns,
                               at->unix_ns);
}

#endif
