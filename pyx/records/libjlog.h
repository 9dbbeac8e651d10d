/* The messages of libjlog's segments, and how they become records. docs/libjlog.md describes the format.
 *
 * A message has a header of 32-bit numbers: magic, seconds, microseconds, length, and where messages are compressed the number
 * of bytes that are stored. Nothing in a file is trusted: each number is loaded once and checked before it is used. */
#pragma once

#include "format/record.h"

#define JLOG_LIBJLOG_US 1000000u                         /* a message's microseconds are below this */
#define JLOG_LIBJLOG_EMPTY_BYTES 16384u                  /* stored for an empty message by the null compressor */
#define JLOG_LIBJLOG_RATIO 255u                          /* LZ4 makes at most so many bytes of one */

struct jlog_layout {
    uint32_t magic;
    uint32_t header_bytes;                               /* 16, or 20 where messages are compressed */
    int swapped;                                         /* 1: the numbers have the other byte order than this machine */
};

struct jlog_message {
    uint32_t seconds, microseconds;
    uint32_t bytes;                                      /* of the message itself */
    uint32_t stored_bytes;                               /* of the message in the file */
};

static inline uint32_t jlog_layout_load(const struct jlog_layout *layout, const uint8_t *at)
{
    const uint32_t found = jlog_load32(at);

    return layout->swapped ? __builtin_bswap32(found) : found;
}

/* Loads a header, whatever its magic is. */
static inline void jlog_load_message(const struct jlog_layout *layout, const uint8_t *at, struct jlog_message *message)
{
    message->seconds = jlog_layout_load(layout, at + 4);
    message->microseconds = jlog_layout_load(layout, at + 8);
    message->bytes = jlog_layout_load(layout, at + 12);
    message->stored_bytes = layout->header_bytes == 16 ? message->bytes : jlog_layout_load(layout, at + 16);
}

/* Returns whether a header begins here. The oldest journals have no magic, so that their times must make sense instead. */
static inline int jlog_is_message(const struct jlog_layout *layout, const uint8_t *at)
{
    if (jlog_layout_load(layout, at) != layout->magic)
        return 0;
    return layout->magic != 0 ||
        (jlog_layout_load(layout, at + 4) != 0 && jlog_layout_load(layout, at + 8) < JLOG_LIBJLOG_US);
}

static inline int64_t jlog_message_time_us(const struct jlog_message *message)
{
    return (int64_t)message->seconds * JLOG_LIBJLOG_US + message->microseconds;
}

/* Messages that follow each other by their lengths. */
struct jlog_chain {
    uint64_t end, count;
    int64_t first_us, last_us;
    int ordered;                                         /* 1: no time is earlier than the one before */
};

/* Follows messages from `at` by their lengths. The chain ends at the first place that is not a header, or whose message goes
 * beyond the `size` bytes, or where less than a header is left. */
static inline void jlog_follow_chain(const struct jlog_layout *layout, const uint8_t *data, uint64_t size, uint64_t at,
                                     uint64_t most, struct jlog_chain *chain)
{
    struct jlog_message message;
    int64_t time_us;

    chain->count = 0;
    chain->ordered = 1;
    chain->first_us = chain->last_us = 0;
    while (chain->count < most && size - at >= layout->header_bytes && jlog_is_message(layout, data + at)) {
        jlog_load_message(layout, data + at, &message);
        if (size - at - layout->header_bytes < message.stored_bytes)
            break;
        time_us = jlog_message_time_us(&message);
        if (chain->count == 0)
            chain->first_us = time_us;
        else if (time_us < chain->last_us)
            chain->ordered = 0;
        chain->last_us = time_us;
        chain->count++;
        at += layout->header_bytes + (uint64_t)message.stored_bytes;
    }
    chain->end = at;
}
