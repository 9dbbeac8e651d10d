/* Finds bytes within records that were read. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { JLOG_FIND_STRIDE = 16 };
typedef uint8_t jlog_lanes __attribute__((vector_size(JLOG_FIND_STRIDE)));

static inline jlog_lanes jlog_lanes_at(const uint8_t *at)
{
    jlog_lanes lanes;

    memcpy(&lanes, at, sizeof lanes);
    return lanes;
}

/* Returns where `needle`, of at least one byte, is found first from `at` on; `end` if it is not found. Compares first and last
 * byte at 16 places at once, and all of the needle only where both are equal; after W. Mula, "SIMD-friendly algorithms for
 * substring searching" (2016). */
static inline const uint8_t *jlog_find(const uint8_t *at, const uint8_t *end, const uint8_t *needle, size_t bytes)
{
    const uint8_t *const stop = (size_t)(end - at) < bytes ? at : end - bytes + 1; /* no needle begins there or later */
    const jlog_lanes first = (jlog_lanes){0} + needle[0], last = (jlog_lanes){0} + needle[bytes - 1];

    for (; stop - at >= JLOG_FIND_STRIDE; at += JLOG_FIND_STRIDE) {
        const jlog_lanes equal = (jlog_lanes)((jlog_lanes_at(at) == first) & (jlog_lanes_at(at + bytes - 1) == last));
        uint64_t halves[2];

        memcpy(halves, &equal, sizeof halves);
        if ((halves[0] | halves[1]) == 0)
            continue;
        for (size_t lane = 0; lane < JLOG_FIND_STRIDE; lane++)
            if (equal[lane] && memcmp(at + lane, needle, bytes) == 0)
                return at + lane;
    }
    for (; at < stop; at++)
        if (memcmp(at, needle, bytes) == 0)
            return at;
    return end;
}
