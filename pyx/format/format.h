/* The structures of a journal's files, and the checks on what a file states. docs/format.md is the specification. Only this
 * header and record.h encode and decode the bytes on disk.
 *
 * All numbers are little-endian, and so are the machines that jlog runs on: a structure in memory is its own encoding.
 * Nothing here owns, locks or raises. A decoder checks the length before it follows a pointer, and returns 0 or -1 for bytes
 * that are not valid. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/checksum.h"
#include "format/record.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || UINTPTR_MAX != UINT64_MAX
#error "jlog needs a 64-bit little-endian machine"
#endif

#define JLOG_FORMAT_VERSION 1u                           /* of all structures but segments */
#define JLOG_SEGMENT_VERSION 2u
#define JLOG_NONE UINT64_MAX                             /* stands for no sequence, no segment, no offset */
#define JLOG_NUMBER_MAX (1ull << 62)                     /* greatest sequence, end and offset: sums of them cannot wrap */

#define JLOG_RAW_BYTES_MAX 1610612736u                   /* largest body: 1.5 GiB, below the limits of LZ4 and of one pwrite */
#define JLOG_STATE_BYTES_MAX (64u << 10)                 /* largest live state, keys included */
#define JLOG_EXPANSION_MAX 255u                          /* most raw bytes for one stored byte: no LZ4 block holds more */
#define JLOG_TIME_US_MAX 253402300799999999              /* latest time of a clock: the end of the year 9999 */
#define JLOG_INDEX_EVERY_BYTES (64u << 10)               /* least distance between two blocks that an index names */
#define JLOG_COMPRESS_BYTES_MIN 128u                     /* smallest body that is worth compressing */
#define JLOG_DUAL_SLOT_STRIDE 4096u                      /* distance between the two copies of a dual-slot record */
#define JLOG_POSITION_BYTES 64u                          /* one copy of a position */
#define JLOG_RESERVATION_STRIDE (1ull << 24)             /* sequences in one reservation: one durable write of bounds */

#define JLOG_SEGMENT_MAGIC "JLOGSEG\n"
#define JLOG_INDEX_MAGIC "JLOGIDX\n"
#define JLOG_BOUNDS_MAGIC "JLOGBND\n"
#define JLOG_POSITION_MAGIC "JLOGPOS\n"
#define JLOG_BLOCK_MAGIC 0x4B4C424Au                     /* "JBLK" */

enum { JLOG_KIND_RECORDS = 1, JLOG_KIND_STATE = 2 };
enum { JLOG_CODEC_NONE = 0, JLOG_CODEC_LZ4 = 1 };
enum {
    JLOG_BLOCK_HAS_STATE = 1,                            /* the block has state records */
    JLOG_BLOCK_EARLIEST = 0x7E,                          /* a number n, see jlog_block_earliest_us; 0: nothing is stated */
    JLOG_BLOCK_FLAGS = JLOG_BLOCK_HAS_STATE | JLOG_BLOCK_EARLIEST,
};

struct jlog_segment_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of this structure, with 0 here */
    uint8_t uuid[16];
    uint64_t epoch;
    uint64_t first_sequence;
    uint64_t previous_segment;                           /* first sequence of the file before, or JLOG_NONE */
    uint64_t previous_end_offset;                        /* where that file's blocks end */
    uint64_t previous_end_sequence;                      /* if below first_sequence: the numbers between are a gap */
    int64_t created_us;
    uint64_t replacements;                               /* number of earlier files with this name; none had a record */
    uint8_t reserved[8];
};

struct jlog_block_header {
    uint32_t magic;
    uint8_t kind;
    uint8_t codec;
    uint16_t flags;
    uint32_t header_crc;                                 /* of uuid, segment, file offset and this structure, with 0 here */
    uint32_t stored_crc;                                 /* of the stored body: it decides whether the block is whole */
    uint32_t raw_crc;                                    /* of the decompressed body: it checks the decompressor too */
    uint32_t record_count;                               /* without state records */
    uint32_t stored_bytes;
    uint32_t raw_bytes;
    uint64_t first_sequence;
    int64_t base_time_us;                                /* the records' times are relative to this one */
    int64_t max_timestamp_us;                            /* latest timestamp of a record; INT64_MIN without records */
    int64_t clock_us;                                    /* time when the block was written */
    uint64_t durable_end;                                /* end of the records that were known to be synced then */
};

