/* Decodes record batches of Kafka as brokers send them, and encodes their records as those of a journal. Every length in the
 * bytes is checked before it is used: they come from the network. */
#ifndef JLOG_FETCHED_H
#define JLOG_FETCHED_H

#include "format/checksum.h"
#include "kafka/place.h"
#include "kafka/record_batch.h"
#include "records/encoded.h"

#define JLOG_VARINT_BYTES_MAX 10u

enum {
    JLOG_BATCH_WHOLE = 0,
    JLOG_BATCH_PARTIAL,                                  /* the rest of it was not sent */
    JLOG_BATCH_DAMAGED,
};

/* Kinds of time, as librdkafka numbers them. */
enum {
    JLOG_TIME_CREATED = 1,
    JLOG_TIME_APPENDED,
};

struct jlog_fetched_batch {
    const uint8_t *at, *end;                             /* its records, which may be compressed */
    size_t bytes;                                        /* of the whole batch */
    int64_t base_offset, last_offset, base_time, max_time, producer;
    int32_t leader_epoch, count;
    uint32_t attributes, crc;
    const uint8_t *checked;                              /* what the CRC is of, to `end` */
};

/* A record that a batch has. A key or a value that is null is NULL. */
struct jlog_fetched {
    const uint8_t *key, *value, *headers;
    int64_t offset, time_ms;
    uint32_t key_bytes, value_bytes, header_count, headers_bytes;
    int32_t leader_epoch;
    uint16_t kind, place;                                /* kind of time; which of the partitions */
};

/* Records that are decoded one by one. */
struct jlog_unread {
    const uint8_t *at, *end;
    int64_t base_offset, next_offset, last_offset, base_time, append_time;
    int32_t leader_epoch, left;
    int has_append_time;
};

/* --- Numbers ----------------------------------------------------------------------------------------------------- */

static inline uint64_t jlog_big(const uint8_t *at, unsigned bytes)
{
    uint64_t found = 0;

    for (unsigned index = 0; index < bytes; index++)
        found = found << 8 | at[index];
    return found;
}

static inline uint32_t jlog_big32(const uint8_t *at)
{
    uint32_t found;

    memcpy(&found, at, sizeof found);
    return __builtin_bswap32(found);
}

static inline int64_t jlog_big64(const uint8_t *at)
{
    uint64_t found;

    memcpy(&found, at, sizeof found);
    return (int64_t)__builtin_bswap64(found);
}

/* Reads a number of 1 to 10 bytes, and moves *at behind it. Returns 0 where it does not end before `end`, or has more than 64
 * bits. */
static inline int jlog_varint(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    const uint8_t *byte = *at;
    uint64_t found = 0;

    for (unsigned shift = 0; shift < 7 * JLOG_VARINT_BYTES_MAX && byte < end; shift += 7) {
        const uint8_t bits = *byte++;

        if (shift == 63 && bits > 1)
            return 0;
        found |= (uint64_t)(bits & 0x7F) << shift;
        if (bits < 0x80) {
            *number = (int64_t)(found >> 1 ^ (0 - (found & 1)));
            *at = byte;
            return 1;
        }
    }
    return 0;
}

/* Reads the length of bytes and moves *at behind them. Null is NULL and the length 0. Returns 0 where they do not end before
 * `end`. */
static inline int jlog_varbytes(const uint8_t **at, const uint8_t *end, const uint8_t **found, uint32_t *bytes)
{
    int64_t length;

    if (!jlog_varint(at, end, &length) || length < -1 || length > end - *at)
        return 0;
    *found = length < 0 ? NULL : *at;
    *bytes = length < 0 ? 0 : (uint32_t)length;
    *at += *bytes;
    return 1;
}

/* --- Batches ----------------------------------------------------------------------------------------------------- */

/* Reads the header of the batch at `at`. Returns a JLOG_BATCH_ status. The CRC is not checked yet. */
static inline int jlog_read_batch(const uint8_t *at, size_t left, struct jlog_fetched_batch *batch)
{
    int64_t length, last_delta;

    if (left < JLOG_BATCH_LENGTH_END)
        return JLOG_BATCH_PARTIAL;
    length = (int32_t)jlog_big32(at + 8);
    if (length < (int64_t)(JLOG_BATCH_HEADER_BYTES - JLOG_BATCH_LENGTH_END))
        return JLOG_BATCH_DAMAGED;
    batch->bytes = (size_t)length + JLOG_BATCH_LENGTH_END;
    if (left < batch->bytes)
        return JLOG_BATCH_PARTIAL;
    batch->base_offset = jlog_big64(at);
    batch->leader_epoch = (int32_t)jlog_big32(at + 12);
    batch->crc = jlog_big32(at + 17);
    batch->attributes = (uint32_t)jlog_big(at + 21, 2);
    last_delta = (int32_t)jlog_big32(at + 23);
    batch->base_time = jlog_big64(at + 27);
    batch->max_time = jlog_big64(at + 35);
    batch->producer = jlog_big64(at + 43);
    batch->count = (int32_t)jlog_big32(at + 57);
    batch->checked = at + JLOG_BATCH_CRC_BEGIN;
    batch->at = at + JLOG_BATCH_HEADER_BYTES;
    batch->end = at + batch->bytes;
    if (at[16] != JLOG_BATCH_MAGIC || last_delta < 0 || batch->count < 0 || batch->base_offset < 0 ||
        batch->base_offset > INT64_MAX - INT32_MAX - 1)
        return JLOG_BATCH_DAMAGED;
    batch->last_offset = batch->base_offset + last_delta;
    return JLOG_BATCH_WHOLE;
}

