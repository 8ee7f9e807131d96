/* The layout of every struct of callgate.h, as ffi/src/types.rs asserts it in Rust. Checked by the
 * compiler wherever this is included. */
#ifndef CALLGATE_LAYOUT_H
#define CALLGATE_LAYOUT_H

#include <stddef.h>

#include "callgate.h"

#if defined(__cplusplus)
#define LAYOUT(holds) static_assert(holds, #holds)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define LAYOUT(holds) _Static_assert(holds, #holds)
#else /* C99 has no assertions; an array of a negative size serves. */
#define LAYOUT_JOIN_(a, b) a##b
#define LAYOUT_JOIN(a, b) LAYOUT_JOIN_(a, b)
#define LAYOUT(holds) typedef char LAYOUT_JOIN(layout_, __LINE__)[(holds) ? 1 : -1]
#endif

#define AT(type, field, offset) LAYOUT(offsetof(type, field) == (offset))

LAYOUT(sizeof(callgate_status) == 4);
LAYOUT(CALLGATE_VERSION == 0x000100);

LAYOUT(sizeof(callgate_limit) == 96);
AT(callgate_limit, kind, 0);
AT(callgate_limit, reserved_0, 4);
AT(callgate_limit, count, 8);
AT(callgate_limit, period_ns, 16);
AT(callgate_limit, burst, 24);
AT(callgate_limit, max_in_flight, 32);
AT(callgate_limit, half_open_probes, 36);
AT(callgate_limit, lease_ns, 40);
AT(callgate_limit, reject_trip, 48);
AT(callgate_limit, failure_trip, 52);
AT(callgate_limit, cooldown_ns, 56);
AT(callgate_limit, limit, 64);
AT(callgate_limit, period_s, 72);
AT(callgate_limit, anchor_unix_s, 80);
AT(callgate_limit, must_seed, 88);
AT(callgate_limit, reserved, 92);

LAYOUT(sizeof(callgate_rule) == 8);
AT(callgate_rule, limit, 0);
AT(callgate_rule, scope, 4);

LAYOUT(sizeof(callgate_policy) == 72);
AT(callgate_policy, rule_count, 0);
AT(callgate_policy, reserved, 4);
AT(callgate_policy, rules, 8);

AT(callgate_config, struct_size, 0);
AT(callgate_config, capacity, 4);
AT(callgate_config, secret, 8);
AT(callgate_config, limit_count, 24);
AT(callgate_config, policy_count, 28);
AT(callgate_config, limits, 32);
#if UINTPTR_MAX == UINT64_MAX
LAYOUT(sizeof(callgate_config) == 80);
AT(callgate_config, policies, 40);
AT(callgate_config, reserved, 48);
#endif

LAYOUT(sizeof(callgate_fault) == 12);
AT(callgate_fault, status, 0);
AT(callgate_fault, limit, 4);
AT(callgate_fault, policy, 8);

LAYOUT(sizeof(callgate_gate) == 192);
AT(callgate_gate, opaque, 0);

LAYOUT(sizeof(callgate_key) == 16);
AT(callgate_key, lo, 0);
AT(callgate_key, hi, 8);

LAYOUT(sizeof(callgate_call) == 72);
AT(callgate_call, struct_size, 0);
AT(callgate_call, policy, 4);
AT(callgate_call, caller, 8);
AT(callgate_call, tool, 24);
AT(callgate_call, cost, 40);
AT(callgate_call, reserve, 48);
AT(callgate_call, reserved, 56);

LAYOUT(sizeof(callgate_permit) == 160);
AT(callgate_permit, opaque, 0);

LAYOUT(sizeof(callgate_decision) == 48);
AT(callgate_decision, admitted, 0);
AT(callgate_decision, reason, 4);
AT(callgate_decision, by, 8);
AT(callgate_decision, reserved, 12);
AT(callgate_decision, retry_after_ns, 16);
AT(callgate_decision, limit, 24);
AT(callgate_decision, remaining, 32);
AT(callgate_decision, reset_after_ns, 40);

LAYOUT(sizeof(callgate_stats) == 40);
AT(callgate_stats, slots, 0);
AT(callgate_stats, live, 8);
AT(callgate_stats, at_rest, 16);
AT(callgate_stats, claimed, 24);
AT(callgate_stats, empty, 32);

LAYOUT(sizeof(callgate_guards) == 40);
AT(callgate_guards, in_flight, 0);
AT(callgate_guards, open, 8);
AT(callgate_guards, half_open, 16);
AT(callgate_guards, trips, 24);
AT(callgate_guards, lapsed, 32);

LAYOUT(sizeof(callgate_decisions) == 520);
AT(callgate_decisions, admitted, 0);
AT(callgate_decisions, refused, 8);

#endif
