/* The control page at the beginning of `precommit`, and what every append does with it.
 *
 * What is published is true: the generation, its slot and its word. The rest is derived from them, or a note that says
 * which generation it belongs to, so that it never needs clearing. design: docs/format.md, "The pre-commit buffer";
 * the protocol, step by step: tools/model. All sharing goes through the functions below. */
#ifndef JLOG_PAGE_H
#define JLOG_PAGE_H

#include <stdint.h>

#include "system/atomic.h"
#include "system/clock.h"
#include "system/failpoint.h"
#include "format/format.h"

#define JLOG_PAGE_MAGIC "JLOGPAGE"
#define JLOG_PAGE_LAYOUT 2u
#define JLOG_PAGE_BYTES 4096u                            /* the bodies begin here */
#define JLOG_BASE_BYTES 8u                               /* a body begins with its base time */
#define JLOG_CAPACITY_MIN 4096u
#define JLOG_GENERATION_MIN 2u                           /* a note of 0 names no generation, nor that before the first one */
#define JLOG_CAPACITY_MAX (1u << 30)
#define JLOG_OWNERS_MAX 1024u                            /* processes that write to a journal at once */

enum { JLOG_PAGE_RECOVERING = 0, JLOG_PAGE_READY = 1 };
enum { JLOG_SYNC_NONE = 0, JLOG_SYNC_INTERVAL = 1, JLOG_SYNC_APPEND = 2 };

/* Where a block lies, and its word: bytes used (low half) and running CRC32C (high half) of the body. One cache line,
 * so that a power loss finds all of it as it was at one moment. */
struct jlog_slot {
    uint64_t generation;
    uint64_t segment;
    uint64_t offset;
    uint64_t first_sequence;
    uint64_t previous_offset;                            /* of the block before it in the segment, 0 without */
    uint32_t capacity;                                   /* bytes of the body that this block may use */
    uint32_t crc;                                        /* of the fields above */
    uint64_t word;
    uint64_t reserved;
} __attribute__((aligned(64)));

/* Since the page was made. Counted by whoever holds the append lock, but for those of sync; only ever shown. */
struct jlog_counters {
    uint64_t records;                                    /* in blocks that are written: those of the open one not yet */
    uint64_t raw_bytes;                                  /* of these blocks' bodies */
    uint64_t stored_bytes;                               /* the same, compressed where they are */
    uint64_t blocks;
    uint64_t direct_blocks;
    uint64_t flushes;
    uint64_t syncs;
    uint64_t sync_waits;                                 /* calls that another one's fdatasync served */
    uint64_t rolls;
    uint64_t waits;
    uint64_t takeovers;
    uint64_t wakes;
};

struct jlog_page {
    /* Written by recovery, and the options by whoever changes them. */
    uint8_t magic[8];
    uint32_t layout;
    uint32_t status;
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint64_t device;
    uint64_t inode;
    uint64_t capacity;                                   /* bytes of each of the two bodies */
    uint64_t reserved;
    uint64_t segment_bytes;                              /* a segment that holds records takes no block beyond this */
    uint64_t limit_bytes;                                /* of all segments: at it nothing is appended; 0: no limit */
    uint64_t sync_interval_us;
    uint64_t roll_us;                                    /* length of the periods at whose end a segment ends; 0: none */
    uint32_t codec;                                      /* of blocks from now on */
    uint32_t sync_mode;

    /* Alone in its cache line: who waits for it reads it over and over, beside whoever holds it and writes the next. */
    uint32_t append_lock __attribute__((aligned(64)));

    /* Under the append lock. Derived but for the notes, which name the generation that they belong to. */
    uint32_t sync_error __attribute__((aligned(64)));    /* errno of a failed fdatasync: sticks until all have closed */
    uint32_t unrepaired;                                 /* a takeover is not complete: who holds the lock next goes on with it */
    uint64_t next_sequence;
    int64_t clamp_us;                                    /* no clock's timestamp may be earlier */
    uint64_t lease_limit;
    uint64_t closed;                                     /* note: takes no more records */
    int64_t period_begin_us;                             /* the open segment's records come from [begin, begin + period) */
    uint64_t period_us;                                  /* 0: none has begun; UINT64_MAX: whenever */
    uint64_t reserved_end;                               /* how far the open segment is allocated: never less than is used */

