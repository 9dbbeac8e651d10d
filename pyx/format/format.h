/* The bytes on disk. docs/format.md is the specification; the core encodes and decodes them here and nowhere else.
 *
 * Everything is little-endian, and so are the machines that jlog runs on: a structure below is its own encoding.
 * Nothing here owns, locks or raises. A decoder checks length before pointer and says 0 or -1 for what is not valid. */
#ifndef JLOG_FORMAT_H
#define JLOG_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/checksum.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || UINTPTR_MAX != UINT64_MAX
#error "jlog needs a 64-bit little-endian machine"
#endif

#define JLOG_FORMAT_VERSION 1u
#define JLOG_NONE UINT64_MAX /* no sequence, no segment, no offset */
#define JLOG_NUMBER_MAX (1ull << 62) /* the greatest sequence, end and offset: sums of what files say cannot wrap */

#define JLOG_VALUE_BYTES_MAX (1u << 30)                  /* 1 GiB, a value */
#define JLOG_RAW_BYTES_MAX 1610612736u                   /* 1.5 GiB, a block's body: LZ4's limit and one pwrite's are near */
#define JLOG_STATE_BYTES_MAX (64u << 10)                 /* the live state with its keys */
#define JLOG_EXPANSION_MAX 255u                          /* raw bytes for each stored byte: no LZ4 block holds more */
#define JLOG_TIME_US_MAX 253402300799999999              /* of a clock: the end of the year 9999 */
#define JLOG_INDEX_EVERY_BYTES (64u << 10)               /* between the blocks that an index names */
#define JLOG_SHORT_BYTES 8u                              /* of a record at least: of one in the short form, without value */
#define JLOG_HEADERS_MAX 65535u                          /* headers of one record */
#define JLOG_COMPRESS_BYTES_MIN 128u                       /* of a body: a smaller one is not worth compressing */
#define JLOG_DUAL_SLOT_STRIDE 4096u                            /* between the two copies of a bounds or position record */
#define JLOG_LEASE_STRIDE (1ull << 24)                   /* sequences that one durable write of bounds makes usable */

#define JLOG_SEGMENT_MAGIC "JLOGSEG\n"
#define JLOG_INDEX_MAGIC "JLOGIDX\n"
#define JLOG_BOUNDS_MAGIC "JLOGBND\n"
#define JLOG_POSITION_MAGIC "JLOGPOS\n"
#define JLOG_BLOCK_MAGIC 0x4B4C424Au                     /* "JBLK" */

enum { JLOG_KIND_RECORDS = 1, JLOG_KIND_STATE = 2 };
enum { JLOG_CODEC_NONE = 0, JLOG_CODEC_LZ4 = 1 };
enum { JLOG_BLOCK_HAS_STATE = 1 };                       /* flags: among its records there are state records */

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
    uint64_t replacements;                               /* files that had the name before, with state alone */
    uint8_t reserved[8];
};

struct jlog_block_header {
    uint32_t magic;
    uint8_t kind;
    uint8_t codec;
    uint16_t flags;
    uint32_t header_crc;                                 /* of uuid, segment, file offset and this, with 0 here */
    uint32_t stored_crc;                                 /* of the body as it is stored: decides whether the block is whole */
    uint32_t raw_crc;                                    /* of the body decompressed: checks the decompressor too */
    uint32_t record_count;                               /* state records not counted */
    uint32_t stored_bytes;
    uint32_t raw_bytes;
    uint64_t first_sequence;
    int64_t base_time_us;                                /* records count their time from here */
    int64_t max_timestamp_us;                            /* no record of the block is later; INT64_MIN without records */
    int64_t clock_us;                                    /* when the block was written */
    uint64_t durable_end;                                /* end of what was known to be synced then */
};

