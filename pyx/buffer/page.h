/* The control page at the beginning of `precommit`: its layout, and how the open and the immutable block are found in it.
 *
 * The generation, its slot and the slot's publish word are always true. Everything else in the page is derived from them, or is
 * an intent. An intent holds the generation that it is about, so it never needs clearing. docs/format.md, "The pre-commit
 * buffer", specifies the page; tools/model checks the protocol step by step. room.h computes the room of the open block;
 * publish.h appends to it and opens the next one. */
#pragma once

#include <stdint.h>

#include "system/atomic.h"
#include "system/clock.h"
#include "format/format.h"

#define JLOG_PAGE_MAGIC "JLOGPAGE"
#define JLOG_PAGE_LAYOUT 2u
#define JLOG_PAGE_BYTES 4096u                            /* the bodies begin here */
#define JLOG_PAGE_STATE_OFFSET 128u                      /* identity and options stand before; a recovery clears the rest */
#define JLOG_BASE_BYTES 8u                               /* a body begins with its base time */
#define JLOG_CAPACITY_MIN 4096u
#define JLOG_CAPACITY_MAX (1u << 30)
#define JLOG_GENERATION_MIN 2u                           /* an intent of 0 names no block, not even the one before the first */

enum { JLOG_PAGE_RECOVERING = 0, JLOG_PAGE_READY = 1 };
enum { JLOG_SYNC_NONE = 0, JLOG_SYNC_INTERVAL = 1, JLOG_SYNC_APPEND = 2 };

/* The place of a block, and its publish word: bytes used (low half) and running CRC32C (high half) of the body. A slot is one
 * cache line, so that a power loss finds all of it as it was at one moment. */
struct jlog_slot {
    uint64_t generation;
    uint64_t segment;
    uint64_t offset;
    uint64_t first_sequence;
    uint64_t previous_offset;                            /* offset of the block before it in the segment; 0: none */
    uint32_t capacity;                                   /* bytes of the body that this block may use */
    uint32_t crc;                                        /* CRC of the fields above */
    uint64_t publish_word;                               /* storing it publishes records */
    uint64_t reserved;
} __attribute__((aligned(64)));

/* Counts since the page was created. The holder of the append lock changes them, except those of sync. They are only shown. */
struct jlog_counters {
    uint64_t records;                                    /* records of the blocks that are written, not of the open one */
    uint64_t raw_bytes;                                  /* bytes of these blocks' bodies, uncompressed */
    uint64_t stored_bytes;                               /* bytes of these blocks' bodies, as they are stored */
    uint64_t blocks;
    uint64_t direct_blocks;
    uint64_t flushes;
    uint64_t syncs;
    uint64_t sync_waits;                                 /* calls that another call's fdatasync served */
    uint64_t rolls;
    uint64_t waits;
    uint64_t takeovers;
    uint64_t wakes;
};

struct jlog_page {
    /* Recovery writes these. A change of the options writes those that are options. */
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
    uint64_t limit_bytes;                                /* no append begins once all segments hold this much; 0: no limit */
    uint64_t sync_interval_us;
    uint64_t roll_us;                                    /* length of the periods at whose end a segment ends; 0: none */
    uint32_t codec;                                      /* codec of new blocks */
    uint32_t sync_mode;

    /* Alone in its cache line: waiters read it again and again, while its holder writes the next line. */
    uint32_t append_lock __attribute__((aligned(64)));

    /* Changed under the append lock. They are derived, except sync_error, unrepaired and the intents. */
    uint32_t sync_error __attribute__((aligned(64)));    /* errno of a failed fdatasync; it stays until all have closed */
    uint32_t unrepaired;                                 /* not 0: the next holder of the lock repeats an incomplete takeover */
    uint64_t next_sequence;
    int64_t floor_us;                                    /* the clock gives no earlier timestamp */
    uint64_t reservation_limit;
    uint64_t closed;                                     /* intent: this block takes no more records */
    int64_t period_begin_us;                             /* the open segment's records come from [begin, begin + period) */
    uint64_t period_us;                                  /* 0: no period has begun; UINT64_MAX: it never ends */
    uint64_t reserved_end;                               /* the open segment is allocated up to here, and never used beyond */

