/* What can go wrong in callgate.h: each is a status, nothing is charged, and no output is touched.
 * C99 and C++17. */
#include "check.h"

/* Of each type, one that is good and one that is not aligned. */
static unsigned char crooked_bytes[1024];
#define CROOKED(type) ((type *)(void *)(crooked_bytes + 1))

static uint64_t tokens_left(world *w, const callgate_call *call) {
    callgate_decision decisions[CALLGATE_MAX_RULES];
    size_t count = 0;
    EQUAL(callgate_peek_at(&w->gate, call, 0, 0, decisions, &count), CALLGATE_OK);
    return decisions[0].remaining;
}

static void errors_of_pointers_to_init(world *w) {
    size_t size;
    callgate_fault fault;
    callgate_gate gate;
    FAILS(callgate_size(NULL, &size), CALLGATE_NULL_POINTER, size);
    FAILS(callgate_size(CROOKED(callgate_config), &size), CALLGATE_MISALIGNED, size);
    EQUAL(callgate_size(&w->config, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_size(&w->config, CROOKED(size_t)), CALLGATE_MISALIGNED);
    EQUAL(callgate_check(NULL, &fault), CALLGATE_OK);
    EQUAL(fault.status, CALLGATE_NULL_POINTER);
    EQUAL(callgate_check(CROOKED(callgate_config), &fault), CALLGATE_OK);
    EQUAL(fault.status, CALLGATE_MISALIGNED);
    EQUAL(callgate_check(&w->config, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_check(&w->config, CROOKED(callgate_fault)), CALLGATE_MISALIGNED);
    FAILS(callgate_init(NULL, w->size, &w->config, &gate), CALLGATE_NULL_POINTER, gate);
    FAILS(callgate_init(w->memory + 1, w->size, &w->config, &gate), CALLGATE_MISALIGNED, gate);
    FAILS(callgate_init(w->memory + 16, w->size, &w->config, &gate), CALLGATE_MISALIGNED, gate);
    FAILS(callgate_init(w->memory, w->size, NULL, &gate), CALLGATE_NULL_POINTER, gate);
    FAILS(callgate_init(w->memory, w->size, CROOKED(callgate_config), &gate), CALLGATE_MISALIGNED,
          gate);
    EQUAL(callgate_init(w->memory, w->size, &w->config, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_init(w->memory, w->size, &w->config, CROOKED(callgate_gate)),
          CALLGATE_MISALIGNED);
    w->config.limits = NULL;
    FAILS(callgate_size(&w->config, &size), CALLGATE_NULL_POINTER, size);
    w->config.limits = CROOKED(callgate_limit);
    FAILS(callgate_size(&w->config, &size), CALLGATE_MISALIGNED, size);
    w->config.limits = w->limits;
    w->config.policies = NULL;
    FAILS(callgate_size(&w->config, &size), CALLGATE_NULL_POINTER, size);
    w->config.policies = CROOKED(callgate_policy);
    FAILS(callgate_init(w->memory, w->size, &w->config, &gate), CALLGATE_MISALIGNED, gate);
    w->config.policies = w->policies;
}

/* The same for every function that takes a gate: it is NULL, crooked, empty or garbage. */
static void errors_of_a_gate(world *w, const callgate_gate *gate, uintmax_t status) {
    callgate_call call = call_of(PER_CALLER, &w->alice, NULL);
    callgate_decision decision[CALLGATE_MAX_RULES];
    callgate_permit permit;
    callgate_stats stats;
    callgate_guards guards;
    callgate_decisions counted;
    callgate_key key;
    size_t count;
    FAILS(callgate_key_make(gate, CALLGATE_DOMAIN_CALLER, "a", 1, &key), status, key);
    FAILS(callgate_admit(gate, &call, &permit, decision), status, decision);
    FAILS(callgate_admit_at(gate, &call, 0, 0, &permit, decision), status, permit);
    FAILS(callgate_admit_many(gate, &call, 1, &permit, decision), status, decision);
    FAILS(callgate_admit_many_at(gate, &call, 1, 0, 0, &permit, decision), status, permit);
    FAILS(callgate_peek(gate, &call, decision, &count), status, decision);
    FAILS(callgate_peek_at(gate, &call, 0, 0, decision, &count), status, count);
    FAILS(callgate_settle(gate, &permit, CALLGATE_OUTCOME_SUCCESS, 0), status, permit);
    FAILS(callgate_settle_at(gate, &permit, CALLGATE_OUTCOME_SUCCESS, 0, 0, 0), status, permit);
    EQUAL(callgate_reconfigure(gate, 0, &w->limits[0]), status);
    EQUAL(callgate_reconfigure_at(gate, 0, &w->limits[0], 0, 0), status);
    FAILS(callgate_stats_get(gate, &stats), status, stats);
    FAILS(callgate_stats_get_at(gate, 0, 0, &stats), status, stats);
    FAILS(callgate_decisions_get(gate, 0, &counted), status, counted);
    FAILS(callgate_guards_get(gate, 0, &guards), status, guards);
    FAILS(callgate_guards_get_at(gate, 0, 0, 0, &guards), status, guards);
    EQUAL(callgate_seed(gate, 0, CALLGATE_SCOPE_CALLER, &w->alice, NULL, 1), status);
    EQUAL(callgate_seed_at(gate, 0, CALLGATE_SCOPE_CALLER, &w->alice, NULL, 1, 0, 0), status);
    EQUAL(callgate_window_set(gate, 0, 0, 1), status);
}

static void errors_of_pointers_to_calls(world *w) {
    callgate_call call = call_of(PER_CALLER, &w->alice, NULL);
    callgate_decision d[CALLGATE_MAX_RULES];
    callgate_permit p;
    size_t count;
    const callgate_gate *g = &w->gate;
    const callgate_call *crooked = CROOKED(callgate_call);
    FAILS(callgate_admit(g, NULL, &p, d), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_admit(g, crooked, &p, d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit(g, &call, &p, NULL), CALLGATE_NULL_POINTER, p);
    FAILS(callgate_admit(g, &call, &p, CROOKED(callgate_decision)), CALLGATE_MISALIGNED, p);
    FAILS(callgate_admit(g, &call, CROOKED(callgate_permit), d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit_at(g, NULL, 0, 0, &p, d), CALLGATE_NULL_POINTER, p);
    FAILS(callgate_admit_at(g, crooked, 0, 0, &p, d), CALLGATE_MISALIGNED, p);
    FAILS(callgate_admit_at(g, &call, 0, 0, &p, NULL), CALLGATE_NULL_POINTER, p);
    FAILS(callgate_admit_at(g, &call, 0, 0, &p, CROOKED(callgate_decision)), CALLGATE_MISALIGNED,
          p);
    FAILS(callgate_admit_at(g, &call, 0, 0, CROOKED(callgate_permit), d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit_many(g, NULL, 1, &p, d), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_admit_many(g, crooked, 1, &p, d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit_many(g, &call, 1, &p, NULL), CALLGATE_NULL_POINTER, p);
    FAILS(callgate_admit_many(g, &call, 1, CROOKED(callgate_permit), d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit_many_at(g, NULL, 1, 0, 0, &p, d), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_admit_many_at(g, crooked, 1, 0, 0, &p, d), CALLGATE_MISALIGNED, d);
    FAILS(callgate_admit_many_at(g, &call, 1, 0, 0, &p, NULL), CALLGATE_NULL_POINTER, p);
    FAILS(callgate_admit_many_at(g, &call, 1, 0, 0, CROOKED(callgate_permit), d),
          CALLGATE_MISALIGNED, d);
    FAILS(callgate_peek(g, NULL, d, &count), CALLGATE_NULL_POINTER, count);
    FAILS(callgate_peek(g, crooked, d, &count), CALLGATE_MISALIGNED, count);
    FAILS(callgate_peek(g, &call, NULL, &count), CALLGATE_NULL_POINTER, count);
    FAILS(callgate_peek(g, &call, CROOKED(callgate_decision), &count), CALLGATE_MISALIGNED, count);
    FAILS(callgate_peek(g, &call, d, NULL), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_peek_at(g, NULL, 0, 0, d, &count), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_peek_at(g, crooked, 0, 0, d, &count), CALLGATE_MISALIGNED, d);
    FAILS(callgate_peek_at(g, &call, 0, 0, NULL, &count), CALLGATE_NULL_POINTER, count);
    FAILS(callgate_peek_at(g, &call, 0, 0, d, NULL), CALLGATE_NULL_POINTER, d);
    FAILS(callgate_peek_at(g, &call, 0, 0, d, CROOKED(size_t)), CALLGATE_MISALIGNED, d);
    EQUAL(tokens_left(w, &call), 59);
}

static void errors_of_other_pointers(world *w) {
    const callgate_gate *g = &w->gate;
    callgate_key key;
    EQUAL(callgate_settle(g, NULL, CALLGATE_OUTCOME_SUCCESS, 0), CALLGATE_NULL_POINTER);
    EQUAL(callgate_settle(g, CROOKED(callgate_permit), 1, 0), CALLGATE_MISALIGNED);
    EQUAL(callgate_settle_at(g, NULL, CALLGATE_OUTCOME_SUCCESS, 0, 0, 0), CALLGATE_NULL_POINTER);
    EQUAL(callgate_settle_at(g, CROOKED(callgate_permit), 1, 0, 0, 0), CALLGATE_MISALIGNED);
    EQUAL(callgate_reconfigure(g, 0, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_reconfigure(g, 0, CROOKED(callgate_limit)), CALLGATE_MISALIGNED);
    EQUAL(callgate_reconfigure_at(g, 0, NULL, 0, 0), CALLGATE_NULL_POINTER);
    EQUAL(callgate_reconfigure_at(g, 0, CROOKED(callgate_limit), 0, 0), CALLGATE_MISALIGNED);
    EQUAL(callgate_stats_get(g, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_stats_get(g, CROOKED(callgate_stats)), CALLGATE_MISALIGNED);
    EQUAL(callgate_stats_get_at(g, 0, 0, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_stats_get_at(g, 0, 0, CROOKED(callgate_stats)), CALLGATE_MISALIGNED);
    EQUAL(callgate_decisions_get(g, 0, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_decisions_get(g, 0, CROOKED(callgate_decisions)), CALLGATE_MISALIGNED);
    FAILS(callgate_key_make(g, CALLGATE_DOMAIN_CALLER, NULL, 1, &key), CALLGATE_NULL_POINTER, key);
    EQUAL(callgate_key_make(g, CALLGATE_DOMAIN_CALLER, "a", 1, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_key_make(g, CALLGATE_DOMAIN_CALLER, "a", 1, CROOKED(callgate_key)),
          CALLGATE_MISALIGNED);
}

void errors_of_pointers(void) {
    static world w;
    callgate_gate nothing, garbage;
    memset(&nothing, 0, sizeof nothing);
    memset(&garbage, 0xFF, sizeof garbage);
    world_open(&w, 7);
    errors_of_pointers_to_init(&w);
    errors_of_a_gate(&w, NULL, CALLGATE_NULL_POINTER);
    errors_of_a_gate(&w, CROOKED(callgate_gate), CALLGATE_MISALIGNED);
    errors_of_a_gate(&w, &nothing, CALLGATE_NOT_A_GATE);
    errors_of_a_gate(&w, &garbage, CALLGATE_NOT_A_GATE);
    errors_of_pointers_to_calls(&w);
    errors_of_other_pointers(&w);
}

/* The three functions that read a configuration say the same of it. */
static void refuses(const world *planned, int32_t status, uint32_t limit, uint32_t policy,
                    int line) {
    static world w;
    callgate_gate gate;
    callgate_fault fault;
    size_t size;
    int before = checks_failed;
    w = *planned;
    w.config.limits = planned->config.limits == planned->limits ? w.limits : w.config.limits;
    w.config.policies = planned->config.policies == planned->policies ? w.policies
                                                                      : w.config.policies;
    w.memory = w.buffer;
    while ((uintptr_t)w.memory % CALLGATE_ALIGNMENT != 0) w.memory += 1;
    FAILS(callgate_size(&w.config, &size), status, size);
    FAILS(callgate_init(w.memory, MEMORY_SIZE, &w.config, &gate), status, gate);
    STAINED(w.buffer);
    EQUAL(callgate_check(&w.config, &fault), CALLGATE_OK);
    EQUAL(fault.status, status);
    EQUAL(fault.limit, limit);
    EQUAL(fault.policy, policy);
    if (checks_failed != before) printf("%s:%d: ... called from here\n", __FILE__, line);
}

#define NONE CALLGATE_NO_LIMIT
/* A configuration with one field set to something bad. */
#define BAD(field, value, status, limit, policy)           \
    do {                                                   \
        world_plan(&w, 7);                                 \
        w.field = value;                                   \
        refuses(&w, status, limit, policy, __LINE__);      \
    } while (0)

/* A configuration whose first limit is a good one of another kind, with one field gone bad. */
#define BAD_ONE(good, field, value, status)              \
    do {                                                 \
        world_plan(&w, 7);                               \
        w.limits[0] = good;                              \
        w.limits[0].field = value;                       \
        refuses(&w, status, 0, NONE, __LINE__);          \
    } while (0)

static void errors_of_guards(void) {
    static world w;
    callgate_limit good;
    memset(&good, 0, sizeof good);
    good.kind = CALLGATE_KIND_CONCURRENCY;
    good.max_in_flight = 1;
    good.lease_ns = SECOND;
    good.reject_trip = 1;
    good.cooldown_ns = SECOND;
    BAD_ONE(good, max_in_flight, 0, CALLGATE_CONFIG_MAX_IN_FLIGHT);
    BAD_ONE(good, max_in_flight, 4096, CALLGATE_CONFIG_MAX_IN_FLIGHT);
    BAD_ONE(good, lease_ns, 999999, CALLGATE_CONFIG_LEASE);
    BAD_ONE(good, lease_ns, TIME_LIMIT + 1, CALLGATE_CONFIG_LEASE);
    BAD_ONE(good, reject_trip, 64, CALLGATE_CONFIG_REJECT_TRIP);
    BAD_ONE(good, failure_trip, 64, CALLGATE_CONFIG_FAILURE_TRIP);
    BAD_ONE(good, cooldown_ns, 999999, CALLGATE_CONFIG_COOLDOWN);
    BAD_ONE(good, cooldown_ns, 50000 * SECOND + 1, CALLGATE_CONFIG_COOLDOWN);
    BAD_ONE(good, half_open_probes, 16, CALLGATE_CONFIG_HALF_OPEN_PROBES);
    BAD_ONE(good, count, 1, CALLGATE_RESERVED_NOT_ZERO);
    BAD_ONE(good, period_s, 1, CALLGATE_RESERVED_NOT_ZERO);
}

static void errors_of_quotas(void) {
    static world w;
    callgate_limit good;
    memset(&good, 0, sizeof good);
    good.kind = CALLGATE_KIND_QUOTA;
    good.limit = 1;
    good.period_s = 1;
    BAD_ONE(good, limit, 0, CALLGATE_CONFIG_LIMIT);
    BAD_ONE(good, limit, (UINT64_C(1) << 47) + 1, CALLGATE_CONFIG_LIMIT);
    BAD_ONE(good, period_s, (UINT64_C(1) << 33) + 1, CALLGATE_CONFIG_PERIOD_S);
    BAD_ONE(good, must_seed, 2, CALLGATE_CONFIG_MUST_SEED);
    BAD_ONE(good, burst, 1, CALLGATE_RESERVED_NOT_ZERO);
    BAD_ONE(good, max_in_flight, 1, CALLGATE_RESERVED_NOT_ZERO);
    good.anchor_unix_s = 1;
    BAD_ONE(good, period_s, 0, CALLGATE_CONFIG_PERIOD_S);
}

static void errors_of_limits(void) {
    static world w;
    BAD(limits[0].kind, 0, CALLGATE_CONFIG_KIND, 0, NONE);
    BAD(limits[3].kind, 5, CALLGATE_CONFIG_KIND, 3, NONE);
    BAD(limits[1].kind, UINT32_MAX, CALLGATE_CONFIG_KIND, 1, NONE);
    BAD(limits[1].count, 0, CALLGATE_CONFIG_COUNT, 1, NONE);
    BAD(limits[1].period_ns, 0, CALLGATE_CONFIG_PERIOD, 1, NONE);
    BAD(limits[3].burst, 0, CALLGATE_CONFIG_BURST, 3, NONE);
    BAD(limits[1].burst, UINT64_MAX, CALLGATE_CONFIG_BURST, 1, NONE);
    BAD(limits[1].period_ns, (UINT64_C(1) << 60) + 1, CALLGATE_CONFIG_BURST, 1, NONE);
    BAD(limits[0].reserved_0, 1, CALLGATE_RESERVED_NOT_ZERO, 0, NONE);
    BAD(limits[2].reserved, 1, CALLGATE_RESERVED_NOT_ZERO, 2, NONE);
    /* What belongs to another kind. */
    BAD(limits[0].max_in_flight, 1, CALLGATE_RESERVED_NOT_ZERO, 0, NONE);
    BAD(limits[0].lease_ns, 1, CALLGATE_RESERVED_NOT_ZERO, 0, NONE);
    BAD(limits[0].limit, 1, CALLGATE_RESERVED_NOT_ZERO, 0, NONE);
    BAD(limits[0].anchor_unix_s, -1, CALLGATE_RESERVED_NOT_ZERO, 0, NONE);
    errors_of_guards();
    errors_of_quotas();
}

static void errors_of_policies(void) {
    static world w;
    BAD(policies[2].rule_count, 0, CALLGATE_CONFIG_RULES, NONE, 2);
    BAD(policies[2].rule_count, 9, CALLGATE_CONFIG_RULES, NONE, 2);
    BAD(policies[2].rule_count, UINT32_MAX, CALLGATE_CONFIG_RULES, NONE, 2);
    BAD(policies[5].rules[0].limit, LIMITS, CALLGATE_CONFIG_RULE_LIMIT, NONE, 5);
    BAD(policies[5].rules[0].limit, 64, CALLGATE_CONFIG_RULE_LIMIT, NONE, 5);
    BAD(policies[5].rules[0].limit, 256, CALLGATE_CONFIG_RULE_LIMIT, NONE, 5);
    BAD(policies[5].rules[0].limit, UINT32_MAX, CALLGATE_CONFIG_RULE_LIMIT, NONE, 5);
    BAD(policies[0].rules[0].scope, 0, CALLGATE_CONFIG_SCOPE, NONE, 0);
    BAD(policies[0].rules[0].scope, 5, CALLGATE_CONFIG_SCOPE, NONE, 0);
    BAD(policies[0].rules[0].scope, UINT32_MAX, CALLGATE_CONFIG_SCOPE, NONE, 0);
    BAD(policies[4].rules[1].limit, 0, CALLGATE_CONFIG_RULE_TWICE, NONE, 4);
    BAD(policies[0].reserved, 1, CALLGATE_RESERVED_NOT_ZERO, NONE, 0);
}

void errors_of_configurations(void) {
    static world w;
    unsigned n;
    const uint32_t size = sizeof(callgate_config);
    BAD(config.struct_size, 0, CALLGATE_BAD_STRUCT_SIZE, NONE, NONE);
    BAD(config.struct_size, size - 1, CALLGATE_BAD_STRUCT_SIZE, NONE, NONE);
    BAD(config.struct_size, size + 8, CALLGATE_BAD_STRUCT_SIZE, NONE, NONE);
    BAD(config.capacity, 0, CALLGATE_CONFIG_CAPACITY, NONE, NONE);
    BAD(config.capacity, 67108865, CALLGATE_CONFIG_CAPACITY, NONE, NONE);
    BAD(config.capacity, UINT32_MAX, CALLGATE_CONFIG_CAPACITY, NONE, NONE);
    BAD(config.limit_count, 0, CALLGATE_CONFIG_LIMITS, NONE, NONE);
    BAD(config.limit_count, 65, CALLGATE_CONFIG_LIMITS, NONE, NONE);
    BAD(config.limit_count, UINT32_MAX, CALLGATE_CONFIG_LIMITS, NONE, NONE);
    BAD(config.policy_count, 0, CALLGATE_CONFIG_POLICIES, NONE, NONE);
    BAD(config.policy_count, 65, CALLGATE_CONFIG_POLICIES, NONE, NONE);
    BAD(config.policy_count, UINT32_MAX, CALLGATE_CONFIG_POLICIES, NONE, NONE);
    for (n = 0; n < 4; n += 1) {
        BAD(config.reserved[n], 1, CALLGATE_RESERVED_NOT_ZERO, NONE, NONE);
    }
    world_plan(&w, 0);
    refuses(&w, CALLGATE_CONFIG_SECRET, NONE, NONE, __LINE__);
    errors_of_limits();
    errors_of_policies();
    world_plan(&w, 7);
    EQUAL(callgate_size(&w.config, &w.size), CALLGATE_OK);
    FAILS(callgate_init(w.memory, w.size - 1, &w.config, &w.gate), CALLGATE_CONFIG_MEMORY, w.gate);
    FAILS(callgate_init(w.memory, 0, &w.config, &w.gate), CALLGATE_CONFIG_MEMORY, w.gate);
    STAINED(w.buffer);
}

static void fails_to_admit(world *w, const callgate_call *call, uint64_t now_ns, uintmax_t status) {
    callgate_decision d[CALLGATE_MAX_RULES];
    callgate_permit p;
    size_t count;
    FAILS(callgate_admit_at(&w->gate, call, now_ns, 0, &p, d), status, d);
    FAILS(callgate_admit_at(&w->gate, call, now_ns, 0, &p, d), status, p);
    FAILS(callgate_admit_many_at(&w->gate, call, 1, now_ns, 0, &p, d), status, d);
    FAILS(callgate_peek_at(&w->gate, call, now_ns, 0, d, &count), status, d);
    FAILS(callgate_peek_at(&w->gate, call, now_ns, 0, d, &count), status, count);
    if (status != CALLGATE_TIME_OUT_OF_RANGE) {
        FAILS(callgate_admit(&w->gate, call, &p, d), status, d);
        FAILS(callgate_peek(&w->gate, call, d, &count), status, d);
    }
}

static void errors_of_times(world *w) {
    callgate_call call = call_of(PER_CALLER, &w->bob, NULL);
    callgate_decision decision;
    callgate_stats stats;
    fails_to_admit(w, &call, TIME_LIMIT, CALLGATE_TIME_OUT_OF_RANGE);
    fails_to_admit(w, &call, UINT64_MAX, CALLGATE_TIME_OUT_OF_RANGE);
    FAILS(callgate_stats_get_at(&w->gate, TIME_LIMIT, 0, &stats), CALLGATE_TIME_OUT_OF_RANGE,
          stats);
    EQUAL(callgate_reconfigure_at(&w->gate, 0, &w->limits[0], TIME_LIMIT, 0),
          CALLGATE_TIME_OUT_OF_RANGE);
    EQUAL(callgate_admit_at(&w->gate, &call, TIME_LIMIT - 1, 0, NULL, &decision), CALLGATE_OK);
    CHECK(decision.admitted);
}

static void errors_of_a_reconfiguration(world *w) {
    callgate_limit to = w->limits[0];
    const uint32_t unknown[] = {LIMITS, 63, 64, 255, 256, UINT32_MAX};
    size_t n;
    for (n = 0; n < sizeof unknown / sizeof unknown[0]; n += 1) {
        EQUAL(callgate_reconfigure_at(&w->gate, unknown[n], &to, 0, 0), CALLGATE_UNKNOWN_LIMIT);
        EQUAL(callgate_reconfigure(&w->gate, unknown[n], &to), CALLGATE_UNKNOWN_LIMIT);
    }
    to.kind = 5;
    EQUAL(callgate_reconfigure_at(&w->gate, 0, &to, 0, 0), CALLGATE_CONFIG_KIND);
    to = w->limits[0];
    to.reserved = 1;
    EQUAL(callgate_reconfigure_at(&w->gate, 0, &to, 0, 0), CALLGATE_RESERVED_NOT_ZERO);
    to = w->limits[0];
    to.count = 0;
    EQUAL(callgate_reconfigure_at(&w->gate, 0, &to, 0, 0), CALLGATE_CONFIG_COUNT);
    to = w->limits[0];
    to.period_ns = 0;
    EQUAL(callgate_reconfigure_at(&w->gate, 0, &to, 0, 0), CALLGATE_CONFIG_PERIOD);
    to = w->limits[0];
    to.burst = 0;
    EQUAL(callgate_reconfigure(&w->gate, 0, &to), CALLGATE_CONFIG_BURST);
}

void errors_of_calls(void) {
    static world w;
    callgate_key key;
    callgate_decisions counted;
    world_open(&w, 7);
    callgate_call good = call_of(PER_CALLER, &w.alice, NULL);
    callgate_call call = good;
    call.struct_size = 0;
    fails_to_admit(&w, &call, 0, CALLGATE_BAD_STRUCT_SIZE);
    call.struct_size = sizeof call + 8;
    fails_to_admit(&w, &call, 0, CALLGATE_BAD_STRUCT_SIZE);
    call = good;
    call.reserved[0] = 1;
    fails_to_admit(&w, &call, 0, CALLGATE_RESERVED_NOT_ZERO);
    call = good;
    call.reserved[1] = UINT64_C(1) << 63;
    fails_to_admit(&w, &call, 0, CALLGATE_RESERVED_NOT_ZERO);
    call = good;
    call.policy = POLICIES;
    fails_to_admit(&w, &call, 0, CALLGATE_UNKNOWN_POLICY);
    call.policy = UINT32_MAX;
    fails_to_admit(&w, &call, 0, CALLGATE_UNKNOWN_POLICY);
    call = call_of(PER_CALLER, NULL, &w.search);
    fails_to_admit(&w, &call, 0, CALLGATE_MISSING_CALLER);
    call = call_of(PER_TOOL, &w.alice, NULL);
    fails_to_admit(&w, &call, 0, CALLGATE_MISSING_TOOL);
    call = call_of(PER_BOTH, &w.alice, NULL);
    fails_to_admit(&w, &call, 0, CALLGATE_MISSING_TOOL);
    call = call_of(ALL_OFF, NULL, NULL);
    fails_to_admit(&w, &call, 0, CALLGATE_MISSING_CALLER);
    FAILS(callgate_decisions_get(&w.gate, POLICIES, &counted), CALLGATE_UNKNOWN_POLICY, counted);
    FAILS(callgate_decisions_get(&w.gate, UINT32_MAX, &counted), CALLGATE_UNKNOWN_POLICY, counted);
    FAILS(callgate_key_make(&w.gate, 0, "a", 1, &key), CALLGATE_UNKNOWN_DOMAIN, key);
    FAILS(callgate_key_make(&w.gate, 3, "a", 1, &key), CALLGATE_UNKNOWN_DOMAIN, key);
    FAILS(callgate_key_make(&w.gate, CALLGATE_DOMAIN_CALLER, "a", 0, &key),
          CALLGATE_EMPTY_IDENTITY, key);
    FAILS(callgate_key_make(&w.gate, CALLGATE_DOMAIN_CALLER, NULL, 0, &key),
          CALLGATE_EMPTY_IDENTITY, key);
    errors_of_a_reconfiguration(&w);
    EQUAL(tokens_left(&w, &good), 59);
    EQUAL(callgate_decisions_get(&w.gate, PER_CALLER, &counted), CALLGATE_OK);
    EQUAL(counted.admitted, 0);
    errors_of_times(&w);
}

void errors_of_permits(void) {
    static world w, other;
    callgate_permit permit, bad, copy;
    callgate_decision decision;
    world_open(&w, 7);
    world_open(&other, 8);
    callgate_call call = call_of(PER_TOOL, NULL, &w.search);
    EQUAL(callgate_admit_at(&w.gate, &call, 0, 0, &permit, &decision), CALLGATE_OK);
    memset(&bad, 0, sizeof bad);
    EQUAL(callgate_settle_at(&w.gate, &bad, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_ALREADY_SETTLED);
    EQUAL(callgate_settle(&w.gate, &bad, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_ALREADY_SETTLED);
    FAILS(callgate_settle_at(&w.gate, &bad, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_UNKNOWN_PERMIT, bad);
    FAILS(callgate_settle(&w.gate, &bad, CALLGATE_OUTCOME_CANCELLED, 0), CALLGATE_UNKNOWN_PERMIT,
          bad);
    copy = permit;
    EQUAL(callgate_settle_at(&other.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0),
          CALLGATE_UNKNOWN_PERMIT);
    EQUAL(callgate_settle_at(&w.gate, &permit, 0, 0, 0, 0), CALLGATE_UNKNOWN_OUTCOME);
    EQUAL(callgate_settle_at(&w.gate, &permit, 5, 0, 0, 0), CALLGATE_UNKNOWN_OUTCOME);
    EQUAL(callgate_settle(&w.gate, &permit, UINT32_MAX, 0), CALLGATE_UNKNOWN_OUTCOME);
    EQUAL(callgate_settle_at(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0, TIME_LIMIT, 0),
          CALLGATE_TIME_OUT_OF_RANGE);
    CHECK(memcmp(&copy, &permit, sizeof copy) == 0);
    EQUAL(tokens_left(&w, &call), 0);
    EQUAL(callgate_settle_at(&w.gate, &permit, CALLGATE_OUTCOME_CANCELLED, 0, 0, 0), CALLGATE_OK);
    EQUAL(tokens_left(&w, &call), 1);
}

/* One bad call among good ones: none is decided. */
void errors_of_batches(void) {
    static world w;
    callgate_call calls[3], good;
    callgate_permit permits[3];
    callgate_decision decisions[3];
    callgate_decisions counted;
    unsigned n;
    world_open(&w, 7);
    good = call_of(PER_CALLER, &w.alice, NULL);
    for (n = 0; n < 3; n += 1) {
        const struct { unsigned field; uintmax_t status; } bad[] = {
            {0, CALLGATE_BAD_STRUCT_SIZE}, {1, CALLGATE_UNKNOWN_POLICY},
            {2, CALLGATE_MISSING_CALLER}, {3, CALLGATE_RESERVED_NOT_ZERO}};
        unsigned kind;
        for (kind = 0; kind < 4; kind += 1) {
            calls[0] = calls[1] = calls[2] = good;
            if (bad[kind].field == 0) calls[n].struct_size = 1;
            if (bad[kind].field == 1) calls[n].policy = POLICIES;
            if (bad[kind].field == 2) memset(&calls[n].caller, 0, sizeof calls[n].caller);
            if (bad[kind].field == 3) calls[n].reserved[1] = 1;
            STAIN(permits);
            FAILS(callgate_admit_many_at(&w.gate, calls, 3, 0, 0, permits, decisions),
                  bad[kind].status, decisions);
            FAILS(callgate_admit_many(&w.gate, calls, 3, permits, decisions), bad[kind].status,
                  decisions);
            STAINED(permits);
        }
    }
    calls[0] = calls[1] = calls[2] = good;
    FAILS(callgate_admit_many_at(&w.gate, calls, 3, TIME_LIMIT, 0, permits, decisions),
          CALLGATE_TIME_OUT_OF_RANGE, decisions);
    EQUAL(tokens_left(&w, &good), 59);
    EQUAL(callgate_decisions_get(&w.gate, PER_CALLER, &counted), CALLGATE_OK);
    EQUAL(counted.admitted, 0);
}

static void names(int32_t status, const char *field) {
    const char *name = callgate_error_field(status);
    CHECK(field ? name != NULL && strcmp(name, field) == 0 : name == NULL);
}

void errors_have_texts(void) {
    const int32_t known[] = {0,  1,  2,  3,  4,  16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                             26, 27, 28, 29, 30, 31, 32, 33, 64, 65, 66, 67, 68, 69, 70, 71,
                             72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85};
    const size_t count = sizeof known / sizeof known[0];
    const char *unknown = callgate_strerror(-1);
    size_t a, b;
    int32_t status;
    for (status = -300; status <= 300; status += 1) CHECK(callgate_strerror(status) != NULL);
    CHECK(strcmp(callgate_strerror(INT32_MIN), callgate_strerror(INT32_MAX)) == 0);
    for (a = 0; a < count; a += 1) {
        CHECK(strlen(callgate_strerror(known[a])) > 3);
        CHECK(strcmp(callgate_strerror(known[a]), unknown) != 0);
        for (b = 0; b < a; b += 1) {
            CHECK(strcmp(callgate_strerror(known[a]), callgate_strerror(known[b])) != 0);
        }
    }
    names(CALLGATE_OK, NULL);
    names(CALLGATE_NULL_POINTER, NULL);
    names(-1, NULL);
    names(86, NULL);
    names(CALLGATE_CONFIG_CAPACITY, "capacity");
    names(CALLGATE_CONFIG_SECRET, "secret");
    names(CALLGATE_CONFIG_COUNT, "count");
    names(CALLGATE_CONFIG_PERIOD, "period_ns");
    names(CALLGATE_CONFIG_BURST, "burst");
    names(CALLGATE_CONFIG_KIND, "kind");
    names(CALLGATE_CONFIG_SCOPE, "scope");
    names(CALLGATE_TIME_OUT_OF_RANGE, "now_ns");
    names(CALLGATE_UNKNOWN_POLICY, "policy");
    names(CALLGATE_UNKNOWN_LIMIT, "limit");
    names(CALLGATE_CONFIG_MAX_IN_FLIGHT, "max_in_flight");
    names(CALLGATE_CONFIG_LEASE, "lease_ns");
    names(CALLGATE_CONFIG_REJECT_TRIP, "reject_trip");
    names(CALLGATE_CONFIG_FAILURE_TRIP, "failure_trip");
    names(CALLGATE_CONFIG_COOLDOWN, "cooldown_ns");
    names(CALLGATE_CONFIG_HALF_OPEN_PROBES, "half_open_probes");
    names(CALLGATE_CONFIG_LIMIT, "limit");
    names(CALLGATE_CONFIG_PERIOD_S, "period_s");
    names(CALLGATE_CONFIG_MUST_SEED, "must_seed");
    names(CALLGATE_BAD_WINDOW, "end_unix_s");
}
