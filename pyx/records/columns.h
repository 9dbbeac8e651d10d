/* Fills Arrow columns from records. The caller has made room for them, and has checked those in the long form. */
#pragma once

#include <stdlib.h>

#include "format/format.h"
#include "records/utf8.h"

#define JLOG_PIECE_OF_VALUE 32u                          /* room after the data of a column, which jlog_copy_value() needs */
#define JLOG_COPIED_INLINE 512u                          /* memcpy() is faster for longer values */

/* A column of values of variable length. Its offsets are written up to `count`. Rows without a value get theirs when a later
 * row has one, so that a column that no record uses costs nothing. */
struct jlog_array {
    uint8_t *validity;                                   /* a bit for each row, preset to the usual one */
    int32_t *offsets;                                    /* NULL: the column is not wanted */
    uint8_t *data;
    uint64_t count;
    uint32_t used;                                       /* bytes of data; entries of a list */
    uint32_t room;                                       /* bytes that the data may have; not used for lists */
};

struct jlog_columns {
    int64_t *sequence;                                   /* NULL: the column is not wanted */
    int64_t *timestamp_us;                               /* NULL: the column is not wanted */
    struct jlog_array value, key, headers, name, header_value;
    uint64_t rows;
    uint64_t null_values;
    uint64_t null_header_values;
};

/* Room that records need besides their values. */
struct jlog_sizes {
    uint64_t keys;
    uint64_t key_bytes;
    uint64_t headers;
    uint64_t name_bytes;
    uint64_t header_value_bytes;
};

static inline void jlog_catch_up(struct jlog_array *array, uint64_t count)
{
    while (array->count < count)
        array->offsets[++array->count] = (int32_t)array->used;
}

static inline void jlog_add_entry(struct jlog_array *array, uint32_t used)
{
    array->used = used;
    array->offsets[++array->count] = (int32_t)used;
}

static inline void jlog_set_bit(uint8_t *bits, uint64_t at) { bits[at >> 3] |= (uint8_t)(1u << (at & 7)); }
static inline void jlog_clear_bit(uint8_t *bits, uint64_t at) { bits[at >> 3] &= (uint8_t)~(1u << (at & 7)); }

/* Copies a value. Short ones are copied in whole pieces, without a call: `to` has room for a piece more, and the bytes up to
 * `end` can be read. */
static inline void jlog_copy_value(uint8_t *to, const uint8_t *from, uint32_t bytes, const uint8_t *end)
{
    if (bytes > JLOG_COPIED_INLINE || (size_t)(end - from) < bytes + JLOG_PIECE_OF_VALUE)
        memcpy(to, from, bytes);
    else
        for (uint32_t at = 0; at < bytes; at += JLOG_PIECE_OF_VALUE)
            memcpy(to + at, from + at, JLOG_PIECE_OF_VALUE);
}

/* Adds an entry, whose bytes lie before `end`, up to which can be read. */
static inline void jlog_add_bytes(struct jlog_array *array, const uint8_t *data, uint32_t bytes, const uint8_t *end)
{
    if (bytes != 0)
        jlog_copy_value(array->data + array->used, data, bytes, end);
    jlog_add_entry(array, array->used + bytes);
}

/* Adds plain records, which need not have been checked: at most `most`, none that reaches beyond `end`, and none whose value has
 * no room. Returns the address after them. */
static inline const uint8_t *jlog_fill_plain(struct jlog_columns *to, const uint8_t *at, const uint8_t *end,
                                             int64_t base_time_us, uint64_t most)
{
    uint8_t *const data = to->value.data;
    int32_t *const offsets = to->value.offsets;
    int64_t *const timestamp_us = to->timestamp_us;
    const uint64_t end_row = to->rows + most;
    const uint32_t room = to->value.room;
    uint64_t row = to->rows;
    uint32_t used = to->value.used;

    while (row < end_row && (size_t)(end - at) >= JLOG_SHORT_BYTES) {
        uint32_t bytes;
        const size_t front = jlog_plain_front(at, (size_t)(end - at), &bytes);

        if (front == 0)
            break;
        __builtin_prefetch(at + JLOG_PREFETCH_BYTES);
        if (offsets != NULL) {
            if (bytes > room - used)
                break;
            jlog_copy_value(data + used, at + front, bytes, end);
            used += bytes;
            offsets[row + 1] = (int32_t)used;
        }
        if (timestamp_us != NULL)
            timestamp_us[row] = front == JLOG_SHORT_BYTES ? (int64_t)((uint64_t)base_time_us + jlog_load32(at + 4))
                                                          : jlog_load64(at + JLOG_LONG_BYTES);
        row++;
        at += front + bytes;
    }
    to->rows = to->value.count = row;
    to->value.used = used;
    return at;
}

