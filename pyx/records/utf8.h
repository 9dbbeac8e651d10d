/* UTF-8 as Arrow's strings require it: without surrogates and overlong forms. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the size of the character at `at`, where `left` bytes are readable; 0 if none stands there. Unicode 15, table 3-7. */
static inline size_t jlog_utf8_character(const uint8_t *at, size_t left)
{
    const uint8_t first = at[0];
    uint8_t low = 0x80, high = 0xBF;
    size_t bytes;

    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    if (left < bytes || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return bytes;
}

/* Copies the text to `to`, unless that is NULL, with U+FFFD in place of each byte that is part of no character. Returns the
 * size of the result: `bytes` if nothing was replaced, and at most three times as much. */
static inline size_t jlog_utf8_mended(uint8_t *to, const uint8_t *text, size_t bytes)
{
    size_t written = 0;

    for (size_t at = 0, size; at < bytes; at += size ? size : 1) {
        size = jlog_utf8_character(text + at, bytes - at);
        if (to != NULL)
            memcpy(to + written, size ? text + at : (const uint8_t *)"\xEF\xBF\xBD", size ? size : 3);
        written += size ? size : 3;
    }
    return written;
}

/* Returns how many bytes are ASCII before the first one that is not. Compilers make vectors of the pieces. */
static inline size_t jlog_ascii_bytes(const uint8_t *text, size_t bytes)
{
    enum { PIECE = 256 };
    size_t at = 0;

    for (uint8_t all = 0; bytes - at >= PIECE; at += PIECE) {
        for (size_t i = 0; i < PIECE; i++)
            all |= text[at + i];
        if (all >= 0x80)
            break;
    }
    for (uint64_t word; bytes - at >= sizeof word; at += sizeof word) {
        memcpy(&word, text + at, sizeof word);
        if (word & 0x8080808080808080u)
            break;
    }
    while (at < bytes && text[at] < 0x80)
        at++;
    return at;
}

static inline int jlog_utf8_valid(const uint8_t *text, size_t bytes)
{
    size_t size = 1;

    for (size_t at = 0; at < bytes && size != 0; at += size)
        size = text[at] < 0x80 ? jlog_ascii_bytes(text + at, bytes - at) : jlog_utf8_character(text + at, bytes - at);
    return size != 0;
}
