/* Core: a gate's memory and names, made from a checked configuration. */
#include "engine.h"

#include <errno.h>
#include <sys/mman.h>

/* A configuration in C's form, while a gate is made from it. */
typedef struct {
    callgate_config config;
    callgate_limit limits[LIMITS_MAX];
    callgate_policy policies[POLICIES_MAX];
} Plan;

/* Reads ((limit index, scope), ...). */
static int policy_from_tuple(PyObject *rules, callgate_policy *policy) {
    if (!PyTuple_Check(rules)) return raise_type("a policy", "a tuple", rules);
    Py_ssize_t count = PyTuple_Size(rules);
    /* Counts beyond the limit are passed on as they are, for the engine to refuse. */
    policy->rule_count = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
    for (Py_ssize_t n = 0; n < count && n < CALLGATE_MAX_RULES; n++) {
        PyObject *rule = PyTuple_GetItem(rules, n);
        if (!PyTuple_Check(rule)) return raise_type("a rule", "a tuple", rule);
        unsigned int limit = 0, scope = 0;
        if (!PyArg_ParseTuple(rule, "II:rule", &limit, &scope)) return -1;
        policy->rules[n] = (callgate_rule){.limit = limit, .scope = scope};
    }
    return 0;
}

static int plan_limits(const State *state, Plan *plan, PyObject *names, PyObject *limits) {
    Py_ssize_t count = PyTuple_Size(limits);
    if (count != PyTuple_Size(names)) return raise_type("names", "as many as limits", names);
    plan->config.limit_count = (uint32_t)count;
    for (Py_ssize_t n = 0; n < count && n < LIMITS_MAX; n++) {
        callgate_status fault = CALLGATE_OK;
        if (limit_from_tuple(PyTuple_GetItem(limits, n), &plan->limits[n], &fault) < 0) return -1;
        if (fault != CALLGATE_OK) {
            return raise_config_status(state, fault, PyTuple_GetItem(names, n), NULL);
        }
    }
    return 0;
}

static int plan_policies(Plan *plan, PyObject *names, PyObject *policies) {
    Py_ssize_t count = PyTuple_Size(policies);
    if (count != PyTuple_Size(names)) return raise_type("names", "as many as policies", names);
    plan->config.policy_count = (uint32_t)count;
    for (Py_ssize_t n = 0; n < count && n < POLICIES_MAX; n++) {
        if (policy_from_tuple(PyTuple_GetItem(policies, n), &plan->policies[n]) < 0) return -1;
    }
    return 0;
}

static int plan_capacity(const State *state, Plan *plan, PyObject *capacity) {
    uint64_t number = PyLong_AsUnsignedLongLong(capacity);
    if (number == UINT64_MAX && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
        PyErr_Clear();
    }
    if (number > UINT32_MAX) {
        return raise_config_status(state, CALLGATE_CONFIG_CAPACITY, NULL, NULL);
    }
    plan->config.capacity = (uint32_t)number;
    return 0;
}

static int plan_secret(const State *state, Plan *plan, PyObject *secret) {
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(secret, &bytes, &size) < 0) return -1;
    if (size != (Py_ssize_t)sizeof plan->config.secret) {
        return raise_config_status(state, CALLGATE_CONFIG_SECRET, NULL, NULL);
    }
    memcpy(plan->config.secret, bytes, sizeof plan->config.secret);
    return 0;
}

/* Raises what the engine finds wrong with a configuration, by name. */
static int plan_check(const State *state, const Plan *plan, PyObject *limits, PyObject *policies) {
    callgate_fault fault;
    callgate_status status = callgate_check(&plan->config, &fault);
    if (status == CALLGATE_OK) status = fault.status;
    if (status == CALLGATE_OK) return 0;
    int has_limit = fault.limit != CALLGATE_NO_LIMIT;
    int has_policy = fault.policy != CALLGATE_NO_LIMIT;
    return raise_config_status(state, status,
                               has_limit ? PyTuple_GetItem(limits, fault.limit) : NULL,
                               has_policy ? PyTuple_GetItem(policies, fault.policy) : NULL);
}

