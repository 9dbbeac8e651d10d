/* Reads JSON objects in one pass, and puts the members that are wanted into the columns of an Arrow batch. Of the other members
 * nothing is kept: that makes it faster than a parser that returns them all. A column of objects or arrays holds their text, and
 * is read in the same way: it was judged together with the value that it is from. */
#pragma once

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "records/json_text.h"

/* NUMBER, OBJECT and ARRAY hold the text of a number, an object and an array. */
enum jlog_json_type {
    JLOG_JSON_BOOL,
    JLOG_JSON_INT64,
    JLOG_JSON_UINT64,
    JLOG_JSON_DOUBLE,
    JLOG_JSON_STRING,
    JLOG_JSON_NUMBER,
    JLOG_JSON_OBJECT,
    JLOG_JSON_ARRAY,
};

/* A member that is wanted (in jlog_json_items, the items of arrays), its column, and what the object at hand has for it. */
struct jlog_json_field {
    const uint8_t *name;
    size_t name_bytes;
    enum jlog_json_type type;
    uint8_t *validity, *data;                            /* bits that are 0, and values or the bytes of all texts */
    int32_t *offsets;                                    /* of texts; NULL for the other types */
    size_t room;                                         /* in bytes, for the texts */
    struct jlog_json_token found;
};

static inline int jlog_json_is_named(const struct jlog_json_field *field, const struct jlog_json_token *key, uint8_t *scratch)
{
    const uint8_t *name = key->at;
    size_t bytes = key->bytes;

    if (key->kind == JLOG_TOKEN_ESCAPED && bytes <= 6 * field->name_bytes) {
        bytes = jlog_json_unescape(scratch, key);
        name = scratch;
    }
    return bytes == field->name_bytes && memcmp(name, field->name, bytes) == 0;
}

/* Finds the wanted members of an object; the last of several with one name. Returns 0 if it is not one JSON object. `scratch`
 * has room for six times the longest name. */
static inline int jlog_json_object(struct jlog_json_field *fields, size_t count, const uint8_t *at, const uint8_t *end,
                                   uint8_t *scratch)
{
    struct jlog_json_token key, value;
    size_t next = 0;                                     /* the members of most objects come in one order */

    for (size_t i = 0; i < count; i++)
        fields[i].found.kind = JLOG_TOKEN_ABSENT;
    at = jlog_json_space(at, end);
    if (at == end || *at != '{')
        return 0;
    at = jlog_json_space(at + 1, end);
    if (at < end && *at == '}')
        return jlog_json_space(at + 1, end) == end;
    for (;;) {
        at = jlog_json_key(at, end, &key);
        if (at == NULL || (at = jlog_json_value(at, end, &value)) == NULL)
            return 0;
        for (size_t i = 0; i < count; i++) {
            struct jlog_json_field *const field = &fields[(next + i) % count];

            if (jlog_json_is_named(field, &key, scratch)) {
                field->found = value;
                next += i + 1;
                break;
            }
        }
        at = jlog_json_space(at, end);
        if (at < end && *at == '}')
            return jlog_json_space(at + 1, end) == end;
        if (at == end || *at++ != ',')
            return 0;
    }
}

static inline int jlog_json_is_number(const struct jlog_json_token *token)
{
    return token->kind == JLOG_TOKEN_INT || token->kind == JLOG_TOKEN_FLOAT;
}

/* Copies the text that a column of texts has of a token to `to`. Returns its size; SIZE_MAX where the token has none. */
static inline size_t jlog_json_copy(enum jlog_json_type type, uint8_t *to, const struct jlog_json_token *token)
{
    const int is_nested = token->kind == JLOG_TOKEN_NESTED;
    const int is_copied = type == JLOG_JSON_STRING   ? token->kind == JLOG_TOKEN_PLAIN
                          : type == JLOG_JSON_NUMBER ? jlog_json_is_number(token)
                          : type == JLOG_JSON_OBJECT ? is_nested && *token->at == '{'
                                                     : is_nested && *token->at == '[';

    if (is_copied) {
        memcpy(to, token->at, token->bytes);
        return token->bytes;
    }
    return type == JLOG_JSON_STRING && token->kind == JLOG_TOKEN_ESCAPED ? jlog_json_unescape(to, token) : SIZE_MAX;
}

