/* Encodes the headers that name a record's place in Kafka. They come behind its own: the topic where there are several, the
 * partition, and the offset. */
#ifndef JLOG_PLACE_H
#define JLOG_PLACE_H

#include "format/record.h"

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

/* Adds the headers that are the same for all records of a partition. */
static inline uint8_t *jlog_put_part(uint8_t *to, const char *topic, int32_t partition)
{
    if (topic != NULL) {
        const uint32_t bytes = (uint32_t)strnlen(topic, JLOG_TOPIC_BYTES_MAX);

        to = jlog_begin_header(to, JLOG_TOPIC_HEADER, sizeof JLOG_TOPIC_HEADER - 1, bytes);
        memcpy(to, topic, bytes);
        to += bytes;
    }
    return jlog_put_number_header(to, JLOG_PARTITION_HEADER, sizeof JLOG_PARTITION_HEADER - 1, (uint64_t)partition);
}

/* Adds the headers that name the place, the topic only if `topic` is given. There is room for JLOG_PLACE_BYTES_MAX. */
static inline uint8_t *jlog_put_place(uint8_t *to, const char *topic, int32_t partition, int64_t offset)
{
    to = jlog_put_part(to, topic, partition);
    return jlog_put_number_header(to, JLOG_OFFSET_HEADER, sizeof JLOG_OFFSET_HEADER - 1, (uint64_t)offset);
}

#endif
