/* The gate that is fuzzed: made of what the fuzzer made up, or refused; and what calls of it are made of. */
#ifndef CALLGATE_FUZZ_WORLD_H
#define CALLGATE_FUZZ_WORLD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "callgate.h"
#include "input.h"

enum { PERMITS = 8 };

/* Compiled with SEEDED_SHORT, it does what must be noticed: it hands over less memory than it says. */
#ifdef SEEDED_SHORT
#define SHORT_BY 32
#else
#define SHORT_BY 0
#endif

#define HOLDS(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                       \
        }                                                                  \
    } while (0)

typedef struct world {
    input in;
    callgate_config config;
    callgate_gate gate;
    unsigned char *memory;
    size_t size;
    callgate_permit *permits;
    uint64_t now_ns, unix_ns;
    int is_overwritten;
} world;

/* Everything handed to the library is a block of its own, so that one byte beside it is noticed. */
static void *block(input *in, size_t size) {
    void *made = malloc(size > 0 ? size : 1);
    HOLDS(made != NULL);
    take(in, made, size);
    return made;
}

static void stain(void *place, size_t size) { memset(place, ARENA_STAIN, size); }

static int is_stained(const void *place, size_t size) {
    const unsigned char *byte = (const unsigned char *)place;
    size_t n;
    for (n = 0; n < size && byte[n] == ARENA_STAIN; n += 1) continue;
    return n == size;
}

/* Whether that is a status of the header; also what it stands for. */
static int succeeds(callgate_status status) {
    const char *unknown = callgate_strerror(-1), *field = callgate_error_field(status);
    HOLDS((status >= 0 && status <= 4) || (status >= 16 && status <= 33) ||
          (status >= 64 && status <= 85));
    HOLDS(strcmp(callgate_strerror(status), unknown) != 0);
    HOLDS(field == NULL || strlen(field) > 0);
    return status == CALLGATE_OK;
}

static void is_decision(const world *w, const callgate_decision *decision) {
    HOLDS(decision->admitted <= 1 && decision->reserved == 0);
    HOLDS(decision->reason <= CALLGATE_REASON_NEVER);
    HOLDS(decision->admitted == (decision->reason == CALLGATE_REASON_NONE));
    HOLDS(decision->by < w->config.limit_count || decision->by == CALLGATE_NO_LIMIT);
    if (!w->is_overwritten) {
        HOLDS(decision->remaining <= decision->limit);
        HOLDS(decision->admitted || decision->by != CALLGATE_NO_LIMIT);
        HOLDS(!decision->admitted || decision->retry_after_ns == 0);
    }
}

/* Half of the limits are made of fields that may well be in range, half of nothing but bytes. */
static callgate_limit take_limit(input *in) {
    callgate_limit limit;
    uint8_t kind = take_u8(in);
    if (kind & 0x80) {
        take(in, &limit, sizeof limit);
        return limit;
    }
    memset(&limit, 0, sizeof limit);
    limit.kind = 1 + kind % 4;
    if (limit.kind == CALLGATE_KIND_RATE) {
        limit.count = take_number(in);
        limit.period_ns = take_number(in);
        limit.burst = take_number(in);
    } else if (limit.kind == CALLGATE_KIND_CONCURRENCY) {
        limit.max_in_flight = (uint32_t)take_number(in);
        limit.lease_ns = 1000000 + take_number(in);
        limit.reject_trip = take_u8(in) % 65;
        limit.failure_trip = take_u8(in) % 65;
        limit.cooldown_ns = take_number(in);
        limit.half_open_probes = take_u8(in) % 17;
    } else if (limit.kind == CALLGATE_KIND_QUOTA) {
        limit.limit = take_number(in);
        limit.period_s = take_number(in);
        limit.anchor_unix_s = limit.period_s ? (int64_t)take_number(in) : 0;
        limit.must_seed = take_u8(in) % 2;
    }
    return limit;
}

static callgate_policy take_policy(input *in, uint32_t limit_count) {
    callgate_policy policy;
    uint8_t count = take_u8(in);
    uint32_t n;
    if (count & 0x80) {
        take(in, &policy, sizeof policy);
        return policy;
    }
    memset(&policy, 0, sizeof policy);
    policy.rule_count = 1 + count % CALLGATE_MAX_RULES;
    for (n = 0; n < policy.rule_count; n += 1) {
        uint8_t rule = take_u8(in);
        policy.rules[n].limit = (rule >> 2) % (limit_count + (rule == 0xFF));
        policy.rules[n].scope = 1 + rule % 4;
    }
    return policy;
}