    uint64_t direct __attribute__((aligned(64)));        /* note: a block may stand at its place that nobody published */
    uint64_t state;                                      /* note: the newest generation that carried state */
    uint64_t sealed_bytes;                               /* of the segments before the open one; counted where limited */
    uint64_t incarnation;                                /* of the open segment's file; odd while another takes its name: */
    uint64_t new_inode;                                  /* this one, */
    uint64_t new_end;                                    /* and here its blocks end */
    uint32_t write_lock;                                 /* of who writes the closing block to its place */
    uint64_t unwritten;                                  /* note: the block before the open one is not in its segment */

    uint32_t sync_lock __attribute__((aligned(64)));
    uint32_t sync_counter;                               /* futex of those that wait for the durable end */
    uint32_t sync_arrivals;                              /* calls that wanted it, ever */
    uint32_t sync_served;                                /* of these, when the last fdatasync began */
    uint32_t sync_group;                                 /* so many came for the last one and during it */
    uint32_t sync_leads;                                 /* how often the sync word was taken to lead */
    uint64_t syncs_ended;                                /* syncs that have told how they ended */
    uint64_t durable_generation;                         /* the blocks of all generations before it are synced */
    uint64_t durable_end;
    uint64_t durable_segment;                            /* files up to this one are in the directory for certain */
    uint64_t syncs_begun;                                /* more than have ended: one is under way, or died untold */

    uint32_t wake_counter __attribute__((aligned(64)));  /* futex of waiting readers */
    uint32_t wake_flag;
    uint32_t sync_stuck;                                 /* the lead that somebody has waited for in vain */

    uint64_t generation __attribute__((aligned(64)));
    struct jlog_slot slots[2];

    int64_t explicit_max_us __attribute__((aligned(64))); /* of the open block */
    uint64_t explicit_count;
    uint64_t rolling;                                    /* note: a roll away from this generation has begun; */
    uint64_t next_sealed_bytes;                          /* sealed_bytes, once the next one is open */

    struct jlog_counters counters __attribute__((aligned(64)));

    struct jlog_block_header closing __attribute__((aligned(64))); /* of the closing block, as it will be written */
};

_Static_assert(sizeof(struct jlog_slot) == 64, "a slot is one cache line");
_Static_assert(offsetof(struct jlog_page, append_lock) == 128, "what recovery clears begins here");
_Static_assert(sizeof(struct jlog_page) <= JLOG_PAGE_BYTES, "the control page");

#define JLOG_SNAPSHOT_BYTES offsetof(struct jlog_page, explicit_max_us) /* what a reader needs of the page */
#define JLOG_GENERATION_OFFSET offsetof(struct jlog_page, generation)
#define JLOG_UNWRITTEN_OFFSET offsetof(struct jlog_page, unwritten)
#define JLOG_NOTES_BYTES (JLOG_GENERATION_OFFSET + 8 - JLOG_UNWRITTEN_OFFSET) /* from `unwritten` to `generation` */
#define JLOG_BOOT_ID_OFFSET offsetof(struct jlog_page, boot_id)
#define JLOG_STATUS_OFFSET offsetof(struct jlog_page, status)
#define JLOG_WAKE_COUNTER_OFFSET offsetof(struct jlog_page, wake_counter)
#define JLOG_WAKE_FLAG_OFFSET offsetof(struct jlog_page, wake_flag)

/* What one process has of a journal's buffer. */
struct jlog_buffer {
    struct jlog_page *page;                              /* mapped, shared */
    uint8_t *bodies;
    uint32_t owner;                                      /* the process's slot + 1: what it writes into a lock word */
    struct jlog_clock clock;
};

static inline uint32_t jlog_slot_crc(const struct jlog_slot *slot, const uint8_t uuid[16])
{
    return jlog_crc32c(jlog_crc32c(0, uuid, 16), slot, offsetof(struct jlog_slot, crc));
}

