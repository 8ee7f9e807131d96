/* Reading arguments: by hand, since the generic parsers cost more than a decision. */
#include "engine.h"

static int equal(PyObject *a, PyObject *b) {
    return a == b || PyUnicode_Compare(a, b) == 0;
}

/* The parameter of this name, or -1. Names in source code are interned, so a pointer tells. */
static int parameter_of(const State *state, const Signature *signature, PyObject *keyword) {
    for (int n = 0; n < signature->count; n++) {
        if (state->names[signature->names[n]] == keyword) return n;
    }
    for (int n = 0; n < signature->count; n++) {
        if (equal(state->names[signature->names[n]], keyword)) return n;
    }
    return -1;
}

/* Puts the arguments of a call in the order of `signature`; absent ones are NULL. */
int arguments_take(const State *state, const Signature *signature, PyObject *const *args,
                   Py_ssize_t positional, PyObject *keywords, PyObject **values) {
    if (positional > signature->count) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)",
                     signature->function, signature->count, positional);
        return -1;
    }
    for (int n = 0; n < signature->count; n++) values[n] = n < positional ? args[n] : NULL;
    Py_ssize_t keyword_count = keywords == NULL ? 0 : PyTuple_Size(keywords);
    for (Py_ssize_t k = 0; k < keyword_count; k++) {
        PyObject *keyword = PyTuple_GetItem(keywords, k);
        int n = parameter_of(state, signature, keyword);
        if (n < 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R",
                         signature->function, keyword);
            return -1;
        }
        if (values[n] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument %R",
                         signature->function, keyword);
            return -1;
        }
        values[n] = args[positional + k];
    }
    for (int n = 0; n < signature->required; n++) {
        if (values[n] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses the required argument %R",
                         signature->function, state->names[signature->names[n]]);
            return -1;
        }
    }
    return 0;
}

/* An int of 64 bits without a sign. bool is refused: True for a number is mostly a mistake. */
int argument_u64(const State *state, PyObject *value, const char *name, const char *allowed,
                 uint64_t *number) {
    if (PyBool_Check(value)) return raise_type(name, "an int", value);
    PyObject *integer = PyLong_Check(value) ? new_ref(value) : PyNumber_Index(value);
    if (integer == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear();
        return raise_type(name, "an int", value);
    }
    *number = PyLong_AsUnsignedLongLong(integer);
    Py_DECREF(integer);
    if (*number != UINT64_MAX || !PyErr_Occurred()) return 0;
    PyErr_Clear();
    return raise_call_object(state, name, PyUnicode_FromFormat("%s must be %s", name, allowed));
}

/* Either both by the system's clock, or by what the caller says. */
int argument_timing(const State *state, PyObject *now, PyObject *unix_time, Timing *timing) {
    timing->is_given = now != NULL && now != Py_None;
    timing->now_ns = 0;
    timing->unix_ns = 0;
    int has_unix = unix_time != NULL && unix_time != Py_None;
    if (has_unix && !timing->is_given) {
        return raise_call_error(state, "unix_ns",
                                "unix_ns goes with now_ns: either the system's clock is read, or "
                                "the time is yours");
    }
    if (timing->is_given &&
        argument_u64(state, now, "now_ns", "0 to 2^61-1 ns", &timing->now_ns) < 0) {
        return -1;
    }
    if (has_unix &&
        argument_u64(state, unix_time, "unix_ns", "0 to 2^64-1 ns", &timing->unix_ns) < 0) {
        return -1;
    }
    return 0;
}

static int key_of_object(const Core *core, KeyObject *object, uint32_t domain, const char *name,
                         callgate_key *key) {
    const State *state = core->state;
    if (object->core != core) {
        return raise_call_error(state, name, "the key is one of another gate");
    }
    if (object->domain != domain) {
        return raise_call_error(state, name,
                                domain == CALLGATE_DOMAIN_CALLER
                                    ? "the key is one of a tool, where a caller's is needed"
                                    : "the key is one of a caller, where a tool's is needed");
    }
    *key = object->key;
    return 0;
}

