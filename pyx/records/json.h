/* Reads JSON objects (RFC 8259, no more than it) in one pass, and puts the members that are wanted into the columns of an Arrow
 * batch. Of the other members nothing is kept: that makes it faster than a parser that returns them all. */
#pragma once

#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "records/utf8.h"

enum { JLOG_JSON_DEPTH = 1024 };                         /* arrays and objects within each other in a member; deeper is refused */

enum jlog_json_type { JLOG_JSON_BOOL, JLOG_JSON_INT64, JLOG_JSON_DOUBLE, JLOG_JSON_STRING };

enum jlog_json_kind {
    JLOG_TOKEN_ABSENT,
    JLOG_TOKEN_NULL,
    JLOG_TOKEN_FALSE,
    JLOG_TOKEN_TRUE,
    JLOG_TOKEN_INT,
    JLOG_TOKEN_FLOAT,
    JLOG_TOKEN_PLAIN,                                     /* text without escapes */
    JLOG_TOKEN_ESCAPED,
    JLOG_TOKEN_NESTED,
};

/* A text within its quotes, or a number. */
struct jlog_json_token {
    enum jlog_json_kind kind;
    const uint8_t *at;
    size_t bytes;
};

/* A member that is wanted, its column, and what the object at hand has for it. */
struct jlog_json_field {
    const uint8_t *name;
    size_t name_bytes;
    enum jlog_json_type type;
    uint8_t *validity, *data;                            /* bits that are 0, and values or the bytes of all texts */
    int32_t *offsets;                                    /* of texts */
    struct jlog_json_token found;
};

/* --- The grammar: each function returns the address after what it names, or NULL where that is not there --- */

static inline const uint8_t *jlog_json_space(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* Returns the first quote, backslash or control character, or `end`. Looks at eight bytes at once; after "Determine if a word
 * has a byte less than n" and "a zero byte" in S. E. Anderson, "Bit Twiddling Hacks": the lowest bit found is exact. */
static inline const uint8_t *jlog_json_special(const uint8_t *at, const uint8_t *end)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t word, quote, backslash, special;

    for (; end - at >= (ptrdiff_t)sizeof word; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        quote = word ^ (ones * '"');
        backslash = word ^ (ones * '\\');
        special = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word)) & tops;
        if (special != 0)
            return at + __builtin_ctzll(special) / 8;
    }
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20)
        at++;
    return at;
}

static inline int jlog_json_hex(const uint8_t *at, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const uint8_t low = at[i] | 0x20;

        if (at[i] >= '0' && at[i] <= '9')
            *code = *code << 4 | (uint32_t)(at[i] - '0');
        else if (low >= 'a' && low <= 'f')
            *code = *code << 4 | (uint32_t)(low - 'a' + 10);
        else
            return 0;
    }
    return 1;
}

static inline const uint8_t *jlog_json_text(const uint8_t *at, const uint8_t *end, struct jlog_json_token *token)
{
    uint32_t code;

    if (at == end || *at != '"')
        return NULL;
    token->kind = JLOG_TOKEN_PLAIN;
    token->at = ++at;
    while ((at = jlog_json_special(at, end)) < end && *at == '\\') {
        token->kind = JLOG_TOKEN_ESCAPED;
        if (end - at >= 6 && at[1] == 'u' && jlog_json_hex(at + 2, &code))
            at += 6;
        else if (end - at >= 2 && at[1] != 0 && strchr("\"\\/bfnrt", at[1]) != NULL)
            at += 2;
        else
            return NULL;
    }
    if (at == end || *at != '"')
        return NULL;
    token->bytes = (size_t)(at - token->at);
    return at + 1;
}

static inline const uint8_t *jlog_json_digits(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *const first = at;

    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == first ? NULL : at;
}

static inline const uint8_t *jlog_json_number(const uint8_t *at, const uint8_t *end, struct jlog_json_token *token)
{
    token->kind = JLOG_TOKEN_INT;
    token->at = at;
    if (at < end && *at == '-')
        at++;
    at = at < end && *at == '0' ? at + 1 : jlog_json_digits(at, end);
    if (at != NULL && at < end && *at == '.') {
        token->kind = JLOG_TOKEN_FLOAT;
        at = jlog_json_digits(at + 1, end);
    }
    if (at != NULL && at < end && (*at == 'e' || *at == 'E')) {
        token->kind = JLOG_TOKEN_FLOAT;
        at++;
        at = jlog_json_digits(at < end && (*at == '+' || *at == '-') ? at + 1 : at, end);
    }
    if (at != NULL)
        token->bytes = (size_t)(at - token->at);
    return at;
}

