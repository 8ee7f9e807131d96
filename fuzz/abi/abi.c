/* Arbitrary bytes as configurations, permits and keys through the C ABI, and a gate's memory
 * overwritten under it. What must come of it: a status that the header knows, outputs that are
 * written only on success, and a decision, a wrong one if need be, whose fields are in range; never a
 * crash, a hang, or a write outside of what was handed over. For libFuzzer. */
#include "world.h"

enum { BATCH = 5, STEPS = 400 };

static void admit(world *w) {
    callgate_call *call = (callgate_call *)malloc(sizeof *call);
    callgate_decision *decision = (callgate_decision *)malloc(sizeof *decision);
    uint8_t kind = take_u8(&w->in);
    callgate_permit *permit = kind & 0x80 ? NULL : &w->permits[kind % PERMITS];
    callgate_permit before;
    callgate_status status;
    HOLDS(call && decision);
    if (permit) before = *permit;
    *call = take_call(w);
    stain(decision, sizeof *decision);
    status = kind & 0x40 ? callgate_admit(&w->gate, call, permit, decision)
                         : callgate_admit_at(&w->gate, call, w->now_ns, w->unix_ns, permit, decision);
    if (succeeds(status)) {
        is_decision(w, decision);
    } else {
        HOLDS(is_stained(decision, sizeof *decision));
        HOLDS(permit == NULL || memcmp(permit, &before, sizeof before) == 0);
    }
    free(call);
    free(decision);
}

static void admit_many(world *w) {
    size_t count = take_u8(&w->in) % (BATCH + 1), n;
    callgate_call *calls = (callgate_call *)malloc(count * sizeof *calls);
    callgate_decision *decisions = (callgate_decision *)malloc(count * sizeof *decisions);
    callgate_permit *permits = (callgate_permit *)malloc(count * sizeof *permits);
    callgate_status status;
    int is_clock = take_u8(&w->in) & 1;
    HOLDS(calls && decisions && permits);
    for (n = 0; n < count; n += 1) calls[n] = take_call(w);
    stain(decisions, count * sizeof *decisions);
    stain(permits, count * sizeof *permits);
    status = is_clock ? callgate_admit_many(&w->gate, calls, count, permits, decisions)
                      : callgate_admit_many_at(&w->gate, calls, count, w->now_ns, w->unix_ns, permits,
                                               decisions);
    if (succeeds(status)) {
        for (n = 0; n < count; n += 1) is_decision(w, &decisions[n]);
        if (count > 0) w->permits[0] = permits[count - 1];
    } else if (!w->is_overwritten) {
        /* Where policies are rewritten between the look and the decision, some may be decided. */
        HOLDS(is_stained(decisions, count * sizeof *decisions));
        HOLDS(is_stained(permits, count * sizeof *permits));
    }
    free(calls);
    free(decisions);
    free(permits);
}

static void peek(world *w) {
    callgate_call call = take_call(w);
    callgate_decision *decisions = (callgate_decision *)malloc(CALLGATE_MAX_RULES * sizeof *decisions);
    size_t count = SIZE_MAX, n;
    callgate_status status;
    HOLDS(decisions != NULL);
    stain(decisions, CALLGATE_MAX_RULES * sizeof *decisions);
    status = callgate_peek_at(&w->gate, &call, w->now_ns, w->unix_ns, decisions, &count);
    if (succeeds(status)) {
        HOLDS(count <= CALLGATE_MAX_RULES);
        for (n = 0; n < count; n += 1) {
            HOLDS(decisions[n].admitted <= 1 && decisions[n].reason <= CALLGATE_REASON_NEVER);
        }
    } else {
        HOLDS(count == SIZE_MAX);
        HOLDS(is_stained(decisions, CALLGATE_MAX_RULES * sizeof *decisions));
    }
    succeeds(callgate_peek(&w->gate, &call, decisions, &count));
    free(decisions);
}

static void settle(world *w) {
    uint8_t kind = take_u8(&w->in), outcome = take_u8(&w->in);
    uint64_t used = take_number(&w->in);
    callgate_permit *permit = &w->permits[kind % PERMITS];
    if (kind & 0x80) {
        take(&w->in, permit, sizeof *permit);
    } else if (kind & 0x40) {
        ((unsigned char *)permit)[take_u8(&w->in) % sizeof *permit] ^= take_u8(&w->in);
    }
    if (kind & 0x20) {
        succeeds(callgate_settle(&w->gate, permit, outcome % 6, used));
    } else {
        succeeds(callgate_settle_at(&w->gate, permit, outcome % 6, used, w->now_ns, w->unix_ns));
    }
}

static void reconfigure(world *w) {
    callgate_limit *to = (callgate_limit *)malloc(sizeof *to);
    uint32_t limit = take_u8(&w->in);
    HOLDS(to != NULL);
    limit = limit < 250 ? limit % 5 : take_u32(&w->in);
    *to = take_limit(&w->in);
    if (take_u8(&w->in) & 1) {
        succeeds(callgate_reconfigure(&w->gate, limit, to));
    } else {
        succeeds(callgate_reconfigure_at(&w->gate, limit, to, w->now_ns, w->unix_ns));
    }
    free(to);
}

