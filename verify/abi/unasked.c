/* Built with the header of a later version, run on this library, and it does not compare versions: every
 * call that takes a struct must be refused by the struct's size. */
#include <stdio.h>
#include <string.h>

#include "callgate.h"

int main(void) {
    static _Alignas(CALLGATE_ALIGNMENT) unsigned char memory[65536];
    callgate_limit limit = {.kind = CALLGATE_KIND_OFF};
    callgate_policy policy = {.rule_count = 1, .rules = {{0, CALLGATE_SCOPE_SHARED}}};
    callgate_config config = {.struct_size = sizeof config, .capacity = 1, .secret = "sixteen random b",
                              .limit_count = 1, .policy_count = 1, .limits = &limit,
                              .policies = &policy};
    callgate_gate gate;
    callgate_fault fault = {0};
    callgate_call call = {.struct_size = sizeof call};
    callgate_decision decision;
    size_t size = 0;
    if (callgate_version() == CALLGATE_VERSION) return puts("the versions are equal"), 1;
    if (callgate_size(&config, &size) != CALLGATE_BAD_STRUCT_SIZE) return puts("size"), 1;
    if (callgate_init(memory, sizeof memory, &config, &gate) != CALLGATE_BAD_STRUCT_SIZE) {
        return puts("init"), 1;
    }
    if (callgate_check(&config, &fault) != CALLGATE_OK) return puts("check"), 1;
    if (fault.status != CALLGATE_BAD_STRUCT_SIZE) return puts("fault"), 1;
    /* With a gate that was made all the same, a call is refused. */
    config.struct_size = sizeof config - sizeof(uint64_t);
    if (callgate_init(memory, sizeof memory, &config, &gate) != CALLGATE_OK) return puts("old"), 1;
    if (callgate_admit_at(&gate, &call, 0, 0, NULL, &decision) != CALLGATE_BAD_STRUCT_SIZE) {
        return puts("admit"), 1;
    }
    puts("abi: a program that asks for no version is refused by the sizes of its structs");
    return 0;
}
