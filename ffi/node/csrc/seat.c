/* Seats: what one thread has of a gate. */
#include "engine.h"

/* What the collector is told that an unreachable gate keeps: else it would be in no hurry. */
static void tell_size(napi_env env, int64_t change) {
    int64_t total;
    napi_adjust_external_memory(env, change, &total);
}

static void core_leave(napi_env env, Seat *seat) {
    tell_size(env, -(int64_t)seat->core->size);
    core_release(seat->core);
    seat->core = NULL;
}

static void seat_release(Seat *seat, napi_env env) {
    if (--seat->references > 0) return;
    if (seat->core != NULL) core_leave(env, seat);
    if (seat->buffer != NULL) napi_delete_reference(env, seat->buffer);
    free(seat);
}

static void function_gone(napi_env env, void *data, void *hint) {
    (void)hint;
    seat_release(data, env);
}

/* close(): the memory is given back once all threads have closed theirs. Again: does nothing. */
static napi_value seat_close(napi_env env, napi_callback_info info) {
    Seat *seat = NULL;
    if (napi_get_cb_info(env, info, NULL, NULL, NULL, (void **)&seat) != napi_ok) return NULL;
    if (seat->core != NULL) core_leave(env, seat);
    return NULL;
}

/* As seat_timing(), where that is not plain to see. */
int seat_clocks(Seat *seat, int needs_windows) {
    Exchange *x = seat->exchange;
    uint64_t second;
    if (x->timing == TIMING_NOW && atomic_load_explicit(&seat->core->has_quota, memory_order_relaxed)) {
        x->status = SEAT_NEEDS_UNIX_NS;
        return -1;
    }
    if (!needs_windows || !seat->has_zones) return 0;
    if (unix_seconds(x, &second) < 0) {
        x->status = CALLGATE_CLOCK_FAILED;
        return -1;
    }
    if (seat->windows_from_s <= second && second < seat->windows_until_s) return 0;
    x->start_s = second;
    x->status = SEAT_NEEDS_WINDOWS;
    return -1;
}

typedef struct {
    const char *name;
    napi_callback function;
} Method;

static const Method METHODS[] = {
    {"admit", seat_admit},       {"admitMany", seat_admit_many}, {"peek", seat_peek},
    {"settle", seat_settle},     {"key", seat_key},              {"texts", seat_texts},
    {"seed", seat_seed},
    {"useZones", seat_use_zones}, {"window", seat_window},       {"windowsHold", seat_windows_hold},
    {"stats", seat_stats},       {"guards", seat_guards},        {"decisions", seat_decisions},
    {"metrics", seat_metrics},   {"reconfigure", seat_reconfigure}, {"close", seat_close},
};

static int method_add(napi_env env, napi_value object, const Method *method, Seat *seat) {
    napi_value function;
    if (napi_create_function(env, method->name, NAPI_AUTO_LENGTH, method->function, seat,
                             &function) != napi_ok ||
        napi_add_finalizer(env, function, seat, function_gone, NULL, NULL) != napi_ok) {
        return -1;
    }
    seat->references++;
    return napi_set_named_property(env, object, method->name, function) == napi_ok ? 0 : -1;
}

static int buffer_add(napi_env env, napi_value object, Seat *seat) {
    napi_value buffer;
    void *memory;
    if (napi_create_arraybuffer(env, sizeof(Exchange), &memory, &buffer) != napi_ok ||
        napi_create_reference(env, buffer, 1, &seat->buffer) != napi_ok) {
        return -1;
    }
    seat->exchange = memory;
    memset(seat->exchange, 0, sizeof *seat->exchange);
    seat->exchange->call.struct_size = sizeof seat->exchange->call;
    return napi_set_named_property(env, object, "memory", buffer) == napi_ok ? 0 : -1;
}

/* An object of functions and the memory that they share, at a core, of which it takes a
 * reference. NULL with an exception where that fails. */
napi_value seat_new(napi_env env, Core *core) {
    napi_value object = NULL;
    Seat *seat = calloc(1, sizeof *seat);
    if (seat == NULL) {
        core_release(core);
        return misused(env, "out of memory");
    }
    seat->core = core;
    seat->references = 1;
    tell_size(env, (int64_t)core->size);
    int failed = napi_create_object(env, &object) != napi_ok || buffer_add(env, object, seat) < 0;
    for (size_t n = 0; !failed && n < sizeof METHODS / sizeof METHODS[0]; n++) {
        failed = method_add(env, object, &METHODS[n], seat) < 0;
    }
    seat_release(seat, env);
    return failed ? misused(env, "the seat could not be made") : object;
}