struct jlog_bounds {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of this structure, with 0 here */
    uint64_t generation;                                 /* the valid copy with the higher generation counts */
    uint8_t uuid[16];
    uint64_t first_sequence;                             /* sequence of the oldest retained record */
    uint64_t mark_segment;                               /* the synced mark: every block before it is synced */
    uint64_t mark_offset;
    uint64_t mark_sequence;
    uint64_t reservation_limit;                          /* end of the reservation: no sequence from here on was ever used */
    uint64_t closed_segment;                             /* the closed end; JLOG_NONE while the journal is open */
    uint64_t closed_offset;
    uint64_t closed_sequence;
    uint8_t reserved[24];
};

struct jlog_position {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of this structure, with 0 here */
    uint64_t generation;                                 /* the valid copy with the higher generation counts */
    uint8_t uuid[16];
    uint64_t epoch;
    uint64_t sequence;
    int64_t moved_us;                                    /* time of the last write; it tells how long a subscriber is silent */
};

struct jlog_index_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of the whole file, with 0 here */
    uint8_t uuid[16];
    uint64_t segment;
    uint64_t entry_count;                                /* with the last entry, which stands for the segment's end */
};

struct jlog_index_entry {
    uint64_t first_sequence;
    uint64_t offset;                                     /* where a block begins */
    int64_t max_timestamp_us;                            /* latest timestamp of the segment's records before that block */
};

_Static_assert(sizeof(struct jlog_segment_header) == 96, "segment header");
_Static_assert(sizeof(struct jlog_block_header) == 72, "block header");
_Static_assert(sizeof(struct jlog_bounds) == 128, "bounds");
_Static_assert(sizeof(struct jlog_position) == JLOG_POSITION_BYTES, "position");
_Static_assert(sizeof(struct jlog_index_header) == 48, "index header");
_Static_assert(sizeof(struct jlog_index_entry) == 24, "index entry");

#define JLOG_FIRST_BLOCK sizeof(struct jlog_segment_header) /* offset of the state block */

#define JLOG_CRC_OFFSET 12u                              /* offset of `crc` in every structure with magic, version and crc */

_Static_assert(offsetof(struct jlog_segment_header, crc) == JLOG_CRC_OFFSET, "segment header");
_Static_assert(offsetof(struct jlog_bounds, crc) == JLOG_CRC_OFFSET, "bounds");
_Static_assert(offsetof(struct jlog_position, crc) == JLOG_CRC_OFFSET, "position");
_Static_assert(offsetof(struct jlog_index_header, crc) == JLOG_CRC_OFFSET, "index header");

#define JLOG_DUAL_SLOT_UUID_OFFSET 24u                   /* offset of `uuid` in each copy of a dual-slot record */

_Static_assert(offsetof(struct jlog_bounds, uuid) == JLOG_DUAL_SLOT_UUID_OFFSET, "bounds");
_Static_assert(offsetof(struct jlog_position, uuid) == JLOG_DUAL_SLOT_UUID_OFFSET, "position");

#define JLOG_NAME_BYTES 32u                              /* room for the name of a segment file, with its final 0 */

/* Writes the name of a segment file. It has 20 digits, so that the order of the names is the order of the records. */
static inline void jlog_segment_name(char name[JLOG_NAME_BYTES], uint64_t first_sequence)
{
    int at = 20;

    memcpy(name, "00000000000000000000.seg", 25);
    for (; first_sequence != 0; first_sequence /= 10)
        name[--at] = (char)('0' + first_sequence % 10);
}

/* --- Structures with a CRC of their own ----------------------------------------------------------------------- */

