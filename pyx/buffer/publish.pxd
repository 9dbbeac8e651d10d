"""The declarations of publish.h, for the Cython sources."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.buffer.page cimport jlog_buffer, jlog_page, jlog_slot


cdef extern from "buffer/publish.h" nogil:
    const int64_t JLOG_CLOCK_AHEAD_US
    int64_t jlog_floor_ahead_us(const jlog_page *page, int64_t now_us)
    int64_t jlog_now_or_floor_us(jlog_buffer *buffer)
    int64_t jlog_block_base(jlog_buffer *buffer, const jlog_slot *slot, int64_t first_us)
    uint64_t jlog_publish(jlog_buffer *buffer, jlog_slot *slot, uint32_t end, uint32_t crc, uint64_t count)
    uint32_t jlog_block_crc(const jlog_buffer *buffer, const jlog_slot *slot)
    int64_t jlog_put_value(jlog_buffer *buffer, const uint8_t *value, size_t bytes, int64_t now_us)
    int64_t jlog_put_record(jlog_buffer *buffer, uint8_t *record, size_t bytes, int64_t now_us)
    void jlog_rotate(jlog_page *page, uint64_t segment, uint64_t offset, uint64_t first_sequence, uint64_t previous_offset,
                     uint32_t capacity)
    void jlog_wake(jlog_page *page)
