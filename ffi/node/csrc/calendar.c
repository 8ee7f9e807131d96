/* What quotas add to a gate: windows that JavaScript works out, and seeds. */
#include "engine.h"

#include <time.h>

/* The second of a call since the Unix epoch. */
int unix_seconds(const Exchange *x, uint64_t *seconds) {
    struct timespec now;
    if (x->timing & TIMING_NOW) {
        *seconds = x->unix_ns / 1000000000;
        return 0;
    }
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    *seconds = now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec;
    return 0;
}

/* useZones(whether): where true, the windows of the day are to be set before the next call. */
napi_value seat_use_zones(napi_env env, napi_callback_info info) {
    napi_value whether;
    size_t count = 1;
    bool has_zones = false;
    Seat *seat = seat_of(env, info, &count, &whether);
    if (seat == NULL) return NULL;
    if (count != 1 || napi_get_value_bool(env, whether, &has_zones) != napi_ok) {
        return misused(env, "useZones: bad arguments");
    }
    seat->has_zones = has_zones;
    seat->windows_from_s = 0;
    seat->windows_until_s = 0;
    seat->exchange->status = CALLGATE_OK;
    return NULL;
}

/* window(): sets the window of the quota `index`, from `start_s` to `end_s`. */
napi_value seat_window(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL) return NULL;
    Exchange *x = seat->exchange;
    x->status = callgate_window_set(&seat->core->gate, x->index, x->start_s, x->end_s);
    /* Another thread may have made it a quota with a period. */
    if (x->status == CALLGATE_NOT_A_QUOTA) x->status = CALLGATE_OK;
    return NULL;
}

/* windowsHold(): what was set is right from `start_s` until `end_s`. */
napi_value seat_windows_hold(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL) return NULL;
    seat->windows_from_s = seat->exchange->start_s;
    seat->windows_until_s = seat->exchange->end_s;
    seat->exchange->status = CALLGATE_OK;
    return NULL;
}

/* seed(): tells the quota `index` under `scope` what the call's caller and tool have `used`. */
napi_value seat_seed(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 1) < 0) return NULL;
    const callgate_gate *gate = &seat->core->gate;
    Exchange *x = seat->exchange;
    const callgate_key *caller = &x->call.caller, *tool = &x->call.tool;
    x->status = texts_read(seat->core, x);
    if (x->status != CALLGATE_OK) return NULL;
    x->status = x->timing & TIMING_NOW
                    ? callgate_seed_at(gate, x->index, x->scope, caller, tool, x->used, x->now_ns,
                                       x->unix_ns)
                    : callgate_seed(gate, x->index, x->scope, caller, tool, x->used);
    return NULL;
}
