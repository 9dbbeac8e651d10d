/* Encodes messages of Kafka as records, without a Python object in between. Headers that name a record's place in Kafka follow
 * its own: the topic if there are several, the partition, and the offset. */
#pragma once

#include "kafka/librdkafka.h"
#include "records/encoded.h"

#define JLOG_HEADER_BYTES 8u                             /* lengths of name and value */
#define JLOG_TOPIC_BYTES_MAX 249u                        /* longest name of a topic */
#define JLOG_DECIMAL_BYTES_MAX 20u
#define JLOG_TOPIC_HEADER "jlog.kafka.topic"
#define JLOG_PARTITION_HEADER "jlog.kafka.partition"
#define JLOG_OFFSET_HEADER "jlog.kafka.offset"
/* The most that the added headers take. */
#define JLOG_PLACE_BYTES_MAX                                                                                                   \
    (3 * JLOG_HEADER_BYTES + sizeof JLOG_TOPIC_HEADER + sizeof JLOG_PARTITION_HEADER + sizeof JLOG_OFFSET_HEADER +             \
     JLOG_TOPIC_BYTES_MAX + 2 * JLOG_DECIMAL_BYTES_MAX)

/* Writes a number that is not negative, and returns its length. */
static inline uint32_t jlog_decimal(uint8_t *to, uint64_t number)
{
    uint8_t digits[JLOG_DECIMAL_BYTES_MAX];
    uint32_t at = sizeof digits;

    do
        digits[--at] = (uint8_t)('0' + number % 10);
    while ((number /= 10) != 0);
    memcpy(to, digits + at, sizeof digits - at);
    return (uint32_t)sizeof digits - at;
}

/* Writes lengths and name of a header. Its value follows. Returns where that begins. */
static inline uint8_t *jlog_begin_header(uint8_t *to, const char *name, uint32_t name_bytes, uint32_t value_bytes)
{
    jlog_store32(to, name_bytes);
    jlog_store32(to + 4, value_bytes);
    memcpy(to + JLOG_HEADER_BYTES, name, name_bytes);
    return to + JLOG_HEADER_BYTES + name_bytes;
}

static inline uint8_t *jlog_put_number_header(uint8_t *to, const char *name, uint32_t name_bytes, uint64_t number)
{
    uint8_t *value = to + JLOG_HEADER_BYTES + name_bytes;
    const uint32_t value_bytes = jlog_decimal(value, number);

    jlog_begin_header(to, name, name_bytes, value_bytes);
    return value + value_bytes;
}

/* Adds the headers that name the message's place, with the topic if it is not NULL. There is room for JLOG_PLACE_BYTES_MAX. */
static inline uint8_t *jlog_put_place(uint8_t *to, const char *topic, int32_t partition, int64_t offset)
{
    if (topic != NULL) {
        const uint32_t bytes = (uint32_t)strnlen(topic, JLOG_TOPIC_BYTES_MAX);

        to = jlog_begin_header(to, JLOG_TOPIC_HEADER, sizeof JLOG_TOPIC_HEADER - 1, bytes);
        memcpy(to, topic, bytes);
        to += bytes;
    }
    to = jlog_put_number_header(to, JLOG_PARTITION_HEADER, sizeof JLOG_PARTITION_HEADER - 1, (uint64_t)partition);
    return jlog_put_number_header(to, JLOG_OFFSET_HEADER, sizeof JLOG_OFFSET_HEADER - 1, (uint64_t)offset);
}

/* Encodes the headers that the message has itself, and sets how many they are. Returns a JLOG_ENCODE_ status. */
static inline int jlog_put_own_headers(struct jlog_encoded *to, const struct jlog_rdkafka *calls, rd_kafka_message_t *message,
                                       size_t *count)
{
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t bytes;

    *count = 0;
    if (calls->message_headers(message, &headers))
        return JLOG_ENCODE_DONE;                         /* it has none */
    for (; !calls->header_get_all(headers, *count, &name, &value, &bytes); ++*count) {
        const size_t name_bytes = strlen(name);

        if (value == NULL)
            bytes = 0;
        if (name_bytes > JLOG_VALUE_BYTES_MAX || bytes > JLOG_VALUE_BYTES_MAX)
            return JLOG_ENCODE_TOO_LARGE;
        if (!jlog_utf8_valid((const uint8_t *)name, name_bytes))
            return JLOG_ENCODE_NOT_UTF8;
        if (to->room - to->size < JLOG_HEADER_BYTES + name_bytes + bytes)
            return JLOG_ENCODE_NO_ROOM;
        to->size = (size_t)(jlog_begin_header(to->data + to->size, name, (uint32_t)name_bytes,
                                              value == NULL ? JLOG_NULL_BYTES : (uint32_t)bytes) -
                            to->data);
        jlog_put_bytes(to, value, (uint32_t)bytes);
    }
    return JLOG_ENCODE_DONE;
}

