/* The grammar of JSON (RFC 8259, and NaN, Infinity and -Infinity as numbers), and the texts and numbers in it. */
#pragma once

#include "records/utf8.h"

enum { JLOG_JSON_DEPTH = 1024 };                         /* arrays and objects within each other in a member; deeper is refused */

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

/* A text within its quotes, a number, or an object or array with its brackets. */
struct jlog_json_token {
    enum jlog_json_kind kind;
    const uint8_t *at;
    size_t bytes;
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
    token->at = at;
    token->bytes = bytes;
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
    case 'N':
        return jlog_json_word(at, end, "NaN", JLOG_TOKEN_FLOAT, token);
    case 'I':
        return jlog_json_word(at, end, "Infinity", JLOG_TOKEN_FLOAT, token);
    case '-':
        if (end - at > 1 && at[1] == 'I')
            return jlog_json_word(at, end, "-Infinity", JLOG_TOKEN_FLOAT, token);
        return jlog_json_number(at, end, token);
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
    token->at = at;
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
            if (--depth == 0) {
                token->bytes = (size_t)(at - token->at);
                return at;
            }
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

/* Stores a whole number of 64 bits; a negative one only as int64. Returns 0 if it has more bits. */
static inline int jlog_json_integer(const struct jlog_json_token *token, int is_signed, uint8_t *number)
{
    const int negative = *token->at == '-';
    uint64_t magnitude = 0;

    for (size_t i = (size_t)negative; i < token->bytes; i++)
        if (__builtin_mul_overflow(magnitude, 10, &magnitude) ||
            __builtin_add_overflow(magnitude, (uint64_t)(token->at[i] - '0'), &magnitude))
            return 0;
    if (is_signed ? magnitude > (uint64_t)INT64_MAX + (uint64_t)negative : negative && magnitude != 0)
        return 0;
    magnitude = negative ? -magnitude : magnitude;
    memcpy(number, &magnitude, sizeof magnitude);
    return 1;
}