struct jlog_bounds {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of this structure, with 0 here */
    uint64_t generation;                                 /* the valid copy of the higher one counts */
    uint8_t uuid[16];
    uint64_t first_sequence;                             /* retention has removed what is below */
    uint64_t mark_segment;                               /* everything before the mark is synced */
    uint64_t mark_offset;
    uint64_t mark_sequence;
    uint64_t lease_limit;                                /* no sequence at or above has ever been given out */
    uint64_t closed_segment;                             /* where the last close left the end; JLOG_NONE while open */
    uint64_t closed_offset;
    uint64_t closed_sequence;
    uint8_t reserved[24];
};

struct jlog_position {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of this structure, with 0 here */
    uint64_t generation;
    uint8_t uuid[16];
    uint64_t epoch;
    uint64_t sequence;
    int64_t moved_us;                                    /* clock when it was written: how long a subscriber is silent */
};

struct jlog_index_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t crc;                                        /* of the whole file, with 0 here */
    uint8_t uuid[16];
    uint64_t segment;
    uint64_t entry_count;                                /* the last one stands for the segment's end */
};

struct jlog_index_entry {
    uint64_t first_sequence;
    uint64_t offset;                                     /* of a block */
    int64_t max_timestamp_us;                            /* of every record of the segment before that block */
};

_Static_assert(sizeof(struct jlog_segment_header) == 96, "segment header");
_Static_assert(sizeof(struct jlog_block_header) == 72, "block header");
_Static_assert(sizeof(struct jlog_bounds) == 128, "bounds");
_Static_assert(sizeof(struct jlog_position) == 64, "position");
_Static_assert(sizeof(struct jlog_index_header) == 48, "index header");
_Static_assert(sizeof(struct jlog_index_entry) == 24, "index entry");

#define JLOG_FIRST_BLOCK sizeof(struct jlog_segment_header) /* offset of the block with the state */

#define JLOG_CRC_OFFSET 12u                              /* of `crc` in every structure that has magic, version and crc */

_Static_assert(offsetof(struct jlog_segment_header, crc) == JLOG_CRC_OFFSET, "segment header");
_Static_assert(offsetof(struct jlog_bounds, crc) == JLOG_CRC_OFFSET, "bounds");
_Static_assert(offsetof(struct jlog_position, crc) == JLOG_CRC_OFFSET, "position");
_Static_assert(offsetof(struct jlog_index_header, crc) == JLOG_CRC_OFFSET, "index header");

#define JLOG_DUAL_SLOT_UUID_OFFSET 24u                   /* of `uuid` in each copy of a bounds or position record */

_Static_assert(offsetof(struct jlog_bounds, uuid) == JLOG_DUAL_SLOT_UUID_OFFSET, "bounds");
_Static_assert(offsetof(struct jlog_position, uuid) == JLOG_DUAL_SLOT_UUID_OFFSET, "position");

#define JLOG_NAME_BYTES 32u

/* A segment is named by its first sequence, so that the names in order are the records in order. */
static inline void jlog_segment_name(char name[JLOG_NAME_BYTES], uint64_t first_sequence)
{
    int at = 20;

    memcpy(name, "00000000000000000000.seg", 25);
    for (; first_sequence != 0; first_sequence /= 10)
        name[--at] = (char)('0' + first_sequence % 10);
}

/* --- Structures under a CRC of their own ---------------------------------------------------------------------- */

/* The CRC of a structure, with 0 in its own field of 4 bytes. */
static inline uint32_t jlog_structure_crc(const void *structure, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)structure;
    const uint32_t zero = 0;
    uint32_t crc = jlog_crc32c(0, at, JLOG_CRC_OFFSET);

    crc = jlog_crc32c(crc, &zero, sizeof zero);
    return jlog_crc32c(crc, at + JLOG_CRC_OFFSET + sizeof zero, bytes - JLOG_CRC_OFFSET - sizeof zero);
}

/* --- Numbers that a file may state. A right CRC says who wrote them, not that they make sense --------------------- */

/* Whether this is a place of a journal: a segment, an offset in it and the sequence there. */
static inline int jlog_place_valid(uint64_t segment, uint64_t offset, uint64_t sequence)
{
    return segment <= sequence && sequence <= JLOG_NUMBER_MAX && offset <= JLOG_NUMBER_MAX;
}

