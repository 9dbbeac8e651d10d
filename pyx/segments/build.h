/* The one builder of a block's header, for everything that writes blocks. Nothing here needs the interpreter. */
#pragma once

#include "format/format.h"

/* The fields of a block's header that describe the block's body. */
struct jlog_block_content {
    int kind;                                            /* JLOG_KIND_ */
    int codec;                                           /* JLOG_CODEC_ */
    int has_state;                                       /* the body has state records */
    uint64_t record_count;                               /* without state records */
    uint64_t first_sequence;
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    uint32_t raw_crc;
    uint32_t stored_crc;
    int64_t base_time_us;
    int64_t max_timestamp_us;                            /* INT64_MIN without records */
    int64_t earliest_us;                                 /* as exactly as it is known */
};

/* Returns the latest timestamp of a block; INT64_MIN without records. `clock_us`: the latest time that the clock gave, if it
 * gave any. */
static inline int64_t jlog_latest_us(uint64_t records, uint64_t explicit_count, int64_t explicit_max_us, int64_t clock_us)
{
    if (records == 0)
        return INT64_MIN;
    return explicit_count == records || explicit_max_us > clock_us ? explicit_max_us : clock_us;
}

/* Returns the earliest timestamp of a block. `absolute_us`: what jlog_earliest_absolute_us() returns of its body. */
static inline int64_t jlog_earliest_us(uint64_t records, uint64_t explicit_count, int64_t absolute_us, int64_t base_time_us)
{
    return explicit_count == records || absolute_us < base_time_us ? absolute_us : base_time_us;
}

/* Sets the CRC of a header that is complete otherwise. The header is valid at this place, and only there. */
static inline void jlog_place_block_header(struct jlog_block_header *header, const uint8_t uuid[16], uint64_t segment,
                                           uint64_t offset)
{
    header->header_crc = jlog_block_header_crc(header, uuid, segment, offset);
}

/* Builds the whole header of a block that is written now, at `clock_us`, to this place. `durable_end`: the end of the records
 * that are known to be synced. */
static inline void jlog_build_block_header(struct jlog_block_header *header, const struct jlog_block_content *content,
                                           int64_t clock_us, uint64_t durable_end, const uint8_t uuid[16], uint64_t segment,
                                           uint64_t offset)
{
    memset(header, 0, sizeof *header);
    header->magic = JLOG_BLOCK_MAGIC;
    header->kind = (uint8_t)content->kind;
    header->codec = (uint8_t)content->codec;
    header->flags = content->has_state ? JLOG_BLOCK_HAS_STATE : 0;
    if (content->record_count != 0)
        header->flags |= jlog_earliest_flags(content->max_timestamp_us, content->earliest_us);
    header->record_count = (uint32_t)content->record_count;
    header->first_sequence = content->first_sequence;
    header->raw_bytes = (uint32_t)content->raw_bytes;
    header->stored_bytes = (uint32_t)content->stored_bytes;
    header->raw_crc = content->raw_crc;
    header->stored_crc = content->stored_crc;
    header->base_time_us = content->base_time_us;
    header->max_timestamp_us = content->max_timestamp_us;
    header->clock_us = clock_us;
    header->durable_end = durable_end;
    jlog_place_block_header(header, uuid, segment, offset);
}
