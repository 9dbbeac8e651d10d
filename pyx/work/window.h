/* Handing out the records of a window, and finishing them. Every function but the last two is called with the lock held. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "format/record.h"
#include "work/entries.h"

/* --- States ------------------------------------------------------------------------------------------------------ */

/* Puts an entry that nobody has, and that waits for no key, where it is found again. */
static inline void jlog_entry_queue(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    if (entry->until_us != 0) {
        window->delayed++;
        jlog_heap_add(window, at);
    } else if (entry->is_suspect) {
        window->suspect_count++;
        jlog_queue_push(window, &window->suspects, at);
    } else {
        jlog_queue_push(window, &window->ready, at);
    }
}

/* Ends the counts and times of a taken entry. Its owner stays until the caller stores another one. */
static inline void jlog_entry_untake(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);
    struct jlog_worker_slot *slot = jlog_slot_of(window, entry->owner);

    if (entry->until_us != 0)
        jlog_heap_remove(window, at);
    window->taken--;
    if (--slot->taken == 0)
        slot->alone = 0;
}

/* Gives a taken record back, to be handed out again after `until_us`, or at once for 0. */
static inline void jlog_entry_return(struct jlog_window *window, uint32_t at, int64_t until_us)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    jlog_entry_untake(window, at);
    entry->until_us = until_us;
    (void)JLOG_FAILPOINT("window.returning");
    __atomic_store_n(&entry->owner, 0, __ATOMIC_RELEASE);
    jlog_entry_queue(window, at);
}

/* Finishes a record, whether somebody has it or not, and lets the next record of its key come. */
static inline void jlog_entry_finish(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);
    uint32_t following;

    if (entry->owner != 0)
        jlog_entry_untake(window, at);
    (void)JLOG_FAILPOINT("window.finishing");
    jlog_store_release(&entry->number, 0);
    (void)JLOG_FAILPOINT("window.finished");
    window->finishes++;
    jlog_remove_in_order(window, at);
    following = jlog_key_leave(window, at);
    if (following != JLOG_NO_ENTRY)
        jlog_entry_queue(window, following);
    entry->place = window->free;
    window->free = at;
}

/* Returns the delay after so many attempts. */
static inline int64_t jlog_backoff_us(const struct jlog_window *window, uint32_t attempts)
{
    int64_t delay_us = window->backoff_first_us;

    while (attempts-- > 1 && delay_us > 0 && delay_us < window->backoff_most_us)
        delay_us *= 2;
    return delay_us < window->backoff_most_us ? delay_us : window->backoff_most_us;
}

/* Frees what a dead worker has. Returns how many records that were. */
static inline uint32_t jlog_window_bury(struct jlog_window *window, uint32_t owner, int64_t now_us)
{
    uint32_t freed = 0, later, left = window->capacity;

    for (uint32_t at = window->first; at != JLOG_NO_ENTRY && left-- != 0; at = later) {
        struct jlog_entry *entry = jlog_entry_at(window, at);

        later = entry->later;
        if (entry->owner != owner)
            continue;
        entry->deaths += entry->deaths < UINT16_MAX;
        entry->is_suspect = 1;
        jlog_entry_return(window, at, entry->deaths > 1 ? now_us + jlog_backoff_us(window, entry->attempts) : 0);
        window->deaths++;
        freed++;
    }
    window->slots[owner - 1].pid = 0;
    return freed;
}

/* --- After a death ----------------------------------------------------------------------------------------------- */

static int jlog_compare_numbers(const void *left, const void *right)
{
    const uint64_t a = ((const uint64_t *)left)[0], b = ((const uint64_t *)right)[0];
    return a < b ? -1 : a > b;
}

/* What a rebuild needs: number and place of each entry that counts. */
typedef uint64_t jlog_found[2];

static inline jlog_found *jlog_make_found(const struct jlog_window *window)
{
    return (jlog_found *)malloc(((size_t)window->capacity + 1) * sizeof(jlog_found));
}

/* Computes everything that is derived, with the memory `found`, which it frees, or for NULL with memory of its own. Returns 0,
 * EUCLEAN if the entries contradict each other, or ENOMEM with nothing changed. */