/* Returns the CRC of a structure, computed with 0 in its `crc` field. */
static inline uint32_t jlog_structure_crc(const void *structure, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)structure;
    const uint32_t zero = 0;
    uint32_t crc = jlog_crc32c(0, at, JLOG_CRC_OFFSET);

    crc = jlog_crc32c(crc, &zero, sizeof zero);
    return jlog_crc32c(crc, at + JLOG_CRC_OFFSET + sizeof zero, bytes - JLOG_CRC_OFFSET - sizeof zero);
}

/* --- Numbers that a file may state ----------------------------------------------------------------------------
 *
 * A right CRC shows that the bytes are as they were written. It does not show that the numbers make sense. */

/* Returns whether a segment, an offset in it and the sequence there can be a place of a journal. */
static inline int jlog_place_valid(uint64_t segment, uint64_t offset, uint64_t sequence)
{
    return segment <= sequence && sequence <= JLOG_NUMBER_MAX && offset <= JLOG_NUMBER_MAX;
}

/* Returns whether the header names a previous segment that can lie before this one, or none. So no chain of segments leads in a
 * circle. */
static inline int jlog_segment_header_valid(const struct jlog_segment_header *header)
{
    if (header->first_sequence > JLOG_NUMBER_MAX)
        return 0;
    if (header->previous_segment == JLOG_NONE)
        return header->previous_end_sequence == 0;
    return jlog_place_valid(header->previous_segment, header->previous_end_offset, header->previous_end_sequence) &&
           header->previous_segment < header->first_sequence && header->previous_end_sequence <= header->first_sequence &&
           header->previous_end_offset >= JLOG_FIRST_BLOCK;
}

static inline int jlog_bounds_valid(const struct jlog_bounds *bounds)
{
    if (!jlog_place_valid(bounds->mark_segment, bounds->mark_offset, bounds->mark_sequence))
        return 0;
    if (bounds->first_sequence > bounds->mark_sequence || bounds->reservation_limit > JLOG_NUMBER_MAX)
        return 0;
    return bounds->closed_sequence == JLOG_NONE ||
           jlog_place_valid(bounds->closed_segment, bounds->closed_offset, bounds->closed_sequence);
}

static inline int jlog_position_valid(const struct jlog_position *position)
{
    return position->sequence <= JLOG_NUMBER_MAX && position->moved_us >= 0 && position->moved_us <= JLOG_TIME_US_MAX;
}

/* Returns the number of entries of an index; 0 if it is another segment's index or its numbers cannot be right. The caller
 * checks the CRC. An earliest time for each entry may follow the entries. */
static inline uint64_t jlog_index_entries(const uint8_t *index, size_t bytes, const uint8_t uuid[16], uint64_t segment)
{
    struct jlog_index_header header;
    struct jlog_index_entry entry, before = {.first_sequence = segment, .offset = 0};
    size_t left;

    if (bytes < sizeof header)
        return 0;
    memcpy(&header, index, sizeof header);
    if (header.segment != segment || memcmp(header.uuid, uuid, sizeof header.uuid) != 0)
        return 0;
    left = bytes - sizeof header;
    if (header.entry_count < 2 || header.entry_count > left / sizeof entry)
        return 0;
    left -= header.entry_count * sizeof entry;
    if (left != 0 && left != header.entry_count * sizeof entry.max_timestamp_us)
        return 0;
    for (uint64_t i = 0; i < header.entry_count; i++, before = entry) {
        const uint64_t apart = i == 0 ? JLOG_FIRST_BLOCK : i == header.entry_count - 1 ? 0 : JLOG_INDEX_EVERY_BYTES;

        memcpy(&entry, index + sizeof header + i * sizeof entry, sizeof entry);
        if (entry.first_sequence < before.first_sequence || entry.first_sequence > JLOG_NUMBER_MAX ||
            entry.offset > JLOG_NUMBER_MAX || entry.offset < before.offset + apart)
            return 0;
    }
    return header.entry_count;
}

/* --- Blocks ------------------------------------------------------------------------------------------------------ */

/* Returns the CRC of a block header. It covers the journal's uuid, the segment and the offset too. So the image of a block that
 * is part of a value, or is left over from another place, is never taken for a block. */
