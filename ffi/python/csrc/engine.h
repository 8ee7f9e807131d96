/* The objects of callgate._engine, and what its files share.
 *
 * A Core owns a gate's memory and names. Gate, Key, Decision and Permit each hold a reference to
 * one, so that the memory outlives whatever points to it. A Core refers to nothing but strings: no
 * cycle can lead through any of these objects, which is why none of them takes part in garbage
 * collection.
 *
 * Every function below is called with the GIL held. Those that return an int return 0, or -1 with
 * an exception set; those that return a pointer return NULL with one. */
#ifndef CALLGATE_PYTHON_ENGINE_H
#define CALLGATE_PYTHON_ENGINE_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "callgate.h"

#define LIMITS_MAX 64
#define POLICIES_MAX 64
#define PARAMETERS_MAX 7
#define REASON_COUNT 8
#define OUTCOME_COUNT 4

/* The layout that this extension was written for; the Rust side asserts the same. */
_Static_assert(sizeof(callgate_limit) == 96, "callgate_limit");
_Static_assert(sizeof(callgate_policy) == 72, "callgate_policy");
_Static_assert(sizeof(callgate_gate) == 192, "callgate_gate");
_Static_assert(sizeof(callgate_call) == 72, "callgate_call");
_Static_assert(sizeof(callgate_permit) == 160, "callgate_permit");
_Static_assert(sizeof(callgate_decision) == 48, "callgate_decision");
_Static_assert(sizeof(callgate_stats) == 40, "callgate_stats");
_Static_assert(sizeof(callgate_decisions) == 520, "callgate_decisions");
_Static_assert(sizeof(callgate_guards) == 40, "callgate_guards");
_Static_assert(_Alignof(callgate_gate) <= 8, "objects are aligned for 8 bytes");

/* The names of all parameters of the functions that read their arguments by hand. */
enum name {
    NAME_POLICY,
    NAME_CALLER,
    NAME_TOOL,
    NAME_COST,
    NAME_RESERVE,
    NAME_NOW_NS,
    NAME_UNIX_NS,
    NAME_PERMIT,
    NAME_OUTCOME,
    NAME_USED,
    NAME_IDENTITY,
    NAME_DOMAIN,
    NAME_COUNT
};

/* What the module keeps: one for each interpreter. */
typedef struct {
    PyTypeObject *core_type;
    PyTypeObject *gate_type;
    PyTypeObject *key_type;
    PyTypeObject *decision_type;
    PyTypeObject *permit_type;
    PyObject *make_config_error; /* callgate.errors.config_error */
    PyObject *make_call_error;   /* callgate.errors.call_error */
    PyObject *names[NAME_COUNT];
    PyObject *reasons[REASON_COUNT]; /* by CALLGATE_REASON_*; None where admitted */
    PyObject *outcomes[OUTCOME_COUNT];
    PyObject *domains[2];
    PyObject *settled_now;     /* "ok" */
    PyObject *settled_already; /* "already_settled" */
    PyObject *settled_lapsed;  /* "lapsed" */
} State;

/* A gate's memory, its handle and its names. */
typedef struct {
    PyObject_HEAD
    callgate_gate gate;
    State *state; /* alive as long as this object's type */
    void *memory;
    size_t size;
    PyObject *policy_index; /* dict: name -> index */
    uint32_t limit_count;
    uint32_t policy_count;
    PyObject *limit_names[LIMITS_MAX];    /* interned; alive through limit_names_tuple */
    PyObject *policy_names[POLICIES_MAX]; /* interned; alive through policy_index */
    PyObject *limit_names_tuple;
    uint8_t rule_limits[POLICIES_MAX][CALLGATE_MAX_RULES];
    int has_quota; /* one of the limits is a quota, or was one */
    int has_zones; /* a quota's windows are set by callgate.Gate, which knows time zones */
    uint64_t windows_from_s; /* what was set is right for these seconds since the Unix epoch */
    uint64_t windows_until_s;
} Core;

/* The base of callgate.Gate. */
typedef struct {
    PyObject_HEAD
    Core *core; /* NULL until __init__ has run */
} GateObject;

