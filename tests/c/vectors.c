/* Does what it is told about one gate, line by line, and prints what came of it. C99.
 *
 *   gate CAPACITY LIMITS POLICIES PERMITS     how many of each; then, one a line:
 *   secret HEX
 *   limit rate COUNT PERIOD_NS BURST
 *   limit concurrency MAX_IN_FLIGHT LEASE_NS REJECT_TRIP FAILURE_TRIP COOLDOWN_NS PROBES
 *   limit quota LIMIT PERIOD_S ANCHOR_UNIX_S MUST_SEED
 *   policy RULES (LIMIT SCOPE)...
 *   open                                      prints "gate BYTES" or "config_error FIELD"
 *   admit POLICY CALLER TOOL COST RESERVE PERMIT UNIX_BASE REPEAT EVERY_NS TIMES AT...
 *                                             prints "decided ADMITTED BY RETRY LIMIT REMAINING
 *                                             RESET REASON": how many, and the last
 *   settle PERMIT OUTCOME USED UNIX_BASE AT   prints "settled STATUS"
 *   seed LIMIT SCOPE CALLER USED UNIX_BASE AT prints "seeded" and 1, or 0 where it had been
 *
 * Bytes are hex after an x; a PERMIT is a number below PERMITS, or - for none. What can't be done
 * is printed as "error ..."; what can't be read ends the program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callgate.h"
#include "layout.h"

static callgate_config config;
static callgate_limit limits[64];
static callgate_policy policies[64];
static callgate_permit *permits;
static uint32_t permit_count;
static callgate_gate gate;

static void stop(const char *what) {
    fprintf(stderr, "vectors.c: can't read %s\n", what);
    exit(2);
}

static const char *word(void) {
    static char buffer[4096];
    if (scanf("%4095s", buffer) != 1) stop("a word");
    return buffer;
}

static uint64_t number(void) {
    uint64_t value;
    if (scanf("%" SCNu64, &value) != 1) stop("a number");
    return value;
}

static size_t bytes(unsigned char *into, size_t room) {
    const char *hex = word();
    size_t count = strlen(hex) / 2, n;
    if (hex[0] != 'x' || count > room) stop("bytes");
    for (n = 0; n < count; n += 1) {
        unsigned value;
        if (sscanf(hex + 1 + 2 * n, "%2x", &value) != 1) stop("hex");
        into[n] = (unsigned char)value;
    }
    return count;
}

static uint32_t code(const char *const *names, uint32_t count, uint32_t first) {
    const char *name = word();
    uint32_t n;
    for (n = 0; n < count; n += 1) {
        if (strcmp(name, names[n]) == 0) return first + n;
    }
    stop("a name");
    return 0;
}

static uint32_t scope(void) {
    static const char *const names[] = {"CALLER", "TOOL", "CALLER_TOOL", "SHARED"};
    return code(names, 4, CALLGATE_SCOPE_CALLER);
}

static uint32_t outcome(void) {
    static const char *const names[] = {"SUCCESS", "FAILURE", "ABANDONED", "CANCELLED"};
    return code(names, 4, CALLGATE_OUTCOME_SUCCESS);
}

static callgate_permit *permit(void) {
    const char *name = word();
    unsigned long slot = strcmp(name, "-") == 0 ? permit_count : strtoul(name, NULL, 10);
    return slot < permit_count ? &permits[slot] : NULL;
}

static void read_gate(void) {
    config.struct_size = sizeof config;
    config.capacity = (uint32_t)number();
    config.limit_count = (uint32_t)number();
    config.policy_count = (uint32_t)number();
    config.limits = limits;
    config.policies = policies;
    permit_count = (uint32_t)number();
    permits = (callgate_permit *)calloc(permit_count + 1, sizeof *permits);
}

static void read_limit(uint32_t n) {
    const char *kind = word();
    callgate_limit *limit = &limits[n < 64 ? n : 0];
    if (n >= 64) stop("so many limits");
    if (strcmp(kind, "rate") == 0) {
        limit->kind = CALLGATE_KIND_RATE;
        limit->count = number();
        limit->period_ns = number();
        limit->burst = number();
    } else if (strcmp(kind, "concurrency") == 0) {
        limit->kind = CALLGATE_KIND_CONCURRENCY;
        limit->max_in_flight = (uint32_t)number();
        limit->lease_ns = number();
        limit->reject_trip = (uint32_t)number();
        limit->failure_trip = (uint32_t)number();
        limit->cooldown_ns = number();
        limit->half_open_probes = (uint32_t)number();
    } else if (strcmp(kind, "quota") == 0) {
        limit->kind = CALLGATE_KIND_QUOTA;
        limit->limit = number();
        limit->period_s = number();
        if (scanf("%" SCNd64, &limit->anchor_unix_s) != 1) stop("an anchor");
        limit->must_seed = (uint32_t)number();
    } else {
        stop("a kind");
    }
}

static void read_policy(uint32_t n) {
    uint32_t rule;
    if (n >= 64) stop("so many policies");
    policies[n].rule_count = (uint32_t)number();
    for (rule = 0; rule < policies[n].rule_count && rule < CALLGATE_MAX_RULES; rule += 1) {
        policies[n].rules[rule].limit = (uint32_t)number();
        policies[n].rules[rule].scope = scope();
    }
}

/* The program's memory is never given back: it ends with its gate. */
static int open_gate(void) {
    size_t size = 0;
    callgate_status status = callgate_size(&config, &size);
    if (status == CALLGATE_OK) {
        char *memory = (char *)malloc(size + CALLGATE_ALIGNMENT);
        memory += CALLGATE_ALIGNMENT - (uintptr_t)memory % CALLGATE_ALIGNMENT;
        status = callgate_init(memory, size, &config, &gate);
    }
    if (status != CALLGATE_OK) {
        const char *field = callgate_error_field(status);
        printf("config_error %s\n", field ? field : callgate_strerror(status));
        return 0;
    }
    printf("gate %zu\n", size);
    return 1;
}

