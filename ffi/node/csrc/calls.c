/* Deciding calls and ending them: the hot path of the package. */
#include "engine.h"

/* As texts_read(), where there are texts. */
callgate_status texts_hash(const Core *core, Exchange *x) {
    callgate_status status = CALLGATE_OK;
    if (x->caller_size > TEXT_SIZE || x->tool_size > TEXT_SIZE) return CALLGATE_EMPTY_IDENTITY;
    if (x->caller_size != 0) {
        status = callgate_key_make(&core->gate, CALLGATE_DOMAIN_CALLER, x->caller_text,
                                   x->caller_size, &x->call.caller);
    }
    if (x->tool_size != 0 && status == CALLGATE_OK) {
        status = callgate_key_make(&core->gate, CALLGATE_DOMAIN_TOOL, x->tool_text, x->tool_size,
                                   &x->call.tool);
    }
    return status;
}

/* texts(): makes the keys of the identities that came as text, which then are the call's. */
napi_value seat_texts(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL) return NULL;
    seat->exchange->status = texts_read(seat->core, seat->exchange);
    return NULL;
}

/* admit(): decides `call`. */
napi_value seat_admit(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 1) < 0) return NULL;
    const Core *core = seat->core;
    Exchange *x = seat->exchange;
    x->status = texts_read(core, x);
    if (x->status != CALLGATE_OK) return NULL;
    x->status = x->timing & TIMING_NOW
                    ? callgate_admit_at(&core->gate, &x->call, x->now_ns, x->unix_ns, &x->permit,
                                        &x->decision)
                    : callgate_admit(&core->gate, &x->call, &x->permit, &x->decision);
    return NULL;
}

/* admitMany(buffer, count): decides the calls at the head of the buffer, behind which there is room
 * for as many decisions, and then permits. */
napi_value seat_admit_many(napi_env env, napi_callback_info info) {
    napi_value arguments[2];
    size_t given = 2, size;
    uint32_t count;
    void *memory;
    Seat *seat = seat_of(env, info, &given, arguments);
    if (seat == NULL || seat_timing(seat, 1) < 0) return NULL;
    if (given != 2 || napi_get_arraybuffer_info(env, arguments[0], &memory, &size) != napi_ok ||
        word_read(env, arguments[1], &count) < 0) {
        return misused(env, "admitMany: bad arguments");
    }
    if (count > size / (sizeof(callgate_call) + sizeof(callgate_decision) + sizeof(callgate_permit))) {
        return misused(env, "admitMany: the buffer is too small");
    }
    Exchange *x = seat->exchange;
    x->status = CALLGATE_OK;
    if (count == 0) return NULL; /* an empty buffer may have no address to reckon from */
    callgate_call *calls = memory;
    callgate_decision *decisions = (callgate_decision *)(calls + count);
    callgate_permit *permits = (callgate_permit *)(decisions + count);
    for (uint32_t n = 0; n < count; n++) calls[n].struct_size = sizeof *calls;
    memset(permits, 0, count * sizeof *permits);
    const callgate_gate *gate = &seat->core->gate;
    x->status = x->timing & TIMING_NOW
                    ? callgate_admit_many_at(gate, calls, count, x->now_ns, x->unix_ns, permits,
                                             decisions)
                    : callgate_admit_many(gate, calls, count, permits, decisions);
    return NULL;
}

/* peek(): what admit() would say, as `count` decisions in `figures`. */
napi_value seat_peek(napi_env env, napi_callback_info info) {
    size_t count = 0;
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 1) < 0) return NULL;
    const Core *core = seat->core;
    Exchange *x = seat->exchange;
    callgate_decision *found = (callgate_decision *)x->figures;
    x->status = texts_read(core, x);
    if (x->status != CALLGATE_OK) return NULL;
    x->status = x->timing & TIMING_NOW
                    ? callgate_peek_at(&core->gate, &x->call, x->now_ns, x->unix_ns, found, &count)
                    : callgate_peek(&core->gate, &x->call, found, &count);
    x->count = (uint32_t)count;
    return NULL;
}

/* settle(): ends the call of `permit`, as `outcome` and `used` say. */
napi_value seat_settle(napi_env env, napi_callback_info info) {
    Seat *seat = seat_of(env, info, NULL, NULL);
    if (seat == NULL || seat_timing(seat, 0) < 0) return NULL;
    const callgate_gate *gate = &seat->core->gate;
    Exchange *x = seat->exchange;
    x->status = x->timing & TIMING_NOW
                    ? callgate_settle_at(gate, &x->permit, x->outcome, x->used, x->now_ns, x->unix_ns)
                    : callgate_settle(gate, &x->permit, x->outcome, x->used);
    return NULL;
}

/* key(bytes, domain): the key of an identity of any length, to `call.caller`. */
napi_value seat_key(napi_env env, napi_callback_info info) {
    napi_value arguments[2];
    size_t count = 2, size;
    uint32_t domain;
    void *bytes;
    Seat *seat = seat_of(env, info, &count, arguments);
    if (seat == NULL) return NULL;
    if (count != 2 || bytes_read(env, arguments[0], &bytes, &size) < 0 ||
        word_read(env, arguments[1], &domain) < 0) {
        return misused(env, "key: bad arguments");
    }
    Exchange *x = seat->exchange;
    x->status = size == 0 ? CALLGATE_EMPTY_IDENTITY
                          : callgate_key_make(&seat->core->gate, domain, bytes, size, &x->call.caller);
    return NULL;
}