static int jlog_window_rebuild(struct jlog_window *window, jlog_found *found)
{
    struct jlog_entry *entries = jlog_entries(window);
    uint32_t count = 0;

    if (found == NULL && (found = jlog_make_found(window)) == NULL)
        return ENOMEM;
    window->used = window->taken = window->delayed = window->suspect_count = window->heap_count = 0;
    window->first = window->last = window->free = JLOG_NO_ENTRY;
    window->ready = window->suspects = (struct jlog_queue){JLOG_NO_ENTRY, JLOG_NO_ENTRY};
    for (uint32_t slot = 0; slot < JLOG_WORKERS_MAX; slot++)
        window->slots[slot].taken = window->slots[slot].alone = 0;
    for (uint32_t at = window->capacity; at-- > 0;) {
        entries[at].bucket = JLOG_NO_ENTRY;
        if (entries[at].number != 0 && entries[at].number <= window->next) {
            found[count][0] = entries[at].number;
            found[count++][1] = at;
            continue;
        }
        entries[at].number = 0;
        entries[at].place = window->free;
        window->free = at;
    }
    qsort(found, count, sizeof *found, jlog_compare_numbers);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (uint32_t)found[i][1];

        if ((i > 0 && found[i][0] == found[i - 1][0]) || entries[at].owner > JLOG_WORKERS_MAX) {
            free(found);
            return EUCLEAN;
        }
        if (!window->key_order)
            entries[at].key_hash = 0;
        jlog_append_in_order(window, at);
        if (jlog_key_join(window, at) && entries[at].owner == 0)
            jlog_entry_queue(window, at);
        if (entries[at].owner != 0) {
            struct jlog_worker_slot *slot = &window->slots[entries[at].owner - 1];

            window->taken++;
            slot->taken++;
            slot->alone |= entries[at].is_suspect;
            if (entries[at].until_us != 0)
                jlog_heap_add(window, at);
        }
    }
    free(found);
    window->unrepaired = 0;
    return 0;
}

/* --- Handing out ------------------------------------------------------------------------------------------------- */

/* A record that was handed out. `record` is where it stands in the loaded block; NULL: it has to be looked up. */
struct jlog_taken {
    uint64_t sequence;
    uint64_t stamp;
    const uint8_t *record;
    uint32_t at;
    uint32_t attempt;                                    /* 0: it has no attempt left, and is to be rejected */
};

static inline void jlog_window_hand(struct jlog_window *window, uint32_t at, uint32_t owner, int64_t lease_end_us,
                                    struct jlog_taken *taken)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);
    const int exhausted = window->max_attempts != 0 && entry->attempts >= window->max_attempts;

    entry->stamp = ++window->stamps;
    entry->until_us = lease_end_us;
    __atomic_store_n(&entry->owner, owner, __ATOMIC_RELEASE);
    entry->attempts += !exhausted;
    window->takes++;
    window->taken++;
    jlog_slot_of(window, owner)->taken++;
    if (lease_end_us != 0)
        jlog_heap_add(window, at);
    taken->sequence = entry->number - 1;
    taken->stamp = entry->stamp;
    taken->record = NULL;
    taken->at = at;
    taken->attempt = exhausted ? 0 : entry->attempts;
}

/* Moves due suspects to their queue, so that they keep no other due record waiting. */
static inline void jlog_window_wake_suspects(struct jlog_window *window, int64_t now_us)
{
    while (window->heap_count != 0) {
        const uint32_t at = jlog_heap_get(window, 0);
        struct jlog_entry *entry = jlog_entry_at(window, at);

        if (entry->until_us > now_us || entry->owner != 0 || !entry->is_suspect)
            return;
        jlog_heap_remove(window, at);
        window->delayed--;
        entry->until_us = 0;
        jlog_entry_queue(window, at);
    }
}

/* Takes a record that was handed out before: one that is free again, or due, or whose lease is over. Returns JLOG_NO_ENTRY if
 * there is none. */
static inline uint32_t jlog_window_pop(struct jlog_window *window, int64_t now_us)
{
    uint32_t at = jlog_queue_pop(window, &window->ready);

    if (at != JLOG_NO_ENTRY || window->heap_count == 0)
        return at;
    at = jlog_heap_get(window, 0);
    if (jlog_entry_at(window, at)->until_us > now_us)
        return JLOG_NO_ENTRY;
    if (jlog_entry_at(window, at)->owner != 0) {
        jlog_entry_untake(window, at);
        return at;
    }
    jlog_heap_remove(window, at);
    window->delayed--;
    return at;
}

/* Hands out up to `most` records again. A suspect is handed out alone: a worker that has another record gets none, and one that
 * has a suspect gets nothing else. */
static inline uint32_t jlog_window_take_again(struct jlog_window *window, uint32_t owner, int64_t now_us, int64_t lease_end_us,
                                              struct jlog_taken *taken, uint32_t most)
{
    struct jlog_worker_slot *slot = &window->slots[owner - 1];
    uint32_t count = 0, at;

    jlog_window_wake_suspects(window, now_us);
    if (slot->taken == 0 && (at = jlog_queue_pop(window, &window->suspects)) != JLOG_NO_ENTRY) {
        window->suspect_count--;
        slot->alone = 1;
        jlog_window_hand(window, at, owner, lease_end_us, taken);
        return 1;
    }
    while (count < most && (at = jlog_window_pop(window, now_us)) != JLOG_NO_ENTRY) {
        const uint32_t suspect = jlog_entry_at(window, at)->is_suspect;

        jlog_window_hand(window, at, owner, lease_end_us, &taken[count++]);
        slot->alone |= suspect; /* its lease was over */
        jlog_window_wake_suspects(window, now_us);
    }
    return count;
}

