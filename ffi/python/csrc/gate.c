/* Gate: the base of callgate.Gate, which resolves names to indexes before it comes here. */
#include "engine.h"

/* The gate's core, or NULL with an exception where it was never opened. */
Core *gate_core(PyObject *self) {
    Core *core = ((GateObject *)self)->core;
    if (core == NULL) PyErr_SetString(PyExc_RuntimeError, "Gate.__init__() has not been called");
    return core;
}

static void gate_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self); /* a subclass, which may have an allocator of its own */
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((GateObject *)self)->core);
    free_object(self);
    Py_DECREF(type);
}

static PyObject *gate_open(PyObject *self, PyTypeObject *defining, PyObject *const *args,
                           size_t positional, PyObject *keywords) {
    GateObject *gate = (GateObject *)self;
    if (positional != 1 || keywords != NULL || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "_open() takes one tuple");
        return NULL;
    }
    if (gate->core != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Gate.__init__() was called before: make a new gate");
        return NULL;
    }
    State *state = PyType_GetModuleState(defining);
    if (state == NULL) return NULL;
    gate->core = core_new(state, args[0]);
    return gate->core == NULL ? NULL : new_ref(Py_None);
}

static PyObject *gate_key(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                          PyObject *keywords) {
    static const Signature KEY = {"key", 2, 1, {NAME_IDENTITY, NAME_DOMAIN}};
    PyObject *values[PARAMETERS_MAX];
    uint32_t domain = CALLGATE_DOMAIN_CALLER;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    if (arguments_take(core->state, &KEY, args, positional, keywords, values) < 0) return NULL;
    if (values[1] != NULL && argument_domain(core->state, values[1], &domain) < 0) return NULL;
    return key_new(core, values[0], domain);
}

static int read_permit(const Core *core, PyObject *value, PermitObject **permit) {
    if (!Py_IS_TYPE(value, core->state->permit_type)) {
        return raise_type("permit", "a callgate.Permit (a refused call has none)", value);
    }
    *permit = (PermitObject *)value;
    if ((*permit)->core == core) return 0;
    return raise_call_error(core->state, "permit", "the permit is one of another gate");
}

static PyObject *gate_settle(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                             PyObject *keywords) {
    static const Signature SETTLE = {
        "settle", 5, 1, {NAME_PERMIT, NAME_OUTCOME, NAME_USED, NAME_NOW_NS, NAME_UNIX_NS}};
    PyObject *values[PARAMETERS_MAX];
    PermitObject *permit = NULL;
    uint32_t outcome = CALLGATE_OUTCOME_SUCCESS;
    uint64_t used = 0;
    Timing timing;
    Core *core = gate_core(self);
    if (core == NULL) return NULL;
    const State *state = core->state;
    if (arguments_take(state, &SETTLE, args, positional, keywords, values) < 0 ||
        read_permit(core, values[0], &permit) < 0 ||
        (values[1] != NULL && argument_outcome(state, values[1], &outcome) < 0) ||
        (values[2] != NULL &&
         argument_u64(state, values[2], "used", "0 to 2^64-1 units", &used) < 0) ||
        core_timing(core, values[3], values[4], &timing) < 0) {
        return NULL;
    }
    callgate_status status =
        timing.is_given ? callgate_settle_at(&core->gate, &permit->permit, outcome, used,
                                             timing.now_ns, timing.unix_ns)
                        : callgate_settle(&core->gate, &permit->permit, outcome, used);
    if (status == CALLGATE_OK) return new_ref(state->settled_now);
    if (status == CALLGATE_ALREADY_SETTLED) return new_ref(state->settled_already);
    if (status == CALLGATE_LAPSED) return new_ref(state->settled_lapsed);
    raise_call_status(state, status);
    return NULL;
}

