/* Encodes record batches of Kafka, as brokers take them, of the records of a block's body. */
#ifndef JLOG_BATCHES_H
#define JLOG_BATCHES_H

#include <stdlib.h>

#include "format/checksum.h"
#include "kafka/outgoing.h"
#include "kafka/record_batch.h"

#define JLOG_NO_MEMORY -1

struct jlog_batch {
    uint8_t *data;
    size_t bytes, room;
    uint64_t *sequences;                                 /* of the records */
    uint32_t count, sequences_room;
    int64_t first_ms, newest_ms;
};

static inline uint64_t jlog_zigzag(int64_t number) { return (uint64_t)number << 1 ^ (uint64_t)(number >> 63); }

static inline size_t jlog_varint_bytes(int64_t number)
{
    return (size_t)(70 - __builtin_clzll(jlog_zigzag(number) | 1)) / 7;
}

static inline uint8_t *jlog_put_varint(uint8_t *to, int64_t number)
{
    uint64_t left = jlog_zigzag(number);

    for (; left >= 0x80; left >>= 7)
        *to++ = (uint8_t)(left | 0x80);
    *to++ = (uint8_t)left;
    return to;
}

/* Writes a length and the bytes; -1 for those that are absent. */
static inline uint8_t *jlog_put_sized(uint8_t *to, const void *data, size_t bytes)
{
    to = jlog_put_varint(to, data == NULL ? -1 : (int64_t)bytes);
    if (bytes != 0)
        memcpy(to, data, bytes);
    return to + bytes;
}

static inline size_t jlog_sized_bytes(const void *data, size_t bytes)
{
    return jlog_varint_bytes(data == NULL ? -1 : (int64_t)bytes) + bytes;
}

/* The headers of a message: those of the record, and those that are added. */
struct jlog_batch_headers {
    struct jlog_number_header added[2];
    int added_count;
    size_t count, bytes;                                 /* all of them, encoded */
    int64_t beside_bytes;                                /* of names and values alone */
};

static inline int jlog_measure_headers(const struct jlog_outgoing *rules, const struct jlog_record *record, uint64_t sequence,
                                       struct jlog_batch_headers *headers)
{
    const uint8_t *at = record->headers, *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t left = record->headers_bytes;
    int found;

    headers->added_count = jlog_added_headers(rules, record, sequence, headers->added);
    headers->count = (size_t)headers->added_count;
    headers->bytes = 0;
    headers->beside_bytes = 0;
    while ((found = jlog_next_header(rules, &at, &left, &name, &name_bytes, &value, &value_bytes)) > 0) {
        headers->count++;
        headers->bytes += jlog_sized_bytes(name, name_bytes) + jlog_sized_bytes(value, value_bytes);
        headers->beside_bytes += name_bytes + value_bytes;
    }
    for (int index = 0; index < headers->added_count; index++) {
        const struct jlog_number_header *const added = &headers->added[index];

        headers->bytes += jlog_sized_bytes(added->name, added->name_bytes) + jlog_sized_bytes(added->text, added->bytes);
        headers->beside_bytes += (int64_t)(added->name_bytes + added->bytes);
    }
    return found < 0 ? JLOG_NOT_PLAIN : JLOG_SENT;
}

static inline uint8_t *jlog_put_headers(uint8_t *to, const struct jlog_outgoing *rules, const struct jlog_record *record,
                                        const struct jlog_batch_headers *headers)
{
    const uint8_t *at = record->headers, *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t left = record->headers_bytes;

    to = jlog_put_varint(to, (int64_t)headers->count);
    while (jlog_next_header(rules, &at, &left, &name, &name_bytes, &value, &value_bytes) > 0) {
        to = jlog_put_sized(to, name, name_bytes);
        to = jlog_put_sized(to, value, value_bytes);
    }
    for (int index = 0; index < headers->added_count; index++) {
        to = jlog_put_sized(to, headers->added[index].name, headers->added[index].name_bytes);
        to = jlog_put_sized(to, headers->added[index].text, headers->added[index].bytes);
    }
    return to;
}

