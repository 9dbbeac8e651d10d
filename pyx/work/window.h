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
    slot->taken--;
}

/* Gives a taken record back, to be handed out again after `until_us`, or at once for 0. */
static inline void jlog_entry_return(struct jlog_window *window, uint32_t at, int64_t until_us, int failed)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    jlog_entry_untake(window, at);
    entry->until_us = until_us;
    (void)JLOG_FAILPOINT("window.returning");
    jlog_entry_stand(entry, 0, entry->failures + (failed != 0));
    jlog_entry_queue(window, at);
}

/* Gives a taken record back at once, as if it had not been handed out. */
static inline void jlog_entry_release(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    entry->attempts -= entry->attempts > 0;
    jlog_entry_return(window, at, 0, 0);
}

/* Gives a taken record back at once, before all that are free already: a list of tasks is dropped from its end on. */
static inline void jlog_entry_drop(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    jlog_entry_untake(window, at);
    entry->until_us = 0;
    entry->attempts -= entry->attempts > 0;
    jlog_entry_stand(entry, 0, entry->failures);
    if (window->ready.first == JLOG_NO_ENTRY)
        window->ready.last = at;
    entry->place = window->ready.first;
    window->ready.first = at;
}

/* Notes one of the bits of `left`. Needs no lock. */
static inline void jlog_slot_note(struct jlog_window *window, uint32_t owner, uint32_t bit)
{
    __atomic_fetch_or(&jlog_slot_of(window, owner)->left, bit, __ATOMIC_SEQ_CST);
}

/* Gives back the records that a living worker has marked as dropped, without the lock. Any worker may do it: that one may not
 * take anything for hours. */
static inline void jlog_window_release_dropped(struct jlog_window *window, uint32_t owner)
{
    uint32_t later, bound = window->capacity;

    __atomic_fetch_and(&jlog_slot_of(window, owner)->left, ~JLOG_HAS_DROPPED, __ATOMIC_SEQ_CST);
    for (uint32_t at = window->first; at != JLOG_NO_ENTRY && bound-- != 0; at = later) {
        later = jlog_entry_at(window, at)->later;
        if (jlog_entry_at(window, at)->owner == owner && jlog_entry_is_dropped(jlog_entry_at(window, at)))
            jlog_entry_drop(window, at);
    }
}

/* Finishes a record, whether somebody has it or not, and lets the next record of its key come. */
static inline void jlog_entry_finish(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);
    const uint64_t number = entry->number;
    uint32_t following;

    if (entry->owner != 0)
        jlog_entry_untake(window, at);
    (void)JLOG_FAILPOINT("window.finishing");
    jlog_store_release(&entry->number, 0);
    (void)JLOG_FAILPOINT("window.finished");
    jlog_count_finish(window, number);
    jlog_remove_in_order(window, at);
    following = jlog_key_leave(window, at);
    if (following != JLOG_NO_ENTRY)
        jlog_entry_queue(window, following);
    entry->place = window->free;
    window->free = at;
}

/* Returns the delay after so many failures. */
static inline int64_t jlog_backoff_us(const struct jlog_window *window, uint32_t failures)
{
    int64_t delay_us = window->backoff_first_us;

    while (failures-- > 1 && delay_us > 0 && delay_us < window->backoff_most_us)
        delay_us *= 2;
    return delay_us < window->backoff_most_us ? delay_us : window->backoff_most_us;
}

/* Returns the backoff of a record whose workers die: half of it or more, another part for each handing out, so that records
 * which were in work together do not come back together. */
static inline int64_t jlog_parting_us(const struct jlog_window *window, const struct jlog_entry *entry)
{
    const int64_t delay_us = jlog_backoff_us(window, entry->failures + 1);
    const uint64_t part = (entry->stamp * UINT64_C(0x9E3779B97F4A7C15)) >> 48;

    return delay_us / 2 + (int64_t)((double)(delay_us - delay_us / 2) * (double)part / 65536.0);
}

/* Frees what a dead worker has in work, as failed, or for `begun` = 0 what it only had. Returns how many records that were. */
static inline uint32_t jlog_window_free_of(struct jlog_window *window, uint32_t owner, int begun, int64_t now_us)
{
    const int left = (window->slots[owner - 1].left & JLOG_HAS_LEFT) != 0;
    uint32_t freed = 0, later, bound = window->capacity;

    for (uint32_t at = window->first; at != JLOG_NO_ENTRY && bound-- != 0; at = later) {
        struct jlog_entry *entry = jlog_entry_at(window, at);

        later = entry->later;
        if (entry->owner != owner || jlog_entry_is_begun(entry) != begun)
            continue;
        if (left) {
            jlog_entry_release(window, at);
        } else if (!begun) {
            jlog_entry_return(window, at, 0, 0);
        } else {
            jlog_entry_return(window, at, entry->deaths > 0 ? now_us + jlog_parting_us(window, entry) : 0, 1);
            entry->deaths++;
            window->deaths++;
        }
        freed++;
    }
    return freed;
}

/* Frees what a dead worker has. What it had in work has failed; if nothing was marked so, the record that was handed out first,
 * since what is taken together is worked on in this order. Records in work are freed last: so the next worker to bury sees them
 * if this one dies meanwhile, and blames no other. Returns how many records it has freed. */
