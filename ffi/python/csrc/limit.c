/* Limits: from the tuples of callgate.limits to the engine's structs, and changing them. */
#include "engine.h"

/* A field of a limit: where it is, how wide, and which status blames it. */
typedef struct {
    size_t offset;
    int size; /* 4 or 8 bytes; -8 with a sign */
    callgate_status blame;
} Field;

#define FIELDS_MAX 6
#define FIELD(name, size, blame) {offsetof(callgate_limit, name), size, CALLGATE_CONFIG_##blame}

/* By CALLGATE_KIND_*, in the order of the tuples. */
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

/* Reads an int of a tuple. One that has no place in the field is one that the engine refuses, too:
 * `fault` then says which field it was. */
static int read_field(PyObject *item, const Field *field, callgate_limit *limit,
                      callgate_status *fault) {
    if (item == NULL) return -1;
    uint64_t number = field->size < 0 ? (uint64_t)PyLong_AsLongLong(item)
                                      : PyLong_AsUnsignedLongLong(item);
    int is_great = field->size == 4 && number > UINT32_MAX;
    if (number == UINT64_MAX && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
        PyErr_Clear();
        is_great = 1;
    }
    if (is_great && *fault == CALLGATE_OK) *fault = field->blame;
    uint32_t half = (uint32_t)number;
    char *place = (char *)limit + field->offset;
    if (field->size == 4) {
        memcpy(place, &half, sizeof half);
    } else {
        memcpy(place, &number, sizeof number);
    }
    return 0;
}

/* Reads (kind, ...) with the fields of that kind. */
int limit_from_tuple(PyObject *tuple, callgate_limit *limit, callgate_status *fault) {
    *limit = (callgate_limit){0};
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) == 0) {
        return raise_type("a limit", "a tuple of a kind and its fields", tuple);
    }
    uint64_t kind = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, 0));
    if (kind == UINT64_MAX && PyErr_Occurred()) return -1;
    limit->kind = kind > UINT32_MAX ? UINT32_MAX : (uint32_t)kind;
    if (kind >= KIND_COUNT) return 0; /* for the engine to refuse */
    Py_ssize_t at = 1;
    for (const Field *field = FIELDS[kind]; field->size != 0; field++) {
        if (read_field(PyTuple_GetItem(tuple, at++), field, limit, fault) < 0) return -1;
    }
    return 0;
}

/* check_limit((kind, ...)) -> None, or (field, sentence): asked of the engine, which alone keeps the
 * bounds. */
PyObject *limit_check(PyObject *module, PyObject *tuple) {
    (void)module;
    callgate_limit limit;
    callgate_status status = CALLGATE_OK;
    if (limit_from_tuple(tuple, &limit, &status) < 0) return NULL;
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
    if (status == CALLGATE_OK) return new_ref(Py_None);
    return Py_BuildValue("zs", callgate_error_field(status), callgate_strerror(status));
}

/* _reconfigure(limit index, (kind, ...), now_ns). Two threads can't be in here at once,
 * which the engine forbids: the GIL is kept throughout. */
PyObject *gate_reconfigure(PyObject *self, PyObject *args) {
    unsigned int index;
    PyObject *to, *now;
    callgate_limit limit;
    callgate_status status = CALLGATE_OK;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (!PyArg_ParseTuple(args, "IOO:_reconfigure", &index, &to, &now) ||
        argument_timing(core->state, now, NULL, &timing) < 0 ||
        limit_from_tuple(to, &limit, &status) < 0) {
        return NULL;
    }
    if (status == CALLGATE_OK) {
        status = timing.is_given ? callgate_reconfigure_at(&core->gate, index, &limit,
                                                           timing.now_ns, 0)
                                 : callgate_reconfigure(&core->gate, index, &limit);
    }
    if (status == CALLGATE_OK) {
        core->has_quota |= limit.kind == CALLGATE_KIND_QUOTA;
        return new_ref(Py_None);
    }
    if (status < CALLGATE_CONFIG_CAPACITY) {
        raise_call_status(core->state, status);
    } else {
        raise_config_status(core->state, status,
                            index < core->limit_count ? core->limit_names[index] : NULL, NULL);
    }
    return NULL;
}