typedef struct {
    PyObject_HEAD
    Core *core;
    callgate_key key;
    uint32_t domain;
} KeyObject;

/* The permit stays inside until it is asked for; then it moves, once, to an object of its own. */
typedef struct {
    PyObject_HEAD
    Core *core;
    PyObject *permit_object; /* NULL until asked for */
    callgate_decision decision;
    callgate_permit permit;
} DecisionObject;

typedef struct {
    PyObject_HEAD
    Core *core;
    callgate_permit permit;
} PermitObject;

/* The clock of a call: the system's, or what the caller passed. */
typedef struct {
    int is_given;
    uint64_t now_ns;
    uint64_t unix_ns;
} Timing;

/* The parameters of a function, in order. Those from `required` on default to NULL. */
typedef struct {
    const char *function;
    int count;
    int required;
    enum name names[PARAMETERS_MAX];
} Signature;

/* module.c */
extern PyModuleDef engine_module;

/* arguments.c */
int arguments_take(const State *state, const Signature *signature, PyObject *const *args,
                   Py_ssize_t positional, PyObject *keywords, PyObject **values);
int argument_u64(const State *state, PyObject *value, const char *name, const char *allowed,
                 uint64_t *number);
int argument_timing(const State *state, PyObject *now, PyObject *unix_time, Timing *timing);
int argument_identity(const Core *core, PyObject *value, uint32_t domain, const char *name,
                      callgate_key *key);
int argument_policy(const Core *core, PyObject *name, uint32_t *policy);
int argument_outcome(const State *state, PyObject *name, uint32_t *outcome);
int argument_domain(const State *state, PyObject *name, uint32_t *domain);

/* errors.c */
int raise_call_error(const State *state, const char *field, const char *sentence);
int raise_call_object(const State *state, const char *field, PyObject *sentence);
int raise_call_status(const State *state, callgate_status status);
int raise_missing(const Core *core, callgate_status status, uint32_t policy);
int raise_config_status(const State *state, callgate_status status, PyObject *limit,
                        PyObject *policy);
int raise_type(const char *name, const char *wanted, PyObject *got);
PyObject *refuse_to_pickle(PyObject *self, PyObject *unused);

/* core.c */
extern PyType_Spec core_spec;
Core *core_new(State *state, PyObject *args);

/* limit.c */
int limit_from_tuple(PyObject *tuple, callgate_limit *limit, callgate_status *fault);
PyObject *limit_check(PyObject *module, PyObject *tuple);
PyObject *gate_reconfigure(PyObject *self, PyObject *args);

/* calendar.c */
int core_timing(const Core *core, PyObject *now, PyObject *unix_time, Timing *timing);
int gate_timing(PyObject *self, const Core *core, PyObject *now, PyObject *unix_time,
                Timing *timing);
PyObject *gate_use_zones(PyObject *self, PyObject *whether);
PyObject *gate_set_windows(PyObject *self, PyObject *args);
PyObject *gate_seed(PyObject *self, PyObject *args);

/* reports.c */
PyObject *gate_stats(PyObject *self, PyObject *args);
PyObject *gate_guards(PyObject *self, PyObject *args);
PyObject *gate_metrics(PyObject *self, PyObject *args);
PyObject *gate_decisions(PyObject *self, PyObject *policy);

/* The others, each in the file of its name. */
extern PyType_Spec gate_spec;
extern PyType_Spec key_spec;
extern PyType_Spec decision_spec;
extern PyType_Spec permit_spec;
PyObject *gate_try_admit(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                         PyObject *keywords);
PyObject *gate_peek(PyObject *self, PyObject *const *args, Py_ssize_t positional,
                    PyObject *keywords);
Core *gate_core(PyObject *self);
PyObject *key_new(Core *core, PyObject *identity, uint32_t domain);
DecisionObject *decision_new(Core *core);
PyObject *permit_new(Core *core, const callgate_permit *permit);

/* Gives back an object of a heap type that nobody derives from, and its reference to the type. */
static inline void object_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static inline PyObject *new_ref(PyObject *object) {
    Py_INCREF(object);
    return object;
}

#endif
