/* Encodes the rows of Arrow arrays as records. The C data interface states the length of an array, and not how many bytes its
 * buffers have: the last offset says where the data ends. Nothing after that is read, whatever the other offsets are. The
 * buffers belong to another library and may change meanwhile, so each number is loaded only once. */
#pragma once

#include "records/encoded.h"

/* An array of byte strings or of lists. */
struct jlog_arrow {
    const uint8_t *validity;                             /* NULL: no entry is null */
    const uint8_t *offsets;                              /* NULL: the column is absent */
    const uint8_t *data;                                 /* the bytes of all entries; not used for lists */
    int64_t size;                                        /* bytes of data; for lists, entries of all lists */
    int64_t start;                                       /* where the array begins in its buffers, which slices share */
    int wide;                                            /* 1: offsets have 64 bits; 0: they have 32 */
};

struct jlog_arrow_times {
    const uint8_t *validity;
    const uint8_t *data;                                 /* NULL: the column is absent */
    int64_t start;
    int64_t multiply, divide;                            /* factor and divisor that turn a time into microseconds */
};

struct jlog_rows {
    struct jlog_arrow value, key, headers, name, header_value;
    const uint8_t *header_validity;                      /* validity of the entries of all header lists */
    int64_t header_start;
    struct jlog_arrow_times timestamp;
};

static inline int jlog_arrow_is_null(const uint8_t *validity, int64_t at)
{
    return validity != NULL && !(validity[at >> 3] >> (at & 7) & 1);
}

/* Finds where an entry begins and ends in the data. Returns a JLOG_ENCODE_ status. */
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
    return *begin < 0 || *end < *begin || *end > array->size ? JLOG_ENCODE_OUTSIDE : JLOG_ENCODE_DONE;
}

/* Returns the bytes that the first `count` entries take; 0 if the offsets make no sense. */
static inline int64_t jlog_arrow_span(const struct jlog_arrow *array, int64_t count)
{
    int64_t first, last, end;

    return jlog_arrow_range(array, 0, &first, &end) || jlog_arrow_range(array, count - 1, &end, &last) || last < first
               ? 0
               : last - first;
}

/* Finds the bytes of an entry that is not null. Returns a JLOG_ENCODE_ status. */
static inline int jlog_arrow_bytes(const struct jlog_arrow *array, int64_t row, const uint8_t **data, uint32_t *bytes)
{
    int64_t begin, end;

    if (jlog_arrow_range(array, row, &begin, &end))
        return JLOG_ENCODE_OUTSIDE;
    if (end - begin > JLOG_VALUE_BYTES_MAX)
        return JLOG_ENCODE_TOO_LARGE;
    *data = array->data + begin;
    *bytes = (uint32_t)(end - begin);
    return JLOG_ENCODE_DONE;
}

static inline int jlog_has_entry(const struct jlog_arrow *array, int64_t row)
{
    return array->offsets != NULL && !jlog_arrow_is_null(array->validity, array->start + row);
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
        return JLOG_ENCODE_NULL_HEADER;
    if (to->room - to->size < 8)
        return JLOG_ENCODE_NO_ROOM;
    to->size += 8;
    status = jlog_put_entry(to, &rows->name, entry, &name_bytes);
    if (status)
        return status;
    if (!jlog_utf8_valid(to->data + start + 8, name_bytes))
        return JLOG_ENCODE_NOT_UTF8;
    if (jlog_has_entry(&rows->header_value, entry)) {
        status = jlog_put_entry(to, &rows->header_value, entry, &value_bytes);
        if (status)
            return status;
    }
    jlog_store32(to->data + start, name_bytes);
    jlog_store32(to->data + start + 4, value_bytes);
    return JLOG_ENCODE_DONE;
}

static inline int jlog_put_headers(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t row, uint32_t *bytes)
{
    const size_t start = to->size;
    int64_t begin, end;
    int status;

    if (jlog_arrow_range(&rows->headers, row, &begin, &end))
        return JLOG_ENCODE_OUTSIDE;
    if (end - begin > JLOG_HEADERS_MAX)
        return JLOG_ENCODE_TOO_MANY_HEADERS;
    for (int64_t entry = begin; entry < end; entry++) {
        status = jlog_put_header(to, rows, entry);
        if (status)
            return status;
    }
    if (to->size - start > JLOG_VALUE_BYTES_MAX)
        return JLOG_ENCODE_TOO_LARGE;
    *bytes = (uint32_t)(to->size - start);
    return JLOG_ENCODE_DONE;
}

/* Reads a row's time in microseconds, rounded down. Returns a JLOG_ENCODE_ status. */
static inline int jlog_arrow_time(const struct jlog_arrow_times *times, int64_t row, int64_t *time_us)
{
    const int64_t found = jlog_load64(times->data + 8 * (times->start + row));

    *time_us = found / times->divide - (found % times->divide < 0);
    return __builtin_mul_overflow(*time_us, times->multiply, time_us) ? JLOG_ENCODE_TIME_OUT_OF_RANGE : JLOG_ENCODE_DONE;
}

