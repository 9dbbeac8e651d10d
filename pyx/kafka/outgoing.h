/* The rules by which records of a block's body are sent, or left to the caller. */
#ifndef JLOG_OUTGOING_H
#define JLOG_OUTGOING_H

#include <stdio.h>
#include <string.h>

#include "format/record.h"

struct jlog_outgoing {
    int32_t partition;                                   /* of all records, if spread_over is 0 */
    uint32_t spread_over;                                /* number of partitions */
    uint32_t spread_bits;                                /* so many bits of a sequence stay in one partition */
    int without_key;
    int needs_key;
    int64_t limit_bytes;                                 /* of value, key and headers; librdkafka checks the sum itself */
    int64_t earliest_ms, latest_ms;
    const char *ours;                                    /* headers that begin so are not sent */
    size_t ours_bytes;
    const char *sequence_header, *timestamp_header;      /* names of added headers; NULL: none is added */
    int64_t value_bytes, beside_bytes;                   /* sent so far: values; keys and headers */
};

enum {
    JLOG_SENT = 0,
    JLOG_NOT_PLAIN = 1,                                  /* the caller decides about this record */
    JLOG_FULL = 2,                                       /* the batch of its partition has to be taken first */
};

#define JLOG_BY_KEY -1                                   /* the partition is that of the key */

/* A message, with all but its headers. An absent value or key is NULL, and an empty one is not. */
struct jlog_message {
    int32_t partition;
    const uint8_t *value, *key;
    size_t value_bytes, key_bytes;
    int64_t time_ms;
    uint64_t sequence;
};

/* A header whose value is a number. */
struct jlog_number_header {
    const char *name;
    size_t name_bytes, bytes;
    char text[24];
};

static inline int64_t jlog_time_ms(int64_t time_us)
{
    const int64_t found = time_us / 1000 - (time_us % 1000 < 0);

    return found == 0 ? 1 : found; /* librdkafka takes 0 as now */
}

/* Makes the message of a record, or returns JLOG_NOT_PLAIN where a rule is against it. */
static inline int jlog_message_of(const struct jlog_outgoing *rules, const struct jlog_record *record, uint64_t sequence,
                                  struct jlog_message *made)
{
    made->key = rules->without_key ? NULL : record->key;
    made->key_bytes = made->key == NULL ? 0 : record->key_bytes;
    made->value = record->value;
    made->value_bytes = record->value == NULL ? 0 : record->value_bytes;
    made->time_ms = jlog_time_ms(record->timestamp_us);
    made->sequence = sequence;
    if ((int64_t)made->value_bytes > rules->limit_bytes || made->time_ms < rules->earliest_ms ||
        made->time_ms > rules->latest_ms || (rules->needs_key && made->key == NULL))
        return JLOG_NOT_PLAIN;
    if (rules->spread_over == 0)
        made->partition = rules->partition;
    else if (made->key != NULL)
        made->partition = JLOG_BY_KEY;
    else
        made->partition = (int32_t)((sequence >> rules->spread_bits) % rules->spread_over);
    return JLOG_SENT;
}

/* Goes to the next header that is sent. Returns 1, 0 at the end, or -1 for a name that has a NUL, where Kafka's other clients
 * would cut it. */
static inline int jlog_next_header(const struct jlog_outgoing *rules, const uint8_t **at, size_t *left, const uint8_t **name,
                                   uint32_t *name_bytes, const uint8_t **value, uint32_t *value_bytes)
{
    while (*left != 0) {
        const size_t bytes = jlog_decode_header(*at, *left, name, name_bytes, value, value_bytes);

        if (bytes == 0 || memchr(*name, 0, *name_bytes) != NULL)
            return -1;
        *at += bytes;
        *left -= bytes;
        if (*value == NULL)
            *value_bytes = 0;
        if (*name_bytes < rules->ours_bytes || memcmp(*name, rules->ours, rules->ours_bytes) != 0)
            return 1;
    }
    return 0;
}

static inline void jlog_number_header(struct jlog_number_header *made, const char *name, long long number)
{
    made->name = name;
    made->name_bytes = strlen(name);
    made->bytes = (size_t)snprintf(made->text, sizeof made->text, "%lld", number);
}

/* Makes the headers that are added to a record. Returns how many they are, 2 at most. */
static inline int jlog_added_headers(const struct jlog_outgoing *rules, const struct jlog_record *record, uint64_t sequence,
                                     struct jlog_number_header *made)
{
    int count = 0;

    if (rules->sequence_header != NULL)
        jlog_number_header(&made[count++], rules->sequence_header, (long long)sequence);
    if (rules->timestamp_header != NULL)
        jlog_number_header(&made[count++], rules->timestamp_header, (long long)record->timestamp_us);
    return count;
}

static inline int jlog_is_state(const struct jlog_record *record)
{
    return record->tag & JLOG_TAG_LONG && record->tag & JLOG_TAG_STATE;
}

/* Moves `*at` and `*sequence` behind the next record. */
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

#endif
