/* One record as it stands in a block's body: the encoders and the checked decoders. docs/format.md is the specification.
 *
 * A record begins with a tag and the microseconds since the block's base time, 4 bytes each. In the short form the low 30 bits
 * of the tag are the length of the value, and the value follows. The long form has lengths of value, key and headers. */
#pragma once

#include <stdint.h>
#include <string.h>

#define JLOG_VALUE_BYTES_MAX (1u << 30)                  /* largest value, key, or headers of a record: 1 GiB */
#define JLOG_HEADERS_MAX 65535u                          /* most headers of one record */
#define JLOG_SHORT_BYTES 8u                              /* smallest record: the short form with an empty value */

#define JLOG_TAG_LONG 0x80000000u                        /* long form: its flags follow */
#define JLOG_TAG_EXPLICIT 0x40000000u                    /* long form: the caller's timestamp; it never moves the floor */
#define JLOG_TAG_STATE 0x20000000u                       /* long form: a state record; it has no sequence */
#define JLOG_TAG_NULL 0x10000000u                        /* long form: the value is null */
#define JLOG_TAG_KEY 0x08000000u                         /* long form: there is a key */
#define JLOG_TAG_ABSOLUTE 0x04000000u                    /* long form: the timestamp is stored whole */
#define JLOG_TAG_RESERVED 0x03FFFFFFu                    /* long form: must be 0 */
#define JLOG_TAG_TIMED (JLOG_TAG_LONG | JLOG_TAG_EXPLICIT | JLOG_TAG_ABSOLUTE) /* long form: the caller's timestamp, no key */
#define JLOG_SHORT_VALUE_MAX 0x3FFFFFFFu
#define JLOG_LONG_BYTES 20u                              /* tag, time, lengths of value, key and headers; + 8 if ABSOLUTE */
#define JLOG_TIMED_BYTES (JLOG_LONG_BYTES + 8)           /* the same with JLOG_TAG_TIMED */
#define JLOG_PREFETCH_BYTES 1024u                        /* with a cold cache, memory latency bounds a walk over records */
#define JLOG_NULL_BYTES UINT32_MAX                       /* stands for the length of a header value that is null */

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

/* Returns the first 8 bytes of a record in the short form, tag and time, as one number. */
static inline uint64_t jlog_short_head(uint32_t delta_us, size_t bytes)
{
    return (uint64_t)delta_us << 32 | (uint32_t)bytes;
}

static inline void jlog_encode_short(uint8_t *at, uint64_t head, const uint8_t *value, size_t bytes)
{
    memcpy(at, &head, sizeof head);
    memcpy(at + JLOG_SHORT_BYTES, value, bytes);
}

/* Writes the front of a record in the long form. The bytes of key, headers and value follow it. `time_us` is stored only if the
 * tag has EXPLICIT; otherwise the record has the clock's time. */
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

/* Returns the size of the record at `at`, where `left` bytes are readable; 0 if no whole record stands there. */
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

/* Returns 0 for a front that no record can have: a length above 1 GiB, a length for a part that is absent, or a state record
 * without a key, with headers or with a timestamp of its own. */
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

/* Decodes the record at `at`, where `left` bytes are readable. Returns its size, or 0 if no valid record stands there. The
 * pointers of the result point into `at`; an absent key and a null value are NULL. */
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

/* Returns whether it is a state record, which has no sequence. */
static inline int jlog_is_state(const struct jlog_record *record)
{
    return record->tag & JLOG_TAG_LONG && record->tag & JLOG_TAG_STATE;
}

/* Returns how many bytes stand before the value of the plain record at `at`: one that has a value and a timestamp and nothing
 * else. Returns 0 for any other record, and for one that is not whole. `left`, the readable bytes, is at least JLOG_SHORT_BYTES. */