/* Keeps the names, interned so that those in a program's source are the same objects. */
static int core_keep_names(Core *core, const Plan *plan, PyObject *limits, PyObject *policies) {
    core->limit_count = plan->config.limit_count;
    core->limit_names_tuple = PyTuple_New((Py_ssize_t)core->limit_count);
    core->policy_index = PyDict_New();
    if (core->limit_names_tuple == NULL || core->policy_index == NULL) return -1;
    for (uint32_t n = 0; n < core->limit_count; n++) {
        PyObject *name = PyUnicode_FromObject(PyTuple_GetItem(limits, n));
        if (name == NULL) return -1;
        PyUnicode_InternInPlace(&name);
        core->limit_names[n] = name;
        core->has_quota |= plan->limits[n].kind == CALLGATE_KIND_QUOTA;
        if (PyTuple_SetItem(core->limit_names_tuple, n, name) < 0) return -1;
    }
    for (uint32_t n = 0; n < plan->config.policy_count; n++) {
        PyObject *name = PyUnicode_FromObject(PyTuple_GetItem(policies, n));
        PyObject *index = name == NULL ? NULL : PyLong_FromUnsignedLong(n);
        if (index != NULL) PyUnicode_InternInPlace(&name);
        int failed = index == NULL || PyDict_SetItem(core->policy_index, name, index) < 0;
        core->policy_names[n] = name;
        Py_XDECREF(index);
        Py_XDECREF(name);
        if (failed) return -1;
        for (uint32_t r = 0; r < plan->policies[n].rule_count; r++) {
            core->rule_limits[n][r] = (uint8_t)plan->policies[n].rules[r].limit;
        }
        core->policy_count = n + 1;
    }
    return 0;
}

static int core_map(Core *core, const Plan *plan, int is_shared) {
    callgate_status status = callgate_size(&plan->config, &core->size);
    if (status != CALLGATE_OK) return raise_call_status(core->state, status);
    int flags = MAP_ANONYMOUS | (is_shared ? MAP_SHARED : MAP_PRIVATE);
    void *memory = mmap(NULL, core->size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        PyErr_Format(PyExc_MemoryError, "a gate of capacity %lu needs %zu bytes of memory: %s",
                     (unsigned long)plan->config.capacity, core->size, strerror(errno));
        return -1;
    }
    core->memory = memory;
    status = callgate_init(core->memory, core->size, &plan->config, &core->gate);
    return status == CALLGATE_OK ? 0 : raise_call_status(core->state, status);
}

/* Makes a core from (limit_names, limits, policy_names, policies, capacity, secret, is_shared),
 * names and all else as tuples of the same length. */
Core *core_new(State *state, PyObject *args) {
    PyObject *limit_names, *limits, *policy_names, *policies, *capacity, *secret;
    int is_shared;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!Op:Gate", &PyTuple_Type, &limit_names, &PyTuple_Type,
                          &limits, &PyTuple_Type, &policy_names, &PyTuple_Type, &policies,
                          &PyLong_Type, &capacity, &secret, &is_shared)) {
        return NULL;
    }
    Plan *plan = PyMem_Calloc(1, sizeof *plan);
    if (plan == NULL) return (Core *)PyErr_NoMemory();
    plan->config.struct_size = sizeof plan->config;
    plan->config.limits = plan->limits;
    plan->config.policies = plan->policies;
    Core *core = NULL;
    if (plan_capacity(state, plan, capacity) == 0 && plan_secret(state, plan, secret) == 0 &&
        plan_limits(state, plan, limit_names, limits) == 0 &&
        plan_policies(plan, policy_names, policies) == 0 &&
        plan_check(state, plan, limit_names, policy_names) == 0) {
        allocfunc alloc = (allocfunc)PyType_GetSlot(state->core_type, Py_tp_alloc);
        core = (Core *)alloc(state->core_type, 0); /* zeroed */
        if (core != NULL) core->state = state;
        if (core != NULL && (core_keep_names(core, plan, limit_names, policy_names) < 0 ||
                             core_map(core, plan, is_shared) < 0)) {
            Py_CLEAR(core);
        }
    }
    /* The secret is in the gate's handle now, and nowhere else. */
    memset(plan, 0, sizeof *plan);
    PyMem_Free(plan);
    return core;
}

static void core_dealloc(PyObject *object) {
    Core *self = (Core *)object;
    if (self->memory != NULL) munmap(self->memory, self->size);
    Py_XDECREF(self->policy_index);
    Py_XDECREF(self->limit_names_tuple);
    object_free(object);
}

static PyType_Slot core_slots[] = {
    {Py_tp_dealloc, core_dealloc},
    {0, NULL},
};

PyType_Spec core_spec = {
    .name = "callgate._engine.Core",
    .basicsize = sizeof(Core),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = core_slots,
};