static inline int jlog_put_long_row(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t row)
{
    const size_t start = to->size;
    uint32_t tag = 0, value_bytes = 0, key_bytes = 0, headers_bytes = 0;
    int64_t time_us = 0;
    int status = JLOG_ENCODE_DONE;

    if (rows->timestamp.data != NULL && !jlog_arrow_is_null(rows->timestamp.validity, rows->timestamp.start + row)) {
        tag |= JLOG_TAG_EXPLICIT;
        status = jlog_arrow_time(&rows->timestamp, row, &time_us);
    }
    if (!status && to->room - to->size < jlog_long_bytes(tag))
        status = JLOG_ENCODE_NO_ROOM;
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
    if (tag & JLOG_TAG_EXPLICIT)
        jlog_note_time(to, time_us);
    return JLOG_ENCODE_DONE;
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
        return JLOG_ENCODE_NO_ROOM;
    jlog_encode_short(to->data + to->size, jlog_short_head(0, bytes), data, bytes);
    to->size += JLOG_SHORT_BYTES + (size_t)bytes;
    return JLOG_ENCODE_DONE;
}

/* Encodes the rows from *row to `count`. Stops at a row that cannot be encoded, with nothing of it written, and returns its
 * JLOG_ENCODE_ status. */
static inline int jlog_put_rows(struct jlog_encoded *to, const struct jlog_rows *rows, int64_t *row, int64_t count)
{
    int status = JLOG_ENCODE_DONE;

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

/* --- Views and dictionaries become plain arrays first ---------------------------------------------------------------- */

/* Entries that are views, or the values of a dictionary, or both. */
struct jlog_indirect {
    struct jlog_arrow plain;                             /* the entries, or the dictionary; without offsets where it has views */
    const uint8_t *views;                                /* NULL: the entries are not views */
    const void *const *buffers;                          /* the data of views */
    const int64_t *buffer_sizes;
    int64_t buffer_count;
    const uint8_t *indices;                              /* NULL: no dictionary */
    const uint8_t *validity;                             /* of the indices */
    int64_t start;                                       /* of the indices */
    int64_t count;                                       /* entries of the dictionary */
    int index_bytes, is_signed;
};

static inline int64_t jlog_arrow_index(const struct jlog_indirect *from, int64_t row)
{
    const int unused_bits = 64 - 8 * from->index_bytes;
    uint64_t found = 0;

    memcpy(&found, from->indices + (from->start + row) * from->index_bytes, (size_t)from->index_bytes);
    return from->is_signed ? (int64_t)(found << unused_bits) >> unused_bits : (int64_t)found;
}

/* Finds the bytes of a view. Returns a JLOG_ENCODE_ status. */
static inline int jlog_view_bytes(const struct jlog_indirect *from, int64_t entry, const uint8_t **data, int64_t *bytes)
{
    const uint8_t *const view = from->views + 16 * (from->plain.start + entry);
    const int32_t size = (int32_t)jlog_load32(view);
    int32_t buffer, begin;

    *bytes = size;
    *data = view + 4;
    if (size <= 12)
        return size < 0 ? JLOG_ENCODE_OUTSIDE : JLOG_ENCODE_DONE;
    buffer = (int32_t)jlog_load32(view + 8);
    begin = (int32_t)jlog_load32(view + 12);
    if (buffer < 0 || buffer >= from->buffer_count || begin < 0 || (int64_t)begin + size > from->buffer_sizes[buffer])
        return JLOG_ENCODE_OUTSIDE;
    *data = (const uint8_t *)from->buffers[buffer] + begin;
    return JLOG_ENCODE_DONE;
}

/* Finds the bytes of an entry; *data is NULL for one that is null. Returns a JLOG_ENCODE_ status. */
static inline int jlog_indirect_bytes(const struct jlog_indirect *from, int64_t row, const uint8_t **data, int64_t *bytes)
{
    int64_t entry = row, end;

    *data = NULL;
    *bytes = 0;
    if (from->indices != NULL) {
        if (jlog_arrow_is_null(from->validity, from->start + row))
            return JLOG_ENCODE_DONE;
        entry = jlog_arrow_index(from, row);
        if (entry < 0 || entry >= from->count)
            return JLOG_ENCODE_OUTSIDE;
    }
    if (jlog_arrow_is_null(from->plain.validity, from->plain.start + entry))
        return JLOG_ENCODE_DONE;
    if (from->views != NULL)
        return jlog_view_bytes(from, entry, data, bytes);
    if (jlog_arrow_range(&from->plain, entry, bytes, &end))
        return JLOG_ENCODE_OUTSIDE;
    *data = from->plain.data + *bytes;
    *bytes = end - *bytes;
    return JLOG_ENCODE_DONE;
}

/* Writes the entries from *row to `count` as a plain array of 64-bit offsets. Without `to_data`, only adds up their bytes in
 * *size. Returns a JLOG_ENCODE_ status; *row is then the entry that it is about. */
static inline int jlog_flatten(const struct jlog_indirect *from, int64_t *row, int64_t count, int64_t *size, uint8_t *validity,
                               uint8_t *offsets, uint8_t *to_data)
{
    const int64_t room = *size;
    const uint8_t *data;
    int64_t bytes;

    for (*size = 0, *row = 0; *row < count; ++*row) {
        const int status = jlog_indirect_bytes(from, *row, &data, &bytes);

        if (status)
            return status;
        if (bytes > JLOG_VALUE_BYTES_MAX || *size + bytes > JLOG_RAW_BYTES_MAX)
            return JLOG_ENCODE_TOO_LARGE;
        if (to_data != NULL) {
            if (*size + bytes > room)
                return JLOG_ENCODE_OUTSIDE;              /* changed since its size was added up */
            if (data != NULL)
                validity[*row >> 3] |= (uint8_t)(1u << (*row & 7));
            if (bytes != 0)
                memcpy(to_data + *size, data, (size_t)bytes);
            memcpy(offsets + 8 * *row, size, 8);
        }
        *size += bytes;
    }
    if (to_data != NULL)
        memcpy(offsets + 8 * count, size, 8);
    return JLOG_ENCODE_DONE;
}