static inline const uint8_t *jlog_json_word(const uint8_t *at, const uint8_t *end, const char *word, enum jlog_json_kind kind,
                                            struct jlog_json_token *token)
{
    const size_t bytes = strlen(word);

    token->kind = kind;
    return (size_t)(end - at) >= bytes && memcmp(at, word, bytes) == 0 ? at + bytes : NULL;
}

static inline const uint8_t *jlog_json_scalar(const uint8_t *at, const uint8_t *end, struct jlog_json_token *token)
{
    switch (at < end ? *at : 0) {
    case '"':
        return jlog_json_text(at, end, token);
    case 't':
        return jlog_json_word(at, end, "true", JLOG_TOKEN_TRUE, token);
    case 'f':
        return jlog_json_word(at, end, "false", JLOG_TOKEN_FALSE, token);
    case 'n':
        return jlog_json_word(at, end, "null", JLOG_TOKEN_NULL, token);
    default:
        return jlog_json_number(at, end, token);
    }
}

/* A key, the colon, and the space around them. */
static inline const uint8_t *jlog_json_key(const uint8_t *at, const uint8_t *end, struct jlog_json_token *key)
{
    at = jlog_json_text(jlog_json_space(at, end), end, key);
    if (at == NULL)
        return NULL;
    at = jlog_json_space(at, end);
    return at < end && *at == ':' ? jlog_json_space(at + 1, end) : NULL;
}

static inline const uint8_t *jlog_json_value(const uint8_t *at, const uint8_t *end, struct jlog_json_token *token)
{
    uint8_t closing[JLOG_JSON_DEPTH];
    struct jlog_json_token inner;
    size_t depth = 0;

    if (at == end || (*at != '{' && *at != '['))
        return jlog_json_scalar(at, end, token);
    token->kind = JLOG_TOKEN_NESTED;
    do {
        if (at < end && (*at == '{' || *at == '[')) {
            if (depth == JLOG_JSON_DEPTH)
                return NULL;
            closing[depth++] = *at == '{' ? '}' : ']';
            at = jlog_json_space(at + 1, end);
            if (at < end && *at != closing[depth - 1]) {
                at = closing[depth - 1] == '}' ? jlog_json_key(at, end, &inner) : at;
                if (at == NULL)
                    return NULL;
                continue;                                /* with the value that begins here */
            }
        } else if ((at = jlog_json_scalar(at, end, &inner)) == NULL) {
            return NULL;
        }
        for (at = jlog_json_space(at, end); at < end && *at == closing[depth - 1]; at = jlog_json_space(at, end)) {
            at++;
            if (--depth == 0)
                return at;
        }
        if (at == end || *at != ',')
            return NULL;
        at = jlog_json_space(at + 1, end);
        at = closing[depth - 1] == '}' ? jlog_json_key(at, end, &inner) : at;
    } while (at != NULL);
    return NULL;
}

/* --- Text and numbers --- */

/* Copies a text with its escapes resolved. `to` has room for the token's bytes. Returns how many were written; SIZE_MAX if it
 * has half of a surrogate pair, which Unicode text cannot have. */
static inline size_t jlog_json_unescape(uint8_t *to, const struct jlog_json_token *token)
{
    static const char names[] = "bfnrt", characters[] = "\b\f\n\r\t";
    const uint8_t *at = token->at, *const end = at + token->bytes;
    uint8_t *const first = to;
    uint32_t code, low;

    while (at < end) {
        const char *name;

        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        if (at[1] != 'u') {
            name = strchr(names, at[1]);
            *to++ = name == NULL ? at[1] : (uint8_t)characters[name - names];
            at += 2;
            continue;
        }
        jlog_json_hex(at + 2, &code);
        at += 6;
        if (code >= 0xD800 && code < 0xE000) {
            if (code >= 0xDC00 || end - at < 6 || at[0] != '\\' || at[1] != 'u' || !jlog_json_hex(at + 2, &low) ||
                low < 0xDC00 || low >= 0xE000)
                return SIZE_MAX;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        if (code < 0x80) {
            *to++ = (uint8_t)code;
            continue;
        }
        if (code >= 0x10000) {
            *to++ = (uint8_t)(0xF0 | code >> 18);
            *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3F));
        } else if (code >= 0x800) {
            *to++ = (uint8_t)(0xE0 | code >> 12);
        }
        *to++ = (uint8_t)(code >= 0x800 ? 0x80 | (code >> 6 & 0x3F) : 0xC0 | code >> 6);
        *to++ = (uint8_t)(0x80 | (code & 0x3F));
    }
    return (size_t)(to - first);
}

