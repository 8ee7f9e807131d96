/* Concurrency limits and quotas, by the book. C99 and C++17. */
#include "check.h"

enum { GUARD, DAILY, ZONED, KINDS };
enum { GUARDED, COUNTED, IN_ZONE, BOTH };

static void plan(world *w) {
    callgate_limit *guard = &w->limits[GUARD], *daily = &w->limits[DAILY];
    world_plan(w, 7);
    memset(w->limits, 0, sizeof w->limits);
    memset(w->policies, 0, sizeof w->policies);
    guard->kind = CALLGATE_KIND_CONCURRENCY;
    guard->max_in_flight = 2;
    guard->lease_ns = 60 * SECOND;
    guard->reject_trip = 2;
    guard->failure_trip = 2;
    guard->cooldown_ns = 5 * SECOND;
    guard->half_open_probes = 1;
    daily->kind = CALLGATE_KIND_QUOTA;
    daily->limit = 100;
    daily->period_s = 86400;
    w->limits[ZONED] = *daily;
    w->limits[ZONED].period_s = 0;
    w->limits[ZONED].must_seed = 1;
    w->config.limit_count = KINDS;
    w->config.policy_count = 4;
    w->policies[GUARDED].rule_count = 1;
    w->policies[GUARDED].rules[0].limit = GUARD;
    w->policies[GUARDED].rules[0].scope = CALLGATE_SCOPE_SHARED;
    w->policies[COUNTED].rule_count = 1;
    w->policies[COUNTED].rules[0].limit = DAILY;
    w->policies[COUNTED].rules[0].scope = CALLGATE_SCOPE_CALLER;
    w->policies[IN_ZONE].rule_count = 1;
    w->policies[IN_ZONE].rules[0].limit = ZONED;
    w->policies[IN_ZONE].rules[0].scope = CALLGATE_SCOPE_CALLER;
    w->policies[BOTH].rule_count = 2;
    w->policies[BOTH].rules[0] = w->policies[GUARDED].rules[0];
    w->policies[BOTH].rules[1] = w->policies[COUNTED].rules[0];
}

static void open_kinds(world *w) {
    plan(w);
    EQUAL(callgate_size(&w->config, &w->size), CALLGATE_OK);
    EQUAL(callgate_init(w->memory, w->size, &w->config, &w->gate), CALLGATE_OK);
    EQUAL(callgate_key_make(&w->gate, CALLGATE_DOMAIN_CALLER, "alice", 5, &w->alice), CALLGATE_OK);
    EQUAL(callgate_key_make(&w->gate, CALLGATE_DOMAIN_CALLER, "bob", 3, &w->bob), CALLGATE_OK);
}

static callgate_decision ask(world *w, const callgate_call *call, uint64_t now_ns, uint64_t unix_ns,
                             callgate_permit *permit) {
    callgate_decision decision;
    STAIN(decision);
    EQUAL(callgate_admit_at(&w->gate, call, now_ns, unix_ns, permit, &decision), CALLGATE_OK);
    return decision;
}

static int32_t settle(world *w, callgate_permit *permit, uint32_t outcome, uint64_t now_ns) {
    return callgate_settle_at(&w->gate, permit, outcome, 0, now_ns, 0);
}

static callgate_guards guards(world *w, uint64_t now_ns) {
    callgate_guards found;
    STAIN(found);
    EQUAL(callgate_guards_get_at(&w->gate, GUARD, now_ns, 0, &found), CALLGATE_OK);
    return found;
}

