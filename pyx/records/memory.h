/* The memory of columns. What a consumer has released is kept for the next batch: fresh memory costs a page fault for each
 * 4 KiB, up to a fifth of the work of filling it. Any thread may release, with or without Python, so a place is taken and
 * filled by one exchange. */
#pragma once

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    JLOG_KEPT_PIECES = 8,                                /* a batch of all columns has five that are worth it */
    JLOG_KEPT_BYTES_MIN = 32 << 10,
    JLOG_KEPT_BYTES_MAX = 4 << 20
};

static void *jlog_kept[JLOG_KEPT_PIECES];
static unsigned jlog_kept_next;                          /* the place that is filled next if all are full */

static inline int jlog_is_kept(size_t size) { return size >= JLOG_KEPT_BYTES_MIN && size <= JLOG_KEPT_BYTES_MAX; }

/* Takes the place of the memory that is kept there, for `memory`, which may be NULL. Returns what was kept. */
static inline void *jlog_keep(unsigned place, void *memory)
{
    return __atomic_exchange_n(&jlog_kept[place % JLOG_KEPT_PIECES], memory, __ATOMIC_ACQ_REL);
}

/* Frees memory, or keeps it. If all places are full, it takes that of another piece: batches may have another size by now. */
static inline void jlog_release_memory(void *memory)
{
    if (memory != NULL && jlog_is_kept(malloc_usable_size(memory))) {
        for (unsigned place = 0; place < JLOG_KEPT_PIECES; place++) {
            void *none = NULL;

            if (__atomic_compare_exchange_n(&jlog_kept[place], &none, memory, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return;
        }
        memory = jlog_keep(__atomic_fetch_add(&jlog_kept_next, 1, __ATOMIC_RELAXED), memory);
    }
    free(memory);
}

/* Returns memory of `*size` bytes, and what it has in `*size`: an eighth more at most, or a third if it was kept. NULL: there
 * is none. */
static inline void *jlog_new_memory(uint64_t *size)
{
    if (jlog_is_kept(*size)) {
        const uint64_t step = (uint64_t)1 << (60 - __builtin_clzll(*size));

        *size = (*size + step - 1) / step * step;        /* so that batches of about one size need pieces of one size */
        for (unsigned place = 0; place < JLOG_KEPT_PIECES; place++) {
            void *const found = jlog_keep(place, NULL);
            const uint64_t room = found == NULL ? 0 : malloc_usable_size(found);

            if (room >= *size && room - *size <= *size / 8) {
                *size = room;
                return found;
            }
            jlog_release_memory(found);
        }
    }
    return malloc(*size);
}