static inline size_t jlog_plain_front(const uint8_t *at, size_t left, uint32_t *value_bytes)
{
    const uint32_t tag = jlog_load32(at);

    if (!(tag & JLOG_TAG_LONG)) {
        *value_bytes = tag & JLOG_SHORT_VALUE_MAX;
        return left - JLOG_SHORT_BYTES < *value_bytes ? 0 : JLOG_SHORT_BYTES;
    }
    if (tag != JLOG_TAG_TIMED || left < JLOG_TIMED_BYTES || jlog_load64(at + 12) != 0) /* the lengths of key and headers */
        return 0;
    *value_bytes = jlog_load32(at + 8);
    return *value_bytes > JLOG_VALUE_BYTES_MAX || left - JLOG_TIMED_BYTES < *value_bytes ? 0 : JLOG_TIMED_BYTES;
}

/* Passes over plain records: at most `most`, and none that reaches beyond `end`. Returns the address after them, and adds their
 * number to *count. */
static inline const uint8_t *jlog_pass_plain(const uint8_t *at, const uint8_t *end, uint64_t most, uint64_t *count)
{
    uint64_t left = most;
    uint32_t value_bytes;
    size_t front;

    while (left != 0 && (size_t)(end - at) >= JLOG_SHORT_BYTES) {
        __builtin_prefetch(at + JLOG_PREFETCH_BYTES);
        front = jlog_plain_front(at, (size_t)(end - at), &value_bytes);
        if (front == 0)
            break;
        at += front + value_bytes;
        left--;
    }
    *count += most - left;
    return at;
}

/* Decodes one header of a record: length of the name, length of the value, name, value. Returns its size, or 0 if it does not
 * fit into the `left` bytes. */
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

/* Returns whether the headers fill their bytes exactly, and are not too many. */
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

#define JLOG_ID_NAME "jlog.id"                           /* the header with the id of a record that was appended once */
#define JLOG_ID_BYTES_MAX 255u

/* Returns the id of a record, and its size; NULL for a record without one. */
static inline const uint8_t *jlog_record_id(const struct jlog_record *record, uint32_t *id_bytes)
{
    const uint8_t *at = record->headers, *name, *value;
    size_t left = record->headers_bytes, bytes;
    uint32_t name_bytes;

    while (left != 0 && (bytes = jlog_decode_header(at, left, &name, &name_bytes, &value, id_bytes)) != 0) {
        if (name_bytes == sizeof JLOG_ID_NAME - 1 && memcmp(name, JLOG_ID_NAME, name_bytes) == 0 && value != NULL &&
            *id_bytes - 1 < JLOG_ID_BYTES_MAX)
            return value;
        at += bytes;
        left -= bytes;
    }
    return NULL;
}

/* Returns the earliest of the times that the records of a body hold whole; INT64_MAX without one. No other record is before the
 * body's base time. */
static inline int64_t jlog_earliest_absolute_us(const uint8_t *records, size_t bytes)
{
    struct jlog_record record;
    int64_t earliest_us = INT64_MAX;
    size_t at = 0;

    while (at < bytes) {
        const size_t size = jlog_decode_record(records + at, bytes - at, 0, &record);

        if (size == 0)
            return INT64_MIN;
        if (record.tag & JLOG_TAG_LONG && record.tag & JLOG_TAG_ABSOLUTE && record.timestamp_us < earliest_us)
            earliest_us = record.timestamp_us;
        at += size;
    }
    return earliest_us;
}

/* Facts about the records of a body, gathered by one walk over them. */
struct jlog_walk {
    uint64_t record_count;                               /* state records not counted */
    uint64_t explicit_count;
    int64_t clock_max_us;                                /* latest timestamp that the clock gave; INT64_MIN without one */
    int64_t explicit_max_us;                             /* latest timestamp that a caller gave; INT64_MIN without one */
    int64_t last_timestamp_us;
    uint32_t has_state;
};

/* Walks over all records of a body. Returns 0, or -1 if the bytes are not whole records from the first byte to the last. */
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
        if (jlog_is_state(&record)) {
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
