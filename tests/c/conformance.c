/* Every function of callgate.h, by the book: exact numbers, and what peeks and settlements do.
 * conformance_errors.c has what can go wrong. C99 and C++17. */
#include "check.h"

int checks_done;
int checks_failed;

static callgate_limit rate(uint64_t count, uint64_t period_ns, uint64_t burst) {
    callgate_limit limit;
    memset(&limit, 0, sizeof limit);
    limit.kind = CALLGATE_KIND_RATE;
    limit.count = count;
    limit.period_ns = period_ns;
    limit.burst = burst;
    return limit;
}

static void add_rule(callgate_policy *policy, uint32_t limit, uint32_t scope) {
    policy->rules[policy->rule_count].limit = limit;
    policy->rules[policy->rule_count].scope = scope;
    policy->rule_count += 1;
}

void world_plan(world *w, unsigned char secret) {
    memset(w, 0, sizeof *w);
    w->limits[0] = rate(30, SECOND, 60);
    w->limits[1] = rate(1, 60 * SECOND, 2);
    w->limits[2].kind = CALLGATE_KIND_OFF;
    w->limits[3] = rate(100, SECOND, 200);
    add_rule(&w->policies[PER_CALLER], 0, CALLGATE_SCOPE_CALLER);
    add_rule(&w->policies[PER_TOOL], 1, CALLGATE_SCOPE_TOOL);
    add_rule(&w->policies[PER_BOTH], 1, CALLGATE_SCOPE_CALLER_TOOL);
    add_rule(&w->policies[SHARED_ONE], 3, CALLGATE_SCOPE_SHARED);
    add_rule(&w->policies[THREE_LIMITS], 0, CALLGATE_SCOPE_CALLER);
    add_rule(&w->policies[THREE_LIMITS], 2, CALLGATE_SCOPE_CALLER);
    add_rule(&w->policies[THREE_LIMITS], 1, CALLGATE_SCOPE_SHARED);
    add_rule(&w->policies[ALL_OFF], 2, CALLGATE_SCOPE_CALLER);
    w->config.struct_size = sizeof w->config;
    w->config.capacity = 10;
    memset(w->config.secret, secret, sizeof w->config.secret);
    w->config.limit_count = LIMITS;
    w->config.policy_count = POLICIES;
    w->config.limits = w->limits;
    w->config.policies = w->policies;
    memset(w->buffer, 0xA5, sizeof w->buffer);
    w->memory = w->buffer;
    while ((uintptr_t)w->memory % CALLGATE_ALIGNMENT != 0) w->memory += 1;
}

void world_open(world *w, unsigned char secret) {
    world_plan(w, secret);
    EQUAL(callgate_size(&w->config, &w->size), CALLGATE_OK);
    CHECK(w->size <= MEMORY_SIZE);
    EQUAL(callgate_init(w->memory, w->size, &w->config, &w->gate), CALLGATE_OK);
    EQUAL(callgate_key_make(&w->gate, CALLGATE_DOMAIN_CALLER, "alice", 5, &w->alice), CALLGATE_OK);
    EQUAL(callgate_key_make(&w->gate, CALLGATE_DOMAIN_CALLER, "bob", 3, &w->bob), CALLGATE_OK);
    EQUAL(callgate_key_make(&w->gate, CALLGATE_DOMAIN_TOOL, "search", 6, &w->search), CALLGATE_OK);
}

callgate_call call_of(uint32_t policy, const callgate_key *caller, const callgate_key *tool) {
    callgate_call call;
    memset(&call, 0, sizeof call);
    call.struct_size = sizeof call;
    call.policy = policy;
    call.cost = 1;
    if (caller) call.caller = *caller;
    if (tool) call.tool = *tool;
    return call;
}

static callgate_decision admit(world *w, const callgate_call *call, uint64_t now_ns) {
    callgate_decision decision;
    STAIN(decision);
    EQUAL(callgate_admit_at(&w->gate, call, now_ns, 0, NULL, &decision), CALLGATE_OK);
    EQUAL(decision.reserved, 0);
    return decision;
}

static void versions_agree(void) {
    EQUAL(callgate_version(), CALLGATE_VERSION);
    CHECK(callgate_is_lock_free() <= 1);
}

