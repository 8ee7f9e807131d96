/* Decision and Permit: what the engine said about a call, and what an admitted call holds. */
#include "engine.h"

/* An empty decision, for the engine to fill in. */
DecisionObject *decision_new(Core *core) {
    DecisionObject *self = PyObject_New(DecisionObject, core->state->decision_type);
    if (self == NULL) return NULL;
    Py_INCREF(core);
    self->core = core;
    self->permit_object = NULL;
    return self;
}

static DecisionObject *decision_of(PyObject *self) {
    return (DecisionObject *)self;
}

static void decision_dealloc(PyObject *self) {
    Py_DECREF(decision_of(self)->core);
    Py_XDECREF(decision_of(self)->permit_object);
    object_free(self);
}

static PyObject *decision_reason_of(const DecisionObject *self) {
    uint32_t reason = self->decision.reason;
    return self->core->state->reasons[reason < REASON_COUNT ? reason : 0];
}

static PyObject *decision_by_of(const DecisionObject *self) {
    uint32_t by = self->decision.by;
    return by < self->core->limit_count ? self->core->limit_names[by] : Py_None;
}

static PyObject *decision_repr(PyObject *object) {
    const DecisionObject *self = decision_of(object);
    const callgate_decision *d = &self->decision;
    if (d->admitted) {
        return PyUnicode_FromFormat("<callgate.Decision admitted, %R: %llu of %llu left>",
                                    decision_by_of(self), (unsigned long long)d->remaining,
                                    (unsigned long long)d->limit);
    }
    return PyUnicode_FromFormat("<callgate.Decision refused by %R: %U, retry_after_ns=%llu>",
                                decision_by_of(self), decision_reason_of(self),
                                (unsigned long long)d->retry_after_ns);
}

static int decision_bool(PyObject *self) {
    return decision_of(self)->decision.admitted != 0;
}

static PyObject *decision_admitted(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(decision_of(self)->decision.admitted != 0);
}

static PyObject *decision_reason(PyObject *self, void *closure) {
    (void)closure;
    return new_ref(decision_reason_of(decision_of(self)));
}

static PyObject *decision_by(PyObject *self, void *closure) {
    (void)closure;
    return new_ref(decision_by_of(decision_of(self)));
}

/* `closure` is the offset of the number. */
static PyObject *decision_number(PyObject *self, void *closure) {
    uint64_t number;
    memcpy(&number, (const char *)&decision_of(self)->decision + (size_t)closure, sizeof number);
    return PyLong_FromUnsignedLongLong(number);
}

/* The permit moves out of the decision when it is first asked for, so that there is one copy of it
 * that can be settled, at an address that stays. */
static PyObject *decision_permit(PyObject *object, void *closure) {
    DecisionObject *self = decision_of(object);
    (void)closure;
    if (!self->decision.admitted) return new_ref(Py_None);
    if (self->permit_object == NULL) {
        self->permit_object = permit_new(self->core, &self->permit);
        if (self->permit_object == NULL) return NULL;
    }
    return new_ref(self->permit_object);
}

#define NUMBER(name) ((void *)offsetof(callgate_decision, name))

static PyGetSetDef decision_getset[] = {
    {"admitted", decision_admitted, NULL, "Whether the call may run.", NULL},
    {"reason", decision_reason, NULL,
     "Why it is refused: 'rate', 'concurrency', 'breaker_open', 'quota', 'unseeded', 'table_full'\n"
     "or 'never'. None where it is admitted.",
     NULL},
    {"by", decision_by, NULL,
     "The name of the limit that refused; where admitted, of the rate limit or quota that has the\n"
     "least left (of the concurrency limit with the fewest places, where there is no other kind), or\n"
     "None where every limit of the policy is off.",
     NULL},
    {"retry_after_ns", decision_number, NULL,
     "The call would be admitted in exactly so many nanoseconds, nobody else having charged. 0\n"
     "where it is admitted, and where no time can be known.",
     NUMBER(retry_after_ns)},
    {"limit", decision_number, NULL,
     "What the limit holds when nobody has charged it: tokens, places or units; 2**64-1 where all\n"
     "are off.",
     NUMBER(limit)},
    {"remaining", decision_number, NULL, "What is left of that.",
     NUMBER(remaining)},
    {"reset_after_ns", decision_number, NULL,
     "All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back\n"
     "when calls end.",
     NUMBER(reset_after_ns)},
    {"permit", decision_permit, NULL,
     "What the call holds until it is settled, the same object every time; None where refused.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef unpicklable[] = {
    {"__reduce__", refuse_to_pickle, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(decision_doc,
             "What was decided about a call, by Gate.try_admit(). True where it is admitted.\n\n"
             "Where it is refused, the figures are those of the limit that refused; where it is\n"
             "admitted, those of the limit of the policy that has the least left.");

static PyType_Slot decision_slots[] = {
    {Py_tp_doc, (void *)decision_doc},
    {Py_tp_dealloc, decision_dealloc},
    {Py_tp_repr, decision_repr},
    {Py_nb_bool, decision_bool},
    {Py_tp_getset, decision_getset},
    {Py_tp_methods, unpicklable},
    {0, NULL},
};

PyType_Spec decision_spec = {
    .name = "callgate.Decision",
    .basicsize = sizeof(DecisionObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = decision_slots,
};

PyObject *permit_new(Core *core, const callgate_permit *permit) {
    PermitObject *self = PyObject_New(PermitObject, core->state->permit_type);
    if (self == NULL) return NULL;
    Py_INCREF(core);
    self->core = core;
    self->permit = *permit;
    return (PyObject *)self;
}

static void permit_dealloc(PyObject *self) {
    Py_DECREF(((PermitObject *)self)->core);
    object_free(self);
}

PyDoc_STRVAR(permit_doc,
             "What an admitted call holds until Gate.settle() ends it.\n\n"
             "It keeps its gate's memory alive. Settling it a second time does nothing, whichever\n"
             "thread does; but a process forked in between has a copy: one of both may settle it.");

static PyType_Slot permit_slots[] = {
    {Py_tp_doc, (void *)permit_doc},
    {Py_tp_dealloc, permit_dealloc},
    {Py_tp_methods, unpicklable},
    {0, NULL},
};

PyType_Spec permit_spec = {
    .name = "callgate.Permit",
    .basicsize = sizeof(PermitObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = permit_slots,
};