static void seed(world *w) {
    uint8_t kind = take_u8(&w->in);
    callgate_key caller = take_key(w, CALLGATE_DOMAIN_CALLER), tool = take_key(w, CALLGATE_DOMAIN_TOOL);
    const callgate_key *of_caller = kind & 0x80 ? NULL : &caller;
    const callgate_key *of_tool = kind & 0x40 ? NULL : &tool;
    uint64_t used = take_number(&w->in);
    uint32_t limit = kind % 5, scope = (kind >> 3) % 6;
    succeeds(callgate_seed_at(&w->gate, limit, scope, of_caller, of_tool, used, w->now_ns, w->unix_ns));
    succeeds(callgate_seed(&w->gate, limit, scope, of_caller, of_tool, used));
    succeeds(callgate_window_set(&w->gate, limit, take_number(&w->in), take_number(&w->in)));
}

static void report(world *w) {
    callgate_stats stats;
    callgate_guards guards;
    callgate_decisions decisions;
    uint32_t index = take_u8(&w->in), n;
    index = index < 250 ? index % 65 : take_u32(&w->in);
    if (succeeds(callgate_stats_get_at(&w->gate, w->now_ns, w->unix_ns, &stats))) {
        HOLDS(stats.slots == stats.live + stats.at_rest + stats.claimed + stats.empty);
        HOLDS(stats.slots * 32 < w->size);
    }
    succeeds(callgate_stats_get(&w->gate, &stats));
    succeeds(callgate_guards_get_at(&w->gate, index, w->now_ns, w->unix_ns, &guards));
    succeeds(callgate_guards_get(&w->gate, index, &guards));
    for (n = 0; n < w->config.policy_count; n += 1) {
        HOLDS(succeeds(callgate_decisions_get(&w->gate, n, &decisions)));
    }
    HOLDS(callgate_decisions_get(&w->gate, n, &decisions) == CALLGATE_UNKNOWN_POLICY);
}

static void metrics(world *w) {
    const char *names[64];
    size_t size = take_u8(&w->in) * (size_t)256 + take_u8(&w->in), needed = 0, n;
    char *buffer = (char *)malloc(size + 1), *name = (char *)block(&w->in, 8);
    uint8_t kind = take_u8(&w->in);
    callgate_status status;
    HOLDS(buffer != NULL);
    name[7] = 0;
    for (n = 0; n < 64; n += 1) names[n] = name;
    buffer[size] = 'c';
    status = callgate_metrics_at(&w->gate, kind & 1 ? names : NULL, kind & 2 ? names : NULL,
                                 kind & 4 ? NULL : buffer, kind & 4 ? 0 : size, &needed, w->now_ns,
                                 w->unix_ns);
    HOLDS(buffer[size] == 'c');
    if (succeeds(status)) HOLDS(needed <= size && strlen(buffer) + 1 == needed);
    if (status == CALLGATE_BUFFER_TOO_SMALL) HOLDS(needed > (kind & 4 ? 0 : size));
    succeeds(callgate_metrics(&w->gate, NULL, NULL, NULL, 0, &needed));
    free(buffer);
    free(name);
}

/* Some bytes, all of the memory, or all of its words alike. */
static void overwrite(world *w) {
    uint8_t kind = take_u8(&w->in);
    size_t at = take_u32(&w->in) % w->size, count, n;
    uint64_t state = take_u64(&w->in);
    w->is_overwritten = 1;
    if (kind < 128) {
        count = kind % 33;
        count = count < w->size - at ? count : w->size - at;
        take(&w->in, w->memory + at, count);
    } else if (kind < 192) {
        memset(w->memory, (int)state, w->size);
    } else {
        for (n = 0; n < w->size / 8; n += 1) {
            if (kind & 1) state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            memcpy(w->memory + 8 * n, &state, 8);
        }
    }
}

static void step(world *w) {
    switch (take_u8(&w->in) % 16) {
        case 0: case 1: case 2: case 3: admit(w); break;
        case 4: admit_many(w); break;
        case 5: peek(w); break;
        case 6: case 7: case 8: settle(w); break;
        case 9: reconfigure(w); break;
        case 10: seed(w); break;
        case 11: report(w); break;
        case 12: metrics(w); break;
        case 13: overwrite(w); break;
        case 14: w->now_ns = take_number(&w->in); break;
        default: w->unix_ns = take_number(&w->in); break;
    }
}

/* Asked for by the standard library's `core`, which was built to unwind; nothing here does. */
void rust_eh_personality(void);
void rust_eh_personality(void) { abort(); }

/* The linker puts this in the place of the library's panic handler, which would loop for ever. */
void callgate_panicked(void);
void callgate_panicked(void) {
    fprintf(stderr, "the library panicked\n");
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w;
    callgate_gate before;
    int steps;
    memset(&w, 0, sizeof w);
    w.in.next = data;
    w.in.left = size;
    w.unix_ns = UINT64_C(1800000000000000000);
    if (open_gate(&w)) {
        w.permits = (callgate_permit *)calloc(PERMITS, sizeof *w.permits);
        before = w.gate;
        for (steps = 0; steps < STEPS && w.in.left > 0; steps += 1) step(&w);
        report(&w);
        HOLDS(memcmp(&before, &w.gate, sizeof before) == 0);
        HOLDS(arena_is_intact(w.size));
        free(w.permits);
        w.gate.opaque[0] ^= 1;
        HOLDS(callgate_stats_get(&w.gate, &(callgate_stats){0}) == CALLGATE_NOT_A_GATE);
    }
    return 0;
}