static void a_gate_keeps_to_its_memory(void) {
    static world w;
    size_t size, larger;
    callgate_fault fault;
    world_open(&w, 7);
    EQUAL(callgate_size(&w.config, &size), CALLGATE_OK);
    EQUAL(size, w.size);
    CHECK(is_stained(w.memory + w.size, CANARY));
    w.config.capacity = 1000;
    EQUAL(callgate_size(&w.config, &larger), CALLGATE_OK);
    CHECK(larger - size >= 990 * 32);
    EQUAL(callgate_check(&w.config, &fault), CALLGATE_OK);
    EQUAL(fault.status, CALLGATE_OK);
    EQUAL(fault.limit, CALLGATE_NO_LIMIT);
    EQUAL(fault.policy, CALLGATE_NO_LIMIT);
    /* What is configured was copied, and a handle may be. */
    memset(w.limits, 0xA5, sizeof w.limits);
    memset(w.policies, 0xA5, sizeof w.policies);
    memset(&w.config, 0xA5, sizeof w.config);
    callgate_call call = call_of(PER_CALLER, &w.alice, NULL);
    callgate_gate copy = w.gate;
    callgate_decision decision;
    DECIDED(admit(&w, &call, 0), 0, 0, 0, 60, 59, 33333334);
    EQUAL(callgate_admit_at(&copy, &call, 0, 0, NULL, &decision), CALLGATE_OK);
    EQUAL(decision.remaining, 58);
}

static void keys_are_of_a_domain_and_a_secret(void) {
    static world w, other;
    callgate_key key;
    world_open(&w, 7);
    world_open(&other, 8);
    EQUAL(callgate_key_make(&w.gate, CALLGATE_DOMAIN_CALLER, "alice", 5, &key), CALLGATE_OK);
    CHECK(memcmp(&key, &w.alice, sizeof key) == 0);
    CHECK(memcmp(&key, &w.bob, sizeof key) != 0);
    CHECK(memcmp(&key, &other.alice, sizeof key) != 0);
    EQUAL(callgate_key_make(&w.gate, CALLGATE_DOMAIN_TOOL, "alice", 5, &key), CALLGATE_OK);
    CHECK(memcmp(&key, &w.alice, sizeof key) != 0);
    EQUAL(callgate_key_make(&w.gate, CALLGATE_DOMAIN_CALLER, "alice\0x", 7, &key), CALLGATE_OK);
    CHECK(memcmp(&key, &w.alice, sizeof key) != 0);
    CHECK(key.lo != 0 || key.hi != 0);
}

static void a_bucket_is_drained_and_refills_to_the_nanosecond(void) {
    static world w;
    uint64_t n;
    world_open(&w, 7);
    callgate_call call = call_of(PER_CALLER, &w.alice, NULL);
    callgate_call other = call_of(PER_CALLER, &w.bob, NULL);
    for (n = 1; n <= 60; n += 1) {
        callgate_decision decision = admit(&w, &call, 0);
        CHECK(decision.admitted);
        EQUAL(decision.remaining, 60 - n);
    }
    DECIDED(admit(&w, &call, 0), CALLGATE_REASON_RATE, 0, 33333334, 60, 0, 2000000001);
    DECIDED(admit(&w, &call, 33333333), CALLGATE_REASON_RATE, 0, 1, 60, 0, 1966666668);
    DECIDED(admit(&w, &call, 33333334), 0, 0, 0, 60, 0, 2000000000);
    DECIDED(admit(&w, &other, 0), 0, 0, 0, 60, 59, 33333334);
    call.cost = 61;
    DECIDED(admit(&w, &call, 3 * SECOND), CALLGATE_REASON_NEVER, 0, 0, 60, 60, 0);
    call.cost = UINT64_MAX;
    DECIDED(admit(&w, &call, 3 * SECOND), CALLGATE_REASON_NEVER, 0, 0, 60, 60, 0);
    call.cost = 0;
    DECIDED(admit(&w, &call, 3 * SECOND), 0, 0, 0, 60, 60, 0);
    call.cost = 60;
    DECIDED(admit(&w, &call, 3 * SECOND), 0, 0, 0, 60, 0, 2000000001);
}

