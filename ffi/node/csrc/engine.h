/* The addon callgate.node, and what its files share.
 *
 * A Core is a gate's memory and names. All threads of the process that have a gate of it share it;
 * it is given back with the last of them. A Seat is what one thread has of a core: functions, and
 * the Exchange, memory through which arguments and results pass, so that a decision is one crossing
 * without arguments, and makes no objects.
 *
 * Words: 32 bits. Everything that JavaScript passes is checked there; what is checked here keeps a
 * mistake there from being a crash. */
#ifndef CALLGATE_NODE_ENGINE_H
#define CALLGATE_NODE_ENGINE_H

#define NAPI_VERSION 8
#include <node_api.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "callgate.h"

#define LIMITS_MAX 64
#define POLICIES_MAX 64
#define REASON_COUNT 8
#define ID_SIZE 16
#define TEXT_SIZE 256
#define FIGURES (1 + CALLGATE_MAX_RULES * REASON_COUNT)

/* The layout that this addon was written for; the Rust side asserts the same. */
_Static_assert(sizeof(callgate_limit) == 96, "callgate_limit");
_Static_assert(sizeof(callgate_policy) == 72, "callgate_policy");
_Static_assert(sizeof(callgate_gate) == 192, "callgate_gate");
_Static_assert(sizeof(callgate_call) == 72, "callgate_call");
_Static_assert(sizeof(callgate_permit) == 160, "callgate_permit");
_Static_assert(sizeof(callgate_decision) == 48, "callgate_decision");
_Static_assert(sizeof(callgate_stats) == 40, "callgate_stats");
_Static_assert(sizeof(callgate_decisions) == 8 * FIGURES, "callgate_decisions");
_Static_assert(sizeof(callgate_guards) == 40, "callgate_guards");

/* What a function of a seat leaves in `status`, apart from the engine's. */
enum { SEAT_CLOSED = -1, SEAT_NEEDS_WINDOWS = -2, SEAT_NEEDS_UNIX_NS = -3 };

/* Bits of `timing`: which of the clocks the caller gave. */
enum { TIMING_NOW = 1, TIMING_UNIX = 2 };

/* What a thread and its seat tell each other. src/exchange.ts says the same. */
typedef struct {
    callgate_call call;
    uint64_t now_ns;
    uint64_t unix_ns;
    uint32_t timing;
    uint32_t caller_size; /* of `caller_text`; 0: `call.caller` is the key */
    uint32_t tool_size;   /* likewise */
    int32_t status;
    callgate_decision decision;
    callgate_permit permit;
    uint64_t used;
    uint32_t outcome;
    uint32_t index; /* of a limit or policy */
    uint32_t scope;
    uint32_t count;
    uint64_t start_s;
    uint64_t end_s;
    uint64_t figures[FIGURES]; /* the struct of a report, or the decisions of a peek */
    char caller_text[TEXT_SIZE];
    char tool_text[TEXT_SIZE];
} Exchange;

_Static_assert(offsetof(Exchange, now_ns) == 72, "now_ns");
_Static_assert(offsetof(Exchange, timing) == 88, "timing");
_Static_assert(offsetof(Exchange, status) == 100, "status");
_Static_assert(offsetof(Exchange, decision) == 104, "decision");
_Static_assert(offsetof(Exchange, permit) == 152, "permit");
_Static_assert(offsetof(Exchange, used) == 312, "used");
_Static_assert(offsetof(Exchange, start_s) == 336, "start_s");
_Static_assert(offsetof(Exchange, figures) == 352, "figures");
_Static_assert(offsetof(Exchange, caller_text) == 872, "caller_text");
_Static_assert(offsetof(Exchange, tool_text) == 1128, "tool_text");
_Static_assert(sizeof(Exchange) == 1384, "Exchange");
_Static_assert(sizeof(callgate_decision) * CALLGATE_MAX_RULES <= 8 * FIGURES, "a peek");

/* A gate's memory, its handle and its names. */
typedef struct Core {
    callgate_gate gate;
    void *memory;
    size_t size;
    char *limit_names[LIMITS_MAX];
    char *policy_names[POLICIES_MAX];
    uint32_t limit_count;
    uint32_t policy_count;
    atomic_int has_quota;       /* one of the limits is a quota, or was one */
    pthread_mutex_t changing;   /* the engine allows one reconfiguration at a time */
    uint8_t id[ID_SIZE];        /* by which other threads find it */
    struct Core *next;          /* with the rest, under the lock of core.c */
    unsigned references;
    /* What a thread that attaches needs to know, as JSON: first how the gate was made, then of each
     * limit what it was changed to, NULL where it never was. */
    char *descriptions[1 + LIMITS_MAX];
} Core;

