"""The declarations of checksum.h, format.h and record.h, for the Cython sources."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "format/checksum.h" nogil:
    uint32_t jlog_crc32c(uint32_t crc, const void *data, size_t bytes)
    uint32_t jlog_crc32c_shift(uint32_t crc, uint64_t bytes)


cdef extern from "format/format.h" nogil:
    enum:
        JLOG_FORMAT_VERSION
        JLOG_SEGMENT_VERSION
        JLOG_STATE_BYTES_MAX
        JLOG_DUAL_SLOT_STRIDE
        JLOG_DUAL_SLOT_UUID_OFFSET
        JLOG_POSITION_BYTES
        JLOG_COMPRESS_BYTES_MIN
        JLOG_KIND_RECORDS
        JLOG_KIND_STATE
        JLOG_CODEC_NONE
        JLOG_CODEC_LZ4
        JLOG_BLOCK_HAS_STATE
        JLOG_NAME_BYTES
        JLOG_INDEX_EVERY_BYTES
    const uint64_t JLOG_NONE
    const uint64_t JLOG_NUMBER_MAX
    const uint64_t JLOG_RESERVATION_STRIDE
    const uint32_t JLOG_RAW_BYTES_MAX
    const uint32_t JLOG_BLOCK_MAGIC
    const char *JLOG_SEGMENT_MAGIC
    const char *JLOG_INDEX_MAGIC
    const char *JLOG_BOUNDS_MAGIC
    const char *JLOG_POSITION_MAGIC

    struct jlog_segment_header:
        uint8_t magic[8]
        uint32_t version
        uint32_t crc
        uint8_t uuid[16]
        uint64_t epoch
        uint64_t first_sequence
        uint64_t previous_segment
        uint64_t previous_end_offset
        uint64_t previous_end_sequence
        int64_t created_us
        uint64_t replacements

    struct jlog_block_header:
        uint8_t kind
        uint8_t codec
        uint16_t flags
        uint32_t header_crc
        uint32_t stored_crc
        uint32_t raw_crc
        uint32_t record_count
        uint32_t stored_bytes
        uint32_t raw_bytes
        uint64_t first_sequence
        int64_t base_time_us
        int64_t max_timestamp_us
        int64_t clock_us
        uint64_t durable_end

    struct jlog_bounds:
        uint8_t uuid[16]
        uint64_t first_sequence
        uint64_t mark_segment
        uint64_t mark_offset
        uint64_t mark_sequence
        uint64_t reservation_limit
        uint64_t closed_segment
        uint64_t closed_offset
        uint64_t closed_sequence

    struct jlog_position:
        uint32_t version
        uint64_t generation
        uint8_t uuid[16]
        uint64_t epoch
        uint64_t sequence
        int64_t moved_us

    struct jlog_index_header:
        uint8_t magic[8]
        uint32_t version
        uint32_t crc
        uint8_t uuid[16]
        uint64_t segment
        uint64_t entry_count

    struct jlog_index_entry:
        uint64_t first_sequence
        uint64_t offset
        int64_t max_timestamp_us

    void jlog_segment_name(char *name, uint64_t first_sequence)
    uint32_t jlog_structure_crc(const void *structure, size_t bytes)
    bint jlog_segment_header_valid(const jlog_segment_header *header)
    bint jlog_bounds_valid(const jlog_bounds *bounds)
    bint jlog_position_valid(const jlog_position *position)
    uint64_t jlog_index_entries(const uint8_t *index, size_t bytes, const uint8_t *uuid, uint64_t segment)
    bint jlog_block_header_valid(const jlog_block_header *header, const uint8_t *uuid, uint64_t segment, uint64_t offset)


cdef extern from "format/record.h" nogil:
    enum:
        JLOG_HEADERS_MAX
        JLOG_ID_BYTES_MAX
        JLOG_SHORT_BYTES
        JLOG_LONG_BYTES
    const uint32_t JLOG_VALUE_BYTES_MAX
    const uint32_t JLOG_SHORT_VALUE_MAX
    const uint32_t JLOG_NULL_BYTES
    const uint32_t JLOG_TAG_LONG
    const uint32_t JLOG_TAG_EXPLICIT
    const uint32_t JLOG_TAG_STATE
    const uint32_t JLOG_TAG_NULL
    const uint32_t JLOG_TAG_KEY

    struct jlog_record:
        const uint8_t *value
        const uint8_t *key
        const uint8_t *headers
        uint32_t value_bytes
        uint32_t key_bytes
        uint32_t headers_bytes
        uint32_t tag
        int64_t timestamp_us

    struct jlog_walk:
        uint64_t record_count
        uint64_t explicit_count
        int64_t clock_max_us
        int64_t explicit_max_us
        int64_t last_timestamp_us
        uint32_t has_state

    uint32_t jlog_load32(const uint8_t *at)
    int64_t jlog_load64(const uint8_t *at)
    void jlog_store32(uint8_t *at, uint32_t value)
    uint64_t jlog_short_head(uint32_t delta_us, size_t bytes)
    void jlog_encode_short(uint8_t *at, uint64_t head, const uint8_t *value, size_t bytes)
    void jlog_encode_long(uint8_t *at, uint32_t tag, int64_t time_us, uint32_t value_bytes, uint32_t key_bytes,
                          uint32_t headers_bytes)
    size_t jlog_long_bytes(uint32_t tag)
    const uint8_t *jlog_pass_plain(const uint8_t *at, const uint8_t *end, uint64_t most, uint64_t *count)
    size_t jlog_record_bytes(const uint8_t *at, size_t left)
    size_t jlog_decode_record(const uint8_t *at, size_t left, int64_t base_time_us, jlog_record *record)
    bint jlog_is_state(const jlog_record *record)
    size_t jlog_decode_header(const uint8_t *at, size_t left, const uint8_t **name, uint32_t *name_bytes,
                              const uint8_t **value, uint32_t *value_bytes)
    const uint8_t *jlog_record_id(const jlog_record *record, uint32_t *id_bytes)
    bint jlog_headers_valid(const uint8_t *at, size_t left)
    int64_t jlog_block_earliest_us(const jlog_block_header *header)
    int64_t jlog_earliest_absolute_us(const uint8_t *records, size_t bytes)
    int jlog_walk_records(const uint8_t *records, size_t bytes, int64_t base_time_us, jlog_walk *walk)
