/* try_admit and peek: deciding a call. The hot path of the package. */
#include "engine.h"

enum { POLICY, CALLER, TOOL, COST, RESERVE, NOW, UNIX, CALL_PARAMETERS };

static const Signature TRY_ADMIT = {
    "try_admit",
    CALL_PARAMETERS,
    1,
    {NAME_POLICY, NAME_CALLER, NAME_TOOL, NAME_COST, NAME_RESERVE, NAME_NOW_NS, NAME_UNIX_NS},
};

static const Signature PEEK = {
    "peek",
    CALL_PARAMETERS,
    1,
    {NAME_POLICY, NAME_CALLER, NAME_TOOL, NAME_COST, NAME_RESERVE, NAME_NOW_NS, NAME_UNIX_NS},
};

static int read_call(PyObject *self, const Core *core, PyObject *const *values, callgate_call *call,
                     Timing *timing) {
    *call = (callgate_call){.struct_size = sizeof *call, .cost = 1};
    if (argument_policy(core, values[POLICY], &call->policy) < 0) return -1;
    const State *state = core->state;
    if (argument_identity(core, values[CALLER], CALLGATE_DOMAIN_CALLER, "caller",
                          &call->caller) < 0 ||
        argument_identity(core, values[TOOL], CALLGATE_DOMAIN_TOOL, "tool", &call->tool) < 0 ||
        (values[COST] != NULL &&
         argument_u64(state, values[COST], "cost", "0 to 2^64-1 tokens", &call->cost) < 0) ||
        (values[RESERVE] != NULL && argument_u64(state, values[RESERVE], "reserve",
                                                 "0 to 2^64-1 units", &call->reserve) < 0)) {
        return -1;
    }
    return gate_timing(self, core, values[NOW], values[UNIX], timing);
}

static int raise_undecided(const Core *core, callgate_status status, const callgate_call *call) {
    if (status == CALLGATE_MISSING_CALLER || status == CALLGATE_MISSING_TOOL) {
        return raise_missing(core, status, call->policy);
    }
    return raise_call_status(core->state, status);
}

/* The GIL is kept: giving it up and taking it again costs more than the decision. */
PyObject *gate_try_admit(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                         PyObject *keywords) {
    PyObject *values[PARAMETERS_MAX];
    callgate_call call;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (arguments_take(core->state, &TRY_ADMIT, args, positional, keywords, values) < 0 ||
        read_call(self, core, values, &call, &timing) < 0) {
        return NULL;
    }
    DecisionObject *made = decision_new(core);
    if (made == NULL) return NULL;
    callgate_status status =
        timing.is_given ? callgate_admit_at(&core->gate, &call, timing.now_ns, timing.unix_ns,
                                            &made->permit, &made->decision)
                        : callgate_admit(&core->gate, &call, &made->permit, &made->decision);
    if (status == CALLGATE_OK) return (PyObject *)made;
    Py_DECREF(made);
    raise_undecided(core, status, &call);
    return NULL;
}

/* Returns [(limit name, reason, retry_after_ns, limit, remaining, reset_after_ns), ...]. */
PyObject *gate_peek(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                    PyObject *keywords) {
    PyObject *values[PARAMETERS_MAX];
    callgate_call call;
    Timing timing;
    callgate_decision found[CALLGATE_MAX_RULES];
    size_t count = 0;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (arguments_take(core->state, &PEEK, args, positional, keywords, values) < 0 ||
        read_call(self, core, values, &call, &timing) < 0) {
        return NULL;
    }
    callgate_status status =
        timing.is_given ? callgate_peek_at(&core->gate, &call, timing.now_ns, timing.unix_ns, found,
                                           &count)
                        : callgate_peek(&core->gate, &call, found, &count);
    if (status != CALLGATE_OK) {
        raise_undecided(core, status, &call);
        return NULL;
    }
    PyObject *reports = PyList_New((Py_ssize_t)count);
    for (size_t n = 0; reports != NULL && n < count; n++) {
        const callgate_decision *d = &found[n];
        PyObject *report = Py_BuildValue(
            "OOKKKK", core->limit_names[core->rule_limits[call.policy][n]],
            core->state->reasons[d->reason < REASON_COUNT ? d->reason : 0],
            (unsigned long long)d->retry_after_ns, (unsigned long long)d->limit,
            (unsigned long long)d->remaining, (unsigned long long)d->reset_after_ns);
        if (report == NULL || PyList_SetItem(reports, (Py_ssize_t)n, report) < 0) {
            Py_CLEAR(reports);
        }
    }
    return reports;
}