static void make_key(uint32_t domain, callgate_key *key) {
    unsigned char identity[2048];
    size_t size = bytes(identity, sizeof identity);
    if (size > 0 && callgate_key_make(&gate, domain, identity, size, key) != CALLGATE_OK) {
        stop("an identity");
    }
}

static void print_decision(uint64_t admitted, const callgate_decision *last) {
    static const char *const reasons[] = {"NONE",  "RATE",     "CONCURRENCY", "BREAKER_OPEN",
                                          "QUOTA", "UNSEEDED", "TABLE_FULL",  "NEVER"};
    const char *reason = last->reason < 8 ? reasons[last->reason] : "UNKNOWN";
    if (last->admitted != (last->reason == CALLGATE_REASON_NONE)) reason = "CONTRADICTORY";
    printf("decided %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
           admitted, last->by, last->retry_after_ns, last->limit, last->remaining,
           last->reset_after_ns, reason);
}

static void admit(void) {
    static uint64_t ats[4096];
    callgate_call call;
    callgate_decision last;
    callgate_status status = CALLGATE_OK;
    uint64_t unix_base, repeat, every_ns, times, n, admitted = 0;
    callgate_permit *keep;
    memset(&call, 0, sizeof call);
    memset(&last, 0, sizeof last);
    call.struct_size = sizeof call;
    call.policy = (uint32_t)number();
    make_key(CALLGATE_DOMAIN_CALLER, &call.caller);
    make_key(CALLGATE_DOMAIN_TOOL, &call.tool);
    call.cost = number();
    call.reserve = number();
    keep = permit();
    unix_base = number();
    repeat = number();
    every_ns = number();
    times = number();
    if (times == 0 || times > sizeof ats / sizeof ats[0]) stop("so many times");
    for (n = 0; n < times; n += 1) ats[n] = number();
    for (n = 0; n < repeat && status == CALLGATE_OK; n += 1) {
        uint64_t at = times > 1 ? ats[n % times] : ats[0] + n * every_ns;
        callgate_permit given;
        status = callgate_admit_at(&gate, &call, at, unix_base + at, &given, &last);
        if (status == CALLGATE_OK) {
            admitted += last.admitted;
            if (keep) *keep = given;
        }
    }
    if (status == CALLGATE_OK) {
        print_decision(admitted, &last);
    } else {
        printf("error: %s\n", callgate_strerror(status));
    }
}

static void settle(void) {
    callgate_permit *held = permit();
    uint32_t how = outcome();
    uint64_t used = number(), unix_base = number(), at = number();
    callgate_status status = callgate_settle_at(&gate, held, how, used, at, unix_base + at);
    if (status == CALLGATE_OK) {
        printf("settled OK\n");
    } else if (status == CALLGATE_ALREADY_SETTLED) {
        printf("settled ALREADY_SETTLED\n");
    } else if (status == CALLGATE_LAPSED) {
        printf("settled LAPSED\n");
    } else {
        printf("settled %s\n", callgate_strerror(status));
    }
}

static void seed(void) {
    uint32_t limit = (uint32_t)number(), of = scope();
    callgate_key caller;
    uint64_t used, unix_base, at;
    callgate_status status;
    memset(&caller, 0, sizeof caller);
    make_key(CALLGATE_DOMAIN_CALLER, &caller);
    used = number();
    unix_base = number();
    at = number();
    status = callgate_seed_at(&gate, limit, of, &caller, NULL, used, at, unix_base + at);
    if (status == CALLGATE_OK || status == CALLGATE_ALREADY_SEEDED) {
        printf("seeded %d\n", status == CALLGATE_OK);
    } else {
        printf("error: %s\n", callgate_strerror(status));
    }
}

int main(void) {
    char line[16];
    uint32_t limit_count = 0, policy_count = 0;
    while (scanf("%15s", line) == 1) {
        if (strcmp(line, "gate") == 0) {
            read_gate();
        } else if (strcmp(line, "secret") == 0) {
            if (bytes(config.secret, sizeof config.secret) != sizeof config.secret) stop("secret");
        } else if (strcmp(line, "limit") == 0) {
            read_limit(limit_count++);
        } else if (strcmp(line, "policy") == 0) {
            read_policy(policy_count++);
        } else if (strcmp(line, "open") == 0) {
            if (!open_gate()) return 0;
        } else if (strcmp(line, "admit") == 0) {
            admit();
        } else if (strcmp(line, "settle") == 0) {
            settle();
        } else if (strcmp(line, "seed") == 0) {
            seed();
        } else {
            stop("a line");
        }
    }
    return 0;
}
