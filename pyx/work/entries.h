/* The window of a shared subscriber: the records that its workers have passed and not finished.
 *
 * Two things are true at every moment: the entries that are in use, and `next`, before which every record is finished unless it
 * has an entry. An entry whose record is not before `next` counts for nothing. All lists, the heap and the counts are derived
 * from these two, and jlog_window_rebuild computes them anew after a process has died with the lock. docs/format.md, "Shared
 * subscribers", specifies the file; tools/model/working.py checks the protocol. Every function is called with the lock held. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "system/atomic.h"
#include "system/failpoint.h"

#define JLOG_WINDOW_MAGIC "JLOGWORK"
#define JLOG_WINDOW_LAYOUT 2u
#define JLOG_ENTRIES_HEADER_BYTES 57344u                  /* the entries begin here */
#define JLOG_WINDOW_SLOTS_OFFSET 4096u
#define JLOG_FINISHED_MAX 4096u                          /* so many finishes may come between two syncs of them */
#define JLOG_WORKERS_MAX 1024u                           /* this many workers may share a subscriber at once */
#define JLOG_WINDOW_STEP 1024u                           /* the file begins with room for so many entries, and is doubled */
#define JLOG_NO_ENTRY UINT32_MAX
#define JLOG_POSITION_STEP 64u                           /* the position file lags by so many records at most */

/* A record that is passed and not finished. Its state follows from the first fields: it is taken if it has an owner; delayed if
 * it has none and `until_us` is not 0; else it waits for an earlier record of its key, or is ready. */
struct jlog_entry {
    uint64_t number;                                     /* the record's sequence + 1; storing 0 finishes the record */
    int64_t until_us;                                    /* CLOCK_BOOTTIME: end of the delay or of the lease; 0: none */
    uint64_t stamp;                                      /* different for each handing out */
    union {
        struct {
            uint32_t owner;                              /* worker slot + 1; 0: nobody has it */
            uint32_t failures;
        };
        uint64_t standing;                               /* both: one store counts a failure and ends its handing out */
    };
    uint32_t attempts;                                   /* how often it was handed out, and not given back by its worker */
    uint32_t key_hash;                                   /* 0: it waits for no other record */
    uint32_t begun;                                      /* the stamp's low half: in work; the complement: dropped */
    uint32_t deaths;                                     /* failures that were its worker's death */

    /* Derived. */
    uint32_t earlier, later;                             /* the unfinished records before and after it */
    uint32_t place;                                      /* its place in the heap, or the next entry of its queue */
    uint32_t key_next;                                   /* the next record of its key */
    uint32_t key_last;                                   /* of the first record of a key: the last one */
    uint32_t bucket_next;                                /* of the first record of a key: the next key in its bucket */
    uint32_t bucket;                                     /* element of the array of buckets: the first key of this one */
    uint32_t heap;                                       /* element of the array that is the heap */
};

#define JLOG_HAS_LEFT 1u                                  /* the worker has ended by itself, and what it has did not fail */
#define JLOG_HAS_DROPPED 2u                               /* some of its records are marked as dropped */

struct jlog_worker_slot {
    uint64_t pid;
    uint32_t taken;                                      /* derived: records that it has */
    uint32_t left;                                       /* the two bits above */
};

struct jlog_queue {
    uint32_t first, last;
};

/* What a sync of the finishes needs, so that it need not look at every entry. */
struct jlog_logged {
    uint64_t next;                                       /* `next` as of the durable copy or its last line */
    uint64_t copy_inode;                                 /* of the durable copy's file; 0: it is due */
    uint64_t copy_bytes;                                 /* of that file without the lines after the copy */
    uint64_t file_bytes;
    uint64_t numbers[JLOG_FINISHED_MAX];                 /* of the records that were finished last, by `finishes` */
};

