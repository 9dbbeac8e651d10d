/* Hands the records of a block's body to librdkafka, without an object for each. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "format/record.h"
#include "kafka/librdkafka.h"

enum {
    JLOG_SENT = 0,
    JLOG_NOT_PLAIN = 1,                                  /* the caller decides about this record */
};

/* Where the messages go. */
struct jlog_sending {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
};

/* The rules by which records are sent, or left to the caller. */
struct jlog_rules {
    int32_t partition;                                   /* of all records, if spread_over is 0 */
    uint32_t spread_over;                                /* number of partitions */
    uint32_t spread_bits;                                /* so many bits of a sequence stay in one partition */
    int without_key;
    int needs_key;
    int64_t limit_bytes;                                 /* of a value; librdkafka checks the whole message itself */
    int64_t earliest_ms, latest_ms;
    const char *ours;                                    /* headers that begin so are not sent */
    size_t ours_bytes;
    const char *sequence_header, *timestamp_header;      /* names of added headers; NULL: none is added */
    int64_t value_bytes, beside_bytes;                   /* sent so far: values; keys and headers */
};

/* A message, with all but its headers. An absent value or key is NULL, and an empty one is not. */
struct jlog_message {
    int32_t partition;                                   /* JLOG_RDKAFKA_BY_KEY: librdkafka chooses it */
    const uint8_t *value, *key;
    size_t value_bytes, key_bytes;
    int64_t time_ms;
};

static inline int64_t jlog_time_ms(int64_t time_us)
{
    const int64_t found = time_us / 1000 - (time_us % 1000 < 0);

    return found == 0 ? 1 : found; /* librdkafka takes 0 as now */
}

/* Fills in the message of a record. Returns JLOG_SENT, or JLOG_NOT_PLAIN if a rule is against it. */
static inline int jlog_message_of(const struct jlog_rules *rules, const struct jlog_record *record, uint64_t sequence,
                                  struct jlog_message *message)
{
    message->key = rules->without_key ? NULL : record->key;
    message->key_bytes = message->key == NULL ? 0 : record->key_bytes;
    message->value = record->value;
    message->value_bytes = record->value == NULL ? 0 : record->value_bytes;
    message->time_ms = jlog_time_ms(record->timestamp_us);
    if ((int64_t)message->value_bytes > rules->limit_bytes || message->time_ms < rules->earliest_ms ||
        message->time_ms > rules->latest_ms || (rules->needs_key && message->key == NULL))
        return JLOG_NOT_PLAIN;
    if (rules->spread_over == 0)
        message->partition = rules->partition;
    else if (message->key != NULL)
        message->partition = JLOG_RDKAFKA_BY_KEY;
    else
        message->partition = (int32_t)((sequence >> rules->spread_bits) % rules->spread_over);
    return JLOG_SENT;
}

/* Adds the record's own headers to the list. Returns JLOG_NOT_PLAIN for a name with a NUL, where librdkafka would cut it. */
static inline int jlog_add_own_headers(const struct jlog_rdkafka *calls, const struct jlog_rules *rules,
                                       const struct jlog_record *record, rd_kafka_headers_t *list, int64_t *beside)
{
    const uint8_t *at = record->headers, *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t left = record->headers_bytes;

    while (left != 0) {
        const size_t bytes = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes);

        if (bytes == 0 || memchr(name, 0, name_bytes) != NULL)
            return JLOG_NOT_PLAIN;
        at += bytes;
        left -= bytes;
        if (value == NULL)
            value_bytes = 0;
        if (name_bytes >= rules->ours_bytes && memcmp(name, rules->ours, rules->ours_bytes) == 0)
            continue;
        *beside += name_bytes + value_bytes;
        calls->header_add(list, (const char *)name, name_bytes, value, value_bytes);
    }
    return JLOG_SENT;
}

/* Adds a header whose value is a number, if its name is not NULL. */
static inline void jlog_add_number(const struct jlog_rdkafka *calls, const char *name, long long number,
                                   rd_kafka_headers_t *list, int64_t *beside)
{
    char text[24];
    int bytes;

    if (name == NULL)
        return;
    bytes = snprintf(text, sizeof text, "%lld", number);
    *beside += (int64_t)strlen(name) + bytes;
    calls->header_add(list, name, -1, text, bytes);
}

