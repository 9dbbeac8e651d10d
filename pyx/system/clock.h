/* Reads the realtime clock in microseconds, at the cost of a few nanoseconds: it scales the processor's counter between exact
 * readings, which are at most a millisecond apart. So a step of the clock, a suspended machine or a migrated one is noticed
 * within a millisecond, and the error of a wrong scale is bounded by it. If the counter is not known to run evenly, every
 * reading is exact. Not thread-safe: each clock is used under the append lock of its journal. It may run backwards:
 * jlog_raise_to_floor_us() in buffer/publish.h keeps a journal's timestamps from that. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "system/failpoint.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#define JLOG_CLOCK_SPAN_US 1000                          /* time between two exact readings */

struct jlog_clock {
    uint64_t ticks;                                      /* the counter at the last exact reading */
    uint64_t span_ticks;                                 /* ticks for which that reading may be extrapolated; 0: none */
    uint64_t scale;                                      /* microseconds per tick, in units of 2^-32 */
    int64_t realtime_us;
    int64_t monotonic_us;
};

static inline int64_t jlog_read_clock_us(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Microseconds by which a test moves the realtime clock, with the failpoint `clock=SECONDS@0`. */
static inline int64_t jlog_clock_step_us(void) { return JLOG_FAILPOINT("clock") * INT64_C(1000000); }

static inline int64_t jlog_clock_us(clockid_t clock)
{
    return jlog_read_clock_us(clock) + (clock == CLOCK_REALTIME ? jlog_clock_step_us() : 0);
}

/* Returns the processor's counter; 0 on a processor without a known one. */
static inline uint64_t jlog_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

static inline int jlog_ticks_are_even(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1); /* invariant TSC: Intel SDM 3, 18.17.1 */
#elif defined(__aarch64__)
    return 1;
#else
    return 0;
#endif
}

/* Takes an exact reading, and measures the scale anew. */
static __attribute__((noinline)) int64_t jlog_clock_read(struct jlog_clock *clock)
{
    const uint64_t ticks = jlog_ticks();
    const int64_t realtime_us = jlog_read_clock_us(CLOCK_REALTIME);
    const int64_t monotonic_us = jlog_read_clock_us(CLOCK_MONOTONIC);
    const int64_t elapsed_us = monotonic_us - clock->monotonic_us;
    const uint64_t elapsed_ticks = ticks - clock->ticks;

    if (clock->ticks != 0 && elapsed_us < JLOG_CLOCK_SPAN_US / 2)
        return realtime_us; /* too short to measure the scale */
    if (clock->ticks != 0 && elapsed_us < 1000000 && elapsed_ticks < 1ull << 36 && elapsed_ticks > (uint64_t)elapsed_us) {
        clock->scale = ((uint64_t)elapsed_us << 32) / elapsed_ticks;
        clock->span_ticks = jlog_ticks_are_even() ? elapsed_ticks * JLOG_CLOCK_SPAN_US / (uint64_t)elapsed_us : 0;
    }
    clock->ticks = ticks;
    clock->realtime_us = realtime_us;
    clock->monotonic_us = monotonic_us;
    return realtime_us;
}

static inline int64_t jlog_now_us(struct jlog_clock *clock)
{
    const uint64_t elapsed = jlog_ticks() - clock->ticks;

    if (__builtin_expect(elapsed < clock->span_ticks, 1))
        return jlog_clock_step_us() + clock->realtime_us + (int64_t)(elapsed * clock->scale >> 32);
    return jlog_clock_step_us() + jlog_clock_read(clock);
}
