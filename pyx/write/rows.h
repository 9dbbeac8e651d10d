/* Arrow arrays as records. An array says where its buffers lie and how many bytes they have; whatever stands in them,
 * nothing outside them is read. They may be another library's, and change meanwhile: each number is loaded once. */
#ifndef JLOG_ROWS_H
#define JLOG_ROWS_H

#include "format/format.h"
#include "records/utf8.h"

enum {
    JLOG_ROWS_DONE = 0,
    JLOG_ROWS_NO_ROOM,
    JLOG_ROWS_OUTSIDE,                                   /* an offset points outside its buffer */
    JLOG_ROWS_TOO_LARGE,                                 /* above what a value, a key or headers may have */
    JLOG_ROWS_NULL_HEADER,
    JLOG_ROWS_NOT_UTF8,
    JLOG_ROWS_TOO_MANY_HEADERS,
    JLOG_ROWS_TIME_OUT_OF_RANGE,
};

/* An array of variable length, from its first entry on. */
struct jlog_arrow {
    const uint8_t *validity;                             /* NULL: nothing is null */
    const uint8_t *offsets;                              /* NULL: there is no such column */
    const uint8_t *data;                                 /* of bytes; a list has entries instead */
    int64_t size;                                        /* of that: bytes, or entries */
    int64_t start;                                       /* in the buffers, which slices share */
    int wide;                                            /* offsets have 64 bits */
};

struct jlog_arrow_times {
    const uint8_t *validity;
    const uint8_t *data;                                 /* NULL: there is no such column */
    int64_t start;
    int64_t multiply, divide;                            /* by these they become microseconds */
};

struct jlog_rows {
    struct jlog_arrow value, key, headers, name, header_value;
    const uint8_t *header_validity;                      /* of the list's entries */
    int64_t header_start;
    struct jlog_arrow_times timestamp;
};

/* The records that they become. */
struct jlog_encoded {
    uint8_t *data;
    size_t size, room;
    uint64_t explicit_count;
    int64_t explicit_max_us;
};

static inline int jlog_arrow_is_null(const uint8_t *validity, int64_t at)
{
    return validity != NULL && !(validity[at >> 3] >> (at & 7) & 1);
}

/* Where an entry begins and ends in the data. */
static inline int jlog_arrow_range(const struct jlog_arrow *array, int64_t row, int64_t *begin, int64_t *end)
{
    const int64_t at = array->start + row;

    if (array->wide) {
        *begin = jlog_load64(array->offsets + 8 * at);
        *end = jlog_load64(array->offsets + 8 * at + 8);
    } else {
        *begin = (int32_t)jlog_load32(array->offsets + 4 * at);
        *end = (int32_t)jlog_load32(array->offsets + 4 * at + 4);
    }
    return *begin < 0 || *end < *begin || *end > array->size ? JLOG_ROWS_OUTSIDE : JLOG_ROWS_DONE;
}

/* Bytes from the first entry to the last of `count`; 0 where the offsets make no sense. */
static inline int64_t jlog_arrow_span(const struct jlog_arrow *array, int64_t count)
{
    int64_t first, last, end;

    return jlog_arrow_range(array, 0, &first, &end) || jlog_arrow_range(array, count - 1, &end, &last) || last < first
               ? 0
               : last - first;
}

/* An entry that is not null. */
static inline int jlog_arrow_bytes(const struct jlog_arrow *array, int64_t row, const uint8_t **data, uint32_t *bytes)
{
    int64_t begin, end;

    if (jlog_arrow_range(array, row, &begin, &end))
        return JLOG_ROWS_OUTSIDE;
    if (end - begin > JLOG_VALUE_BYTES_MAX)
        return JLOG_ROWS_TOO_LARGE;
    *data = array->data + begin;
    *bytes = (uint32_t)(end - begin);
    return JLOG_ROWS_DONE;
}

static inline int jlog_has_entry(const struct jlog_arrow *array, int64_t row)
{
    return array->offsets != NULL && !jlog_arrow_is_null(array->validity, array->start + row);
}

static inline int jlog_put_bytes(struct jlog_encoded *to, const uint8_t *data, uint32_t bytes)
{
    if (to->room - to->size < bytes)
        return JLOG_ROWS_NO_ROOM;
    if (bytes != 0)
        memcpy(to->data + to->size, data, bytes);
    to->size += bytes;
    return JLOG_ROWS_DONE;
}

static inline int jlog_put_entry(struct jlog_encoded *to, const struct jlog_arrow *array, int64_t row, uint32_t *bytes)
{
    const uint8_t *data;
    const int status = jlog_arrow_bytes(array, row, &data, bytes);

    return status ? status : jlog_put_bytes(to, data, *bytes);
}