static void places_are_taken_and_given_back(void) {
    static world w;
    callgate_permit a, b, c;
    open_kinds(&w);
    callgate_call call = call_of(GUARDED, NULL, NULL);
    DECIDED(ask(&w, &call, 0, 0, &a), 0, GUARD, 0, 2, 1, 0);
    DECIDED(ask(&w, &call, 0, 0, &b), 0, GUARD, 0, 2, 0, 0);
    DECIDED(ask(&w, &call, 0, 0, &c), CALLGATE_REASON_CONCURRENCY, GUARD, 0, 2, 0, 0);
    EQUAL(settle(&w, &c, CALLGATE_OUTCOME_SUCCESS, 0), CALLGATE_ALREADY_SETTLED);
    EQUAL(guards(&w, 0).in_flight, 2);
    EQUAL(settle(&w, &a, CALLGATE_OUTCOME_SUCCESS, 1), CALLGATE_OK);
    EQUAL(settle(&w, &a, CALLGATE_OUTCOME_SUCCESS, 1), CALLGATE_ALREADY_SETTLED);
    EQUAL(guards(&w, 1).in_flight, 1);
    EQUAL(guards(&w, 120 * SECOND - 1).in_flight, 1);
    EQUAL(settle(&w, &b, CALLGATE_OUTCOME_FAILURE, 120 * SECOND), CALLGATE_LAPSED);
    EQUAL(guards(&w, 120 * SECOND).lapsed, 1);
}

static void a_breaker_opens_probes_and_closes(void) {
    static world w;
    callgate_permit a, b, p;
    open_kinds(&w);
    callgate_call call = call_of(GUARDED, NULL, NULL);
    CHECK(ask(&w, &call, 0, 0, &a).admitted && ask(&w, &call, 0, 0, &b).admitted);
    DECIDED(ask(&w, &call, 0, 0, NULL), CALLGATE_REASON_CONCURRENCY, GUARD, 0, 2, 0, 0);
    DECIDED(ask(&w, &call, 0, 0, NULL), CALLGATE_REASON_BREAKER_OPEN, GUARD, 5 * SECOND, 2, 0, 0);
    EQUAL(guards(&w, 0).open, 1);
    EQUAL(guards(&w, 0).trips, 1);
    EQUAL(settle(&w, &a, CALLGATE_OUTCOME_FAILURE, 0), CALLGATE_OK);
    EQUAL(settle(&w, &b, CALLGATE_OUTCOME_ABANDONED, 0), CALLGATE_OK);
    DECIDED(ask(&w, &call, 5 * SECOND - 1, 0, NULL), CALLGATE_REASON_BREAKER_OPEN, GUARD, 1, 2, 2,
            0);
    DECIDED(ask(&w, &call, 5 * SECOND, 0, &p), 0, GUARD, 0, 2, 1, 0);
    EQUAL(guards(&w, 5 * SECOND).half_open, 1);
    DECIDED(ask(&w, &call, 5 * SECOND, 0, NULL), CALLGATE_REASON_BREAKER_OPEN, GUARD, 0, 2, 1, 0);
    EQUAL(settle(&w, &p, CALLGATE_OUTCOME_SUCCESS, 5 * SECOND), CALLGATE_OK);
    EQUAL(guards(&w, 5 * SECOND).half_open, 0);
    CHECK(ask(&w, &call, 5 * SECOND, 0, NULL).admitted);
}

static void a_quota_is_used_up_and_ends(void) {
    static world w;
    const uint64_t day = 86400 * SECOND, noon = day / 2;
    callgate_permit a, b;
    open_kinds(&w);
    callgate_call call = call_of(COUNTED, &w.alice, NULL);
    DECIDED(ask(&w, &call, 0, noon, &a), 0, DAILY, 0, 100, 100, noon);
    call.reserve = 80;
    DECIDED(ask(&w, &call, 0, noon, &b), 0, DAILY, 0, 100, 20, noon);
    DECIDED(ask(&w, &call, 0, noon, NULL), CALLGATE_REASON_QUOTA, DAILY, noon, 100, 20, noon);
    EQUAL(callgate_settle_at(&w.gate, &b, CALLGATE_OUTCOME_SUCCESS, 30, 0, noon), CALLGATE_OK);
    EQUAL(callgate_settle_at(&w.gate, &a, CALLGATE_OUTCOME_FAILURE, 90, 0, noon), CALLGATE_OK);
    call.reserve = 0;
    DECIDED(ask(&w, &call, 0, day - 1, NULL), CALLGATE_REASON_QUOTA, DAILY, 1, 100, 0, 1);
    DECIDED(ask(&w, &call, 0, day, NULL), 0, DAILY, 0, 100, 100, day);
    call.reserve = 101;
    DECIDED(ask(&w, &call, 0, day, NULL), CALLGATE_REASON_NEVER, DAILY, 0, 100, 100, day);
}

