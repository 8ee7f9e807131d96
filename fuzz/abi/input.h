/* What a fuzzer made up, taken piece by piece. Where it ends, zeros follow. */
#ifndef CALLGATE_FUZZ_INPUT_H
#define CALLGATE_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct input {
    const unsigned char *next;
    size_t left;
} input;

static inline void take(input *in, void *into, size_t size) {
    size_t count = size < in->left ? size : in->left;
    memset(into, 0, size);
    memcpy(into, in->next, count);
    in->next += count;
    in->left -= count;
}

static inline uint8_t take_u8(input *in) {
    uint8_t value;
    take(in, &value, sizeof value);
    return value;
}

static inline uint32_t take_u32(input *in) {
    uint32_t value;
    take(in, &value, sizeof value);
    return value;
}

static inline uint64_t take_u64(input *in) {
    uint64_t value;
    take(in, &value, sizeof value);
    return value;
}

/* A number of which small ones, round ones and the ends of ranges are likely. */
static inline uint64_t take_number(input *in) {
    static const uint64_t likely[] = {
        0, 1, 2, 3, 15, 63, 64, 4095, 4096, 1000000, 1000000000, UINT64_C(60000000000),
        UINT64_C(86400), UINT64_C(1) << 33, UINT64_C(1) << 47, (UINT64_C(1) << 61) - 1,
        UINT64_C(1) << 61, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX,
    };
    const size_t count = sizeof likely / sizeof likely[0];
    uint8_t kind = take_u8(in);
    if (kind < 128) return kind;
    if (kind < 128 + 4 * count) return likely[(kind - 128) / 4];
    if (kind < 230) return take_u32(in);
    return take_u64(in);
}

#endif
