/* What a gate tells about itself: its table, its guards, its decisions. */
#include "engine.h"

/* _stats(now_ns, unix_ns) -> (slots, live, at_rest, claimed, empty). */
PyObject *gate_stats(PyObject *self, PyObject *args) {
    PyObject *now, *unix_time;
    callgate_stats stats;
    callgate_status status;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL || !PyArg_ParseTuple(args, "OO:_stats", &now, &unix_time) ||
        core_timing(core, now, unix_time, &timing) < 0) {
        return NULL;
    }
    /* It walks the whole table, so other threads go on meanwhile. `self` keeps the core alive. */
    Py_BEGIN_ALLOW_THREADS;
    status = timing.is_given ? callgate_stats_get_at(&core->gate, timing.now_ns, timing.unix_ns, &stats)
                             : callgate_stats_get(&core->gate, &stats);
    Py_END_ALLOW_THREADS;
    if (status != CALLGATE_OK) {
        raise_call_status(core->state, status);
        return NULL;
    }
    return Py_BuildValue("KKKKK", (unsigned long long)stats.slots, (unsigned long long)stats.live,
                         (unsigned long long)stats.at_rest, (unsigned long long)stats.claimed,
                         (unsigned long long)stats.empty);
}

/* _guards(limit index, now_ns) -> (in_flight, open, half_open, trips, lapsed). */
PyObject *gate_guards(PyObject *self, PyObject *args) {
    unsigned int limit;
    PyObject *now;
    callgate_guards guards;
    callgate_status status;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL || !PyArg_ParseTuple(args, "IO:_guards", &limit, &now) ||
        argument_timing(core->state, now, NULL, &timing) < 0) {
        return NULL;
    }
    /* As in gate_stats(). No guard looks at the wall clock. */
    Py_BEGIN_ALLOW_THREADS;
    status = timing.is_given
                 ? callgate_guards_get_at(&core->gate, limit, timing.now_ns, 0, &guards)
                 : callgate_guards_get(&core->gate, limit, &guards);
    Py_END_ALLOW_THREADS;
    if (status != CALLGATE_OK) {
        raise_call_status(core->state, status);
        return NULL;
    }
    return Py_BuildValue("KKKKK", (unsigned long long)guards.in_flight,
                         (unsigned long long)guards.open, (unsigned long long)guards.half_open,
                         (unsigned long long)guards.trips, (unsigned long long)guards.lapsed);
}

/* The names as C has them; they live as long as the strings. */
static int c_names(PyObject *const *names, uint32_t count, const char **texts) {
    for (uint32_t n = 0; n < count; n++) {
        texts[n] = PyUnicode_AsUTF8AndSize(names[n], NULL);
        if (texts[n] == NULL) return -1;
    }
    return 0;
}

/* _metrics(now_ns, unix_ns) -> OpenMetrics text. */
PyObject *gate_metrics(PyObject *self, PyObject *args) {
    PyObject *now, *unix_time, *text = NULL;
    const char *policies[POLICIES_MAX], *limits[LIMITS_MAX];
    char *buffer = NULL;
    size_t size = 0, needed = 4096;
    callgate_status status;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL || !PyArg_ParseTuple(args, "OO:_metrics", &now, &unix_time) ||
        core_timing(core, now, unix_time, &timing) < 0 ||
        c_names(core->policy_names, core->policy_count, policies) < 0 ||
        c_names(core->limit_names, core->limit_count, limits) < 0) {
        return NULL;
    }
    do {
        size = needed + 256; /* numbers grow from one attempt to the next */
        char *larger = PyMem_Realloc(buffer, size);
        if (larger == NULL) {
            PyMem_Free(buffer);
            return PyErr_NoMemory();
        }
        buffer = larger;
        /* As in gate_stats(). */
        Py_BEGIN_ALLOW_THREADS;
        status = timing.is_given
                     ? callgate_metrics_at(&core->gate, policies, limits, buffer, size, &needed,
                                           timing.now_ns, timing.unix_ns)
                     : callgate_metrics(&core->gate, policies, limits, buffer, size, &needed);
        Py_END_ALLOW_THREADS;
    } while (status == CALLGATE_BUFFER_TOO_SMALL);
    if (status == CALLGATE_OK) {
        text = PyUnicode_DecodeUTF8(buffer, (Py_ssize_t)strlen(buffer), NULL);
    } else {
        raise_call_status(core->state, status);
    }
    PyMem_Free(buffer);
    return text;
}

/* _decisions(policy index) -> (admitted, [(rule, reason, refused), ...]), of which those that are 0
 * are left out. */
PyObject *gate_decisions(PyObject *self, PyObject *policy) {
    callgate_decisions sums;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    unsigned long index = PyLong_AsUnsignedLong(policy);
    if (PyErr_Occurred()) return NULL;
    uint32_t narrow = index > UINT32_MAX ? UINT32_MAX : (uint32_t)index;
    callgate_status status = callgate_decisions_get(&core->gate, narrow, &sums);
    if (status != CALLGATE_OK) {
        raise_call_status(core->state, status);
        return NULL;
    }
    PyObject *refused = PyList_New(0);
    for (int n = 0; refused != NULL && n < CALLGATE_MAX_RULES * REASON_COUNT; n++) {
        int rule = n / REASON_COUNT, reason = n % REASON_COUNT;
        unsigned long long count = sums.refused[rule][reason];
        if (count == 0) continue;
        PyObject *entry = Py_BuildValue("iOK", rule, core->state->reasons[reason], count);
        if (entry == NULL || PyList_Append(refused, entry) < 0) Py_CLEAR(refused);
        Py_XDECREF(entry);
    }
    if (refused == NULL) return NULL;
    return Py_BuildValue("KN", (unsigned long long)sums.admitted, refused);
}