static inline uint32_t jlog_word_used(uint64_t word) { return (uint32_t)word; }
static inline uint32_t jlog_word_raw(uint64_t word)     /* of its records alone */
{
    return jlog_word_used(word) != 0 ? jlog_word_used(word) - JLOG_BASE_BYTES : 0;
}
static inline uint32_t jlog_word_crc(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint64_t jlog_word(uint32_t used, uint32_t crc) { return (uint64_t)crc << 32 | used; }

/* Whether the slot is whole: what its CRC covers could be a block's place, and its word counts no more than fits. */
static inline int jlog_slot_valid(const struct jlog_slot *slot, const uint8_t uuid[16])
{
    const uint32_t used = jlog_word_used(slot->word);

    if (slot->crc != jlog_slot_crc(slot, uuid))
        return 0;
    if (slot->generation < JLOG_GENERATION_MIN || slot->generation > JLOG_NUMBER_MAX)
        return 0;
    if (!jlog_place_valid(slot->segment, slot->offset, slot->first_sequence) || slot->capacity > JLOG_CAPACITY_MAX)
        return 0;
    if (slot->offset < JLOG_FIRST_BLOCK + sizeof(struct jlog_block_header)) /* where the block with the state lies */
        return 0;
    return used == 0 || (used > JLOG_BASE_BYTES && used <= slot->capacity);
}

/* Wakes readers that wait for a record. The exchange in jlog_unlock is the full fence that must stand between the
 * publishing store and this load: without one, 1 wake-up in 110 was lost in a trial. */
static inline void jlog_wake(struct jlog_page *page)
{
#if !defined(__x86_64__)
    jlog_full_fence();
#endif
    if (__builtin_expect(__atomic_load_n(&page->wake_flag, __ATOMIC_RELAXED) != 0, 0) &&
        __atomic_exchange_n(&page->wake_flag, 0, __ATOMIC_SEQ_CST) != 0) {
        __atomic_add_fetch(&page->wake_counter, 1, __ATOMIC_SEQ_CST);
        page->counters.wakes++;
        jlog_futex(&page->wake_counter, FUTEX_WAKE, INT_MAX, NULL);
    }
}

/* --- Under the append lock ------------------------------------------------------------------------------------- */

static inline struct jlog_slot *jlog_open_slot(struct jlog_page *page) { return &page->slots[page->generation & 1]; }

/* The body of a generation's block: the two take turns. */
static inline uint8_t *jlog_body(const struct jlog_buffer *buffer, uint64_t generation)
{
    return buffer->bodies + (generation & 1) * buffer->page->capacity;
}

/* Whether the block of this generation is published, and noted as not in its segment yet. */
static inline int jlog_is_unwritten(const struct jlog_page *page, uint64_t generation)
{
    return jlog_load_acquire(&page->unwritten) == generation;
}

/* Whether there is a closing block. */
static inline int jlog_is_closing(const struct jlog_page *page)
{
    return jlog_is_unwritten(page, jlog_load_acquire(&page->generation) - 1);
}

/* The slot behind which nothing is in its segment yet: the closing block's, or else the open one's. Under the append lock,
 * or of a page that nobody changes. */
static inline struct jlog_slot *jlog_unwritten_slot(struct jlog_page *page)
{
    return &page->slots[(page->generation - (jlog_is_closing(page) ? 1 : 0)) & 1];
}

/* The same without the lock, as it stood at one moment. A block is noted as unwritten before the next one is open, so that
 * the note is read after the generation; and once it is written its slot is filled anew before the generation says so, so
 * that both are looked at again. */
static inline struct jlog_slot jlog_first_unwritten(const struct jlog_page *page)
{
    struct jlog_slot slot;
    uint64_t generation;
    int closing;

    do {
        generation = jlog_load_acquire(&page->generation);
        closing = jlog_is_unwritten(page, generation - 1);
        jlog_copy_words(&slot, &page->slots[(generation - (closing ? 1 : 0)) & 1], sizeof slot);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (jlog_load_acquire(&page->generation) != generation ||
             (closing && !jlog_is_unwritten(page, generation - 1)));
    return slot;
}

/* Bytes of the body that a block at this offset may use: the buffer, or what is left of the segment if less. */
static inline uint32_t jlog_block_capacity(const struct jlog_page *page, uint64_t offset)
{
    const uint64_t begin = offset + sizeof(struct jlog_block_header);
    const uint64_t left = page->segment_bytes > begin ? page->segment_bytes - begin : 0;

    return (uint32_t)(left + JLOG_BASE_BYTES < page->capacity ? left + JLOG_BASE_BYTES : page->capacity);
}

/* How far a block may come in its segment. */
static inline uint64_t jlog_block_limit(const struct jlog_slot *slot)
{
    return slot->offset + sizeof(struct jlog_block_header) + slot->capacity - JLOG_BASE_BYTES;
}

/* Whether the segment is allocated as far as the open block may come: a full disk is met before a record is published,
 * not when the block is written. */
static inline int jlog_block_reserved(const struct jlog_page *page, const struct jlog_slot *slot)
{
    return jlog_block_limit(slot) <= page->reserved_end;
}

/* How far the segment is allocated for certain, going by its open slot alone: a block is reserved before its first record. */
static inline uint64_t jlog_least_reserved(const struct jlog_slot *slot)
{
    return jlog_word_used(slot->word) != 0 ? jlog_block_limit(slot) : slot->offset;
}

/* Whether the segments with blocks up to `end` in the open one are at their limit. */
static inline int jlog_is_full(const struct jlog_page *page, uint64_t end)
{
    return page->limit_bytes != 0 && page->sealed_bytes + end >= page->limit_bytes;
}

/* Where the open block's next record goes, or 0 where `bytes` more do not fit or it takes no more. */
static inline uint32_t jlog_block_room(const struct jlog_page *page, const struct jlog_slot *slot, uint64_t bytes)
{
    uint32_t start = jlog_word_used(slot->word);

    if (start == 0) {
        if (!jlog_block_reserved(page, slot) || jlog_is_full(page, slot->offset))
            return 0;
        start = JLOG_BASE_BYTES;
    }
    return page->closed != slot->generation && start + bytes <= slot->capacity ? start : 0;
}

/* Whether appending `count` records may go on at all: no sync has failed, no takeover is half done, and their numbers are
 * leased. */
static inline int jlog_may_append(const struct jlog_page *page, uint64_t count)
{
    return (page->sync_error | page->unrepaired) == 0 && page->next_sequence + count <= page->lease_limit;
}

/* --- Rolling by time: periods of UTC, a week begins on Monday --- */

#define JLOG_DAY_US (86400ull * 1000000)
#define JLOG_CLOCKS_APART_US 1000000                     /* more than two processes' readings ever are */

/* Whether the clock, right or wrong, has left the period of the open segment. */
static inline int jlog_period_is_over(const struct jlog_page *page, int64_t now_us)
{
    return (uint64_t)now_us - (uint64_t)page->period_begin_us >= page->period_us;
}

/* How long a period that begins now is. A time shortly before its beginning has not left it, or two processes would roll
 * in turns there. */
static inline uint64_t jlog_period_length(const struct jlog_page *page)
{
    return page->roll_us != 0 ? page->roll_us + JLOG_CLOCKS_APART_US : UINT64_MAX;
}

/* The open segment's first record comes now. 1970 began on a Thursday: four days later is a Monday, and 0:00. The length is
 * stored last: where it is not that of the option, whoever began this was killed. */
static inline void jlog_begin_period(struct jlog_page *page, int64_t now_us)
{
    const int64_t monday_us = 4 * (int64_t)JLOG_DAY_US, length_us = (int64_t)page->roll_us;
    const int64_t since_us = length_us != 0 ? (now_us - monday_us) % length_us : 0;

    page->period_begin_us = 0;
    if (length_us != 0)
        page->period_begin_us = now_us - (since_us < 0 ? since_us + length_us : since_us) - JLOG_CLOCKS_APART_US;
    jlog_store_release(&page->period_us, jlog_period_length(page));
}

/* A record's time: the clock's, but never before another one of the clock's. */
static inline int64_t jlog_clamp_us(const struct jlog_page *page, int64_t now_us)
{
    return now_us > page->clamp_us ? now_us : page->clamp_us;
}

static inline int64_t jlog_clamped_now_us(struct jlog_buffer *buffer)
{
    return jlog_clamp_us(buffer->page, jlog_now_us(&buffer->clock));
}

/* Base time of the open block; the first record makes it. */
static inline int64_t jlog_block_base(struct jlog_buffer *buffer, const struct jlog_slot *slot, int64_t first_us)
{
    if (jlog_word_used(slot->word) != 0)
        return jlog_load64(jlog_body(buffer, slot->generation));
    jlog_store64(jlog_body(buffer, slot->generation), first_us);
    return first_us;
}

/* CRC of the open block before its next record: of the base time at least. */
static inline uint32_t jlog_block_crc(const struct jlog_buffer *buffer, const struct jlog_slot *slot)
{
    if (jlog_word_used(slot->word) != 0)
        return jlog_word_crc(slot->word);
    return jlog_crc32c(0, jlog_body(buffer, slot->generation), JLOG_BASE_BYTES);
}

/* Makes the body exist up to `end`, and `count` records with it. Until the store of the word neither a reader nor whoever
 * takes over from a killed writer knows that these bytes are there. */
static inline uint64_t jlog_publish(struct jlog_buffer *buffer, struct jlog_slot *slot, uint32_t end, uint32_t crc,
                                    uint64_t count)
{
    struct jlog_page *page = buffer->page;
    const uint64_t sequence = page->next_sequence;

    (void)JLOG_FAILPOINT("append.encoded");
    jlog_store_release(&slot->word, jlog_word(end, crc));
    (void)JLOG_FAILPOINT("append.published");
    page->next_sequence = sequence + count;
    return sequence;
}

/* Appends a value with the clock's time, which may be read before the lock is taken: the processor then reads its counter
 * while it waits for the lock's cache line. Returns its sequence, or -1 where only the slow way can go on: no room, no
 * lease, a failed sync, another period, or a time too far from the base for the short form. */
static inline int64_t jlog_put_value(struct jlog_buffer *buffer, const uint8_t *value, size_t bytes, int64_t now_us)
{
    struct jlog_page *page = buffer->page;
    struct jlog_slot *slot = jlog_open_slot(page);
    const uint32_t start = jlog_block_room(page, slot, (uint64_t)bytes + JLOG_SHORT_BYTES);
    uint64_t delta_us, head;
    uint32_t crc;

    if (start == 0 || !jlog_may_append(page, 1) || jlog_period_is_over(page, now_us))
        return -1;
    now_us = jlog_clamp_us(page, now_us);
    delta_us = (uint64_t)now_us - (uint64_t)jlog_block_base(buffer, slot, now_us); /* any base may stand in a body */
    if (delta_us > UINT32_MAX)
        return -1;
    head = jlog_short_head((uint32_t)delta_us, bytes);
    jlog_encode_short(jlog_body(buffer, slot->generation) + start, head, value, bytes);
    /* From where the value came: reading back what was stored a moment ago, in other pieces than it was stored in, waits
     * until the stores have left the processor. */
    crc = jlog_crc32c(jlog_crc32c(jlog_block_crc(buffer, slot), &head, sizeof head), value, bytes);
    page->clamp_us = now_us;
    return (int64_t)jlog_publish(buffer, slot, start + JLOG_SHORT_BYTES + (uint32_t)bytes, crc, 1);
}

/* The same for one record that is encoded already, as if at the base time. */
static inline int64_t jlog_put_record(struct jlog_buffer *buffer, uint8_t *record, size_t bytes, int64_t now_us)
{
    struct jlog_page *page = buffer->page;
    struct jlog_slot *slot = jlog_open_slot(page);
    const uint32_t start = jlog_block_room(page, slot, bytes);
    int64_t explicit_us;
    uint64_t delta_us;

    if (start == 0 || !jlog_may_append(page, 1) || jlog_period_is_over(page, now_us))
        return -1;
    now_us = jlog_clamp_us(page, now_us);
    delta_us = (uint64_t)now_us - (uint64_t)jlog_block_base(buffer, slot, now_us); /* any base may stand in a body */
    if (delta_us > UINT32_MAX)
        return -1;
    if (jlog_load32(record) & JLOG_TAG_EXPLICIT) {
        explicit_us = jlog_load64(record + JLOG_LONG_BYTES);
        page->explicit_count++;
        if (explicit_us > page->explicit_max_us)
            page->explicit_max_us = explicit_us;
    } else {
        jlog_store32(record + 4, (uint32_t)delta_us);
        page->clamp_us = now_us;
    }
    memcpy(jlog_body(buffer, slot->generation) + start, record, bytes);
    return (int64_t)jlog_publish(buffer, slot, start + (uint32_t)bytes,
                                 jlog_crc32c(jlog_block_crc(buffer, slot), record, bytes), 1);
}

/* --- The switch ------------------------------------------------------------------------------------------------
 * To the next generation, whose block begins at this place. Its body is that of the one before the last, which is in the
 * segment. What is allocated reaches there: below that nothing may be allocated by writing zeros, at no moment. */
static inline void jlog_switch(struct jlog_page *page, uint64_t segment, uint64_t offset, uint64_t first_sequence,
                               uint64_t previous_offset, uint32_t capacity)
{
    const uint64_t generation = page->generation + 1;
    struct jlog_slot *slot = &page->slots[generation & 1];
    struct jlog_slot next = {.generation = generation, .segment = segment, .offset = offset,
                             .first_sequence = first_sequence, .previous_offset = previous_offset,
                             .capacity = capacity};

    next.crc = jlog_slot_crc(&next, page->uuid);
    if (page->reserved_end < offset)
        page->reserved_end = offset;
    (void)JLOG_FAILPOINT("switch.before");
    /* The word first: a power loss may catch the page between any two stores. */
    __atomic_store_n(&slot->word, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    (void)JLOG_FAILPOINT("switch.emptied");
    jlog_copy_words(slot, &next, offsetof(struct jlog_slot, word));
    (void)JLOG_FAILPOINT("switch.filled");
    jlog_store_release(&page->generation, generation);
    jlog_full_fence(); /* only now is the body used anew */
    (void)JLOG_FAILPOINT("switch.turned");
    page->next_sequence = first_sequence;
    page->explicit_max_us = INT64_MIN;
    page->explicit_count = 0;
}

#endif
