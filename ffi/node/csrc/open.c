/* Making a gate from a checked configuration, and finding one that another thread has made. */
#include "engine.h"

#include <errno.h>
#include <sys/mman.h>

/* A configuration in C's form, while a gate is made from it. */
typedef struct {
    callgate_config config;
    callgate_limit limits[LIMITS_MAX];
    callgate_policy policies[POLICIES_MAX];
    callgate_status fault; /* of a number that has no place in its field */
    uint32_t faulty;       /* the limit's index */
} Plan;

/* Counts beyond the engine's bounds are passed on as they are, for it to refuse. */
static int plan_limits(napi_env env, Plan *plan, napi_value limits) {
    if (array_length(env, limits, &plan->config.limit_count) < 0) return -1;
    for (uint32_t n = 0; n < plan->config.limit_count && n < LIMITS_MAX; n++) {
        napi_value fields;
        callgate_status fault = CALLGATE_OK;
        if (napi_get_element(env, limits, n, &fields) != napi_ok ||
            limit_read(env, fields, &plan->limits[n], &fault) < 0) {
            return -1;
        }
        if (fault == CALLGATE_OK || plan->fault != CALLGATE_OK) continue;
        plan->fault = fault;
        plan->faulty = n;
    }
    return 0;
}

/* Reads [[limit index, scope], ...]. */
static int plan_rules(napi_env env, napi_value rules, callgate_policy *policy) {
    if (array_length(env, rules, &policy->rule_count) < 0) return -1;
    for (uint32_t n = 0; n < policy->rule_count && n < CALLGATE_MAX_RULES; n++) {
        napi_value rule, limit, scope;
        if (napi_get_element(env, rules, n, &rule) != napi_ok ||
            napi_get_element(env, rule, 0, &limit) != napi_ok ||
            napi_get_element(env, rule, 1, &scope) != napi_ok ||
            word_read(env, limit, &policy->rules[n].limit) < 0 ||
            word_read(env, scope, &policy->rules[n].scope) < 0) {
            return -1;
        }
    }
    return 0;
}