static void scopes_keep_states_apart(void) {
    static world w;
    callgate_key fetch;
    world_open(&w, 7);
    EQUAL(callgate_key_make(&w.gate, CALLGATE_DOMAIN_TOOL, "fetch", 5, &fetch), CALLGATE_OK);
    callgate_call tool = call_of(PER_TOOL, NULL, &w.search);
    callgate_call both = call_of(PER_BOTH, &w.alice, &w.search);
    callgate_call shared = call_of(SHARED_ONE, NULL, NULL);
    callgate_call off = call_of(ALL_OFF, &w.alice, NULL);
    DECIDED(admit(&w, &tool, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    DECIDED(admit(&w, &both, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    both.tool = fetch;
    DECIDED(admit(&w, &both, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    both.caller = w.bob;
    DECIDED(admit(&w, &both, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    DECIDED(admit(&w, &both, 0), 0, 1, 0, 2, 0, 120 * SECOND);
    DECIDED(admit(&w, &both, 0), CALLGATE_REASON_RATE, 1, 60 * SECOND, 2, 0, 120 * SECOND);
    DECIDED(admit(&w, &shared, 0), 0, 3, 0, 200, 199, SECOND / 100);
    shared.caller = w.bob;
    DECIDED(admit(&w, &shared, 0), 0, 3, 0, 200, 198, SECOND / 50);
    DECIDED(admit(&w, &off, 0), 0, CALLGATE_NO_LIMIT, 0, UINT64_MAX, UINT64_MAX, 0);
}

static void a_refusal_charges_nothing(void) {
    static world w;
    world_open(&w, 7);
    callgate_call all = call_of(THREE_LIMITS, &w.alice, NULL);
    callgate_call own = call_of(PER_CALLER, &w.alice, NULL);
    callgate_decision decision;
    callgate_permit permit;
    DECIDED(admit(&w, &all, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    DECIDED(admit(&w, &all, 0), 0, 1, 0, 2, 0, 120 * SECOND);
    STAIN(permit);
    EQUAL(callgate_admit_at(&w.gate, &all, 0, 0, &permit, &decision), CALLGATE_OK);
    DECIDED(decision, CALLGATE_REASON_RATE, 1, 60 * SECOND, 2, 0, 120 * SECOND);
    EQUAL(callgate_settle_at(&w.gate, &permit, CALLGATE_OUTCOME_SUCCESS, 0, 0, 0),
          CALLGATE_ALREADY_SETTLED);
    DECIDED(admit(&w, &own, 0), 0, 0, 0, 60, 57, SECOND / 10 + 1);
}

static void a_peek_reports_each_limit_and_changes_nothing(void) {
    static world w;
    callgate_decision decisions[CALLGATE_MAX_RULES];
    callgate_stats before, after;
    unsigned char copy[MEMORY_SIZE];
    size_t count, n;
    world_open(&w, 7);
    callgate_call call = call_of(THREE_LIMITS, &w.alice, NULL);
    DECIDED(admit(&w, &call, 0), 0, 1, 0, 2, 1, 60 * SECOND);
    callgate_call stranger = call_of(THREE_LIMITS, &w.bob, NULL);
    memcpy(copy, w.memory, w.size);
    for (n = 0; n < 3; n += 1) {
        STAIN(decisions);
        EQUAL(callgate_peek_at(&w.gate, &call, 0, 0, decisions, &count), CALLGATE_OK);
        EQUAL(count, 3);
        DECIDED(decisions[0], 0, 0, 0, 60, 58, 66666667);
        DECIDED(decisions[1], 0, CALLGATE_NO_LIMIT, 0, UINT64_MAX, UINT64_MAX, 0);
        DECIDED(decisions[2], 0, 1, 0, 2, 0, 120 * SECOND);
        CHECK(is_stained(&decisions[3], 5 * sizeof decisions[0]));
        EQUAL(callgate_peek_at(&w.gate, &stranger, 0, 0, decisions, &count), CALLGATE_OK);
        DECIDED(decisions[0], 0, 0, 0, 60, 59, 33333334);
    }
    EQUAL(callgate_stats_get_at(&w.gate, 0, 0, &before), CALLGATE_OK);
    EQUAL(before.live, 2);
    EQUAL(before.slots, before.live + before.empty);
    CHECK(memcmp(copy, w.memory, w.size) == 0);
    EQUAL(callgate_stats_get_at(&w.gate, 120 * SECOND, 0, &after), CALLGATE_OK);
    EQUAL(after.live, 0);
    EQUAL(after.at_rest, 2);
    EQUAL(after.claimed, 0);
}

static void a_cancelled_call_is_paid_back_once(void) {
    static world w;
    callgate_decision decision;
    callgate_permit kept, cancelled, late;
    world_open(&w, 7);
    callgate_call call = call_of(PER_TOOL, NULL, &w.search);
    EQUAL(callgate_admit_at(&w.gate, &call, 0, 0, &kept, &decision), CALLGATE_OK);
    EQUAL(callgate_admit_at(&w.gate, &call, 0, 0, &cancelled, &decision), CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &cancelled, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &cancelled, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_ALREADY_SETTLED);
    EQUAL(callgate_settle_at(&w.gate, &kept, CALLGATE_OUTCOME_SUCCESS, 5, 0, 0), CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &kept, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_ALREADY_SETTLED);
    EQUAL(callgate_admit_at(&w.gate, &call, 0, 0, &late, &decision), CALLGATE_OK);
    DECIDED(decision, 0, 1, 0, 2, 0, 120 * SECOND);
    EQUAL(callgate_settle_at(&w.gate, &late, CALLGATE_OUTCOME_ABANDONED, 0, 0, 0), CALLGATE_OK);
    DECIDED(admit(&w, &call, 0), CALLGATE_REASON_RATE, 1, 60 * SECOND, 2, 0, 120 * SECOND);
    EQUAL(callgate_admit_at(&w.gate, &call, 60 * SECOND, 0, &late, &decision), CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &late, CALLGATE_OUTCOME_FAILURE, 0, 60 * SECOND, 0),
          CALLGATE_OK);
    DECIDED(admit(&w, &call, 60 * SECOND), CALLGATE_REASON_RATE, 1, 60 * SECOND, 2, 0,
            120 * SECOND);
}

static void a_reconfigured_limit_keeps_debts(void) {
    static world w;
    callgate_limit tighter, off;
    world_open(&w, 7);
    callgate_call call = call_of(PER_CALLER, &w.alice, NULL);
    call.cost = 60;
    CHECK(admit(&w, &call, 0).admitted);
    call.cost = 1;
    memset(&off, 0, sizeof off);
    off.kind = CALLGATE_KIND_OFF;
    EQUAL(callgate_reconfigure_at(&w.gate, 0, &off, 0, 0), CALLGATE_OK);
    DECIDED(admit(&w, &call, 0), 0, CALLGATE_NO_LIMIT, 0, UINT64_MAX, UINT64_MAX, 0);
    tighter = rate(10, SECOND, 5);
    EQUAL(callgate_reconfigure_at(&w.gate, 0, &tighter, 0, 0), CALLGATE_OK);
    DECIDED(admit(&w, &call, 0), CALLGATE_REASON_RATE, 0, SECOND / 10, 5, 0, SECOND / 2);
    DECIDED(admit(&w, &call, SECOND / 10), 0, 0, 0, 5, 0, SECOND / 2);
}

static void a_batch_is_decided_in_order(void) {
    static world w;
    callgate_call calls[4];
    callgate_permit permits[5];
    callgate_decision decisions[5];
    callgate_decisions counted;
    world_open(&w, 7);
    calls[0] = calls[1] = calls[2] = call_of(PER_TOOL, NULL, &w.search);
    calls[3] = call_of(PER_CALLER, &w.alice, NULL);
    STAIN(permits);
    STAIN(decisions);
    EQUAL(callgate_admit_many_at(&w.gate, calls, 4, 5, 0, permits, decisions), CALLGATE_OK);
    DECIDED(decisions[0], 0, 1, 0, 2, 1, 60 * SECOND);
    DECIDED(decisions[1], 0, 1, 0, 2, 0, 120 * SECOND);
    DECIDED(decisions[2], CALLGATE_REASON_RATE, 1, 60 * SECOND, 2, 0, 120 * SECOND);
    DECIDED(decisions[3], 0, 0, 0, 60, 59, 33333334);
    STAINED(permits[4]);
    STAINED(decisions[4]);
    EQUAL(callgate_settle_at(&w.gate, &permits[1], CALLGATE_OUTCOME_CANCELLED, 0, 5, 0),
          CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &permits[2], CALLGATE_OUTCOME_CANCELLED, 0, 5, 0),
          CALLGATE_ALREADY_SETTLED);
    EQUAL(callgate_admit_many_at(&w.gate, calls, 2, 5, 0, NULL, decisions), CALLGATE_OK);
    CHECK(decisions[0].admitted && !decisions[1].admitted);
    EQUAL(callgate_decisions_get(&w.gate, PER_TOOL, &counted), CALLGATE_OK);
    EQUAL(counted.admitted, 3);
    EQUAL(counted.refused[0][CALLGATE_REASON_RATE], 2);
    EQUAL(callgate_decisions_get(&w.gate, PER_CALLER, &counted), CALLGATE_OK);
    EQUAL(counted.admitted, 1);
    EQUAL(counted.refused[0][CALLGATE_REASON_RATE], 0);
    EQUAL(callgate_admit_many_at(&w.gate, NULL, 0, 5, 0, NULL, NULL), CALLGATE_OK);
    FAILS(callgate_admit_many_at(&w.gate, calls, 0, 5, 0, permits, decisions), CALLGATE_OK,
          decisions);
}

static void a_newcomer_waits_for_the_first_place(void) {
    static world w;
    callgate_decision decision;
    uint64_t n, full = 0;
    world_open(&w, 7);
    callgate_call call = call_of(PER_BOTH, &w.alice, &w.search);
    for (n = 1; n <= 100; n += 1) {
        call.caller.lo = n * UINT64_C(0x9e3779b97f4a7c15);
        call.caller.hi = n * UINT64_C(0xd6e8feb86659fd93);
        EQUAL(callgate_admit_at(&w.gate, &call, 0, 0, NULL, &decision), CALLGATE_OK);
        full += decision.reason == CALLGATE_REASON_TABLE_FULL;
        CHECK(n > w.config.capacity || decision.admitted);
    }
    CHECK(full > 0);
    DECIDED(decision, CALLGATE_REASON_TABLE_FULL, 1, 60 * SECOND, 0, 0, 0);
    CHECK(!admit(&w, &call, 60 * SECOND - 1).admitted);
    CHECK(admit(&w, &call, 60 * SECOND).admitted);
}

static void the_systems_clock_serves_as_well(void) {
    static world w;
    callgate_permit permit, permits[2];
    callgate_decision decision, decisions[CALLGATE_MAX_RULES];
    callgate_limit limit = rate(1, 3600 * SECOND, 3);
    callgate_stats stats;
    callgate_call calls[2];
    size_t count;
    world_open(&w, 7);
    EQUAL(callgate_reconfigure(&w.gate, 1, &limit), CALLGATE_OK);
    calls[0] = calls[1] = call_of(PER_TOOL, NULL, &w.search);
    EQUAL(callgate_admit(&w.gate, calls, &permit, &decision), CALLGATE_OK);
    EQUAL(decision.remaining, 2);
    EQUAL(callgate_admit_many(&w.gate, calls, 2, permits, decisions), CALLGATE_OK);
    EQUAL(decisions[1].remaining, 0);
    EQUAL(callgate_peek(&w.gate, calls, decisions, &count), CALLGATE_OK);
    EQUAL(decisions[0].reason, CALLGATE_REASON_RATE);
    CHECK(decisions[0].retry_after_ns > 3590 * SECOND);
    EQUAL(callgate_settle(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_OK);
    EQUAL(callgate_settle(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0),
          CALLGATE_ALREADY_SETTLED);
    EQUAL(callgate_admit(&w.gate, calls, NULL, &decision), CALLGATE_OK);
    CHECK(decision.admitted);
    EQUAL(callgate_stats_get(&w.gate, &stats), CALLGATE_OK);
    EQUAL(stats.live, 1);
}

int main(void) {
    versions_agree();
    a_gate_keeps_to_its_memory();
    keys_are_of_a_domain_and_a_secret();
    a_bucket_is_drained_and_refills_to_the_nanosecond();
    scopes_keep_states_apart();
    a_refusal_charges_nothing();
    a_peek_reports_each_limit_and_changes_nothing();
    a_cancelled_call_is_paid_back_once();
    a_reconfigured_limit_keeps_debts();
    a_batch_is_decided_in_order();
    a_newcomer_waits_for_the_first_place();
    the_systems_clock_serves_as_well();
    places_and_quotas();
    errors_of_pointers();
    errors_of_configurations();
    errors_of_calls();
    errors_of_permits();
    errors_of_batches();
    errors_have_texts();
    printf("conformance: %d checks, %d failed\n", checks_done, checks_failed);
    return checks_failed == 0 ? 0 : 1;
}