struct jlog_window {
    uint8_t magic[8];
    uint32_t layout;
    uint32_t is_ready;                                   /* 0: it is being created */
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint64_t device;
    uint64_t inode;
    /* The subscriber's options. */
    uint32_t limit;                                      /* most entries in use */
    uint32_t max_attempts;                               /* 0: no limit */
    uint32_t key_order;
    uint32_t revision;                                   /* another one after each change of an option */
    int64_t backoff_first_us;
    int64_t backoff_most_us;

    uint32_t lock __attribute__((aligned(64)));

    uint64_t next __attribute__((aligned(64)));
    uint64_t oldest;                                     /* the committed position: derived, for readers without the lock */
    uint64_t stored;                                     /* the committed position, as it was written to its file last */
    uint64_t generation;                                 /* of that file's record */
    uint64_t stamps;
    uint64_t finishes;                                   /* finished records, since the window was created */
    uint64_t synced;                                     /* `finishes` when the last durable copy began */
    uint64_t takes;
    uint64_t failures;                                   /* nacks, and leases that were taken over */
    uint64_t rejections;
    uint64_t deaths;
    uint32_t capacity;                                   /* entries that the file has room for */
    uint32_t unrepaired;                                 /* not 0: what is derived is not to be relied on */

    /* Derived. */
    uint32_t used, taken, delayed;
    uint32_t first, last;                                /* the unfinished records, by sequence */
    uint32_t free;
    struct jlog_queue ready;
    uint32_t heap_count;

    uint32_t bell __attribute__((aligned(64)));          /* futex of sleeping workers */
    uint32_t asleep;                                     /* not 0: a worker may sleep */
    uint32_t scout;                                      /* worker slot + 1 of the one that listens to the journal; 0: none */
    int64_t alarm_us;                                    /* CLOCK_BOOTTIME at which a sleeping worker will wake by itself */
    int64_t looked_us;                                   /* CLOCK_BOOTTIME when a worker looked for dead ones last */

    struct jlog_worker_slot slots[JLOG_WORKERS_MAX] __attribute__((aligned(JLOG_WINDOW_SLOTS_OFFSET)));
    struct jlog_logged logged;
};

_Static_assert(sizeof(struct jlog_entry) == 80, "entry");
_Static_assert(sizeof(struct jlog_window) == JLOG_ENTRIES_HEADER_BYTES, "window");

static inline struct jlog_entry *jlog_entries(struct jlog_window *window)
{
    return (struct jlog_entry *)((uint8_t *)window + JLOG_ENTRIES_HEADER_BYTES);
}

static inline size_t jlog_window_bytes(uint64_t capacity)
{
    return JLOG_ENTRIES_HEADER_BYTES + (size_t)capacity * sizeof(struct jlog_entry);
}

/* Returns an entry. A number that damage has left in the file still leads into the mapping: a capacity is a power of two. */
static inline struct jlog_entry *jlog_entry_at(struct jlog_window *window, uint32_t at)
{
    return &jlog_entries(window)[at & (window->capacity - 1)];
}

static inline struct jlog_worker_slot *jlog_slot_of(struct jlog_window *window, uint32_t owner)
{
    return &window->slots[(owner - 1) & (JLOG_WORKERS_MAX - 1)];
}

/* Stores who has the record and how often it has failed, at once: a worker that is killed has counted a failure and freed the
 * record, or neither. */
static inline void jlog_entry_stand(struct jlog_entry *entry, uint32_t owner, uint32_t failures)
{
    const struct jlog_entry next = {.owner = owner, .failures = failures};
    __atomic_store_n(&entry->standing, next.standing, __ATOMIC_RELEASE);
}

static inline int jlog_entry_is_begun(const struct jlog_entry *entry)
{
    return entry->begun == (uint32_t)entry->stamp;
}

static inline int jlog_entry_is_dropped(const struct jlog_entry *entry)
{
    return entry->begun == ~(uint32_t)entry->stamp;
}