static inline int jlog_batch_crc_valid(const struct jlog_fetched_batch *batch)
{
    return jlog_crc32c(0, batch->checked, (size_t)(batch->end - batch->checked)) == batch->crc;
}

/* Returns the offset behind the last whole batch, or `offset` where there is none, and sets the leader epoch of that batch.
 * *damaged is set where no batch stands behind it. */
static inline int64_t jlog_batches_end(const uint8_t *at, size_t left, int64_t offset, int32_t *leader_epoch, int *damaged)
{
    struct jlog_fetched_batch batch;
    int status = JLOG_BATCH_WHOLE;

    while (left != 0 && (status = jlog_read_batch(at, left, &batch)) == JLOG_BATCH_WHOLE) {
        if (batch.last_offset >= offset)
            offset = batch.last_offset + 1;
        *leader_epoch = batch.leader_epoch;
        at += batch.bytes;
        left -= batch.bytes;
    }
    *damaged = status == JLOG_BATCH_DAMAGED;
    return offset;
}

/* Makes ready to decode the records between `at` and `end`, which are those of the batch, decompressed. */
static inline void jlog_begin_records(struct jlog_unread *unread, const struct jlog_fetched_batch *batch, const uint8_t *at,
                                      const uint8_t *end)
{
    unread->at = at;
    unread->end = end;
    unread->base_offset = unread->next_offset = batch->base_offset;
    unread->last_offset = batch->last_offset;
    unread->base_time = batch->base_time;
    unread->append_time = batch->max_time;
    unread->has_append_time = (batch->attributes & JLOG_BATCH_APPEND_TIME) != 0;
    unread->leader_epoch = batch->leader_epoch;
    unread->left = batch->count;
}

/* --- Records ----------------------------------------------------------------------------------------------------- */

/* Moves *at behind the headers. Returns 0 where they do not end before `end`. */
static inline int jlog_pass_headers(const uint8_t **at, const uint8_t *end, int64_t count)
{
    const uint8_t *bytes;
    uint32_t size;

    if (count < 0 || count > end - *at)                  /* each has two bytes at least */
        return 0;
    for (; count != 0; --count)
        if (!jlog_varbytes(at, end, &bytes, &size) || bytes == NULL || !jlog_varbytes(at, end, &bytes, &size))
            return 0;
    return 1;
}

/* Decodes the next record. Returns 0 where no record stands there. */
static inline int jlog_next_fetched(struct jlog_unread *unread, struct jlog_fetched *record)
{
    const uint8_t *at = unread->at, *end = unread->end;
    int64_t length, time_delta, offset_delta, count;

    if (!jlog_varint(&at, end, &length) || length < 1 || length > end - at)
        return 0;
    end = at + length;
    at++;                                                /* attributes, of which there are none yet */
    if (!jlog_varint(&at, end, &time_delta) || !jlog_varint(&at, end, &offset_delta))
        return 0;
    if (offset_delta < 0 || offset_delta > INT32_MAX)
        return 0;
    record->offset = unread->base_offset + offset_delta;
    if (record->offset < unread->next_offset || record->offset > unread->last_offset)
        return 0;
    if (!jlog_varbytes(&at, end, &record->key, &record->key_bytes) ||
        !jlog_varbytes(&at, end, &record->value, &record->value_bytes) || !jlog_varint(&at, end, &count))
        return 0;
    record->headers = at;
    if (!jlog_pass_headers(&at, end, count) || at != end)
        return 0;
    record->header_count = (uint32_t)count;
    record->headers_bytes = (uint32_t)(at - record->headers);
    record->time_ms =
        unread->has_append_time ? unread->append_time : (int64_t)((uint64_t)unread->base_time + (uint64_t)time_delta);
    record->kind = unread->has_append_time ? JLOG_TIME_APPENDED : JLOG_TIME_CREATED;
    record->leader_epoch = unread->leader_epoch;
    unread->next_offset = record->offset + 1;
    unread->at = end;
    unread->left--;
    return 1;
}

/* Decodes up to `room` records from offset `first` on, and adds the bytes that they take to *bytes. Returns how many, or
 * SIZE_MAX where the bytes are no records. */
