/* Admits one call of a caller and refuses the next, with a library of the header's version. */
#include <callgate.h>

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                        \
            return EXIT_FAILURE;                                                                   \
        }                                                                                          \
    } while (0)

static alignas(CALLGATE_ALIGNMENT) char memory[16384];

int main(void) {
    callgate_limit limits[] = {
        {.kind = CALLGATE_KIND_RATE, .count = 1, .period_ns = 3600000000000, .burst = 1}};
    callgate_policy policies[] = {{.rule_count = 1, .rules = {{0, CALLGATE_SCOPE_CALLER}}}};
    callgate_config config = {.struct_size = sizeof config, .capacity = 16, .secret = {1},
                              .limit_count = 1, .limits = limits,
                              .policy_count = 1, .policies = policies};
    callgate_gate gate;
    callgate_call call = {.struct_size = sizeof call, .cost = 1};
    callgate_decision decision;

    DEMAND(callgate_version() == CALLGATE_VERSION);
    DEMAND(callgate_init(memory, sizeof memory, &config, &gate) == CALLGATE_OK);
    DEMAND(callgate_key_make(&gate, CALLGATE_DOMAIN_CALLER, "user:1001", 9, &call.caller) ==
           CALLGATE_OK);
    DEMAND(callgate_admit(&gate, &call, NULL, &decision) == CALLGATE_OK && decision.admitted);
    DEMAND(callgate_admit(&gate, &call, NULL, &decision) == CALLGATE_OK && !decision.admitted);
    DEMAND(decision.retry_after_ns > 3500000000000 && decision.retry_after_ns <= 3600000000000);
    puts("admitted one, refused one");
    return EXIT_SUCCESS;
}