/* The next record of a loaded block, and its end. */
struct jlog_passage {
    const uint8_t *at;
    const uint8_t *end;
    uint64_t sequence;
};

/* Returns whether a new entry has room; the file may have to be extended first. */
static inline int jlog_window_has_room(const struct jlog_window *window)
{
    return window->used < window->limit && window->free != JLOG_NO_ENTRY;
}

/* Creates the entry of the next record: the first one that no worker has passed. */
static inline uint32_t jlog_window_pass(struct jlog_window *window, uint64_t sequence, uint32_t key_hash)
{
    const uint32_t at = window->free;
    struct jlog_entry *entry = jlog_entry_at(window, at);

    window->free = entry->place;
    entry->until_us = 0;
    entry->owner = 0;
    entry->attempts = 0;
    entry->key_hash = key_hash;
    entry->deaths = entry->is_suspect = 0;
    jlog_store_release(&entry->number, sequence + 1);
    jlog_append_in_order(window, at);
    return at;
}

static inline uint32_t jlog_hash_key(const uint8_t *key, size_t bytes)
{
    const uint32_t hash = jlog_crc32c(0, key, bytes);
    return hash != 0 ? hash : 1;
}

/* Hands out up to `most` new records of the loaded block, and passes those whose key has an earlier unfinished record. It skips
 * the records that were passed before. */
static inline uint32_t jlog_window_take_new(struct jlog_window *window, uint32_t owner, int64_t lease_end_us,
                                            struct jlog_passage *walk, struct jlog_taken *taken, uint32_t most)
{
    struct jlog_record record;
    uint32_t count = 0, at, key_hash;

    while (walk->at < walk->end && count < most) {
        const size_t bytes = jlog_decode_record(walk->at, (size_t)(walk->end - walk->at), 0, &record);

        if (bytes == 0)
            break; /* the reader meets it, and says where it is */
        if (jlog_is_state(&record)) {
            walk->at += bytes;
            continue;
        }
        if (walk->sequence >= window->next) {
            if (!jlog_window_has_room(window))
                break;
            key_hash = window->key_order && record.key != NULL ? jlog_hash_key(record.key, record.key_bytes) : 0;
            at = jlog_window_pass(window, walk->sequence, key_hash);
            (void)JLOG_FAILPOINT("window.passing");
            if (jlog_key_join(window, at)) {
                jlog_window_hand(window, at, owner, lease_end_us, &taken[count]);
                taken[count++].record = walk->at;
            }
            jlog_store_release(&window->next, walk->sequence + 1);
            (void)JLOG_FAILPOINT("window.passed");
        }
        walk->at += bytes;
        walk->sequence++;
    }
    return count;
}

/* Returns the entry that is still taken in this handing out, or NULL. */
static inline struct jlog_entry *jlog_window_held(struct jlog_window *window, uint32_t at, uint64_t sequence, uint64_t stamp)
{
    struct jlog_entry *entry;

    if (at >= window->capacity)
        return NULL;
    entry = jlog_entry_at(window, at);
    return entry->number == sequence + 1 && entry->stamp == stamp && entry->owner != 0 ? entry : NULL;
}

/* Finishes every record before `sequence`, since retention has removed them or a Reader has committed them; with `keep_taken`
 * only those that nobody has. Returns what jlog_window_rebuild returns. */
static inline int jlog_window_drop_before(struct jlog_window *window, uint64_t sequence, int keep_taken)
{
    struct jlog_entry *entries = jlog_entries(window);
    jlog_found *found = jlog_make_found(window);

    if (found == NULL)
        return ENOMEM;
    for (uint32_t at = 0; at < window->capacity; at++)
        if (entries[at].number != 0 && entries[at].number <= sequence && !(keep_taken && entries[at].owner != 0)) {
            jlog_store_release(&entries[at].number, 0);
            window->finishes++;
        }
    if (window->next < sequence)
        jlog_store_release(&window->next, sequence);
    window->unrepaired = 1;
    return jlog_window_rebuild(window, found);
}

/* Rings: wakes one sleeping worker, if there is one. Needs no lock. */
static inline void jlog_window_ring(struct jlog_window *window)
{
    if (__atomic_load_n(&window->asleep, __ATOMIC_SEQ_CST) == 0
        || __atomic_exchange_n(&window->asleep, 0, __ATOMIC_SEQ_CST) == 0)
        return;
    __atomic_add_fetch(&window->bell, 1, __ATOMIC_SEQ_CST);
    if (jlog_futex(&window->bell, FUTEX_WAKE, 1, NULL) > 0)
        __atomic_store_n(&window->asleep, 1, __ATOMIC_SEQ_CST); /* others may sleep too */
}

/* Wakes all: for close(), which a thread of this process may wait for. */
static inline void jlog_window_ring_all(struct jlog_window *window)
{
    __atomic_add_fetch(&window->bell, 1, __ATOMIC_SEQ_CST);
    jlog_futex_wake_all(&window->bell);
}
