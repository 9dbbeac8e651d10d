/* A place for encoded records, one after the other, and what may become of an attempt to add one. */
#pragma once

#include "format/format.h"
#include "records/utf8.h"

enum {
    JLOG_ENCODE_DONE = 0,
    JLOG_ENCODE_NO_ROOM,
    JLOG_ENCODE_OUTSIDE,                                 /* an offset points outside its buffer */
    JLOG_ENCODE_TOO_LARGE,                               /* a value, a key or headers have more than 1 GiB */
    JLOG_ENCODE_NULL_HEADER,
    JLOG_ENCODE_NOT_UTF8,
    JLOG_ENCODE_TOO_MANY_HEADERS,
    JLOG_ENCODE_TIME_OUT_OF_RANGE,
};

struct jlog_encoded {
    uint8_t *data;
    size_t size, room;
    uint64_t explicit_count;
    int64_t explicit_max_us;
};

static inline int jlog_put_bytes(struct jlog_encoded *to, const uint8_t *data, uint32_t bytes)
{
    if (to->room - to->size < bytes)
        return JLOG_ENCODE_NO_ROOM;
    if (bytes != 0)
        memcpy(to->data + to->size, data, bytes);
    to->size += bytes;
    return JLOG_ENCODE_DONE;
}

static inline void jlog_note_time(struct jlog_encoded *to, int64_t time_us)
{
    to->explicit_count++;
    if (time_us > to->explicit_max_us)
        to->explicit_max_us = time_us;
}
