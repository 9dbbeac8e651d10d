/* Hands the records of a block's body to librdkafka, without an object for each. */
#ifndef JLOG_SEND_H
#define JLOG_SEND_H

#include "kafka/librdkafka.h"
#include "kafka/outgoing.h"

/* Where the messages go. */
struct jlog_sending {
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
};

/* Makes librdkafka's list of the record's headers; NULL in `made` if there are none. */
static inline int jlog_make_headers(const struct jlog_rdkafka *calls, const struct jlog_outgoing *rules,
                                    const struct jlog_record *record, uint64_t sequence, rd_kafka_headers_t **made,
                                    int64_t *beside)
{
    struct jlog_number_header added[2];
    const int count = jlog_added_headers(rules, record, sequence, added);
    const uint8_t *at = record->headers, *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t left = record->headers_bytes;
    int found;

    *made = NULL;
    if (left == 0 && count == 0)
        return JLOG_SENT;
    *made = calls->headers_new(8);
    while ((found = jlog_next_header(rules, &at, &left, &name, &name_bytes, &value, &value_bytes)) > 0) {
        *beside += name_bytes + value_bytes;
        calls->header_add(*made, (const char *)name, name_bytes, value, value_bytes);
    }
    for (int index = 0; index < count; index++) {
        *beside += (int64_t)(added[index].name_bytes + added[index].bytes);
        calls->header_add(*made, added[index].name, -1, added[index].text, (ssize_t)added[index].bytes);
    }
    return found < 0 ? JLOG_NOT_PLAIN : JLOG_SENT;
}

/* Produces a message, with headers of which the call disposes, whatever its result. place: what a report of a failed delivery
 * names. Returns JLOG_SENT, or the number of librdkafka's error. */
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
static inline int jlog_send_record(const struct jlog_rdkafka *calls, const struct jlog_sending *to, struct jlog_outgoing *rules,
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
    if (code != JLOG_SENT) {
        calls->headers_destroy(headers);
        return code;
    }
    code = jlog_produce(calls, to, &message, headers, sequence + 1);
    if (code == JLOG_SENT) {
        rules->value_bytes += (int64_t)message.value_bytes;
        rules->beside_bytes += beside;
    }
    return code;
}

/* Sends the records of a body from `*at` on, up to its end or the first that is not sent. Moves `*at` and `*sequence` behind
 * those that were. Returns as jlog_send_record does. */
static inline int jlog_send_records(const struct jlog_rdkafka *calls, const struct jlog_sending *to,
                                    struct jlog_outgoing *rules, const uint8_t *data, size_t bytes, int64_t base_time_us,
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

#endif