static inline int jlog_json_int64(const struct jlog_json_token *token, int64_t *number)
{
    const int negative = *token->at == '-';
    int64_t found = 0;

    for (size_t i = (size_t)negative; i < token->bytes; i++) {
        const int digit = token->at[i] - '0';

        if (__builtin_mul_overflow(found, 10, &found) || __builtin_add_overflow(found, negative ? -digit : digit, &found))
            return 0;
    }
    *number = found;
    return 1;
}

/* --- Objects and columns --- */

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

/* Puts what was found into row `row` of its column: a null where it has another type. */
static inline void jlog_json_store(struct jlog_json_field *field, size_t row, locale_t c_locale)
{
    const struct jlog_json_token *const found = &field->found;
    int valid = 0;
    size_t bytes = 0;
    double number;

    switch (field->type) {
    case JLOG_JSON_BOOL:
        valid = found->kind == JLOG_TOKEN_TRUE || found->kind == JLOG_TOKEN_FALSE;
        if (found->kind == JLOG_TOKEN_TRUE)
            field->data[row / 8] |= (uint8_t)(1 << row % 8);
        break;
    case JLOG_JSON_INT64:
        valid = found->kind == JLOG_TOKEN_INT && jlog_json_int64(found, (int64_t *)field->data + row);
        break;
    case JLOG_JSON_DOUBLE:
        if (found->kind == JLOG_TOKEN_INT || found->kind == JLOG_TOKEN_FLOAT) {
            number = strtod_l((const char *)found->at, NULL, c_locale);
            valid = found->kind == JLOG_TOKEN_FLOAT || isfinite(number);
            ((double *)field->data)[row] = number == 0 && found->kind == JLOG_TOKEN_INT ? 0 : number; /* -0 is 0 */
        }
        break;
    case JLOG_JSON_STRING:
        if (found->kind == JLOG_TOKEN_PLAIN)
            memcpy(field->data + field->offsets[row], found->at, bytes = found->bytes);
        else if (found->kind == JLOG_TOKEN_ESCAPED)
            bytes = jlog_json_unescape(field->data + field->offsets[row], found);
        valid = (found->kind == JLOG_TOKEN_PLAIN || found->kind == JLOG_TOKEN_ESCAPED) && bytes != SIZE_MAX;
        field->offsets[row + 1] = field->offsets[row] + (valid ? (int32_t)bytes : 0);
        break;
    }
    if (valid)
        field->validity[row / 8] |= (uint8_t)(1 << row % 8);
}

/* Reads the values at `offsets`, `count` of them, each an object; any other one has no member. */
static inline void jlog_json_columns(struct jlog_json_field *fields, size_t field_count, const uint8_t *data,
                                     const int32_t *offsets, size_t count, uint8_t *scratch, locale_t c_locale)
{
    /* Where all of them together are UTF-8, each one is that begins and ends with an ASCII character, as objects do. */
    const int is_text = jlog_utf8_valid(data + offsets[0], (size_t)(offsets[count] - offsets[0]));

    for (size_t row = 0; row < count; row++) {
        const uint8_t *const at = data + offsets[row], *const end = data + offsets[row + 1];

        if (!jlog_json_object(fields, field_count, at, end, scratch) ||
            !(is_text || jlog_utf8_valid(at, (size_t)(end - at))))
            for (size_t i = 0; i < field_count; i++)
                fields[i].found.kind = JLOG_TOKEN_ABSENT;
        for (size_t i = 0; i < field_count; i++)
            jlog_json_store(&fields[i], row, c_locale);
    }
}