    uint64_t direct __attribute__((aligned(64)));        /* intent: an unpublished block may stand at the open block's place */
    uint64_t state;                                      /* intent: the newest generation whose block had state */
    uint64_t sealed_bytes;                               /* bytes of the segments before the open one; only with a limit */
    uint64_t incarnation;                                /* changes of the open segment's file; odd during a replacement */
    uint64_t new_inode;                                  /* inode of the replacing file */
    uint64_t new_end;                                    /* end of the blocks in the replacing file */
    uint32_t write_lock;                                 /* its holder writes the immutable block to its place */
    uint64_t unwritten;                                  /* intent: this block is published and not in its segment yet */

    uint32_t sync_lock __attribute__((aligned(64)));
    uint32_t sync_counter;                               /* futex of the calls that wait for the durable end */
    uint32_t sync_arrivals;                              /* calls that ever waited for it */
    uint32_t sync_served;                                /* sync_arrivals when the last fdatasync began */
    uint32_t sync_group;                                 /* calls that arrived for the last fdatasync, or during it */
    uint32_t sync_leads;                                 /* how often the sync word was taken to lead a group */
    uint64_t syncs_ended;                                /* syncs that have stored their result */
    uint64_t durable_generation;                         /* the blocks of all generations before it are synced */
    uint64_t durable_end;
    uint64_t durable_segment;                            /* the directory entries of the segments up to it are synced */
    uint64_t syncs_begun;                                /* more than have ended: one is under way, or died before its result */

    uint32_t wake_counter __attribute__((aligned(64)));  /* futex of waiting readers */
    uint32_t wake_flag;                                  /* not 0: a reader waits */
    uint32_t sync_stuck;                                 /* sync_leads of a lead that never ended: the others sync alone */

    uint64_t generation __attribute__((aligned(64)));
    struct jlog_slot slots[2];

    int64_t explicit_max_us __attribute__((aligned(64))); /* latest timestamp that a writer gave, in the open block */
    uint64_t explicit_count;                             /* records of the open block whose writer gave the timestamp */
    uint64_t rolling;                                    /* intent: a roll away from this generation has begun */
    uint64_t next_sealed_bytes;                          /* value of sealed_bytes once that roll has opened the next segment */

    struct jlog_counters counters __attribute__((aligned(64)));

    struct jlog_block_header immutable __attribute__((aligned(64))); /* the immutable block's header, as it will be written */
};

_Static_assert(sizeof(struct jlog_slot) == 64, "a slot is one cache line");
_Static_assert(offsetof(struct jlog_page, segment_bytes) == 80, "the options begin here");
_Static_assert(offsetof(struct jlog_page, append_lock) == JLOG_PAGE_STATE_OFFSET, "the state begins here");
_Static_assert(sizeof(struct jlog_page) <= JLOG_PAGE_BYTES, "the control page");

#define JLOG_SNAPSHOT_BYTES offsetof(struct jlog_page, explicit_max_us) /* a reader needs this much of the page */
#define JLOG_GENERATION_OFFSET offsetof(struct jlog_page, generation)
#define JLOG_UNWRITTEN_OFFSET offsetof(struct jlog_page, unwritten)
#define JLOG_INTENTS_BYTES (JLOG_GENERATION_OFFSET + 8 - JLOG_UNWRITTEN_OFFSET) /* from `unwritten` to `generation` */
#define JLOG_BOOT_ID_OFFSET offsetof(struct jlog_page, boot_id)
#define JLOG_STATUS_OFFSET offsetof(struct jlog_page, status)
#define JLOG_WAKE_COUNTER_OFFSET offsetof(struct jlog_page, wake_counter)
#define JLOG_WAKE_FLAG_OFFSET offsetof(struct jlog_page, wake_flag)

/* One process's view of a journal's buffer. */
struct jlog_buffer {
    struct jlog_page *page;                              /* mapped, shared */
    uint8_t *bodies;
    uint32_t owner;                                      /* the process's slot + 1, which it writes into a lock word */
    struct jlog_clock clock;
};

/* --- Slots and publish words ----------------------------------------------------------------------------------- */

static inline uint32_t jlog_slot_crc(const struct jlog_slot *slot, const uint8_t uuid[16])
{
    return jlog_crc32c(jlog_crc32c(0, uuid, 16), slot, offsetof(struct jlog_slot, crc));
}