static void windows_and_ledgers_are_the_hosts(void) {
    static world w;
    const uint64_t hour = 3600 * SECOND;
    const callgate_gate *g = &w.gate;
    callgate_decision decision;
    open_kinds(&w);
    callgate_call call = call_of(IN_ZONE, &w.alice, NULL);
    /* A day of 23 hours. */
    EQUAL(callgate_window_set(g, ZONED, 10 * 3600, 33 * 3600), CALLGATE_OK);
    DECIDED(ask(&w, &call, 0, 12 * hour, NULL), CALLGATE_REASON_UNSEEDED, ZONED, 0, 100, 100,
            21 * hour);
    EQUAL(callgate_seed_at(g, ZONED, CALLGATE_SCOPE_CALLER, &w.alice, NULL, 99, 0, 12 * hour),
          CALLGATE_OK);
    EQUAL(callgate_seed_at(g, ZONED, CALLGATE_SCOPE_CALLER, &w.alice, NULL, 99, 0, 12 * hour),
          CALLGATE_ALREADY_SEEDED);
    DECIDED(ask(&w, &call, 0, 12 * hour, NULL), 0, ZONED, 0, 100, 1, 21 * hour);
    DECIDED(ask(&w, &call, 0, 33 * hour, NULL), CALLGATE_REASON_UNSEEDED, ZONED, 0, 100, 100,
            23 * hour);
    EQUAL(callgate_window_set(g, ZONED, 33 * 3600, 57 * 3600), CALLGATE_OK);
    DECIDED(ask(&w, &call, 0, 33 * hour, NULL), CALLGATE_REASON_UNSEEDED, ZONED, 0, 100, 100,
            24 * hour);
    EQUAL(callgate_seed(g, ZONED, CALLGATE_SCOPE_CALLER, &w.bob, NULL, 1), CALLGATE_OK);
    call.caller = w.bob;
    EQUAL(callgate_admit(g, &call, NULL, &decision), CALLGATE_OK);
    CHECK(decision.admitted && decision.reset_after_ns <= 24 * hour);
}

static void what_is_no_quota_is_not_seeded(void) {
    static world w;
    const callgate_gate *g = &w.gate;
    const callgate_key *alice = &w.alice;
    const uint32_t caller = CALLGATE_SCOPE_CALLER, tool = CALLGATE_SCOPE_CALLER_TOOL;
    callgate_guards found;
    open_kinds(&w);
    EQUAL(callgate_seed_at(g, GUARD, caller, alice, NULL, 1, 0, 0), CALLGATE_NOT_A_QUOTA);
    EQUAL(callgate_seed_at(g, KINDS, caller, alice, NULL, 1, 0, 0), CALLGATE_UNKNOWN_LIMIT);
    EQUAL(callgate_seed_at(g, 256, caller, alice, NULL, 1, 0, 0), CALLGATE_UNKNOWN_LIMIT);
    EQUAL(callgate_seed_at(g, DAILY, 0, alice, NULL, 1, 0, 0), CALLGATE_CONFIG_SCOPE);
    EQUAL(callgate_seed_at(g, DAILY, caller, NULL, alice, 1, 0, 0), CALLGATE_MISSING_CALLER);
    EQUAL(callgate_seed_at(g, DAILY, tool, alice, NULL, 1, 0, 0), CALLGATE_MISSING_TOOL);
    EQUAL(callgate_seed_at(g, DAILY, caller, alice, NULL, 1, TIME_LIMIT, 0),
          CALLGATE_TIME_OUT_OF_RANGE);
    EQUAL(callgate_window_set(g, GUARD, 0, 1), CALLGATE_NOT_A_QUOTA);
    EQUAL(callgate_window_set(g, DAILY, 0, 1), CALLGATE_NOT_A_QUOTA);
    EQUAL(callgate_window_set(g, KINDS, 0, 1), CALLGATE_UNKNOWN_LIMIT);
    EQUAL(callgate_window_set(g, ZONED, 1, 1), CALLGATE_BAD_WINDOW);
    EQUAL(callgate_window_set(g, ZONED, 2, 1), CALLGATE_BAD_WINDOW);
    EQUAL(callgate_window_set(g, ZONED, 0, 1 << 29), CALLGATE_BAD_WINDOW);
    EQUAL(callgate_window_set(g, ZONED, UINT64_C(1) << 35, (UINT64_C(1) << 35) + 1),
          CALLGATE_BAD_WINDOW);
    FAILS(callgate_guards_get_at(g, DAILY, 0, 0, &found), CALLGATE_UNKNOWN_LIMIT, found);
    FAILS(callgate_guards_get_at(g, 256, 0, 0, &found), CALLGATE_UNKNOWN_LIMIT, found);
    FAILS(callgate_guards_get_at(g, GUARD, TIME_LIMIT, 0, &found), CALLGATE_TIME_OUT_OF_RANGE,
          found);
    EQUAL(callgate_guards_get(g, GUARD, NULL), CALLGATE_NULL_POINTER);
    EQUAL(callgate_guards_get(g, GUARD, &found), CALLGATE_OK);
    EQUAL(found.in_flight, 0);
}

