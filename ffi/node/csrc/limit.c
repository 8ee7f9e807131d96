/* Limits: from arrays of bigints to the engine's structs, and changing them. */
#include "engine.h"

/* A field of a limit: where it is, how wide, and which status blames it. */
typedef struct {
    size_t offset;
    int size; /* 4 or 8 bytes; -8 with a sign */
    callgate_status blame;
} Field;

#define FIELDS_MAX 6
#define FIELD(name, size, blame) {offsetof(callgate_limit, name), size, CALLGATE_CONFIG_##blame}

/* By CALLGATE_KIND_*, in the order of the arrays. */
static const Field FIELDS[][FIELDS_MAX + 1] = {
    [CALLGATE_KIND_RATE] = {FIELD(count, 8, COUNT), FIELD(period_ns, 8, PERIOD),
                            FIELD(burst, 8, BURST)},
    [CALLGATE_KIND_CONCURRENCY] = {FIELD(max_in_flight, 4, MAX_IN_FLIGHT),
                                   FIELD(lease_ns, 8, LEASE), FIELD(reject_trip, 4, REJECT_TRIP),
                                   FIELD(failure_trip, 4, FAILURE_TRIP),
                                   FIELD(cooldown_ns, 8, COOLDOWN),
                                   FIELD(half_open_probes, 4, HALF_OPEN_PROBES)},
    [CALLGATE_KIND_QUOTA] = {FIELD(limit, 8, LIMIT), FIELD(period_s, 8, PERIOD_S),
                             FIELD(anchor_unix_s, -8, PERIOD_S), FIELD(must_seed, 4, MUST_SEED)},
};

#define KIND_COUNT (sizeof FIELDS / sizeof FIELDS[0])

/* Reads a bigint. One that has no place in the field is one that the engine refuses, too: `fault`
 * then says which field it was. */
static int field_read(napi_env env, napi_value item, const Field *field, callgate_limit *limit,
                      callgate_status *fault) {
    uint64_t number = 0;
    int64_t with_sign = 0;
    bool fits = false;
    napi_status read = field->size < 0
                           ? napi_get_value_bigint_int64(env, item, &with_sign, &fits)
                           : napi_get_value_bigint_uint64(env, item, &number, &fits);
    if (read != napi_ok) return -1;
    if (field->size < 0) number = (uint64_t)with_sign;
    if (field->size == 4 && number > UINT32_MAX) fits = false;
    if (!fits && *fault == CALLGATE_OK) *fault = field->blame;
    uint32_t half = (uint32_t)number;
    char *place = (char *)limit + field->offset;
    if (field->size == 4) {
        memcpy(place, &half, sizeof half);
    } else {
        memcpy(place, &number, sizeof number);
    }
    return 0;
}

/* Reads [kind, ...] with the fields of that kind. */
int limit_read(napi_env env, napi_value fields, callgate_limit *limit, callgate_status *fault) {
    napi_value item;
    uint64_t kind;
    bool fits;
    *limit = (callgate_limit){0};
    if (napi_get_element(env, fields, 0, &item) != napi_ok ||
        napi_get_value_bigint_uint64(env, item, &kind, &fits) != napi_ok) {
        return -1;
    }
    limit->kind = kind > UINT32_MAX ? UINT32_MAX : (uint32_t)kind;
    if (kind >= KIND_COUNT) return 0; /* for the engine to refuse */
    uint32_t at = 1;
    for (const Field *field = FIELDS[kind]; field->size != 0; field++) {
        if (napi_get_element(env, fields, at++, &item) != napi_ok ||
            field_read(env, item, field, limit, fault) < 0) {
            return -1;
        }
    }
    return 0;
}

/* checkLimit([kind, ...]) -> a fault, or null: asked of the engine, which alone keeps the bounds. */
napi_value module_check_limit(napi_env env, napi_callback_info info) {
    napi_value fields;
    size_t count = 1;
    callgate_limit limit;
    callgate_status status = CALLGATE_OK;
    if (napi_get_cb_info(env, info, &count, &fields, NULL, NULL) != napi_ok) return NULL;
    if (count != 1 || limit_read(env, fields, &limit, &status) < 0) {
        return misused(env, "checkLimit: bad arguments");
    }
    if (status == CALLGATE_OK) {
        callgate_policy policy = {.rule_count = 1, .rules = {{0, CALLGATE_SCOPE_SHARED}}};
        callgate_config config = {
            .struct_size = sizeof config,
            .capacity = 1,
            .secret = {1},
            .limit_count = 1,
            .policy_count = 1,
            .limits = &limit,
            .policies = &policy,
        };
        callgate_fault fault;
        status = callgate_check(&config, &fault);
        if (status == CALLGATE_OK) status = fault.status;
    }
    if (status == CALLGATE_OK) return string_of(env, NULL);
    return fault_of(env, status, CALLGATE_NO_LIMIT, CALLGATE_NO_LIMIT);
}

/* reconfigure([kind, ...], description) of the limit `index`, by the description of what it becomes:
 * what is wrong goes to `status`. */
napi_value seat_reconfigure(napi_env env, napi_callback_info info) {
    napi_value arguments[2];
    size_t count = 2;
    callgate_limit limit;
    callgate_status status = CALLGATE_OK;
    Seat *seat = seat_of(env, info, &count, arguments);
    if (seat == NULL) return NULL;
    Exchange *x = seat->exchange;
    Core *core = seat->core;
    char *description = count == 2 ? text_read(env, arguments[1]) : NULL;
    if (description == NULL || limit_read(env, arguments[0], &limit, &status) < 0) {
        free(description);
        return misused(env, "reconfigure: bad arguments");
    }
    if (status == CALLGATE_OK) {
        pthread_mutex_lock(&core->changing);
        status = x->timing & TIMING_NOW
                     ? callgate_reconfigure_at(&core->gate, x->index, &limit, x->now_ns, 0)
                     : callgate_reconfigure(&core->gate, x->index, &limit);
        if (status == CALLGATE_OK) {
            if (limit.kind == CALLGATE_KIND_QUOTA) atomic_store(&core->has_quota, 1);
            core_describe(core, 1 + x->index, description);
        }
        pthread_mutex_unlock(&core->changing);
    }
    x->status = status;
    if (status != CALLGATE_OK) free(description);
    return NULL;
}
