"""The declarations of page.h, for the Cython sources."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.format.format cimport jlog_block_header
from jlog._core.system.clock cimport jlog_clock


cdef extern from "buffer/page.h" nogil:
    enum:
        JLOG_PAGE_LAYOUT
        JLOG_PAGE_BYTES
        JLOG_PAGE_STATE_OFFSET
        JLOG_BASE_BYTES
        JLOG_CAPACITY_MIN
        JLOG_CAPACITY_MAX
        JLOG_OWNERS_MAX
        JLOG_PAGE_RECOVERING
        JLOG_PAGE_READY
        JLOG_SYNC_INTERVAL
        JLOG_SYNC_APPEND
        JLOG_SNAPSHOT_BYTES
        JLOG_GENERATION_OFFSET
        JLOG_UNWRITTEN_OFFSET
        JLOG_INTENTS_BYTES
        JLOG_BOOT_ID_OFFSET
        JLOG_STATUS_OFFSET
        JLOG_WAKE_COUNTER_OFFSET
        JLOG_WAKE_FLAG_OFFSET
    const char *JLOG_PAGE_MAGIC

    struct jlog_slot:
        uint64_t generation
        uint64_t segment
        uint64_t offset
        uint64_t first_sequence
        uint64_t previous_offset
        uint32_t capacity
        uint64_t publish_word

    struct jlog_counters:
        uint64_t records
        uint64_t raw_bytes
        uint64_t stored_bytes
        uint64_t blocks
        uint64_t direct_blocks
        uint64_t flushes
        uint64_t syncs
        uint64_t sync_waits
        uint64_t rolls
        uint64_t waits
        uint64_t takeovers
        uint64_t wakes

    struct jlog_page:
        uint8_t magic[8]
        uint32_t layout
        uint32_t status
        uint8_t uuid[16]
        uint8_t boot_id[16]
        uint64_t device
        uint64_t inode
        uint64_t capacity
        uint64_t segment_bytes
        uint64_t limit_bytes
        uint64_t sync_interval_us
        uint64_t roll_us
        uint32_t codec
        uint32_t sync_mode
        uint32_t append_lock
        uint32_t sync_error
        uint32_t unrepaired
        uint64_t next_sequence
        int64_t floor_us
        uint64_t reservation_limit
        uint64_t closed
        uint64_t period_us
        uint64_t reserved_end
        uint64_t direct
        uint64_t state
        uint64_t sealed_bytes
        uint64_t incarnation
        uint64_t new_inode
        uint64_t new_end
        uint32_t write_lock
        uint64_t unwritten
        uint32_t sync_lock
        uint32_t sync_counter
        uint32_t sync_arrivals
        uint32_t sync_served
        uint32_t sync_group
        uint32_t sync_leads
        uint64_t syncs_ended
        uint64_t durable_generation
        uint64_t durable_end
        uint64_t durable_segment
        uint64_t syncs_begun
        uint32_t sync_stuck
        uint64_t generation
        jlog_slot slots[2]
        int64_t explicit_max_us
        uint64_t explicit_count
        uint64_t rolling
        uint64_t next_sealed_bytes
        jlog_counters counters
        jlog_block_header immutable

    struct jlog_buffer:
        jlog_page *page
        uint8_t *bodies
        uint32_t owner
        jlog_clock clock

    bint jlog_slot_valid(const jlog_slot *slot, const uint8_t *uuid)
    uint32_t jlog_word_used(uint64_t word)
    uint32_t jlog_word_raw(uint64_t word)
    uint32_t jlog_word_crc(uint64_t word)
    uint64_t jlog_word(uint32_t used, uint32_t crc)
    jlog_slot *jlog_open_slot(jlog_page *page)
    uint64_t jlog_body_offset(uint64_t generation, uint64_t capacity)
    uint8_t *jlog_body(const jlog_buffer *buffer, uint64_t generation)
    bint jlog_is_whole_body(const jlog_slot *slot, const uint8_t *body, size_t bytes)
    bint jlog_is_unwritten(const jlog_page *page, uint64_t generation)
    bint jlog_has_immutable(const jlog_page *page)
    jlog_slot *jlog_unwritten_slot(jlog_page *page)
    jlog_slot jlog_first_unwritten(const jlog_page *page)
