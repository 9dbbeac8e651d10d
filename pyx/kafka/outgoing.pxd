from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "kafka/outgoing.h" nogil:
    enum:
        JLOG_SENT
        JLOG_NOT_PLAIN
        JLOG_FULL
        JLOG_BY_KEY

    struct jlog_outgoing:
        int32_t partition
        uint32_t spread_over
        uint32_t spread_bits
        int without_key
        int needs_key
        int64_t limit_bytes
        int64_t earliest_ms
        int64_t latest_ms
        const char *ours
        size_t ours_bytes
        const char *sequence_header
        const char *timestamp_header
        int64_t value_bytes
        int64_t beside_bytes

    struct jlog_message:
        int32_t partition
        const uint8_t *value
        const uint8_t *key
        size_t value_bytes
        size_t key_bytes
        int64_t time_ms
        uint64_t sequence

    void jlog_pass_record(const uint8_t *data, size_t bytes, size_t *at, uint64_t *sequence)


cdef class Outgoing:
    cdef jlog_outgoing rules
    cdef list kept
    cdef list chunks
    cdef Py_ssize_t chunk
    cdef uint64_t passed
    cdef bytes data
    cdef int64_t base_time_us
    cdef uint64_t first
    cdef uint64_t sequence
    cdef size_t at

    cdef int enter_chunk(self) except -1
    cdef int next_chunk(self) except -1
    cdef int pass_on(self, const uint8_t *data, size_t size) except? -1