static void a_refusal_takes_no_place(void) {
    static world w;
    open_kinds(&w);
    callgate_call call = call_of(BOTH, &w.alice, NULL);
    call.reserve = 101;
    DECIDED(ask(&w, &call, 0, 0, NULL), CALLGATE_REASON_NEVER, DAILY, 0, 100, 100, 86400 * SECOND);
    EQUAL(guards(&w, 0).in_flight, 0);
    call.reserve = 1;
    /* Of an admitted call, the quota's figures. */
    DECIDED(ask(&w, &call, 0, 0, NULL), 0, DAILY, 0, 100, 99, 86400 * SECOND);
    EQUAL(guards(&w, 0).in_flight, 1);
}

static void a_guard_keeps_its_lease(void) {
    static world w;
    open_kinds(&w);
    callgate_limit to = w.limits[GUARD];
    callgate_call call = call_of(GUARDED, NULL, NULL);
    to.lease_ns += 1;
    EQUAL(callgate_reconfigure_at(&w.gate, GUARD, &to, 0, 0), CALLGATE_CONFIG_LEASE);
    to.lease_ns -= 1;
    to.max_in_flight = 1;
    CHECK(ask(&w, &call, 0, 0, NULL).admitted && ask(&w, &call, 0, 0, NULL).admitted);
    EQUAL(callgate_reconfigure_at(&w.gate, GUARD, &to, 0, 0), CALLGATE_OK);
    DECIDED(ask(&w, &call, 0, 0, NULL), CALLGATE_REASON_CONCURRENCY, GUARD, 0, 1, 0, 0);
    EQUAL(callgate_reconfigure_at(&w.gate, GUARD, &w.limits[DAILY], 0, 0), CALLGATE_CONFIG_KIND);
}