static int plan_policies(napi_env env, Plan *plan, napi_value policies) {
    if (array_length(env, policies, &plan->config.policy_count) < 0) return -1;
    for (uint32_t n = 0; n < plan->config.policy_count && n < POLICIES_MAX; n++) {
        napi_value rules;
        if (napi_get_element(env, policies, n, &rules) != napi_ok ||
            plan_rules(env, rules, &plan->policies[n]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int names_keep(napi_env env, napi_value names, char **kept, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        napi_value name;
        if (napi_get_element(env, names, n, &name) != napi_ok) return -1;
        kept[n] = text_read(env, name);
        if (kept[n] == NULL) return -1;
    }
    return 0;
}

/* What the engine finds wrong with the plan, or NULL. */
static napi_value plan_fault(napi_env env, const Plan *plan) {
    callgate_fault fault;
    callgate_status status = callgate_check(&plan->config, &fault);
    if (status != CALLGATE_OK) {
        return fault_of(env, status, CALLGATE_NO_LIMIT, CALLGATE_NO_LIMIT);
    }
    if (plan->fault != CALLGATE_OK) {
        return fault_of(env, plan->fault, plan->faulty, CALLGATE_NO_LIMIT);
    }
    if (fault.status == CALLGATE_OK) return NULL;
    return fault_of(env, fault.status, fault.limit, fault.policy);
}

static int core_map(Core *core, const Plan *plan) {
    if (callgate_size(&plan->config, &core->size) != CALLGATE_OK) return -1;
    void *memory = mmap(NULL, core->size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
    if (memory == MAP_FAILED) return -1;
    core->memory = memory;
    return callgate_init(memory, core->size, &plan->config, &core->gate) == CALLGATE_OK ? 0 : -1;
}

enum { LIMIT_NAMES, LIMITS, POLICY_NAMES, POLICIES, CAPACITY, SECRET, ID, DESCRIPTION, PARAMETERS };

static int plan_read(napi_env env, Plan *plan, napi_value *arguments) {
    void *secret;
    size_t size;
    plan->config.struct_size = sizeof plan->config;
    plan->config.limits = plan->limits;
    plan->config.policies = plan->policies;
    if (word_read(env, arguments[CAPACITY], &plan->config.capacity) < 0 ||
        bytes_read(env, arguments[SECRET], &secret, &size) < 0 ||
        size != sizeof plan->config.secret) {
        return -1;
    }
    memcpy(plan->config.secret, secret, size);
    if (plan_limits(env, plan, arguments[LIMITS]) < 0) return -1;
    return plan_policies(env, plan, arguments[POLICIES]);
}

static int core_fill(napi_env env, Core *core, const Plan *plan, napi_value *arguments) {
    void *id;
    size_t size;
    if (bytes_read(env, arguments[ID], &id, &size) < 0 || size != ID_SIZE) return -1;
    memcpy(core->id, id, size);
    core->limit_count = plan->config.limit_count;
    core->policy_count = plan->config.policy_count;
    for (uint32_t n = 0; n < core->limit_count; n++) {
        if (plan->limits[n].kind == CALLGATE_KIND_QUOTA) atomic_store(&core->has_quota, 1);
    }
    core->descriptions[0] = text_read(env, arguments[DESCRIPTION]);
    if (core->descriptions[0] == NULL ||
        names_keep(env, arguments[LIMIT_NAMES], core->limit_names, core->limit_count) < 0) {
        return -1;
    }
    return names_keep(env, arguments[POLICY_NAMES], core->policy_names, core->policy_count);
}

static napi_value core_open(napi_env env, const Plan *plan, napi_value *arguments) {
    Core *core = calloc(1, sizeof *core);
    if (core == NULL) return misused(env, "out of memory");
    pthread_mutex_init(&core->changing, NULL);
    if (core_fill(env, core, plan, arguments) < 0) {
        core_free(core);
        return misused(env, "open: bad arguments");
    }
    if (core_map(core, plan) < 0) {
        napi_value needed = number_of(env, (double)core->size);
        core_free(core);
        return needed;
    }
    return seat_new(env, core_add(core));
}

/* open(limitNames, limits, policyNames, policies, capacity, secret, id, description) -> a seat, or
 * a fault, or how many bytes of memory there are not. */
napi_value module_open(napi_env env, napi_callback_info info) {
    napi_value arguments[PARAMETERS], result;
    size_t count = PARAMETERS;
    if (napi_get_cb_info(env, info, &count, arguments, NULL, NULL) != napi_ok) return NULL;
    Plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return misused(env, "out of memory");
    if (count != PARAMETERS || plan_read(env, plan, arguments) < 0) {
        result = misused(env, "open: bad arguments");
    } else {
        result = plan_fault(env, plan);
        if (result == NULL) result = core_open(env, plan, arguments);
    }
    /* The secret is in the gate's handle now, and nowhere else here. */
    memset(plan, 0, sizeof *plan);
    free(plan);
    return result;
}

/* The descriptions of a core: an array of texts and, for limits that were never changed, null. */
static napi_value descriptions_of(napi_env env, Core *core) {
    napi_value all, text;
    if (napi_create_array_with_length(env, 1 + core->limit_count, &all) != napi_ok) return NULL;
    for (uint32_t n = 0; n <= core->limit_count; n++) {
        char *copy = core_description(core, n);
        text = string_of(env, copy);
        free(copy);
        if (text == NULL || napi_set_element(env, all, n, text) != napi_ok) return NULL;
    }
    return all;
}

/* attach(id) -> [a seat, the descriptions], or null where there is no such gate. */
napi_value module_attach(napi_env env, napi_callback_info info) {
    napi_value id, result;
    void *bytes;
    size_t count = 1, size;
    if (napi_get_cb_info(env, info, &count, &id, NULL, NULL) != napi_ok) return NULL;
    if (count != 1 || bytes_read(env, id, &bytes, &size) < 0 || size != ID_SIZE) {
        return misused(env, "attach: bad arguments");
    }
    Core *core = core_find(bytes);
    if (core == NULL) return string_of(env, NULL);
    napi_value descriptions = descriptions_of(env, core);
    napi_value seat = seat_new(env, core); /* takes the reference */
    if (seat == NULL || descriptions == NULL ||
        napi_create_array_with_length(env, 2, &result) != napi_ok) {
        return NULL;
    }
    napi_set_element(env, result, 0, seat);
    napi_set_element(env, result, 1, descriptions);
    return result;
}