static inline uint32_t jlog_window_bury(struct jlog_window *window, uint32_t owner, int64_t now_us)
{
    struct jlog_worker_slot *slot = &window->slots[owner - 1];
    uint32_t first = JLOG_NO_ENTRY, freed, bound = window->capacity;
    int begun = (slot->left & JLOG_HAS_LEFT) != 0;

    for (uint32_t at = window->first; at != JLOG_NO_ENTRY && bound-- != 0; at = jlog_entry_at(window, at)->later) {
        const struct jlog_entry *entry = jlog_entry_at(window, at);

        if (entry->owner != owner)
            continue;
        begun |= jlog_entry_is_begun(entry);
        if (!jlog_entry_is_dropped(entry) && (first == JLOG_NO_ENTRY || entry->stamp < jlog_entry_at(window, first)->stamp))
            first = at;
    }
    if (!begun && first != JLOG_NO_ENTRY)
        jlog_entry_at(window, first)->begun = (uint32_t)jlog_entry_at(window, first)->stamp;
    freed = jlog_window_free_of(window, owner, 0, now_us);
    freed += jlog_window_free_of(window, owner, 1, now_us);
    slot->pid = 0;
    slot->left = 0;
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
    window->used = window->taken = window->delayed = window->heap_count = 0;
    window->first = window->last = window->free = JLOG_NO_ENTRY;
    window->ready = (struct jlog_queue){JLOG_NO_ENTRY, JLOG_NO_ENTRY};
    for (uint32_t slot = 0; slot < JLOG_WORKERS_MAX; slot++)
        window->slots[slot].taken = 0;
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
            window->taken++;
            window->slots[entries[at].owner - 1].taken++;
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
    uint32_t attempt;
    uint32_t failures;
    uint32_t is_exhausted;                               /* it has failed too often, and is to be rejected */
};

/* Hands out a record that nobody has, or whose lease is over: a lease that is taken over has failed. */
static inline void jlog_window_hand(struct jlog_window *window, uint32_t at, uint32_t owner, int64_t lease_end_us,
                                    struct jlog_taken *taken)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);
    const int has_failed = entry->owner != 0;

    taken->failures = entry->failures + has_failed;
    taken->is_exhausted = window->max_attempts != 0 && taken->failures >= window->max_attempts;
    entry->stamp = ++window->stamps;
    entry->until_us = lease_end_us;
    jlog_entry_stand(entry, owner, taken->failures);
    entry->attempts += !taken->is_exhausted;
    window->failures += has_failed;
    window->takes++;
    window->taken++;
    jlog_slot_of(window, owner)->taken++;
    if (lease_end_us != 0)
        jlog_heap_add(window, at);
    taken->sequence = entry->number - 1;
    taken->stamp = entry->stamp;
    taken->record = NULL;
    taken->at = at;
    taken->attempt = entry->attempts;
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

/* Hands out up to `most` records again. */
static inline uint32_t jlog_window_take_again(struct jlog_window *window, uint32_t owner, int64_t now_us, int64_t lease_end_us,
                                              struct jlog_taken *taken, uint32_t most)
{
    uint32_t count = 0, at;

    while (count < most && (at = jlog_window_pop(window, now_us)) != JLOG_NO_ENTRY)
        jlog_window_hand(window, at, owner, lease_end_us, &taken[count++]);
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
    entry->standing = 0;
    entry->attempts = 0;
    entry->key_hash = key_hash;
    entry->deaths = 0;
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

/* Takes an unfinished record from whoever has it, or out of its delay: for somebody who acts by hand, and seldom. Returns 0, ENOENT
 * if the record has no entry, or EBUSY if it waits for an earlier one of its key. */
static inline int jlog_window_seize(struct jlog_window *window, uint64_t sequence, uint32_t owner, struct jlog_taken *taken)
{
    uint32_t at = window->first, head, bound = window->capacity;
    struct jlog_entry *entry;

    while (at != JLOG_NO_ENTRY && jlog_entry_at(window, at)->number != sequence + 1 && bound-- != 0)
        at = jlog_entry_at(window, at)->later;
    if (at == JLOG_NO_ENTRY || jlog_entry_at(window, at)->number != sequence + 1)
        return ENOENT;
    entry = jlog_entry_at(window, at);
    if (entry->key_hash != 0) {
        bound = window->capacity;
        for (head = *jlog_bucket(window, entry->key_hash); head != at; head = jlog_entry_at(window, head)->bucket_next)
            if (head == JLOG_NO_ENTRY || bound-- == 0)
                return EBUSY;
    }
    window->unrepaired = 1; /* until all that is derived is computed anew, here or by the next owner of the lock */
    jlog_entry_stand(entry, owner, entry->failures); /* before the stamp: a death in between frees it for all */
    entry->stamp = ++window->stamps;
    entry->until_us = 0;
    entry->attempts++;
    window->takes++;
    *taken = (struct jlog_taken){.sequence = sequence, .stamp = entry->stamp, .at = at, .attempt = entry->attempts,
                                 .failures = entry->failures};
    (void)jlog_window_rebuild(window, NULL);
    return 0;
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
            const uint64_t number = entries[at].number;

            jlog_store_release(&entries[at].number, 0);
            jlog_count_finish(window, number);
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