static void metrics_are_openmetrics(void) {
    static world w;
    static char text[4096], small[16];
    const char *policies[] = {"guarded", "counted", "zone \"x\"", "both"};
    const char *limits[] = {"server", "units", "units by zone"}, *gone[] = {"a", NULL, "c"};
    const char *expected =
        "# HELP callgate_decisions Calls decided, by policy, limit and reason.\n"
        "# TYPE callgate_decisions counter\n"
        "callgate_decisions_total{policy=\"guarded\",limit=\"\",reason=\"admitted\"} 2\n"
        "callgate_decisions_total{policy=\"guarded\",limit=\"server\",reason=\"concurrency\"} 1\n"
        "callgate_decisions_total{policy=\"counted\",limit=\"\",reason=\"admitted\"} 0\n"
        "callgate_decisions_total{policy=\"zone \\\"x\\\"\",limit=\"\",reason=\"admitted\"} 0\n"
        "callgate_decisions_total{policy=\"both\",limit=\"\",reason=\"admitted\"} 0\n"
        "# HELP callgate_in_flight Calls that hold a place.\n"
        "# TYPE callgate_in_flight gauge\n"
        "callgate_in_flight{limit=\"server\"} 2\n"
        "# HELP callgate_breaker_open Breakers that are open.\n"
        "# TYPE callgate_breaker_open gauge\n"
        "callgate_breaker_open{limit=\"server\"} 0\n"
        "# HELP callgate_breaker_half_open Breakers that are half-open.\n"
        "# TYPE callgate_breaker_half_open gauge\n"
        "callgate_breaker_half_open{limit=\"server\"} 0\n"
        "# HELP callgate_breaker_trips How often a breaker opened.\n"
        "# TYPE callgate_breaker_trips counter\n"
        "callgate_breaker_trips_total{limit=\"server\"} 0\n"
        "# HELP callgate_permits_lapsed Permits settled after their lease.\n"
        "# TYPE callgate_permits_lapsed counter\n"
        "callgate_permits_lapsed_total{limit=\"server\"} 0\n"
        "# HELP callgate_table_slots Slots of the table, by what they hold.\n"
        "# TYPE callgate_table_slots gauge\n"
        "callgate_table_slots{state=\"live\"} 1\n"
        "callgate_table_slots{state=\"at_rest\"} 0\n"
        "callgate_table_slots{state=\"claimed\"} 0\n"
        "callgate_table_slots{state=\"empty\"} 23\n"
        "# EOF\n";
    size_t needed, exact;
    const callgate_gate *g = &w.gate;
    open_kinds(&w);
    callgate_call call = call_of(GUARDED, NULL, NULL);
    CHECK(ask(&w, &call, 0, 0, NULL).admitted && ask(&w, &call, 0, 0, NULL).admitted);
    CHECK(!ask(&w, &call, 0, 0, NULL).admitted);
    EQUAL(callgate_metrics_at(g, policies, limits, NULL, 0, &exact, 0, 0),
          CALLGATE_BUFFER_TOO_SMALL);
    EQUAL(exact, strlen(expected) + 1);
    EQUAL(callgate_metrics_at(g, policies, limits, text, exact, &needed, 0, 0), CALLGATE_OK);
    EQUAL(needed, exact);
    CHECK(strcmp(text, expected) == 0);
    if (strcmp(text, expected) != 0) printf("%s", text);
    STAIN(small);
    EQUAL(callgate_metrics_at(g, policies, limits, small, 8, &needed, 0, 0),
          CALLGATE_BUFFER_TOO_SMALL);
    EQUAL(needed, exact);
    CHECK(is_stained(small + 8, sizeof small - 8));
    EQUAL(callgate_metrics(g, NULL, NULL, text, sizeof text, &needed), CALLGATE_OK);
    CHECK(strstr(text, "{policy=\"0\",limit=\"0\",reason=\"concurrency\"} 1\n") != NULL);
    EQUAL(needed, strlen(text) + 1);
    FAILS(callgate_metrics_at(g, policies, gone, text, sizeof text, &needed, 0, 0),
          CALLGATE_NULL_POINTER, needed);
    FAILS(callgate_metrics_at(g, NULL, NULL, NULL, 1, &needed, 0, 0), CALLGATE_NULL_POINTER, needed);
    FAILS(callgate_metrics_at(g, NULL, NULL, text, 1, &needed, TIME_LIMIT, 0),
          CALLGATE_TIME_OUT_OF_RANGE, needed);
    EQUAL(callgate_metrics(g, NULL, NULL, text, sizeof text, NULL), CALLGATE_NULL_POINTER);
}

void places_and_quotas(void) {
    metrics_are_openmetrics();
    places_are_taken_and_given_back();
    a_breaker_opens_probes_and_closes();
    a_quota_is_used_up_and_ends();
    windows_and_ledgers_are_the_hosts();
    what_is_no_quota_is_not_seeded();
    a_refusal_takes_no_place();
    a_guard_keeps_its_lease();
}