static inline int jlog_put_header(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t entry)
{
    uint32_t name_bytes, value_bytes = JLOG_NULL_BYTES;
    const size_t start = to->size;
    int status;

    if (jlog_arrow_is_null(rows->header_validity, rows->header_start + entry) || !jlog_has_entry(&rows->name, entry))
        return JLOG_ROWS_NULL_HEADER;
    if (to->room - to->size < 8)
        return JLOG_ROWS_NO_ROOM;
    to->size += 8;
    status = jlog_put_entry(to, &rows->name, entry, &name_bytes);
    if (status)
        return status;
    if (!jlog_utf8_valid(to->data + start + 8, name_bytes))
        return JLOG_ROWS_NOT_UTF8;
    if (jlog_has_entry(&rows->header_value, entry)) {
        status = jlog_put_entry(to, &rows->header_value, entry, &value_bytes);
        if (status)
            return status;
    }
    jlog_store32(to->data + start, name_bytes);
    jlog_store32(to->data + start + 4, value_bytes);
    return JLOG_ROWS_DONE;
}

static inline int jlog_put_headers(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t row, uint32_t *bytes)
{
    const size_t start = to->size;
    int64_t begin, end;
    int status;

    if (jlog_arrow_range(&rows->headers, row, &begin, &end))
        return JLOG_ROWS_OUTSIDE;
    if (end - begin > JLOG_HEADERS_MAX)
        return JLOG_ROWS_TOO_MANY_HEADERS;
    for (int64_t entry = begin; entry < end; entry++) {
        status = jlog_put_header(to, rows, entry);
        if (status)
            return status;
    }
    if (to->size - start > JLOG_VALUE_BYTES_MAX)
        return JLOG_ROWS_TOO_LARGE;
    *bytes = (uint32_t)(to->size - start);
    return JLOG_ROWS_DONE;
}

/* Microseconds, rounded down. */
static inline int jlog_arrow_time(const struct jlog_arrow_times *times, int64_t row, int64_t *time_us)
{
    const int64_t found = jlog_load64(times->data + 8 * (times->start + row));

    *time_us = found / times->divide - (found % times->divide < 0);
    return __builtin_mul_overflow(*time_us, times->multiply, time_us) ? JLOG_ROWS_TIME_OUT_OF_RANGE : JLOG_ROWS_DONE;
}

static inline int jlog_put_long_row(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t row)
{
    const size_t start = to->size;
    uint32_t tag = 0, value_bytes = 0, key_bytes = 0, headers_bytes = 0;
    int64_t time_us = 0;
    int status = JLOG_ROWS_DONE;

    if (rows->timestamp.data != NULL && !jlog_arrow_is_null(rows->timestamp.validity, rows->timestamp.start + row)) {
        tag |= JLOG_TAG_EXPLICIT;
        status = jlog_arrow_time(&rows->timestamp, row, &time_us);
    }
    if (!status && to->room - to->size < jlog_long_bytes(tag))
        status = JLOG_ROWS_NO_ROOM;
    if (status)
        return status;
    to->size += jlog_long_bytes(tag);
    if (jlog_has_entry(&rows->key, row)) {
        tag |= JLOG_TAG_KEY;
        status = jlog_put_entry(to, &rows->key, row, &key_bytes);
    }
    if (!status && jlog_has_entry(&rows->headers, row))
        status = jlog_put_headers(to, rows, row, &headers_bytes);
    if (!status && jlog_has_entry(&rows->value, row))
        status = jlog_put_entry(to, &rows->value, row, &value_bytes);
    else
        tag |= JLOG_TAG_NULL;
    if (status)
        return status;
    jlog_encode_long(to->data + start, tag, time_us, value_bytes, key_bytes, headers_bytes);
    if (tag & JLOG_TAG_EXPLICIT) {
        to->explicit_count++;
        if (time_us > to->explicit_max_us)
            to->explicit_max_us = time_us;
    }
    return JLOG_ROWS_DONE;
}

static inline int jlog_put_short_row(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t row)
{
    const uint8_t *data;
    uint32_t bytes;
    const int status = jlog_arrow_bytes(&rows->value, row, &data, &bytes);

    if (status)
        return status;
    if (bytes > JLOG_SHORT_VALUE_MAX)
        return jlog_put_long_row(to, rows, row);
    if (to->room - to->size < JLOG_SHORT_BYTES + (size_t)bytes)
        return JLOG_ROWS_NO_ROOM;
    jlog_encode_short(to->data + to->size, jlog_short_head(0, bytes), data, bytes);
    to->size += JLOG_SHORT_BYTES + (size_t)bytes;
    return JLOG_ROWS_DONE;
}

/* Encodes rows from *row on, to `count`. Stops at one that cannot be, with nothing of it written. */
static inline int jlog_put_rows(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t *row, int64_t count)
{
    int status = JLOG_ROWS_DONE;

    for (; *row < count; ++*row) {
        const size_t start = to->size;
        const int is_short = jlog_has_entry(&rows->value, *row) && !jlog_has_entry(&rows->key, *row) &&
            !jlog_has_entry(&rows->headers, *row) &&
            (rows->timestamp.data == NULL ||
             jlog_arrow_is_null(rows->timestamp.validity, rows->timestamp.start + *row));

        status = is_short ? jlog_put_short_row(to, rows, *row) : jlog_put_long_row(to, rows, *row);
        if (status) {
            to->size = start;
            break;
        }
    }
    return status;
}

#endif
