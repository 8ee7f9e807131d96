/* What quotas add to a gate: the wall clock, windows that Python works out, and seeds. */
#include "engine.h"

#include <time.h>

/* The clock of a call on this gate: where one of its limits is a quota, a time of the caller's is
 * both of its clocks. */
int core_timing(const Core *core, PyObject *now, PyObject *unix_time, Timing *timing) {
    if (argument_timing(core->state, now, unix_time, timing) < 0) return -1;
    if (!core->has_quota || !timing->is_given || (unix_time != NULL && unix_time != Py_None)) {
        return 0;
    }
    return raise_call_error(core->state, "unix_ns",
                            "unix_ns is missing: this gate has a quota, which is kept by the "
                            "calendar, so that now_ns goes with unix_ns");
}

static int unix_seconds(const Timing *timing, uint64_t *seconds) {
    struct timespec now;
    if (timing->is_given) {
        *seconds = timing->unix_ns / 1000000000;
        return 0;
    }
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    *seconds = now.tv_sec < 0 ? 0 : (uint64_t)now.tv_sec;
    return 0;
}

/* The same for a call that is to be decided: its day's windows are set before it is. */
int gate_timing(PyObject *self, const Core *core, PyObject *now, PyObject *unix_time,
                Timing *timing) {
    if (core_timing(core, now, unix_time, timing) < 0) return -1;
    if (!core->has_zones) return 0;
    uint64_t second;
    if (unix_seconds(timing, &second) < 0) return -1;
    if (core->windows_from_s <= second && second < core->windows_until_s) return 0;
    PyObject *done = PyObject_CallMethod(self, "_roll", "K", (unsigned long long)second);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* _use_zones(whether): _roll(second) is to be called before the next call is decided. */
PyObject *gate_use_zones(PyObject *self, PyObject *whether) {
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    core->has_zones = whether == Py_True;
    core->windows_from_s = 0;
    core->windows_until_s = 0;
    return new_ref(Py_None);
}

/* _set_windows([(limit index, start, end), ...], from, until): _roll is called again before `from`
 * and from `until` on. */
PyObject *gate_set_windows(PyObject *self, PyObject *args) {
    PyObject *windows;
    unsigned long long from, until;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (!PyArg_ParseTuple(args, "O!KK:_set_windows", &PyList_Type, &windows, &from, &until)) {
        return NULL;
    }
    for (Py_ssize_t n = 0; n < PyList_Size(windows); n++) {
        unsigned int limit;
        unsigned long long start, end;
        PyObject *window = PyList_GetItem(windows, n);
        if (!PyTuple_Check(window)) {
            raise_type("a window", "a tuple", window);
            return NULL;
        }
        if (!PyArg_ParseTuple(window, "IKK:window", &limit, &start, &end)) return NULL;
        callgate_status status = callgate_window_set(&core->gate, limit, start, end);
        /* Another process that shares the memory may have made it a quota with a period. */
        if (status != CALLGATE_OK && status != CALLGATE_NOT_A_QUOTA) {
            raise_call_status(core->state, status);
            return NULL;
        }
    }
    core->windows_from_s = from;
    core->windows_until_s = until;
    return new_ref(Py_None);
}

/* _seed(limit index, scope, caller, tool, used, now_ns, unix_ns) -> whether it was told now. */
PyObject *gate_seed(PyObject *self, PyObject *args) {
    unsigned int limit, scope;
    PyObject *caller, *tool, *used, *now, *unix_time;
    callgate_key caller_key, tool_key;
    uint64_t units;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (!PyArg_ParseTuple(args, "IIOOOOO:_seed", &limit, &scope, &caller, &tool, &used, &now,
                          &unix_time) ||
        argument_identity(core, caller, CALLGATE_DOMAIN_CALLER, "caller", &caller_key) < 0 ||
        argument_identity(core, tool, CALLGATE_DOMAIN_TOOL, "tool", &tool_key) < 0 ||
        argument_u64(core->state, used, "used", "0 to 2^64-1 units", &units) < 0 ||
        gate_timing(self, core, now, unix_time, &timing) < 0) {
        return NULL;
    }
    callgate_status status =
        timing.is_given ? callgate_seed_at(&core->gate, limit, scope, &caller_key, &tool_key, units,
                                           timing.now_ns, timing.unix_ns)
                        : callgate_seed(&core->gate, limit, scope, &caller_key, &tool_key, units);
    if (status == CALLGATE_OK) return PyBool_FromLong(1);
    if (status == CALLGATE_ALREADY_SEEDED) return PyBool_FromLong(0);
    raise_call_status(core->state, status);
    return NULL;
}