/* Notes that the record is in work, or was dropped, unless it was handed out again since. Its owner calls it without the lock.
 * So one that loses its lease this very moment may store into the next handing out: a mark of another stamp says nothing. */
static inline void jlog_entry_mark(struct jlog_entry *entry, uint32_t owner, uint64_t stamp, uint32_t mark)
{
    if (__atomic_load_n(&entry->stamp, __ATOMIC_RELAXED) == stamp && __atomic_load_n(&entry->owner, __ATOMIC_RELAXED) == owner)
        __atomic_store_n(&entry->begun, mark, __ATOMIC_RELAXED);
}

/* Returns whether the counts can be right. The capacity is checked beside the file's size. */
static inline int jlog_window_is_sound(const struct jlog_window *window)
{
    return !window->unrepaired && window->heap_count <= window->used && window->used <= window->capacity;
}

/* Returns the committed position: the sequence of the oldest unfinished record. */
static inline uint64_t jlog_window_oldest(struct jlog_window *window)
{
    return window->first == JLOG_NO_ENTRY ? window->next : jlog_entry_at(window, window->first)->number - 1;
}

/* Counts a record that was finished. A process that is killed before has finished it for this boot alone. */
static inline void jlog_count_finish(struct jlog_window *window, uint64_t number)
{
    window->logged.numbers[window->finishes++ % JLOG_FINISHED_MAX] = number;
}

/* Returns how many unfinished records were passed since the durable copy or its last line; `first` is the first of them. */
static inline uint32_t jlog_window_passed_since(struct jlog_window *window, uint32_t *first)
{
    uint32_t count = 0;

    *first = JLOG_NO_ENTRY;
    for (uint32_t at = window->last; at != JLOG_NO_ENTRY && count < window->used; at = jlog_entry_at(window, at)->earlier) {
        if (jlog_entry_at(window, at)->number <= window->logged.next)
            break;
        *first = at;
        count++;
    }
    return count;
}

/* --- Lists ------------------------------------------------------------------------------------------------------ */

static inline void jlog_queue_push(struct jlog_window *window, struct jlog_queue *queue, uint32_t at)
{
    jlog_entry_at(window, at)->place = JLOG_NO_ENTRY;
    if (queue->first == JLOG_NO_ENTRY)
        queue->first = at;
    else
        jlog_entry_at(window, queue->last)->place = at;
    queue->last = at;
}

static inline uint32_t jlog_queue_pop(struct jlog_window *window, struct jlog_queue *queue)
{
    const uint32_t at = queue->first;

    if (at != JLOG_NO_ENTRY)
        queue->first = jlog_entry_at(window, at)->place;
    return at;
}

static inline void jlog_append_in_order(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at);

    entry->earlier = window->last;
    entry->later = JLOG_NO_ENTRY;
    if (window->last == JLOG_NO_ENTRY)
        window->first = at;
    else
        jlog_entry_at(window, window->last)->later = at;
    window->last = at;
    window->used++;
}

static inline void jlog_remove_in_order(struct jlog_window *window, uint32_t at)
{
    const struct jlog_entry *entry = jlog_entry_at(window, at);

    if (entry->earlier == JLOG_NO_ENTRY)
        window->first = entry->later;
    else
        jlog_entry_at(window, entry->earlier)->later = entry->later;
    if (entry->later == JLOG_NO_ENTRY)
        window->last = entry->earlier;
    else
        jlog_entry_at(window, entry->later)->earlier = entry->earlier;
    window->used--;
}

/* --- The heap: delayed records, and taken ones with a lease, by their times ------------------------------------- */

static inline uint32_t jlog_heap_get(struct jlog_window *window, uint32_t place)
{
    return jlog_entry_at(window, place)->heap;
}

static inline void jlog_heap_put(struct jlog_window *window, uint32_t place, uint32_t at)
{
    jlog_entry_at(window, place)->heap = at;
    jlog_entry_at(window, at)->place = place;
}

