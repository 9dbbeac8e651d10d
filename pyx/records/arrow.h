/* The Arrow C data interface: its three structures, and schemas and arrays of ours that a consumer releases. All memory comes
 * from malloc, so that any thread can release it, with or without Python. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "records/memory.h"

#define ARROW_FLAG_NULLABLE 2

/* As the Arrow specification has them, https://arrow.apache.org/docs/format/CDataInterface.html. */
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

static void jlog_release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL)        /* else the consumer has moved it */
            schema->children[i]->release(schema->children[i]);
        free(schema->children[i]);
    }
    free((void *)schema->format);
    free((void *)schema->name);
    free(schema->children);
    schema->release = NULL;
}

/* Fills a schema whose children are still to be filled. Returns 0 without memory, and then nothing is to be released. */
static inline int jlog_begin_schema(struct ArrowSchema *to, const char *format, const char *name, int64_t flags,
                                    int64_t children)
{
    memset(to, 0, sizeof *to);
    to->release = jlog_release_schema;
    to->flags = flags;
    to->format = strdup(format);
    to->name = strdup(name);
    to->children = calloc((size_t)children + 1, sizeof *to->children);
    for (; to->children != NULL && to->n_children < children; to->n_children++) {
        to->children[to->n_children] = calloc(1, sizeof **to->children);
        if (to->children[to->n_children] == NULL)
            break;
    }
    if (to->format != NULL && to->name != NULL && to->children != NULL && to->n_children == children)
        return 1;
    jlog_release_schema(to);
    return 0;
}

static void jlog_release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL)
            array->children[i]->release(array->children[i]);
        free(array->children[i]);
    }
    for (int64_t i = 0; i < array->n_buffers; i++)
        jlog_release_memory((void *)array->buffers[i]);
    free(array->buffers);
    free(array->children);
    array->release = NULL;
}

/* Fills an array whose buffers and children are still to be set; it owns whatever is set. Returns 0 without memory, and then
 * nothing is to be released. */
static inline int jlog_begin_array(struct ArrowArray *to, int64_t length, int64_t buffers, int64_t children)
{
    memset(to, 0, sizeof *to);
    to->release = jlog_release_array;
    to->length = length;
    to->buffers = calloc((size_t)buffers + 1, sizeof *to->buffers);
    to->children = calloc((size_t)children + 1, sizeof *to->children);
    for (; to->children != NULL && to->n_children < children; to->n_children++) {
        to->children[to->n_children] = calloc(1, sizeof **to->children);
        if (to->children[to->n_children] == NULL)
            break;
    }
    if (to->buffers != NULL && to->children != NULL && to->n_children == children) {
        to->n_buffers = buffers;
        return 1;
    }
    jlog_release_array(to);
    return 0;
}

/* Computes the number of zeros among the first `count` bits. */
static inline int64_t jlog_count_zeros(const uint8_t *bits, int64_t count)
{
    int64_t ones = 0, at = 0;

    for (; at + 64 <= count; at += 64) {
        uint64_t word;

        memcpy(&word, bits + at / 8, sizeof word);
        ones += __builtin_popcountll(word);
    }
    for (; at < count; at++)
        ones += bits[at >> 3] >> (at & 7) & 1;
    return count - ones;
}

/* Writes the offsets of 32 bits as offsets of 64. */
static inline void jlog_widen(int64_t *to, const int32_t *offsets, int64_t count)
{
    for (int64_t i = 0; i <= count; i++)
        to[i] = offsets[i];
}

/* Writes the views of entries that lie in one buffer of data. */
static inline void jlog_view(uint8_t *to, const int32_t *offsets, const uint8_t *data, int64_t count)
{
    memset(to, 0, 16 * (size_t)count);
    for (int64_t i = 0; i < count; i++, to += 16) {
        const int32_t begin = offsets[i], bytes = offsets[i + 1] - begin;

        memcpy(to, &bytes, 4);
        if (bytes <= 12) {
            memcpy(to + 4, data + begin, (size_t)bytes);
        } else {
            memcpy(to + 4, data + begin, 4);
            memcpy(to + 12, &begin, 4);
        }
    }
}