static inline int jlog_make_room(struct jlog_batch *batch, size_t bytes)
{
    if (batch->room - batch->bytes < bytes) {
        const size_t room = batch->bytes + bytes + batch->room;
        uint8_t *const larger = realloc(batch->data, room);

        if (larger == NULL)
            return JLOG_NO_MEMORY;
        batch->data = larger;
        batch->room = room;
    }
    if (batch->count == batch->sequences_room) {
        const uint32_t room = batch->sequences_room * 2 + 64;
        uint64_t *const larger = realloc(batch->sequences, room * sizeof *larger);

        if (larger == NULL)
            return JLOG_NO_MEMORY;
        batch->sequences = larger;
        batch->sequences_room = room;
    }
    return 0;
}

/* Adds a message to a batch. Returns JLOG_SENT, JLOG_FULL where the batch would have more than `limit` bytes and is not empty,
 * or JLOG_NO_MEMORY. */
static inline int jlog_batch_add(struct jlog_batch *batch, size_t limit, const struct jlog_outgoing *rules,
                                 const struct jlog_record *record, const struct jlog_message *message,
                                 const struct jlog_batch_headers *headers)
{
    const int64_t later_ms = batch->count == 0 ? 0 : message->time_ms - batch->first_ms;
    const size_t size = 1 + jlog_varint_bytes(later_ms) + jlog_varint_bytes(batch->count) +
                        jlog_sized_bytes(message->key, message->key_bytes) +
                        jlog_sized_bytes(message->value, message->value_bytes) + jlog_varint_bytes((int64_t)headers->count) +
                        headers->bytes;
    const size_t whole = jlog_varint_bytes((int64_t)size) + size;
    uint8_t *to;

    if (batch->count != 0 && batch->bytes + whole > limit)
        return JLOG_FULL;
    if (jlog_make_room(batch, whole))
        return JLOG_NO_MEMORY;
    to = jlog_put_varint(batch->data + batch->bytes, (int64_t)size);
    *to++ = 0;                                           /* attributes: none are defined */
    to = jlog_put_varint(to, later_ms);
    to = jlog_put_varint(to, batch->count);
    to = jlog_put_sized(to, message->key, message->key_bytes);
    to = jlog_put_sized(to, message->value, message->value_bytes);
    jlog_put_headers(to, rules, record, headers);
    if (batch->count == 0)
        batch->first_ms = batch->newest_ms = message->time_ms;
    else if (message->time_ms > batch->newest_ms)
        batch->newest_ms = message->time_ms;
    batch->sequences[batch->count++] = message->sequence;
    batch->bytes += whole;
    return JLOG_SENT;
}

/* Computes the 32-bit MurmurHash2 of A. Appleby (2008), with the seed of Kafka's default partitioner. */
static inline uint32_t jlog_murmur2(const uint8_t *data, size_t bytes)
{
    const uint32_t m = 0x5BD1E995;
    uint32_t found = 0x9747B28C ^ (uint32_t)bytes;

    for (; bytes >= 4; data += 4, bytes -= 4) {
        uint32_t word = jlog_load32(data) * m;

        word = (word ^ word >> 24) * m;
        found = found * m ^ word;
    }
    if (bytes != 0) {
        for (size_t index = bytes; index-- != 0;)
            found ^= (uint32_t)data[index] << 8 * index;
        found *= m;
    }
    found = (found ^ found >> 13) * m;
    return found ^ found >> 15;
}

/* Returns the partition that Kafka's default partitioner chooses for a key. */
static inline int32_t jlog_partition_of_key(const uint8_t *key, size_t bytes, uint32_t partitions)
{
    return (int32_t)((jlog_murmur2(key, bytes) & 0x7FFFFFFF) % partitions);
}

static inline int64_t jlog_message_bytes(const struct jlog_message *message, const struct jlog_batch_headers *headers)
{
    return (int64_t)(message->value_bytes + message->key_bytes) + headers->beside_bytes;
}

/* The batches of a topic, one for each partition. */
struct jlog_packing {
    struct jlog_batch *batches;
    uint32_t partitions;
    size_t limit;
    int32_t full;                                        /* the partition whose batch has to be taken, after JLOG_FULL */
};

