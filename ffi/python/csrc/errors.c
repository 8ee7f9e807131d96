/* Raising: the engine's statuses become the exceptions of callgate.errors, which words them. */
#include "engine.h"

static int raise_made(PyObject *error) {
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

/* A bad call: `field` is the parameter to blame, or NULL. */
int raise_call_error(const State *state, const char *field, const char *sentence) {
    return raise_made(PyObject_CallFunction(state->make_call_error, "zs", field, sentence));
}

/* The same, with a sentence of Python's, whose reference it takes; NULL: an exception is set. */
int raise_call_object(const State *state, const char *field, PyObject *sentence) {
    if (sentence == NULL) return -1;
    PyObject *error = PyObject_CallFunction(state->make_call_error, "zO", field, sentence);
    Py_DECREF(sentence);
    return raise_made(error);
}

int raise_call_status(const State *state, callgate_status status) {
    return raise_call_error(state, callgate_error_field(status), callgate_strerror(status));
}

/* A call without the caller or the tool that its policy asks for. */
int raise_missing(const Core *core, callgate_status status, uint32_t policy) {
    const char *field = callgate_error_field(status);
    return raise_call_object(
        core->state, field,
        PyUnicode_FromFormat(
            "%s is missing, but a limit of the policy %R is kept by %s: pass %s=, 1 or more bytes",
            field, core->policy_names[policy], field, field));
}

/* A bad configuration. `limit` and `policy` are the names to blame, or NULL. */
int raise_config_status(const State *state, callgate_status status, PyObject *limit,
                        PyObject *policy) {
    return raise_made(PyObject_CallFunction(
        state->make_config_error, "zsOO", callgate_error_field(status), callgate_strerror(status),
        limit != NULL ? limit : Py_None, policy != NULL ? policy : Py_None));
}

int raise_type(const char *name, const char *wanted, PyObject *got) {
    PyObject *type_name = PyObject_GetAttrString((PyObject *)Py_TYPE(got), "__name__");
    if (type_name == NULL) return -1;
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", name, wanted, type_name);
    Py_DECREF(type_name);
    return -1;
}

/* `__reduce__` of every type here. */
PyObject *refuse_to_pickle(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *type_name = PyObject_GetAttrString((PyObject *)Py_TYPE(self), "__name__");
    if (type_name == NULL) return NULL;
    PyErr_Format(PyExc_TypeError,
                 "a %U can't be pickled or copied: it belongs to the memory of one gate, which "
                 "only processes forked after its creation share",
                 type_name);
    Py_DECREF(type_name);
    return NULL;
}
