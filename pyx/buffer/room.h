/* Tells how much the open block and its segment still take: bytes, records, and time. Call all of it under the append lock. */
#pragma once

#include "buffer/page.h"

/* --- Bytes ----------------------------------------------------------------------------------------------------- */

/* Returns how many bytes of its body a block at this offset may use: all, or the rest of the segment if that is less. */
static inline uint32_t jlog_block_capacity(const struct jlog_page *page, uint64_t offset)
{
    const uint64_t begin = offset + sizeof(struct jlog_block_header);
    const uint64_t left = page->segment_bytes > begin ? page->segment_bytes - begin : 0;

    return (uint32_t)(left + JLOG_BASE_BYTES < page->capacity ? left + JLOG_BASE_BYTES : page->capacity);
}

/* Returns the highest offset that the block may reach in its segment. */
static inline uint64_t jlog_block_limit(const struct jlog_slot *slot)
{
    return slot->offset + sizeof(struct jlog_block_header) + slot->capacity - JLOG_BASE_BYTES;
}

/* Returns an offset up to which the segment is certainly allocated, judged by its open slot alone: a block is reserved before
 * its first record. */
static inline uint64_t jlog_least_reserved(const struct jlog_slot *slot)
{
    return jlog_word_used(slot->publish_word) != 0 ? jlog_block_limit(slot) : slot->offset;
}

/* Returns whether the segments are at their limit, with blocks up to `end` in the open one. */
static inline int jlog_is_full(const struct jlog_page *page, uint64_t end)
{
    return page->limit_bytes != 0 && page->sealed_bytes + end >= page->limit_bytes;
}

/* Returns the offset of the next record in the open block's body; 0 if `bytes` more do not fit, or the block takes no more. A
 * block begins only where the segment is allocated as far as it may reach. So a full disk is met before a record is published,
 * not when the block is written. */
static inline uint32_t jlog_block_room(const struct jlog_page *page, const struct jlog_slot *slot, uint64_t bytes)
{
    uint32_t start = jlog_word_used(slot->publish_word);

    if (start == 0) {
        if (jlog_block_limit(slot) > page->reserved_end || jlog_is_full(page, slot->offset))
            return 0;
        start = JLOG_BASE_BYTES;
    }
    return page->closed != slot->generation && start + bytes <= slot->capacity ? start : 0;
}

/* --- Records --------------------------------------------------------------------------------------------------- */

/* Returns whether `count` records may be appended at all: no sync has failed, no takeover is incomplete, and their sequences
 * are reserved. */
static inline int jlog_may_append(const struct jlog_page *page, uint64_t count)
{
    return (page->sync_error | page->unrepaired) == 0 && page->next_sequence + count <= page->reservation_limit;
}

/* --- Time: segments end with periods of UTC, and a week begins on Monday ---------------------------------------- */

#define JLOG_DAY_US (86400ull * 1000000)
#define JLOG_CLOCKS_APART_US 1000000                     /* two processes' clocks never differ by more */

/* Returns whether the clock, right or wrong, has left the period of the open segment. */
static inline int jlog_period_is_over(const struct jlog_page *page, int64_t now_us)
{
    return (uint64_t)now_us - (uint64_t)page->period_begin_us >= page->period_us;
}

/* Returns the length of a period that begins now. It includes a short time before the beginning: otherwise two processes whose
 * clocks differ would roll in turns there. */
static inline uint64_t jlog_period_length(const struct jlog_page *page)
{
    return page->roll_us != 0 ? page->roll_us + JLOG_CLOCKS_APART_US : UINT64_MAX;
}

/* Begins the period of the open segment, whose first record comes now. 1970 began on a Thursday, so four days later is a
 * Monday, at 0:00. The length is stored last: if it is not the option's, the process that began this was killed. */
static inline void jlog_begin_period(struct jlog_page *page, int64_t now_us)
{
    const int64_t monday_us = 4 * (int64_t)JLOG_DAY_US, length_us = (int64_t)page->roll_us;
    const int64_t since_us = length_us != 0 ? (now_us - monday_us) % length_us : 0;

    page->period_begin_us = 0;
    if (length_us != 0)
        page->period_begin_us = now_us - (since_us < 0 ? since_us + length_us : since_us) - JLOG_CLOCKS_APART_US;
    jlog_store_release(&page->period_us, jlog_period_length(page));
}