static inline int jlog_pack_message(struct jlog_packing *to, const struct jlog_outgoing *rules,
                                    const struct jlog_record *record, struct jlog_message *message,
                                    const struct jlog_batch_headers *headers)
{
    int code;

    if (message->partition == JLOG_BY_KEY && to->partitions > 1 && message->key != NULL)
        message->partition = jlog_partition_of_key(message->key, message->key_bytes, to->partitions);
    else if (message->partition == JLOG_BY_KEY)
        message->partition = (int32_t)(message->sequence % to->partitions);
    code = jlog_batch_add(&to->batches[message->partition], to->limit, rules, record, message, headers);
    if (code == JLOG_FULL)
        to->full = message->partition;
    return code;
}

/* Adds the records of a body from `*at` on, up to its end or the first that is not added. Moves `*at` and `*sequence` behind
 * those that were. Returns JLOG_SENT, JLOG_NOT_PLAIN, JLOG_FULL or JLOG_NO_MEMORY. */
static inline int jlog_pack_records(struct jlog_packing *to, struct jlog_outgoing *rules, const uint8_t *data, size_t bytes,
                                    int64_t base_time_us, size_t *at, uint64_t *sequence)
{
    struct jlog_batch_headers headers;
    struct jlog_message message;
    struct jlog_record record;

    while (*at < bytes) {
        const size_t size = jlog_decode_record(data + *at, bytes - *at, base_time_us, &record);

        if (size == 0)
            return JLOG_NOT_PLAIN; /* cannot be: the cursor has checked the body */
        if (!jlog_is_state(&record)) {
            int code = jlog_message_of(rules, &record, *sequence, &message);

            if (code == JLOG_SENT)
                code = jlog_measure_headers(rules, &record, *sequence, &headers);
            if (code == JLOG_SENT && jlog_message_bytes(&message, &headers) > rules->limit_bytes)
                code = JLOG_NOT_PLAIN;
            if (code == JLOG_SENT)
                code = jlog_pack_message(to, rules, &record, &message, &headers);
            if (code != JLOG_SENT)
                return code;
            rules->value_bytes += (int64_t)message.value_bytes;
            rules->beside_bytes += (int64_t)message.key_bytes + headers.beside_bytes;
            ++*sequence;
        }
        *at += size;
    }
    return JLOG_SENT;
}

/* --- The header of a batch --------------------------------------------------------------------------------------- */

static inline uint8_t *jlog_put_big(uint8_t *to, uint64_t number, int bytes)
{
    for (int index = bytes; index-- != 0;)
        *to++ = (uint8_t)(number >> 8 * index);
    return to;
}

/* Writes the header of a batch whose records are `data`, as they are sent. sequence: the producer's number of its first record
 * in this partition. */
static inline void jlog_put_batch_header(uint8_t *header, const struct jlog_batch *batch, const uint8_t *data, size_t bytes,
                                         int attributes, int64_t producer, int16_t epoch, int32_t sequence)
{
    uint8_t *to = jlog_put_big(header, 0, 8);            /* the offset, which the broker sets */
    uint32_t crc;

    to = jlog_put_big(to, JLOG_BATCH_HEADER_BYTES - JLOG_BATCH_LENGTH_END + bytes, 4);
    to = jlog_put_big(to, UINT32_MAX, 4);                /* the leader's epoch, which the broker sets */
    *to++ = JLOG_BATCH_MAGIC;
    to += 4;                                             /* the checksum */
    to = jlog_put_big(to, (uint64_t)attributes, 2);
    to = jlog_put_big(to, batch->count - 1, 4);          /* the index of the last record */
    to = jlog_put_big(to, (uint64_t)batch->first_ms, 8);
    to = jlog_put_big(to, (uint64_t)batch->newest_ms, 8);
    to = jlog_put_big(to, (uint64_t)producer, 8);
    to = jlog_put_big(to, (uint64_t)epoch, 2);
    to = jlog_put_big(to, (uint64_t)sequence, 4);
    jlog_put_big(to, batch->count, 4);
    crc = jlog_crc32c(0, header + JLOG_BATCH_CRC_BEGIN, JLOG_BATCH_HEADER_BYTES - JLOG_BATCH_CRC_BEGIN);
    jlog_put_big(header + JLOG_BATCH_CRC_BEGIN - 4, jlog_crc32c(crc, data, bytes), 4);
}

#endif