static inline size_t jlog_take_fetched(struct jlog_unread *unread, int64_t first, uint16_t place, struct jlog_fetched *records,
                                       size_t room, size_t *bytes)
{
    size_t count = 0;

    while (count < room && unread->left != 0) {
        const uint8_t *begin = unread->at;

        if (!jlog_next_fetched(unread, records + count))
            return SIZE_MAX;
        if (records[count].offset < first)
            continue;
        records[count].place = place;
        *bytes += (size_t)(unread->at - begin);
        count++;
    }
    return unread->left != 0 || unread->at == unread->end ? count : SIZE_MAX;
}

/* --- Records of a journal ---------------------------------------------------------------------------------------- */

/* What is the same for all records of a partition. */
struct jlog_part {
    uint8_t headers[JLOG_PLACE_BYTES_MAX];
    uint32_t headers_bytes, header_count;
};

static inline void jlog_begin_part(struct jlog_part *part, const char *topic, int32_t partition)
{
    part->headers_bytes = (uint32_t)(jlog_put_part(part->headers, topic, partition) - part->headers);
    part->header_count = topic == NULL ? 2 : 3;          /* with that of the offset */
}

/* Encodes the record's own headers. There is room for them. Returns a JLOG_ENCODE_ status. */
static inline int jlog_put_fetched_headers(struct jlog_encoded *to, const struct jlog_fetched *record)
{
    const uint8_t *at = record->headers, *end = at + record->headers_bytes, *name, *value;
    uint32_t name_bytes, value_bytes;

    for (uint32_t left = record->header_count; left != 0; --left) {
        if (!jlog_varbytes(&at, end, &name, &name_bytes) || !jlog_varbytes(&at, end, &value, &value_bytes))
            return JLOG_ENCODE_OUTSIDE;
        if (!jlog_utf8_valid(name, name_bytes))
            return JLOG_ENCODE_NOT_UTF8;
        to->size = (size_t)(jlog_begin_header(to->data + to->size, (const char *)name, name_bytes,
                                              value == NULL ? JLOG_NULL_BYTES : value_bytes) -
                            to->data);
        jlog_put_bytes(to, value, value_bytes);
    }
    return JLOG_ENCODE_DONE;
}

/* Encodes one record behind the others. Where it returns another status than JLOG_ENCODE_DONE, `to` is as it was. */
static inline int jlog_put_fetched(struct jlog_encoded *to, const struct jlog_fetched *record, const struct jlog_part *part)
{
    const size_t start = to->size;
    /* An encoded header has 8 bytes for the lengths, where that of a batch has two or more. */
    const size_t headers_room = (size_t)record->headers_bytes + 6 * (size_t)record->header_count;
    uint32_t tag = JLOG_TAG_EXPLICIT, headers_bytes;
    int64_t time_us;
    int status;

    if (__builtin_mul_overflow(record->time_ms, 1000, &time_us))
        return JLOG_ENCODE_TIME_OUT_OF_RANGE;
    if (to->room - to->size <
        jlog_long_bytes(tag) + record->key_bytes + headers_room + JLOG_PLACE_BYTES_MAX + record->value_bytes)
        return JLOG_ENCODE_NO_ROOM;
    to->size += jlog_long_bytes(tag);
    if (record->key != NULL) {
        tag |= JLOG_TAG_KEY;
        jlog_put_bytes(to, record->key, record->key_bytes);
    }
    headers_bytes = (uint32_t)to->size;
    status = jlog_put_fetched_headers(to, record);
    if (!status && (uint64_t)record->header_count + part->header_count > JLOG_HEADERS_MAX)
        status = JLOG_ENCODE_TOO_MANY_HEADERS;
    if (status) {
        to->size = start;
        return status;
    }
    memcpy(to->data + to->size, part->headers, part->headers_bytes);
    to->size += part->headers_bytes;
    to->size = (size_t)(jlog_put_number_header(to->data + to->size, JLOG_OFFSET_HEADER, sizeof JLOG_OFFSET_HEADER - 1,
                                               (uint64_t)record->offset) -
                        to->data);
    headers_bytes = (uint32_t)to->size - headers_bytes;
    if (record->value != NULL)
        jlog_put_bytes(to, record->value, record->value_bytes);
    else
        tag |= JLOG_TAG_NULL;
    jlog_encode_long(to->data + start, tag, time_us, record->value_bytes, record->key_bytes, headers_bytes);
    jlog_note_time(to, time_us);
    return JLOG_ENCODE_DONE;
}

/* Encodes the records from *at to `count`, and adds the bytes of their values to *value_bytes. Stops at one that cannot be
 * encoded, with nothing of it written, and returns its JLOG_ENCODE_ status. */
static inline int jlog_put_all_fetched(struct jlog_encoded *to, const struct jlog_fetched *records,
                                       const struct jlog_part *parts, size_t *at, size_t count, size_t *value_bytes)
{
    for (; *at < count; ++*at) {
        const int status = jlog_put_fetched(to, records + *at, parts + records[*at].place);

        if (status)
            return status;
        *value_bytes += records[*at].value_bytes;
    }
    return JLOG_ENCODE_DONE;
}

#endif
