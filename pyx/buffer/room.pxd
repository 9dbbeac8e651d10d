"""The declarations of room.h, for the Cython sources."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.buffer.page cimport jlog_page, jlog_slot


cdef extern from "buffer/room.h" nogil:
    uint32_t jlog_block_capacity(const jlog_page *page, uint64_t offset)
    uint64_t jlog_least_reserved(const jlog_slot *slot)
    uint32_t jlog_block_room(const jlog_page *page, const jlog_slot *slot, uint64_t bytes)
    bint jlog_is_full(const jlog_page *page, uint64_t end)
    bint jlog_period_is_over(const jlog_page *page, int64_t now_us)
    uint64_t jlog_period_length(const jlog_page *page)
    void jlog_begin_period(jlog_page *page, int64_t now_us)
    bint jlog_may_append(const jlog_page *page, uint64_t count)