static inline int jlog_put_message_headers(struct jlog_encoded *to, const struct jlog_rdkafka *calls,
                                           rd_kafka_message_t *message, int with_topic, uint32_t *bytes)
{
    const size_t start = to->size;
    size_t count;
    const int status = jlog_put_own_headers(to, calls, message, &count);

    if (status)
        return status;
    if (to->room - to->size < JLOG_PLACE_BYTES_MAX)
        return JLOG_ENCODE_NO_ROOM;
    to->size = (size_t)(jlog_put_place(to->data + to->size, with_topic ? calls->topic_name(message->rkt) : NULL,
                                       message->partition, message->offset) -
                        to->data);
    if (count + 2 + (size_t)with_topic > JLOG_HEADERS_MAX)
        return JLOG_ENCODE_TOO_MANY_HEADERS;
    if (to->size - start > JLOG_VALUE_BYTES_MAX)
        return JLOG_ENCODE_TOO_LARGE;
    *bytes = (uint32_t)(to->size - start);
    return JLOG_ENCODE_DONE;
}

/* Encodes one message after the others. If it returns another status than JLOG_ENCODE_DONE, `to` is as it was. */
static inline int jlog_put_message(struct jlog_encoded *to, const struct jlog_rdkafka *calls, rd_kafka_message_t *message,
                                   int with_topic)
{
    const size_t start = to->size;
    uint32_t tag = 0, headers_bytes;
    int64_t time_us = 0;
    int kind;
    const int64_t time_ms = calls->message_timestamp(message, &kind);
    int status;

    if (message->len > JLOG_VALUE_BYTES_MAX || message->key_len > JLOG_VALUE_BYTES_MAX)
        return JLOG_ENCODE_TOO_LARGE;
    if (kind != JLOG_RDKAFKA_NO_TIME) {
        tag |= JLOG_TAG_EXPLICIT;
        if (__builtin_mul_overflow(time_ms, 1000, &time_us))
            return JLOG_ENCODE_TIME_OUT_OF_RANGE;
    }
    if (to->room - to->size < jlog_long_bytes(tag) + message->key_len + message->len)
        return JLOG_ENCODE_NO_ROOM;
    to->size += jlog_long_bytes(tag);
    if (message->key != NULL) {
        tag |= JLOG_TAG_KEY;
        jlog_put_bytes(to, message->key, (uint32_t)message->key_len);
    }
    status = jlog_put_message_headers(to, calls, message, with_topic, &headers_bytes);
    if (!status && message->payload != NULL)
        status = jlog_put_bytes(to, message->payload, (uint32_t)message->len);
    else
        tag |= JLOG_TAG_NULL;
    if (status) {
        to->size = start;
        return status;
    }
    jlog_encode_long(to->data + start, tag, time_us, (uint32_t)message->len, (uint32_t)message->key_len, headers_bytes);
    if (tag & JLOG_TAG_EXPLICIT)
        jlog_note_time(to, time_us);
    return JLOG_ENCODE_DONE;
}

/* Encodes the messages from *at to `count`, and adds the bytes of their values to *value_bytes. Stops at a message that cannot
 * be encoded, with nothing of it written, and returns its JLOG_ENCODE_ status. */
static inline int jlog_put_messages(struct jlog_encoded *to, const struct jlog_rdkafka *calls, rd_kafka_message_t **messages,
                                    int with_topic, size_t *at, size_t count, size_t *value_bytes)
{
    for (; *at < count; ++*at) {
        const int status = jlog_put_message(to, calls, messages[*at], with_topic);

        if (status)
            return status;
        *value_bytes += messages[*at]->len;
    }
    return JLOG_ENCODE_DONE;
}
