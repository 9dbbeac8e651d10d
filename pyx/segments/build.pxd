"""The declarations of build.h, for the Cython sources."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.format.format cimport jlog_block_header


cdef extern from "segments/build.h" nogil:
    struct jlog_block_content:
        int kind
        int codec
        int has_state
        uint64_t record_count
        uint64_t first_sequence
        uint64_t raw_bytes
        uint64_t stored_bytes
        uint32_t raw_crc
        uint32_t stored_crc
        int64_t base_time_us
        int64_t max_timestamp_us
        int64_t earliest_us

    int64_t jlog_latest_us(uint64_t records, uint64_t explicit_count, int64_t explicit_max_us, int64_t clock_us)
    int64_t jlog_earliest_us(uint64_t records, uint64_t explicit_count, int64_t absolute_us, int64_t base_time_us)
    void jlog_place_block_header(jlog_block_header *header, const uint8_t *uuid, uint64_t segment, uint64_t offset)
    void jlog_build_block_header(jlog_block_header *header, const jlog_block_content *content, int64_t clock_us,
                                 uint64_t durable_end, const uint8_t *uuid, uint64_t segment, uint64_t offset)