/* Computes the room that records need besides their values. */
static inline void jlog_measure(const uint8_t *at, const uint8_t *end, struct jlog_sizes *sizes)
{
    const uint8_t *name, *value;
    struct jlog_record record;
    uint32_t name_bytes, value_bytes;
    size_t size;

    memset(sizes, 0, sizeof *sizes);
    for (; at < end && (size = jlog_decode_record(at, (size_t)(end - at), 0, &record)) != 0; at += size) {
        size_t left = record.headers_bytes;

        if (jlog_is_state(&record))
            continue;
        sizes->keys += record.key != NULL;
        sizes->key_bytes += record.key_bytes;
        while (left != 0) {
            const size_t bytes = jlog_decode_header(record.headers, left, &name, &name_bytes, &value, &value_bytes);

            if (bytes == 0)
                break;
            sizes->headers++;
            sizes->name_bytes += jlog_utf8_mended(NULL, name, name_bytes);
            sizes->header_value_bytes += value == NULL ? 0 : value_bytes;
            record.headers += bytes;
            left -= bytes;
        }
    }
}

static inline void jlog_fill_headers(struct jlog_columns *to, const uint8_t *at, size_t left)
{
    const uint8_t *name, *value;
    uint32_t name_bytes, value_bytes;
    size_t bytes;

    while (left != 0 && (bytes = jlog_decode_header(at, left, &name, &name_bytes, &value, &value_bytes)) != 0) {
        jlog_add_entry(&to->name,
                       to->name.used + (uint32_t)jlog_utf8_mended(to->name.data + to->name.used, name, name_bytes));
        if (value == NULL) {
            jlog_clear_bit(to->header_value.validity, to->header_value.count);
            to->null_header_values++;
            value_bytes = 0;
        }
        jlog_add_bytes(&to->header_value, value, value_bytes, at + left);
        at += bytes;
        left -= bytes;
    }
    jlog_set_bit(to->headers.validity, to->headers.count);
    jlog_add_entry(&to->headers, (uint32_t)to->name.count);
}

static inline void jlog_fill_record(struct jlog_columns *to, const struct jlog_record *record, const uint8_t *end)
{
    if (to->timestamp_us != NULL)
        to->timestamp_us[to->rows] = record->timestamp_us;
    if (to->value.offsets != NULL) {
        if (record->value == NULL) {
            jlog_clear_bit(to->value.validity, to->rows);
            to->null_values++;
        }
        jlog_add_bytes(&to->value, record->value, record->value_bytes, end);
    }
    if (record->key != NULL && to->key.offsets != NULL) {
        jlog_catch_up(&to->key, to->rows);
        jlog_set_bit(to->key.validity, to->rows);
        jlog_add_bytes(&to->key, record->key, record->key_bytes, end);
    }
    if (record->headers_bytes != 0 && to->headers.offsets != NULL) {
        jlog_catch_up(&to->headers, to->rows);
        jlog_fill_headers(to, record->headers, record->headers_bytes);
    }
    to->rows++;
}

static inline void jlog_fill(struct jlog_columns *to, const uint8_t *at, const uint8_t *end, int64_t base_time_us)
{
    struct jlog_record record;
    size_t size;

    while ((at = jlog_fill_plain(to, at, end, base_time_us, UINT64_MAX - to->rows)) < end &&
           (size = jlog_decode_record(at, (size_t)(end - at), base_time_us, &record)) != 0) {
        if (!(record.tag & JLOG_TAG_STATE))
            jlog_fill_record(to, &record, end);
        at += size;
    }
}

/* Returns whether an entry has room in a column. The columns that no record has used yet have none. */
static inline int jlog_has_room(const struct jlog_array *array, uint32_t bytes)
{
    return array->offsets != NULL && bytes <= array->room - array->used;
}

/* Checks and adds records in one pass: at most `most`, and none that reaches beyond `end`. Ends before what is left to
 * jlog_fill(): a record with headers, one whose key or value has no room, state, and what is not a record. Returns the address
 * after the added ones. */
static inline const uint8_t *jlog_fill_ready(struct jlog_columns *to, const uint8_t *at, const uint8_t *end,
                                             int64_t base_time_us, uint64_t most, int with_key)
{
    const uint64_t end_row = to->rows + most;
    struct jlog_record record;
    size_t size;

    while ((at = jlog_fill_plain(to, at, end, base_time_us, end_row - to->rows)) < end && to->rows < end_row &&
           (size = jlog_decode_record(at, (size_t)(end - at), base_time_us, &record)) != 0) {
        if (record.headers_bytes != 0 || !(record.tag & JLOG_TAG_LONG) || record.tag & JLOG_TAG_STATE ||
            (to->value.offsets != NULL && !jlog_has_room(&to->value, record.value_bytes)) ||
            (record.key != NULL && with_key && !jlog_has_room(&to->key, record.key_bytes)))
            break;
        __builtin_prefetch(at + JLOG_PREFETCH_BYTES);
        jlog_fill_record(to, &record, end);
        at += size;
    }
    return at;
}

static inline void jlog_fill_sequence(struct jlog_columns *to, uint64_t from_row, uint64_t first_sequence)
{
    if (to->sequence != NULL)
        for (uint64_t row = from_row; row < to->rows; row++)
            to->sequence[row] = (int64_t)(first_sequence + (row - from_row));
}

