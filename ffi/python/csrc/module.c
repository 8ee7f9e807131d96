/* The module callgate._engine: its state and types, and the check that header and library agree. */
#include "engine.h"

static const char *const NAMES[NAME_COUNT] = {
    [NAME_POLICY] = "policy",     [NAME_CALLER] = "caller",   [NAME_TOOL] = "tool",
    [NAME_COST] = "cost",         [NAME_RESERVE] = "reserve", [NAME_NOW_NS] = "now_ns",
    [NAME_UNIX_NS] = "unix_ns",   [NAME_PERMIT] = "permit",   [NAME_OUTCOME] = "outcome",
    [NAME_USED] = "used",         [NAME_IDENTITY] = "identity", [NAME_DOMAIN] = "domain",
};

/* By CALLGATE_REASON_*; the first is None. */
static const char *const REASONS[REASON_COUNT] = {
    [CALLGATE_REASON_RATE] = "rate",
    [CALLGATE_REASON_CONCURRENCY] = "concurrency",
    [CALLGATE_REASON_BREAKER_OPEN] = "breaker_open",
    [CALLGATE_REASON_QUOTA] = "quota",
    [CALLGATE_REASON_UNSEEDED] = "unseeded",
    [CALLGATE_REASON_TABLE_FULL] = "table_full",
    [CALLGATE_REASON_NEVER] = "never",
};

/* From CALLGATE_OUTCOME_SUCCESS on, and from CALLGATE_DOMAIN_CALLER on. */
static const char *const OUTCOMES[OUTCOME_COUNT] = {"success", "failure", "abandoned", "cancelled"};
static const char *const DOMAINS[2] = {"caller", "tool"};

static int intern(const char *text, PyObject **word) {
    *word = PyUnicode_InternFromString(text);
    return *word == NULL ? -1 : 0;
}

static int make_words(State *state) {
    for (int n = 0; n < NAME_COUNT; n++) {
        if (intern(NAMES[n], &state->names[n]) < 0) return -1;
    }
    state->reasons[CALLGATE_REASON_NONE] = new_ref(Py_None);
    for (int n = 1; n < REASON_COUNT; n++) {
        if (intern(REASONS[n], &state->reasons[n]) < 0) return -1;
    }
    for (int n = 0; n < OUTCOME_COUNT; n++) {
        if (intern(OUTCOMES[n], &state->outcomes[n]) < 0) return -1;
    }
    for (int n = 0; n < 2; n++) {
        if (intern(DOMAINS[n], &state->domains[n]) < 0) return -1;
    }
    if (intern("ok", &state->settled_now) < 0 ||
        intern("already_settled", &state->settled_already) < 0) {
        return -1;
    }
    return intern("lapsed", &state->settled_lapsed);
}

static int make_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : 0;
}

static int make_types(PyObject *module, State *state) {
    if (make_type(module, &core_spec, &state->core_type) < 0 ||
        make_type(module, &gate_spec, &state->gate_type) < 0 ||
        make_type(module, &key_spec, &state->key_type) < 0 ||
        make_type(module, &decision_spec, &state->decision_type) < 0 ||
        make_type(module, &permit_spec, &state->permit_type) < 0) {
        return -1;
    }
    if (PyModule_AddType(module, state->gate_type) < 0 ||
        PyModule_AddType(module, state->key_type) < 0 ||
        PyModule_AddType(module, state->decision_type) < 0) {
        return -1;
    }
    return PyModule_AddType(module, state->permit_type);
}

static int find_errors(State *state) {
    PyObject *errors = PyImport_ImportModule("callgate.errors");
    if (errors == NULL) return -1;
    state->make_config_error = PyObject_GetAttrString(errors, "config_error");
    state->make_call_error = PyObject_GetAttrString(errors, "call_error");
    Py_DECREF(errors);
    return state->make_config_error == NULL || state->make_call_error == NULL ? -1 : 0;
}

/* A version as people write it. */
static const char *version_text(char text[16], uint32_t number) {
    PyOS_snprintf(text, 16, "%u.%u.%u", (unsigned)(number >> 16 & 255), (unsigned)(number >> 8 & 255),
                  (unsigned)(number & 255));
    return text;
}

static int add_facts(PyObject *module) {
    char version[16];
    if (PyModule_AddStringConstant(module, "VERSION", version_text(version, CALLGATE_VERSION)) < 0) {
        return -1;
    }
    PyObject *is_lock_free = PyBool_FromLong(callgate_is_lock_free() != 0);
    int failed = PyModule_AddObjectRef(module, "IS_LOCK_FREE", is_lock_free) < 0;
    Py_DECREF(is_lock_free);
    if (failed || PyModule_AddIntMacro(module, CALLGATE_KIND_OFF) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_KIND_RATE) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_KIND_CONCURRENCY) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_KIND_QUOTA) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_SCOPE_CALLER) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_SCOPE_TOOL) < 0 ||
        PyModule_AddIntMacro(module, CALLGATE_SCOPE_CALLER_TOOL) < 0) {
        return -1;
    }
    return PyModule_AddIntMacro(module, CALLGATE_SCOPE_SHARED);
}

static int module_exec(PyObject *module) {
    if (callgate_version() != CALLGATE_VERSION) {
        char built[16], linked[16];
        PyErr_Format(PyExc_ImportError,
                     "callgate._engine was built for version %s of libcallgate, but linked with %s",
                     version_text(built, CALLGATE_VERSION), version_text(linked, callgate_version()));
        return -1;
    }
    State *state = PyModule_GetState(module);
    if (make_words(state) < 0 || find_errors(state) < 0 || make_types(module, state) < 0) return -1;
    return add_facts(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    if (state == NULL) return 0;
    Py_VISIT(state->core_type);
    Py_VISIT(state->gate_type);
    Py_VISIT(state->key_type);
    Py_VISIT(state->decision_type);
    Py_VISIT(state->permit_type);
    Py_VISIT(state->make_config_error);
    Py_VISIT(state->make_call_error);
    return 0;
}

static void clear_words(PyObject **words, int count) {
    for (int n = 0; n < count; n++) Py_CLEAR(words[n]);
}

/* Nothing is left by then that could look at the state: whatever does keeps its type, which keeps
 * the module. */
static int module_clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    if (state == NULL) return 0;
    Py_CLEAR(state->core_type);
    Py_CLEAR(state->gate_type);
    Py_CLEAR(state->key_type);
    Py_CLEAR(state->decision_type);
    Py_CLEAR(state->permit_type);
    Py_CLEAR(state->make_config_error);
    Py_CLEAR(state->make_call_error);
    clear_words(state->names, NAME_COUNT);
    clear_words(state->reasons, REASON_COUNT);
    clear_words(state->outcomes, OUTCOME_COUNT);
    clear_words(state->domains, 2);
    clear_words(&state->settled_now, 1);
    clear_words(&state->settled_already, 1);
    clear_words(&state->settled_lapsed, 1);
    return 0;
}

static void module_free(void *module) {
    module_clear(module);
}

static PyMethodDef module_methods[] = {
    {"check_limit", limit_check, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

PyModuleDef engine_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "callgate._engine",
    .m_doc = "The C side of callgate: libcallgate, in Python's manners.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__engine(void) {
    return PyModuleDef_Init(&engine_module);
}
