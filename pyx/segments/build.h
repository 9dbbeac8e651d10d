/* Building a block's header. All that writes blocks builds their headers here. Nothing here needs the interpreter. */
#ifndef JLOG_BUILD_H
#define JLOG_BUILD_H

#include "format/format.h"

/* What a block's header says of the block's body. */
struct jlog_block_content {
    int kind;                                            /* JLOG_KIND_ */
    int codec;                                           /* JLOG_CODEC_ */
    int has_state;                                       /* among the records there are state records */
    uint64_t record_count;                               /* state records not counted */
    uint64_t first_sequence;
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    uint32_t raw_crc;
    uint32_t stored_crc;
    int64_t base_time_us;
    int64_t max_timestamp_us;                            /* INT64_MIN without records */
};

/* Makes a header that is complete but for its CRC valid at this place, and only there. */
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
    jlog_fill_block_header(header, content->kind, content->has_state, content->record_count, content->raw_bytes,
                           content->first_sequence);
    header->codec = (uint8_t)content->codec;
    header->stored_bytes = (uint32_t)content->stored_bytes;
    header->raw_crc = content->raw_crc;
    header->stored_crc = content->stored_crc;
    header->base_time_us = content->base_time_us;
    header->max_timestamp_us = content->max_timestamp_us;
    header->clock_us = clock_us;
    header->durable_end = durable_end;
    jlog_place_block_header(header, uuid, segment, offset);
}

#endif