/* Returns the first entry that is not null and not UTF-8; -1 where all are. Most data is ASCII, or valid as a whole. */
static inline int64_t jlog_first_not_utf8(const struct jlog_array *array)
{
    int whole;

    if (jlog_ascii_bytes(array->data, array->used) == array->used)
        return -1;
    whole = jlog_utf8_valid(array->data, array->used);
    for (uint64_t at = 0; at < array->count && whole; at++)
        whole = (uint32_t)array->offsets[at] == array->used || (array->data[array->offsets[at]] & 0xC0) != 0x80;
    for (uint64_t at = 0; at < array->count && !whole; at++) {
        const uint32_t begin = (uint32_t)array->offsets[at], end = (uint32_t)array->offsets[at + 1];

        if (!jlog_utf8_valid(array->data + begin, end - begin))
            return (int64_t)at;
    }
    return -1;
}

/* Returns the row whose list has this entry. */
static inline int64_t jlog_row_of(const struct jlog_array *lists, int64_t entry)
{
    int64_t row = 0;

    while (lists->offsets[row + 1] <= entry)
        row++;
    return row;
}

static int jlog_compare_names(const void *one, const void *other, void *of)
{
    const struct jlog_array *names = of;
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    const int32_t a_bytes = names->offsets[a + 1] - names->offsets[a], b_bytes = names->offsets[b + 1] - names->offsets[b];
    const int order = a_bytes != b_bytes ? (a_bytes < b_bytes ? -1 : 1)
                                         : memcmp(names->data + names->offsets[a], names->data + names->offsets[b],
                                                  (size_t)a_bytes);

    return order != 0 ? order : a < b ? -1 : 1;
}

static inline int jlog_same_name(const struct jlog_array *names, uint32_t a, uint32_t b)
{
    const int32_t bytes = names->offsets[a + 1] - names->offsets[a];

    return bytes == names->offsets[b + 1] - names->offsets[b] &&
           memcmp(names->data + names->offsets[a], names->data + names->offsets[b], (size_t)bytes) == 0;
}

/* Marks the headers of a record after which another one has the same name. Returns their number; -1 without memory. */
static inline int64_t jlog_mark_repeated(const struct jlog_array *names, uint32_t begin, uint32_t end, uint8_t *repeated)
{
    enum { FEW = 16 };                                   /* to compare each with each is faster than to sort them */
    uint32_t few[FEW];
    uint32_t *const order = end - begin <= FEW ? few : malloc((end - begin) * sizeof *order);
    int64_t found = 0;

    if (order == NULL)
        return -1;
    if (order == few) {
        for (uint32_t at = begin; at < end; at++)
            for (uint32_t later = at + 1; later < end && !repeated[at]; later++)
                found += repeated[at] = (uint8_t)jlog_same_name(names, at, later);
        return found;
    }
    for (uint32_t at = begin; at < end; at++)
        order[at - begin] = at;
    qsort_r(order, end - begin, sizeof *order, jlog_compare_names, (void *)names);
    for (uint32_t at = 0; at + 1 < end - begin; at++)
        found += repeated[order[at]] = (uint8_t)jlog_same_name(names, order[at], order[at + 1]);
    free(order);
    return found;
}

static inline void jlog_move_entry(struct jlog_array *array, uint64_t from, uint64_t to, int with_validity)
{
    const uint32_t begin = (uint32_t)array->offsets[from], end = (uint32_t)array->offsets[from + 1];

    memmove(array->data + array->offsets[to], array->data + begin, end - begin);
    array->offsets[to + 1] = array->offsets[to] + (int32_t)(end - begin);
    if (with_validity) {
        if (array->validity[from >> 3] >> (from & 7) & 1)
            jlog_set_bit(array->validity, to);
        else
            jlog_clear_bit(array->validity, to);
    }
}

/* Drops each header after which the same record has another one of the same name. `repeated` has a byte for each header, all 0.
 * Returns 0 without memory, and then nothing is dropped. */
static inline int jlog_drop_repeated(struct jlog_columns *to, uint8_t *repeated)
{
    int64_t found = 0;
    uint64_t kept = 0, at = 0;

    for (uint64_t row = 0; row < to->rows; row++) {
        const int64_t more = jlog_mark_repeated(&to->name, (uint32_t)to->headers.offsets[row],
                                                (uint32_t)to->headers.offsets[row + 1], repeated);

        if (more < 0)
            return 0;
        found += more;
    }
    if (found == 0)
        return 1;
    for (uint64_t row = 0; row < to->rows; row++) {
        const uint64_t end = (uint64_t)to->headers.offsets[row + 1];

        for (; at < end; at++) {
            if (repeated[at])
                continue;
            /* An entry's offset is read before the entry before it writes over it: `kept` never passes `at`. */
            jlog_move_entry(&to->name, at, kept, 0);
            jlog_move_entry(&to->header_value, at, kept, 1);
            kept++;
        }
        to->headers.offsets[row + 1] = (int32_t)kept;
    }
    to->name.count = to->header_value.count = to->headers.used = (uint32_t)kept;
    to->name.used = (uint32_t)to->name.offsets[kept];
    to->header_value.used = (uint32_t)to->header_value.offsets[kept];
    return 1;
}