/* Creates librdkafka's list of the record's headers; NULL in `list` if there are none. */
static inline int jlog_make_headers(const struct jlog_rdkafka *calls, const struct jlog_rules *rules,
                                    const struct jlog_record *record, uint64_t sequence, rd_kafka_headers_t **list,
                                    int64_t *beside)
{
    *list = NULL;
    if (record->headers_bytes == 0 && rules->sequence_header == NULL && rules->timestamp_header == NULL)
        return JLOG_SENT;
    *list = calls->headers_new(8);
    if (jlog_add_own_headers(calls, rules, record, *list, beside) != JLOG_SENT) {
        calls->headers_destroy(*list);
        return JLOG_NOT_PLAIN;
    }
    jlog_add_number(calls, rules->sequence_header, (long long)sequence, *list, beside);
    jlog_add_number(calls, rules->timestamp_header, (long long)record->timestamp_us, *list, beside);
    return JLOG_SENT;
}

/* Produces a message. The call takes the headers over, whatever the result. place: is in the report if the delivery fails.
 * Returns JLOG_SENT, or the number of librdkafka's error. */
static inline int jlog_produce(const struct jlog_rdkafka *calls, const struct jlog_sending *to,
                               const struct jlog_message *message, rd_kafka_headers_t *headers, uint64_t place)
{
    rd_kafka_vu_t arguments[8];
    rd_kafka_error_t *failed;
    size_t count = 0;
    int code;

    arguments[count].vtype = JLOG_RDKAFKA_TOPIC;
    arguments[count++].u.rkt = to->topic;
    arguments[count].vtype = JLOG_RDKAFKA_PARTITION;
    arguments[count++].u.i32 = message->partition;
    arguments[count].vtype = JLOG_RDKAFKA_VALUE;
    arguments[count].u.mem.ptr = (void *)message->value;
    arguments[count++].u.mem.size = message->value_bytes;
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
    arguments[count++].u.ptr = (void *)(uintptr_t)place;
    if (headers != NULL) {
        arguments[count].vtype = JLOG_RDKAFKA_HEADERS;
        arguments[count++].u.headers = headers;
    }
    failed = calls->produceva(to->client, arguments, count);
    if (failed == NULL)
        return JLOG_SENT;
    code = calls->error_code(failed);
    calls->error_destroy(failed);
    if (headers != NULL)
        calls->headers_destroy(headers); /* librdkafka takes them over only if it takes the message */
    return code;
}

/* Sends one record. Returns JLOG_SENT, JLOG_NOT_PLAIN, or the number of librdkafka's error; only JLOG_SENT has sent it. */
static inline int jlog_send_record(const struct jlog_rdkafka *calls, const struct jlog_sending *to, struct jlog_rules *rules,
                                   const struct jlog_record *record, uint64_t sequence)
{
    struct jlog_message message;
    rd_kafka_headers_t *headers;
    int64_t beside;
    int code = jlog_message_of(rules, record, sequence, &message);

    if (code != JLOG_SENT)
        return code;
    beside = (int64_t)message.key_bytes;
    code = jlog_make_headers(calls, rules, record, sequence, &headers, &beside);
    if (code != JLOG_SENT)
        return code;
    code = jlog_produce(calls, to, &message, headers, sequence + 1);
    if (code == JLOG_SENT) {
        rules->value_bytes += (int64_t)message.value_bytes;
        rules->beside_bytes += beside;
    }
    return code;
}

/* Moves `*at` and `*sequence` beyond the next record. */
static inline void jlog_pass_record(const uint8_t *data, size_t bytes, size_t *at, uint64_t *sequence)
{
    struct jlog_record record;
    size_t size;

    while (*at < bytes && (size = jlog_decode_record(data + *at, bytes - *at, 0, &record)) != 0) {
        *at += size;
        if (!jlog_is_state(&record)) {
            ++*sequence;
            break;
        }
    }
}

/* Sends the records of a body from `*at` on, up to its end or the first that is not sent. Moves `*at` and `*sequence` beyond
 * those that were. Returns as jlog_send_record does. */
static inline int jlog_send_records(const struct jlog_rdkafka *calls, const struct jlog_sending *to,
                                    struct jlog_rules *rules, const uint8_t *data, size_t bytes, int64_t base_time_us,
                                    size_t *at, uint64_t *sequence)
{
    struct jlog_record record;

    while (*at < bytes) {
        const size_t size = jlog_decode_record(data + *at, bytes - *at, base_time_us, &record);

        if (size == 0)
            return JLOG_RDKAFKA_BAD_MSG; /* cannot be: the cursor has checked the body */
        if (!jlog_is_state(&record)) {
            const int code = jlog_send_record(calls, to, rules, &record, *sequence);

            if (code != JLOG_SENT)
                return code;
            ++*sequence;
        }
        *at += size;
    }
    return JLOG_SENT;
}
