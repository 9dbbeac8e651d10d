/* Hands the records of a block's body to librdkafka, without an object for each. */
#ifndef JLOG_SEND_H
#define JLOG_SEND_H

#include <stdlib.h>

#include "format/record.h"
#include "kafka/librdkafka.h"

/* What is sent of each record, and which records are left to the caller. */
struct jlog_sending {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    int32_t partition;                                   /* of all records, if spread_over is 0 */
    uint32_t spread_over;                                /* number of partitions */
    uint32_t spread_bits;                                /* so many bits of a sequence stay in one partition */
    int without_key;
    int needs_key;
    int64_t limit_bytes;                                 /* of a value */
    int64_t earliest_ms, latest_ms;
    const char *ours;                                    /* headers that begin so are not sent */
    size_t ours_bytes;
    const char *sequence_header, *timestamp_header;      /* names of added headers; NULL: none is added */
    int64_t value_bytes, beside_bytes;                   /* sent so far: values; keys and headers */
};

enum { JLOG_SENT = 0, JLOG_NOT_PLAIN = 1 };              /* NOT_PLAIN: the caller decides about this record */

static inline int64_t jlog_time_ms(int64_t time_us)
{
    const int64_t found = time_us / 1000 - (time_us % 1000 < 0);

    return found == 0 ? 1 : found; /* librdkafka takes 0 as now */
}

static inline int jlog_add_number(const struct jlog_rdkafka *calls, rd_kafka_headers_t *headers, const char *name,
                                  long long number, int64_t *beside)
{
    char text[24];
    const int bytes = snprintf(text, sizeof text, "%lld", number);

    *beside += (int64_t)strlen(name) + bytes;
    return calls->header_add(headers, name, -1, text, bytes);
}

/* Makes librdkafka's list of the record's headers; NULL in `made` if there are none. Returns JLOG_NOT_PLAIN for a name that has
 * a NUL, where Kafka's other clients would cut it. */
static inline int jlog_make_headers(const struct jlog_rdkafka *calls, const struct jlog_sending *sending,
                                    const struct jlog_record *record, uint64_t sequence, rd_kafka_headers_t **made,
                                    int64_t *beside)
{
    const uint8_t *at = record->headers, *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t left = record->headers_bytes, bytes;

    *made = NULL;
    if (left == 0 && sending->sequence_header == NULL && sending->timestamp_header == NULL)
        return 0;
    *made = calls->headers_new(8);
    for (; left != 0; at += bytes, left -= bytes) {
        bytes = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes);
        if (bytes == 0 || memchr(name, 0, name_bytes) != NULL)
            return JLOG_NOT_PLAIN;
        if (name_bytes >= sending->ours_bytes && memcmp(name, sending->ours, sending->ours_bytes) == 0)
            continue;
        *beside += name_bytes + (value == NULL ? 0 : value_bytes);
        calls->header_add(*made, (const char *)name, name_bytes, value, value == NULL ? 0 : (ssize_t)value_bytes);
    }
    if (sending->sequence_header != NULL)
        jlog_add_number(calls, *made, sending->sequence_header, (long long)sequence, beside);
    if (sending->timestamp_header != NULL)
        jlog_add_number(calls, *made, sending->timestamp_header, (long long)record->timestamp_us, beside);
    return 0;
}

/* A message for produceva. An absent value or key is NULL, and an empty one is not. */
struct jlog_message {
    rd_kafka_topic_t *topic;
    int32_t partition;
    const uint8_t *value, *key;
    size_t value_bytes, key_bytes;
    int64_t time_ms;                                     /* 0: now */
    rd_kafka_headers_t *headers;                         /* of which the call disposes, whatever its result */
    uint64_t place;                                      /* what a report of a failed delivery names */
};