static int key_of_bytes(const Core *core, const char *bytes, Py_ssize_t size, uint32_t domain,
                        const char *name, callgate_key *key) {
    callgate_status status = callgate_key_make(&core->gate, domain, bytes, (size_t)size, key);
    if (status == CALLGATE_OK) return 0;
    if (status != CALLGATE_EMPTY_IDENTITY) return raise_call_status(core->state, status);
    return raise_call_error(core->state, name,
                            "an empty identity would be one that all strangers share: it must "
                            "have 1 or more bytes (None: there is no caller, or no tool)");
}

/* A Key of this gate, or a str or bytes to make one of. None and absent: no key, all zero. */
int argument_identity(const Core *core, PyObject *value, uint32_t domain, const char *name,
                      callgate_key *key) {
    if (value == NULL || value == Py_None) {
        key->lo = 0;
        key->hi = 0;
        return 0;
    }
    if (Py_IS_TYPE(value, core->state->key_type)) {
        return key_of_object(core, (KeyObject *)value, domain, name, key);
    }
    if (PyUnicode_Check(value)) {
        Py_ssize_t size = 0;
        const char *bytes = PyUnicode_AsUTF8AndSize(value, &size);
        if (bytes == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeError)) return -1;
            PyErr_Clear();
            return raise_call_error(core->state, name, "the identity can't be encoded as UTF-8");
        }
        return key_of_bytes(core, bytes, size, domain, name, key);
    }
    if (PyBytes_Check(value)) {
        char *bytes = NULL;
        Py_ssize_t size = 0;
        if (PyBytes_AsStringAndSize(value, &bytes, &size) < 0) return -1;
        return key_of_bytes(core, bytes, size, domain, name, key);
    }
    return raise_type(name, "a str, bytes, callgate.Key or None", value);
}

int argument_policy(const Core *core, PyObject *name, uint32_t *policy) {
    for (uint32_t n = 0; n < core->policy_count; n++) {
        if (core->policy_names[n] == name) {
            *policy = n;
            return 0;
        }
    }
    if (!PyUnicode_Check(name)) return raise_type("policy", "a str", name);
    PyObject *index = PyDict_GetItemWithError(core->policy_index, name);
    if (index != NULL) {
        *policy = (uint32_t)PyLong_AsUnsignedLong(index);
        return 0;
    }
    if (PyErr_Occurred()) return -1;
    PyObject *known = PyDict_Keys(core->policy_index);
    if (known == NULL) return -1;
    PyObject *sentence =
        PyUnicode_FromFormat("policy %R is unknown: this gate has %R", name, known);
    Py_DECREF(known);
    return raise_call_object(core->state, "policy", sentence);
}

/* The place of a word among `words`, or -1 where it is none of them. */
static int word_of(PyObject *const *words, int count, PyObject *word) {
    for (int n = 0; n < count; n++) {
        if (equal(words[n], word)) return n;
    }
    return -1;
}

int argument_outcome(const State *state, PyObject *name, uint32_t *outcome) {
    if (!PyUnicode_Check(name)) return raise_type("outcome", "a str", name);
    int n = word_of(state->outcomes, OUTCOME_COUNT, name);
    if (n < 0) {
        return raise_call_error(
            state, "outcome",
            "outcome must be one of 'success', 'failure', 'abandoned', 'cancelled'");
    }
    *outcome = CALLGATE_OUTCOME_SUCCESS + (uint32_t)n;
    return 0;
}

int argument_domain(const State *state, PyObject *name, uint32_t *domain) {
    if (!PyUnicode_Check(name)) return raise_type("domain", "a str", name);
    int n = word_of(state->domains, 2, name);
    if (n < 0) return raise_call_error(state, "domain", "domain must be 'caller' or 'tool'");
    *domain = CALLGATE_DOMAIN_CALLER + (uint32_t)n;
    return 0;
}