static inline uint32_t jlog_word_used(uint64_t word) { return (uint32_t)word; }

/* Bytes of the records alone, without the base time. */
static inline uint32_t jlog_word_raw(uint64_t word)
{
    return jlog_word_used(word) != 0 ? jlog_word_used(word) - JLOG_BASE_BYTES : 0;
}

static inline uint32_t jlog_word_crc(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint64_t jlog_word(uint32_t used, uint32_t crc) { return (uint64_t)crc << 32 | used; }

/* Returns whether the slot is whole: its CRC fits, its fields can be a block's place, and the body can be as long. */
static inline int jlog_slot_valid(const struct jlog_slot *slot, const uint8_t uuid[16])
{
    const uint32_t used = jlog_word_used(slot->publish_word);

    if (slot->crc != jlog_slot_crc(slot, uuid))
        return 0;
    if (slot->generation < JLOG_GENERATION_MIN || slot->generation > JLOG_NUMBER_MAX)
        return 0;
    if (!jlog_place_valid(slot->segment, slot->offset, slot->first_sequence) || slot->capacity > JLOG_CAPACITY_MAX)
        return 0;
    if (slot->offset < JLOG_FIRST_BLOCK + sizeof(struct jlog_block_header)) /* the state block lies there */
        return 0;
    return used == 0 || (used > JLOG_BASE_BYTES && used <= slot->capacity);
}

/* --- The open block and the immutable one ------------------------------------------------------------------------ */

/* Returns the open block's slot. Call it under the append lock. */
static inline struct jlog_slot *jlog_open_slot(struct jlog_page *page) { return &page->slots[page->generation & 1]; }

/* Returns where the body of a generation's block begins in the file `precommit`. The two bodies are used in turns. */
static inline uint64_t jlog_body_offset(uint64_t generation, uint64_t capacity)
{
    return JLOG_PAGE_BYTES + (generation & 1) * capacity;
}

/* Returns the address of the same body in the mapped buffer. */
static inline uint8_t *jlog_body(const struct jlog_buffer *buffer, uint64_t generation)
{
    return buffer->bodies + (generation & 1) * buffer->page->capacity;
}

/* Returns whether these `bytes` are the whole body that the slot's publish word vouches for. */
static inline int jlog_is_whole_body(const struct jlog_slot *slot, const uint8_t *body, size_t bytes)
{
    return bytes == jlog_word_used(slot->publish_word) && jlog_crc32c(0, body, bytes) == jlog_word_crc(slot->publish_word);
}

/* Returns whether the block of this generation is published, and marked as not in its segment yet. */
static inline int jlog_is_unwritten(const struct jlog_page *page, uint64_t generation)
{
    return jlog_load_acquire(&page->unwritten) == generation;
}

/* Returns whether there is an immutable block. */
static inline int jlog_has_immutable(const struct jlog_page *page)
{
    return jlog_is_unwritten(page, jlog_load_acquire(&page->generation) - 1);
}

/* Returns the slot of the first block that is not in its segment: the immutable block's, or else the open block's. Call it
 * under the append lock, or while no process changes the page. */
static inline struct jlog_slot *jlog_unwritten_slot(struct jlog_page *page)
{
    return &page->slots[(page->generation - (jlog_has_immutable(page) ? 1 : 0)) & 1];
}

/* Returns a copy of the same slot as it was at one moment, without the lock. A block is marked as unwritten before the next one
 * is open, so the intent is read after the generation. Once the block is written, its slot is filled anew before the generation
 * changes, so both are read again after the copy. */
static inline struct jlog_slot jlog_first_unwritten(const struct jlog_page *page)
{
    struct jlog_slot slot;
    uint64_t generation;
    int immutable;

    do {
        generation = jlog_load_acquire(&page->generation);
        immutable = jlog_is_unwritten(page, generation - 1);
        jlog_copy_words(&slot, &page->slots[(generation - (immutable ? 1 : 0)) & 1], sizeof slot);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (jlog_load_acquire(&page->generation) != generation ||
             (immutable && !jlog_is_unwritten(page, generation - 1)));
    return slot;
}