/* Whether the segment before lies before this one: so no chain of segments leads in a circle. */
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
    if (bounds->first_sequence > bounds->mark_sequence || bounds->lease_limit > JLOG_NUMBER_MAX)
        return 0;
    return bounds->closed_sequence == JLOG_NONE ||
           jlog_place_valid(bounds->closed_segment, bounds->closed_offset, bounds->closed_sequence);
}

static inline int jlog_position_valid(const struct jlog_position *position)
{
    return position->sequence <= JLOG_NUMBER_MAX && position->moved_us >= 0 && position->moved_us <= JLOG_TIME_US_MAX;
}

/* How many entries an index has that is of this segment and could be right; else 0. The CRC is the caller's. */
static inline uint64_t jlog_index_entries(const uint8_t *index, size_t bytes, const uint8_t uuid[16], uint64_t segment)
{
    struct jlog_index_header header;
    struct jlog_index_entry entry, before = {.first_sequence = segment, .offset = 0};
    const size_t left = bytes - sizeof header;

    if (bytes < sizeof header)
        return 0;
    memcpy(&header, index, sizeof header);
    if (header.segment != segment || memcmp(header.uuid, uuid, sizeof header.uuid) != 0)
        return 0;
    if (left % sizeof entry != 0 || header.entry_count != left / sizeof entry || header.entry_count < 2)
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

/* What a block header's CRC covers beside the header: so a block's image inside a value, or one left over from
 * another place, is never taken for a block. */
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

/* Whether a block at this offset may have such numbers. */
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

/* Whether this is the header of a block at that place. It says nothing about the body yet. */
static inline int jlog_block_header_valid(const struct jlog_block_header *header, const uint8_t uuid[16],
                                          uint64_t segment, uint64_t offset)
{
    if (header->magic != JLOG_BLOCK_MAGIC || header->flags & ~JLOG_BLOCK_HAS_STATE)
        return 0;
    if (header->kind != (offset == JLOG_FIRST_BLOCK ? JLOG_KIND_STATE : JLOG_KIND_RECORDS))
        return 0;
    if (header->kind == JLOG_KIND_STATE ? header->record_count != 0 : header->raw_bytes == 0)
        return 0;
    if (!jlog_block_numbers_valid(header, offset))
        return 0;
    return header->header_crc == jlog_block_header_crc(header, uuid, segment, offset);
}

/* --- Records -------------------------------------------------------------------------------------------------- */

/* A record begins with a tag and the microseconds since the block's base time, 4 bytes each. In the short form the
 * low 30 bits of the tag are the value's length, and the value follows. */
#define JLOG_TAG_LONG 0x80000000u
#define JLOG_TAG_EXPLICIT 0x40000000u                    /* the caller gave the timestamp: it never moves the clock clamp */
#define JLOG_TAG_STATE 0x20000000u                       /* long form: a state value; it has no sequence */
#define JLOG_TAG_NULL 0x10000000u                        /* long form: the value is null */
#define JLOG_TAG_KEY 0x08000000u                         /* long form: there is a key */
#define JLOG_TAG_ABSOLUTE 0x04000000u                    /* long form: the timestamp is stored whole */
#define JLOG_TAG_RESERVED 0x03FFFFFFu                    /* long form: must be 0 */
#define JLOG_SHORT_VALUE_MAX 0x3FFFFFFFu
#define JLOG_LONG_BYTES 20u                              /* tag, time, bytes of value, key, headers; + 8 when ABSOLUTE */
#define JLOG_NULL_BYTES UINT32_MAX                       /* a header's value that is null */

struct jlog_record {
    const uint8_t *value;
    const uint8_t *key;
    const uint8_t *headers;
    uint32_t value_bytes;
    uint32_t key_bytes;
    uint32_t headers_bytes;
    uint32_t tag;
    int64_t timestamp_us;
};

static inline uint32_t jlog_load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline int64_t jlog_load64(const uint8_t *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void jlog_store32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static inline void jlog_store64(uint8_t *at, int64_t value) { memcpy(at, &value, sizeof value); }

/* Tag and time of a record in the short form, as they stand in memory. */
static inline uint64_t jlog_short_head(uint32_t delta_us, size_t bytes)
{
    return (uint64_t)delta_us << 32 | (uint32_t)bytes;
}

static inline void jlog_encode_short(uint8_t *at, uint64_t head, const uint8_t *value, size_t bytes)
{
    memcpy(at, &head, sizeof head);
    memcpy(at + JLOG_SHORT_BYTES, value, bytes);
}

/* The front of a record in the long form with the clock's time, or, where EXPLICIT is in the tag, with this one. The bytes
 * of key, headers and value follow. */
static inline void jlog_encode_long(uint8_t *at, uint32_t tag, int64_t time_us, uint32_t value_bytes, uint32_t key_bytes,
                                    uint32_t headers_bytes)
{
    jlog_store32(at, tag | JLOG_TAG_LONG | (tag & JLOG_TAG_EXPLICIT ? JLOG_TAG_ABSOLUTE : 0));
    jlog_store32(at + 4, 0);
    jlog_store32(at + 8, value_bytes);
    jlog_store32(at + 12, key_bytes);
    jlog_store32(at + 16, headers_bytes);
    if (tag & JLOG_TAG_EXPLICIT)
        jlog_store64(at + JLOG_LONG_BYTES, time_us);
}

static inline size_t jlog_long_bytes(uint32_t tag) { return JLOG_LONG_BYTES + (tag & JLOG_TAG_EXPLICIT ? 8u : 0u); }

/* Bytes of the record at `at`, of which `left` are readable, or 0 where that is no record. */
static inline size_t jlog_record_bytes(const uint8_t *at, size_t left)
{
    uint32_t tag;
    size_t bytes;

    if (left < JLOG_SHORT_BYTES)
        return 0;
    tag = jlog_load32(at);
    if (!(tag & JLOG_TAG_LONG)) {
        bytes = JLOG_SHORT_BYTES + (size_t)(tag & JLOG_SHORT_VALUE_MAX);
    } else {
        if (left < JLOG_LONG_BYTES || tag & JLOG_TAG_RESERVED)
            return 0;
        bytes = JLOG_LONG_BYTES + (tag & JLOG_TAG_ABSOLUTE ? 8u : 0u) + (size_t)jlog_load32(at + 8) +
                (size_t)jlog_load32(at + 12) + (size_t)jlog_load32(at + 16);
    }
    return bytes <= left ? bytes : 0;
}

/* What a long record may not say: a length of what is absent or above 1 GiB, state without a key, or with what state has
 * not. */
static inline int jlog_long_record_valid(uint32_t tag, const uint8_t *at)
{
    const uint32_t value_bytes = jlog_load32(at + 8), key_bytes = jlog_load32(at + 12), headers_bytes = jlog_load32(at + 16);

    if (value_bytes > JLOG_VALUE_BYTES_MAX || key_bytes > JLOG_VALUE_BYTES_MAX || headers_bytes > JLOG_VALUE_BYTES_MAX)
        return 0;
    if ((tag & JLOG_TAG_NULL && value_bytes != 0) || (!(tag & JLOG_TAG_KEY) && key_bytes != 0))
        return 0;
    return !(tag & JLOG_TAG_STATE) ||
           (tag & JLOG_TAG_KEY && !(tag & (JLOG_TAG_EXPLICIT | JLOG_TAG_ABSOLUTE)) && headers_bytes == 0);
}

/* Decodes it; returns its bytes, or 0 where that is no record. Pointers are into `at`; a null key is NULL. */
static inline size_t jlog_decode_record(const uint8_t *at, size_t left, int64_t base_time_us, struct jlog_record *record)
{
    const size_t bytes = jlog_record_bytes(at, left);
    const uint8_t *body;
    uint32_t tag;

    if (bytes == 0)
        return 0;
    tag = jlog_load32(at);
    record->tag = tag;
    record->timestamp_us = (int64_t)((uint64_t)base_time_us + jlog_load32(at + 4));
    if (!(tag & JLOG_TAG_LONG)) {
        record->value = at + JLOG_SHORT_BYTES;
        record->value_bytes = tag & JLOG_SHORT_VALUE_MAX;
        record->key = record->headers = NULL;
        record->key_bytes = record->headers_bytes = 0;
        return bytes;
    }
    if (!jlog_long_record_valid(tag, at))
        return 0;
    body = at + JLOG_LONG_BYTES;
    if (tag & JLOG_TAG_ABSOLUTE) {
        record->timestamp_us = jlog_load64(body);
        body += 8;
    }
    record->value_bytes = jlog_load32(at + 8);
    record->key_bytes = jlog_load32(at + 12);
    record->headers_bytes = jlog_load32(at + 16);
    record->key = tag & JLOG_TAG_KEY ? body : NULL;
    record->headers = body + record->key_bytes;
    record->value = tag & JLOG_TAG_NULL ? NULL : body + record->key_bytes + record->headers_bytes;
    return bytes;
}

/* Headers of a record: name length, value length, name, value. Returns the bytes of the one at `at`, or 0. */
static inline size_t jlog_decode_header(const uint8_t *at, size_t left, const uint8_t **name, uint32_t *name_bytes,
                                        const uint8_t **value, uint32_t *value_bytes)
{
    size_t bytes;

    if (left < 8)
        return 0;
    *name_bytes = jlog_load32(at);
    *value_bytes = jlog_load32(at + 4);
    bytes = 8 + (size_t)*name_bytes + (*value_bytes == JLOG_NULL_BYTES ? 0 : (size_t)*value_bytes);
    if (bytes > left)
        return 0;
    *name = at + 8;
    *value = *value_bytes == JLOG_NULL_BYTES ? NULL : at + 8 + *name_bytes;
    return bytes;
}

/* Whether the headers fill their bytes exactly, and are not too many. */
static inline int jlog_headers_valid(const uint8_t *at, size_t left)
{
    const uint8_t *name, *value;
    uint32_t name_bytes, value_bytes, count = 0;

    while (left != 0) {
        const size_t bytes = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes);

        if (bytes == 0 || ++count > JLOG_HEADERS_MAX)
            return 0;
        at += bytes;
        left -= bytes;
    }
    return 1;
}

/* What a walk over the records of a body finds. */
struct jlog_walk {
    uint64_t record_count;                               /* state records not counted */
    uint64_t explicit_count;
    int64_t clock_max_us;                                /* of timestamps that a clock gave; INT64_MIN without */
    int64_t explicit_max_us;
    int64_t last_timestamp_us;
    uint32_t has_state;
};

/* Returns 0, or -1 where the body is no sequence of records from its first to its last byte. */
static inline int jlog_walk_records(const uint8_t *records, size_t bytes, int64_t base_time_us, struct jlog_walk *walk)
{
    struct jlog_record record;
    size_t at = 0;

    *walk = (struct jlog_walk){.clock_max_us = INT64_MIN, .explicit_max_us = INT64_MIN, .last_timestamp_us = INT64_MIN};
    while (at < bytes) {
        const size_t size = jlog_decode_record(records + at, bytes - at, base_time_us, &record);

        if (size == 0 || !jlog_headers_valid(record.headers, record.headers_bytes))
            return -1;
        at += size;
        if (record.tag & JLOG_TAG_LONG && record.tag & JLOG_TAG_STATE) {
            walk->has_state = 1;
            continue;
        }
        walk->record_count++;
        walk->last_timestamp_us = record.timestamp_us;
        if (record.tag & JLOG_TAG_EXPLICIT) {
            walk->explicit_count++;
            if (record.timestamp_us > walk->explicit_max_us)
                walk->explicit_max_us = record.timestamp_us;
        } else if (record.timestamp_us > walk->clock_max_us) {
            walk->clock_max_us = record.timestamp_us;
        }
    }
    return 0;
}

#endif
