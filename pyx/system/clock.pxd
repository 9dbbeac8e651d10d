"""The declarations of clock.h, for the Cython sources."""

from libc.stdint cimport int64_t


cdef extern from "system/clock.h" nogil:
    enum:
        CLOCK_BOOTTIME
        CLOCK_MONOTONIC
        CLOCK_REALTIME

    struct jlog_clock:
        pass

    int64_t jlog_clock_us(int clock)
    int64_t jlog_now_us(jlog_clock *clock)