/* Returns the time of the entry at a place of the heap. */
static inline int64_t jlog_heap_time(struct jlog_window *window, uint32_t place)
{
    return jlog_entry_at(window, jlog_heap_get(window, place))->until_us;
}

static inline void jlog_heap_place(struct jlog_window *window, uint32_t place, uint32_t at)
{
    const int64_t until_us = jlog_entry_at(window, at)->until_us;

    while (place > 0 && jlog_heap_time(window, (place - 1) / 2) > until_us) {
        jlog_heap_put(window, place, jlog_heap_get(window, (place - 1) / 2));
        place = (place - 1) / 2;
    }
    for (uint32_t below = 2 * place + 1; below < window->heap_count; below = 2 * place + 1) {
        if (below + 1 < window->heap_count && jlog_heap_time(window, below + 1) < jlog_heap_time(window, below))
            below++;
        if (jlog_heap_time(window, below) >= until_us)
            break;
        jlog_heap_put(window, place, jlog_heap_get(window, below));
        place = below;
    }
    jlog_heap_put(window, place, at);
}

static inline void jlog_heap_add(struct jlog_window *window, uint32_t at)
{
    jlog_heap_place(window, window->heap_count++, at);
}

static inline void jlog_heap_remove(struct jlog_window *window, uint32_t at)
{
    uint32_t last;

    if (window->heap_count == 0) { /* damaged */
        window->unrepaired = 1;
        return;
    }
    last = jlog_heap_get(window, --window->heap_count);
    if (last != at)
        jlog_heap_place(window, jlog_entry_at(window, at)->place, last);
}

/* --- Keys --------------------------------------------------------------------------------------------------------
 * The records of one key form a chain, and the buckets hold the first record of each. Only that one is ever handed out. */

static inline uint32_t *jlog_bucket(struct jlog_window *window, uint32_t key_hash)
{
    return &jlog_entry_at(window, key_hash)->bucket;
}

/* Adds the entry to its key's chain. Returns whether it is the first of it. */
static inline int jlog_key_join(struct jlog_window *window, uint32_t at)
{
    struct jlog_entry *entry = jlog_entry_at(window, at), *head;
    uint32_t *bucket, left = window->capacity;

    if (entry->key_hash == 0)
        return 1;
    bucket = jlog_bucket(window, entry->key_hash);
    entry->key_next = JLOG_NO_ENTRY;
    for (uint32_t next = *bucket; next != JLOG_NO_ENTRY && left-- != 0; next = head->bucket_next) {
        head = jlog_entry_at(window, next);
        if (head->key_hash == entry->key_hash) {
            jlog_entry_at(window, head->key_last)->key_next = at;
            head->key_last = at;
            return 0;
        }
    }
    entry->key_last = at;
    entry->bucket_next = *bucket;
    *bucket = at;
    return 1;
}

/* Takes the first entry out of its key's chain. Returns the one that is the first now, or JLOG_NO_ENTRY. */
static inline uint32_t jlog_key_leave(struct jlog_window *window, uint32_t at)
{
    const struct jlog_entry *entry = jlog_entry_at(window, at);
    struct jlog_entry *next;
    uint32_t *link, left = window->capacity;

    if (entry->key_hash == 0)
        return JLOG_NO_ENTRY;
    for (link = jlog_bucket(window, entry->key_hash); *link != at; link = &jlog_entry_at(window, *link)->bucket_next)
        if (*link == JLOG_NO_ENTRY || left-- == 0) { /* damaged */
            window->unrepaired = 1;
            return JLOG_NO_ENTRY;
        }
    if (entry->key_next == JLOG_NO_ENTRY) {
        *link = entry->bucket_next;
        return JLOG_NO_ENTRY;
    }
    next = jlog_entry_at(window, entry->key_next);
    next->key_last = entry->key_last;
    next->bucket_next = entry->bucket_next;
    return *link = entry->key_next;
}