PyDoc_STRVAR(
    try_admit_doc,
    "try_admit($self, policy, caller=None, tool=None, cost=1, reserve=0, now_ns=None, "
    "unix_ns=None)\n"
    "--\n\n"
    "Decide one call. Returns a Decision, which is true where the call may run; a refusal is no\n"
    "error.\n\n"
    "All limits of the policy are charged, or none is.\n\n"
    "policy    the name of one of the gate's policies\n"
    "caller    who calls: a str (taken as UTF-8), bytes or Key; needed where a limit of the\n"
    "          policy is kept by caller. Never empty\n"
    "tool      what is called, likewise\n"
    "cost      tokens to take from each rate limit, 0 to 2^64-1: 1 for a call, n for a batch of\n"
    "          n; 0 asks whether there is debt to wait for, and takes nothing\n"
    "reserve   units to set aside in each quota of the policy\n"
    "now_ns    nanoseconds of a clock of yours, below 2^61; None: the system's (on Linux the one\n"
    "          that goes on while the machine sleeps). Don't mix clocks on one gate\n"
    "unix_ns   nanoseconds since the Unix epoch, beside now_ns; needed there where the gate has a\n"
    "          quota\n\n"
    "Raises CallError where the call can't be decided; nothing is charged then.");

PyDoc_STRVAR(
    settle_doc,
    "settle($self, permit, outcome='success', used=0, now_ns=None, unix_ns=None)\n"
    "--\n\n"
    "End an admitted call. Returns 'ok'; 'already_settled' where it was settled before; 'lapsed'\n"
    "where that comes after its lease: its place was taken for lost, and of that limit nothing was\n"
    "changed.\n\n"
    "permit    the decision's permit, of this gate\n"
    "outcome   'success'; 'failure'; 'abandoned': it ran, but its client went away; 'cancelled':\n"
    "          it never ran, so what it was charged is given back, as far as time has not done so\n"
    "used      the units to charge to quotas, in place of what was reserved, 0 to 2^64-1. Of an\n"
    "          abandoned call with 0 the reserve stays\n"
    "now_ns, unix_ns   as in try_admit\n\n"
    "Any thread may settle. Raises CallError for a permit of another gate.");

PyDoc_STRVAR(
    key_doc,
    "key($self, identity, domain='caller')\n"
    "--\n\n"
    "Make a Key, once, for an identity that comes again: hashing costs as much as deciding.\n\n"
    "identity  a str (taken as UTF-8) or bytes, 1 or more bytes\n"
    "domain    'caller' or 'tool': what it will be passed as");

#define FAST(function) ((PyCFunction)(void (*)(void))function)

static PyMethodDef gate_methods[] = {
    {"try_admit", FAST(gate_try_admit), METH_FASTCALL | METH_KEYWORDS, try_admit_doc},
    {"settle", FAST(gate_settle), METH_FASTCALL | METH_KEYWORDS, settle_doc},
    {"key", FAST(gate_key), METH_FASTCALL | METH_KEYWORDS, key_doc},
    {"_open", FAST(gate_open), METH_METHOD | METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_peek", FAST(gate_peek), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_reconfigure", gate_reconfigure, METH_VARARGS, NULL},
    {"_stats", gate_stats, METH_VARARGS, NULL},
    {"_guards", gate_guards, METH_VARARGS, NULL},
    {"_metrics", gate_metrics, METH_VARARGS, NULL},
    {"_seed", gate_seed, METH_VARARGS, NULL},
    {"_use_zones", gate_use_zones, METH_O, NULL},
    {"_set_windows", gate_set_windows, METH_VARARGS, NULL},
    {"_decisions", gate_decisions, METH_O, NULL},
    {"__reduce__", refuse_to_pickle, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(gate_doc, "The engine of a gate; see callgate.Gate.");

static PyType_Slot gate_slots[] = {
    {Py_tp_doc, (void *)gate_doc},
    {Py_tp_dealloc, gate_dealloc},
    {Py_tp_methods, gate_methods},
    {0, NULL},
};

PyType_Spec gate_spec = {
    .name = "callgate._engine.Gate",
    .basicsize = sizeof(GateObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = gate_slots,
};
