/* What a gate tells about itself: its table, its guards, its decisions. */
#include "engine.h"

/* stats(): a callgate_stats in `figures`. */
napi_value seat_stats(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 0) < 0) return NULL;
    Exchange *x = seat->exchange;
    callgate_stats *stats = (callgate_stats *)x->figures;
    x->status = x->timing & TIMING_NOW
                    ? callgate_stats_get_at(&seat->core->gate, x->now_ns, x->unix_ns, stats)
                    : callgate_stats_get(&seat->core->gate, stats);
    return NULL;
}

/* guards(): a callgate_guards of the limit `index` in `figures`. No guard looks at the wall clock. */
napi_value seat_guards(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL) return NULL;
    Exchange *x = seat->exchange;
    callgate_guards *guards = (callgate_guards *)x->figures;
    x->status = x->timing & TIMING_NOW
                    ? callgate_guards_get_at(&seat->core->gate, x->index, x->now_ns, 0, guards)
                    : callgate_guards_get(&seat->core->gate, x->index, guards);
    return NULL;
}

/* decisions(): a callgate_decisions of the policy `index` in `figures`. */
napi_value seat_decisions(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL) return NULL;
    Exchange *x = seat->exchange;
    x->status =
        callgate_decisions_get(&seat->core->gate, x->index, (callgate_decisions *)x->figures);
    return NULL;
}

/* metrics() -> OpenMetrics text, or undefined where `status` says why not. */
napi_value seat_metrics(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 0) < 0) return NULL;
    const Core *core = seat->core;
    Exchange *x = seat->exchange;
    const char *const *policies = (const char *const *)core->policy_names;
    const char *const *limits = (const char *const *)core->limit_names;
    char *buffer = NULL;
    size_t needed = 4096;
    do {
        size_t size = needed + 256; /* numbers grow from one attempt to the next */
        char *larger = realloc(buffer, size);
        if (larger == NULL) {
            free(buffer);
            return misused(env, "out of memory");
        }
        buffer = larger;
        x->status = x->timing & TIMING_NOW
                        ? callgate_metrics_at(&core->gate, policies, limits, buffer, size, &needed,
                                              x->now_ns, x->unix_ns)
                        : callgate_metrics(&core->gate, policies, limits, buffer, size, &needed);
    } while (x->status == CALLGATE_BUFFER_TOO_SMALL);
    napi_value text = x->status == CALLGATE_OK ? string_of(env, buffer) : NULL;
    free(buffer);
    return text;
}