/* Produces a message. Returns JLOG_SENT, or the number of librdkafka's error. */
static inline int jlog_produce(const struct jlog_rdkafka *calls, rd_kafka_t *client, const struct jlog_message *message)
{
    rd_kafka_vu_t arguments[8];
    rd_kafka_error_t *failed;
    size_t count = 0;
    int code;

    arguments[count].vtype = JLOG_RDKAFKA_TOPIC;
    arguments[count++].u.rkt = message->topic;
    arguments[count].vtype = JLOG_RDKAFKA_PARTITION;
    arguments[count++].u.i32 = message->partition;
    arguments[count].vtype = JLOG_RDKAFKA_VALUE;
    arguments[count].u.mem.ptr = (void *)message->value;
    arguments[count++].u.mem.size = message->value == NULL ? 0 : message->value_bytes;
    if (message->key != NULL) {
        arguments[count].vtype = JLOG_RDKAFKA_KEY;
        arguments[count].u.mem.ptr = (void *)message->key;
        arguments[count++].u.mem.size = message->key_bytes;
    }
    arguments[count].vtype = JLOG_RDKAFKA_FLAGS;
    arguments[count++].u.i = JLOG_RDKAFKA_COPY;
    arguments[count].vtype = JLOG_RDKAFKA_TIMESTAMP;
    arguments[count++].u.i64 = message->time_ms;
    arguments[count].vtype = JLOG_RDKAFKA_OPAQUE;
    arguments[count++].u.ptr = (void *)(uintptr_t)message->place;
    if (message->headers != NULL) {
        arguments[count].vtype = JLOG_RDKAFKA_HEADERS;
        arguments[count++].u.headers = message->headers;
    }
    failed = calls->produceva(client, arguments, count);
    if (failed == NULL)
        return JLOG_SENT;
    code = calls->error_code(failed);
    calls->error_destroy(failed);
    if (message->headers != NULL)
        calls->headers_destroy(message->headers); /* librdkafka takes them over only if it takes the message */
    return code;
}

/* Sends one record. Returns JLOG_SENT, JLOG_NOT_PLAIN, or the number of librdkafka's error; only JLOG_SENT has sent it. */
static inline int jlog_send_record(const struct jlog_rdkafka *calls, struct jlog_sending *sending,
                                   const struct jlog_record *record, uint64_t sequence)
{
    const uint8_t *const key = sending->without_key ? NULL : record->key;
    int64_t beside = key == NULL ? 0 : (int64_t)record->key_bytes;
    struct jlog_message message = {
        .topic = sending->topic,
        .partition = sending->partition,
        .value = record->value,
        .value_bytes = record->value_bytes,
        .key = key,
        .key_bytes = record->key_bytes,
        .time_ms = jlog_time_ms(record->timestamp_us),
        .place = sequence + 1,
    };
    int code;

    if ((record->value != NULL && record->value_bytes > sending->limit_bytes) || message.time_ms < sending->earliest_ms ||
        message.time_ms > sending->latest_ms || (sending->needs_key && key == NULL))
        return JLOG_NOT_PLAIN;
    if (sending->spread_over != 0)
        message.partition = key != NULL ? -1 : (int32_t)((sequence >> sending->spread_bits) % sending->spread_over);
    code = jlog_make_headers(calls, sending, record, sequence, &message.headers, &beside);
    if (code != 0) {
        calls->headers_destroy(message.headers);
        return code;
    }
    code = jlog_produce(calls, sending->client, &message);
    if (code == JLOG_SENT) {
        sending->value_bytes += record->value == NULL ? 0 : record->value_bytes;
        sending->beside_bytes += beside;
    }
    return code;
}

/* Sends the records of a body from `*at` on, up to its end or the first that is not sent. Moves `*at` and `*sequence` behind
 * those that were. Returns as jlog_send_record does. */
static inline int jlog_send_records(const struct jlog_rdkafka *calls, struct jlog_sending *sending, const uint8_t *data,
                                    size_t bytes, int64_t base_time_us, size_t *at, uint64_t *sequence)
{
    struct jlog_record record;

    while (*at < bytes) {
        const size_t size = jlog_decode_record(data + *at, bytes - *at, base_time_us, &record);

        if (size == 0)
            return JLOG_RDKAFKA_BAD_MSG; /* cannot be: the cursor has checked the body */
        if (!(record.tag & JLOG_TAG_LONG && record.tag & JLOG_TAG_STATE)) {
            const int code = jlog_send_record(calls, sending, &record, *sequence);

            if (code != JLOG_SENT)
                return code;
            ++*sequence;
        }
        *at += size;
    }
    return JLOG_SENT;
}

/* Moves `*at` and `*sequence` behind the next record. */
static inline void jlog_pass_record(const uint8_t *data, size_t bytes, size_t *at, uint64_t *sequence)
{
    struct jlog_record record;
    size_t size;

    while (*at < bytes && (size = jlog_decode_record(data + *at, bytes - *at, 0, &record)) != 0) {
        *at += size;
        if (!(record.tag & JLOG_TAG_LONG && record.tag & JLOG_TAG_STATE)) {
            ++*sequence;
            break;
        }
    }
}

#endif