static inline uint32_t jlog_block_header_crc(const struct jlog_block_header *header, const uint8_t uuid[16],
                                             uint64_t segment, uint64_t offset)
{
    uint8_t image[32 + sizeof *header];

    memcpy(image, uuid, 16);
    memcpy(image + 16, &segment, 8);
    memcpy(image + 24, &offset, 8);
    memcpy(image + 32, header, sizeof *header);
    memset(image + 32 + offsetof(struct jlog_block_header, header_crc), 0, sizeof header->header_crc);
    return jlog_crc32c(0, image, sizeof image);
}

/* Returns the flags that state the earliest time of a block's records, as exactly as 6 bits can: no record is more than
 * 2^(n-1) - 1 microseconds before the latest time. */
static inline uint16_t jlog_earliest_flags(int64_t max_timestamp_us, int64_t earliest_us)
{
    const uint64_t before_us = earliest_us < max_timestamp_us ? (uint64_t)max_timestamp_us - (uint64_t)earliest_us : 0;
    const unsigned n = before_us == 0 ? 1 : 65 - (unsigned)__builtin_clzll(before_us);

    return n > 63 ? 0 : (uint16_t)(n << 1);
}

/* Returns a time that no record of the block is before; INT64_MIN if the header states none. */
static inline int64_t jlog_block_earliest_us(const struct jlog_block_header *header)
{
    const unsigned n = (header->flags & JLOG_BLOCK_EARLIEST) >> 1;
    int64_t earliest_us;

    if (n == 0 || __builtin_sub_overflow(header->max_timestamp_us, (int64_t)((1ull << (n - 1)) - 1), &earliest_us))
        return INT64_MIN;
    return earliest_us;
}

/* Returns whether a block at this offset can have the header's numbers. */
static inline int jlog_block_numbers_valid(const struct jlog_block_header *header, uint64_t offset)
{
    if (header->raw_bytes > JLOG_RAW_BYTES_MAX || header->record_count > header->raw_bytes / JLOG_SHORT_BYTES)
        return 0;
    if (header->first_sequence > JLOG_NUMBER_MAX - header->record_count || offset > JLOG_NUMBER_MAX)
        return 0;
    if (header->durable_end > header->first_sequence)
        return 0;
    if (header->codec == JLOG_CODEC_NONE)
        return header->stored_bytes == header->raw_bytes && header->stored_crc == header->raw_crc;
    return header->codec == JLOG_CODEC_LZ4 && header->stored_bytes < header->raw_bytes &&
           header->raw_bytes / JLOG_EXPANSION_MAX <= header->stored_bytes;
}

/* Returns whether this is the header of a block at this place. The body is not checked here. */
static inline int jlog_block_header_valid(const struct jlog_block_header *header, const uint8_t uuid[16],
                                          uint64_t segment, uint64_t offset)
{
    if (header->magic != JLOG_BLOCK_MAGIC || header->flags & ~JLOG_BLOCK_FLAGS)
        return 0;
    if (header->kind != (offset == JLOG_FIRST_BLOCK ? JLOG_KIND_STATE : JLOG_KIND_RECORDS))
        return 0;
    if (header->kind == JLOG_KIND_STATE ? header->record_count != 0 : header->raw_bytes == 0)
        return 0;
    if (!jlog_block_numbers_valid(header, offset))
        return 0;
    return header->header_crc == jlog_block_header_crc(header, uuid, segment, offset);
}

/* Returns whether this is the header of a block at this place that only a later version can read. */
static inline int jlog_block_is_later(const struct jlog_block_header *header, const uint8_t uuid[16], uint64_t segment,
                                      uint64_t offset)
{
    const int is_known = (header->kind == JLOG_KIND_RECORDS || header->kind == JLOG_KIND_STATE) &&
                         (header->codec == JLOG_CODEC_NONE || header->codec == JLOG_CODEC_LZ4) &&
                         !(header->flags & ~JLOG_BLOCK_FLAGS);

    return header->magic == JLOG_BLOCK_MAGIC && !is_known &&
           header->header_crc == jlog_block_header_crc(header, uuid, segment, offset);
}