/* What one thread has of a core. Its functions hold it, each a reference. */
typedef struct {
    Core *core; /* NULL: closed */
    Exchange *exchange;
    napi_ref buffer; /* the ArrayBuffer of the exchange */
    unsigned references;
    int has_zones; /* a quota's windows are set by JavaScript, which knows time zones */
    uint64_t windows_from_s; /* what was set is right for these seconds since the Unix epoch */
    uint64_t windows_until_s;
} Seat;

/* core.c */
Core *core_add(Core *core);
Core *core_find(const uint8_t *id);
void core_describe(Core *core, uint32_t n, char *description);
char *core_description(Core *core, uint32_t n);
void core_release(Core *core);
void core_free(Core *core);

/* open.c */
napi_value module_open(napi_env env, napi_callback_info info);
napi_value module_attach(napi_env env, napi_callback_info info);

/* limit.c */
int limit_read(napi_env env, napi_value fields, callgate_limit *limit, callgate_status *fault);
napi_value module_check_limit(napi_env env, napi_callback_info info);
napi_value seat_reconfigure(napi_env env, napi_callback_info info);

/* seat.c */
napi_value seat_new(napi_env env, Core *core);
int seat_clocks(Seat *seat, int needs_windows);

/* The seat of a function, or NULL where it is closed, or an exception is on its way. */
static inline Seat *seat_of(napi_env env, napi_callback_info info, size_t *count,
                            napi_value *arguments) {
    Seat *seat = NULL;
    if (napi_get_cb_info(env, info, count, arguments, NULL, (void **)&seat) != napi_ok) return NULL;
    if (seat->core != NULL) return seat;
    seat->exchange->status = SEAT_CLOSED;
    return NULL;
}

/* Whether the clocks of a call will do; else `status` says what is missing. On a gate with a quota a
 * time of the caller's is both clocks. What needs windows finds today's set. */
static inline int seat_timing(Seat *seat, int needs_windows) {
    return seat->exchange->timing == 0 && !seat->has_zones ? 0 : seat_clocks(seat, needs_windows);
}

/* calls.c */
callgate_status texts_hash(const Core *core, Exchange *exchange);

/* Makes the keys of the identities that came as text. */
static inline callgate_status texts_read(const Core *core, Exchange *x) {
    return (x->caller_size | x->tool_size) == 0 ? CALLGATE_OK : texts_hash(core, x);
}

napi_value seat_texts(napi_env env, napi_callback_info info);
napi_value seat_admit(napi_env env, napi_callback_info info);
napi_value seat_admit_many(napi_env env, napi_callback_info info);
napi_value seat_peek(napi_env env, napi_callback_info info);
napi_value seat_settle(napi_env env, napi_callback_info info);
napi_value seat_key(napi_env env, napi_callback_info info);

/* calendar.c */
napi_value seat_seed(napi_env env, napi_callback_info info);
napi_value seat_use_zones(napi_env env, napi_callback_info info);
napi_value seat_window(napi_env env, napi_callback_info info);
napi_value seat_windows_hold(napi_env env, napi_callback_info info);
int unix_seconds(const Exchange *exchange, uint64_t *seconds);

/* reports.c */
napi_value seat_stats(napi_env env, napi_callback_info info);
napi_value seat_guards(napi_env env, napi_callback_info info);
napi_value seat_decisions(napi_env env, napi_callback_info info);
napi_value seat_metrics(napi_env env, napi_callback_info info);

/* values.c */
napi_value misused(napi_env env, const char *sentence);
napi_value string_of(napi_env env, const char *text);
napi_value number_of(napi_env env, double number);
napi_value fault_of(napi_env env, callgate_status status, uint32_t limit, uint32_t policy);
int array_length(napi_env env, napi_value array, uint32_t *length);
char *text_read(napi_env env, napi_value string);
int bytes_read(napi_env env, napi_value bytes, void **data, size_t *size);
int word_read(napi_env env, napi_value number, uint32_t *word);

#endif