/* Puts what was found into row `row` of its column: a null where it has another type. */
static inline void jlog_json_store(struct jlog_json_field *field, size_t row, locale_t c_locale)
{
    const struct jlog_json_token *const found = &field->found;
    int valid = 0;
    size_t bytes;
    double number;

    switch (field->type) {
    case JLOG_JSON_BOOL:
        valid = found->kind == JLOG_TOKEN_TRUE || found->kind == JLOG_TOKEN_FALSE;
        if (found->kind == JLOG_TOKEN_TRUE)
            field->data[row / 8] |= (uint8_t)(1 << row % 8);
        break;
    case JLOG_JSON_INT64:
    case JLOG_JSON_UINT64:
        valid = found->kind == JLOG_TOKEN_INT &&
                jlog_json_integer(found, field->type == JLOG_JSON_INT64, field->data + row * sizeof(int64_t));
        break;
    case JLOG_JSON_DOUBLE:
        if (jlog_json_is_number(found)) {
            number = strtod_l((const char *)found->at, NULL, c_locale);
            valid = found->kind == JLOG_TOKEN_FLOAT || isfinite(number);
            ((double *)field->data)[row] = number == 0 && found->kind == JLOG_TOKEN_INT ? 0 : number; /* -0 is 0 */
        }
        break;
    default:
        bytes = jlog_json_copy(field->type, field->data + field->offsets[row], found);
        valid = bytes != SIZE_MAX;
        field->offsets[row + 1] = field->offsets[row] + (valid ? (int32_t)bytes : 0);
    }
    if (valid)
        field->validity[row / 8] |= (uint8_t)(1 << row % 8);
}

/* How many bytes the texts of a column need for row `row` too, before it is stored; a text with escapes may be shorter. */
static inline size_t jlog_json_need(const struct jlog_json_field *field, size_t row)
{
    const int is_empty = field->offsets == NULL || field->found.kind == JLOG_TOKEN_ABSENT;

    return is_empty ? 0 : (size_t)field->offsets[row] + field->found.bytes;
}

/* Reads the values at `offsets`, from row `row` to `count`, each an object; any other one has no member. Returns the row at which
 * a column has too little room, or `count`. is_text: all values together are UTF-8. Then each one is that begins and ends with
 * an ASCII character, as objects do. */
static inline size_t jlog_json_columns(struct jlog_json_field *fields, size_t field_count, const uint8_t *data,
                                       const int32_t *offsets, size_t row, size_t count, int is_text, uint8_t *scratch,
                                       locale_t c_locale)
{
    for (; row < count; row++) {
        const uint8_t *const at = data + offsets[row], *const end = data + offsets[row + 1];

        if (!jlog_json_object(fields, field_count, at, end, scratch) ||
            !(is_text || jlog_utf8_valid(at, (size_t)(end - at))))
            for (size_t i = 0; i < field_count; i++)
                fields[i].found.kind = JLOG_TOKEN_ABSENT;
        for (size_t i = 0; i < field_count; i++) {
            if (jlog_json_need(&fields[i], row) > fields[i].room)
                return row;
            jlog_json_store(&fields[i], row, c_locale);
        }
    }
    return count;
}

/* Puts the items of arrays into the rows of one column, those of an array after each other: the items of row i of `count` are
 * those from starts[i] to starts[i + 1]. A text without content is none. Without a field it only counts. */
static inline void jlog_json_items(struct jlog_json_field *field, const uint8_t *data, const int32_t *offsets, size_t count,
                                   int32_t *starts, locale_t c_locale)
{
    struct jlog_json_token item;

    starts[0] = 0;
    for (size_t row = 0; row < count; row++) {
        const uint8_t *at = data + offsets[row], *const end = data + offsets[row + 1];
        int32_t items = starts[row];

        at = at < end ? jlog_json_space(at + 1, end) : end;
        for (; at != NULL && at < end && *at != ']'; items++) {
            at = jlog_json_value(at, end, &item);
            if (at == NULL)
                break;
            if (field != NULL) {
                field->found = item;
                jlog_json_store(field, (size_t)items, c_locale);
            }
            at = jlog_json_space(at, end);
            at = at < end && *at == ',' ? jlog_json_space(at + 1, end) : at;
        }
        starts[row + 1] = items;
    }
}