/* The arrays are as long as their counts say where these are in range, and else of one byte. */
static int open_gate(world *w) {
    input *in = &w->in;
    callgate_fault fault;
    callgate_status status;
    uint8_t shape = take_u8(in);
    uint32_t n, limit_count, policy_count;
    callgate_limit *limits;
    callgate_policy *policies;
    w->config.struct_size = sizeof w->config;
    w->config.capacity = 1 + take_u8(in);
    take(in, w->config.secret, sizeof w->config.secret);
    w->config.secret[0] |= 1;
    w->config.limit_count = 1 + take_u8(in) % 4;
    w->config.policy_count = 1 + take_u8(in) % 4;
    if (shape & 0x80) take(in, &w->config, sizeof w->config);
    limit_count = w->config.limit_count <= 64 ? w->config.limit_count : 0;
    policy_count = w->config.policy_count <= 64 ? w->config.policy_count : 0;
    limits = (callgate_limit *)malloc(limit_count ? limit_count * sizeof *limits : 1);
    policies = (callgate_policy *)malloc(policy_count ? policy_count * sizeof *policies : 1);
    HOLDS(limits && policies);
    for (n = 0; n < limit_count; n += 1) limits[n] = take_limit(in);
    for (n = 0; n < policy_count; n += 1) policies[n] = take_policy(in, limit_count ? limit_count : 1);
    w->config.limits = shape & 0x40 ? NULL : limits;
    w->config.policies = shape & 0x20 ? NULL : policies;

    stain(&w->size, sizeof w->size);
    stain(&w->gate, sizeof w->gate);
    status = callgate_size(&w->config, &w->size);
    HOLDS(succeeds(callgate_check(&w->config, &fault)) && fault.status == status);
    if (!succeeds(status)) {
        HOLDS(is_stained(&w->size, sizeof w->size));
        HOLDS(callgate_init(arena_take(ARENA_SIZE), ARENA_SIZE, &w->config, &w->gate) == status);
    } else if (w->size > ARENA_SIZE) {
        w->memory = arena_take(ARENA_SIZE);
        status = callgate_init(w->memory, ARENA_SIZE, &w->config, &w->gate);
        HOLDS(status == CALLGATE_CONFIG_MEMORY && is_stained(w->memory, ARENA_SIZE));
    } else {
        w->memory = arena_take(w->size) + SHORT_BY;
        status = callgate_init(w->memory, w->size - 32, &w->config, &w->gate);
        HOLDS(status == CALLGATE_CONFIG_MEMORY && is_stained(w->memory, w->size - SHORT_BY));
        HOLDS(is_stained(&w->gate, sizeof w->gate));
        status = callgate_init(w->memory, w->size, &w->config, &w->gate);
        HOLDS(status == CALLGATE_OK);
    }
    HOLDS(status == CALLGATE_OK || is_stained(&w->gate, sizeof w->gate));
    free(limits);
    free(policies);
    return status == CALLGATE_OK;
}

static callgate_key take_key(world *w, uint32_t domain) {
    callgate_key key;
    uint8_t kind = take_u8(&w->in);
    stain(&key, sizeof key);
    if (kind & 0x80) {
        take(&w->in, &key, sizeof key);
    } else {
        size_t size = kind % 8;
        void *identity = block(&w->in, size);
        callgate_status status = callgate_key_make(&w->gate, domain, identity, size, &key);
        HOLDS(status == (size > 0 ? CALLGATE_OK : CALLGATE_EMPTY_IDENTITY));
        HOLDS(size > 0 || is_stained(&key, sizeof key));
        free(identity);
    }
    return key;
}

static callgate_call take_call(world *w) {
    callgate_call call;
    uint8_t kind = take_u8(&w->in);
    memset(&call, 0, sizeof call);
    call.struct_size = sizeof call;
    call.policy = kind % 5;
    call.caller = take_key(w, CALLGATE_DOMAIN_CALLER);
    call.tool = take_key(w, CALLGATE_DOMAIN_TOOL);
    call.cost = take_number(&w->in);
    call.reserve = take_number(&w->in);
    if (kind >= 0xF0) take(&w->in, &call, sizeof call);
    return call;
}

#endif
