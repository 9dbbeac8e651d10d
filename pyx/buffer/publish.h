/* Appends to the open block, wakes its readers, and opens the next one. Call all but jlog_wake under the append lock. */
#pragma once

#include "buffer/room.h"
#include "system/failpoint.h"

/* Returns the timestamp of a record that is appended now: the clock's time, but never earlier than the monotonic floor. */
static inline int64_t jlog_raise_to_floor_us(const struct jlog_page *page, int64_t now_us)
{
    return now_us > page->floor_us ? now_us : page->floor_us;
}

#define JLOG_CLOCK_AHEAD_US INT64_C(300000000) /* how far right clocks may differ: 5 minutes */

/* Returns how far the monotonic floor is ahead of the clock, if that is too much for clocks that differ a little; otherwise 0.
 * The clock was ahead when the floor was raised, or it is wrong now. */
static inline int64_t jlog_floor_ahead_us(const struct jlog_page *page, int64_t now_us)
{
    return page->floor_us > now_us + JLOG_CLOCK_AHEAD_US ? page->floor_us - now_us : 0;
}

static inline int64_t jlog_now_or_floor_us(struct jlog_buffer *buffer)
{
    return jlog_raise_to_floor_us(buffer->page, jlog_now_us(&buffer->clock));
}

/* Returns the base time of the open block. Its first record sets it. */
static inline int64_t jlog_block_base(struct jlog_buffer *buffer, const struct jlog_slot *slot, int64_t first_us)
{
    if (jlog_word_used(slot->publish_word) != 0)
        return jlog_load64(jlog_body(buffer, slot->generation));
    jlog_store64(jlog_body(buffer, slot->generation), first_us);
    return first_us;
}

/* Returns the CRC of the open block's body up to its next record. It covers at least the base time. */
static inline uint32_t jlog_block_crc(const struct jlog_buffer *buffer, const struct jlog_slot *slot)
{
    if (jlog_word_used(slot->publish_word) != 0)
        return jlog_word_crc(slot->publish_word);
    return jlog_crc32c(0, jlog_body(buffer, slot->generation), JLOG_BASE_BYTES);
}

/* Publishes `count` records, with which the body reaches up to `end`. Until the publish word is stored, neither a reader nor a
 * process that takes over from a killed writer knows that these bytes are there. Returns the first record's sequence. */
static inline uint64_t jlog_publish(struct jlog_buffer *buffer, struct jlog_slot *slot, uint32_t end, uint32_t crc,
                                    uint64_t count)
{
    struct jlog_page *page = buffer->page;
    const uint64_t sequence = page->next_sequence;

    (void)JLOG_FAILPOINT("append.encoded");
    jlog_store_release(&slot->publish_word, jlog_word(end, crc));
    (void)JLOG_FAILPOINT("append.published");
    page->next_sequence = sequence + count;
    return sequence;
}

/* Appends a value with the clock's time. The caller may read the clock before it takes the lock: the processor then reads its
 * counter while it waits for the lock's cache line. Returns the record's sequence, or -1 if only the slow way can go on: no
 * room, no reservation, a failed sync, another period, or a time too far from the base time for the short form. */
static inline int64_t jlog_put_value(struct jlog_buffer *buffer, const uint8_t *value, size_t bytes, int64_t now_us)
{
    struct jlog_page *page = buffer->page;
    struct jlog_slot *slot = jlog_open_slot(page);
    const uint32_t start = jlog_block_room(page, slot, (uint64_t)bytes + JLOG_SHORT_BYTES);
    uint64_t delta_us, head;
    uint32_t crc;

    if (start == 0 || !jlog_may_append(page, 1) || jlog_period_is_over(page, now_us))
        return -1;
    now_us = jlog_raise_to_floor_us(page, now_us);
    delta_us = (uint64_t)now_us - (uint64_t)jlog_block_base(buffer, slot, now_us); /* a body may state any base time */
    if (delta_us > UINT32_MAX)
        return -1;
    head = jlog_short_head((uint32_t)delta_us, bytes);
    jlog_encode_short(jlog_body(buffer, slot->generation) + start, head, value, bytes);
    /* The CRC is computed from the caller's value. The copy in the body was stored a moment ago, in pieces of another size:
     * reading it would wait until the stores have left the processor. */
    crc = jlog_crc32c(jlog_crc32c(jlog_block_crc(buffer, slot), &head, sizeof head), value, bytes);
    page->floor_us = now_us;
    return (int64_t)jlog_publish(buffer, slot, start + JLOG_SHORT_BYTES + (uint32_t)bytes, crc, 1);
}

/* Does the same for a record that is encoded already, with 0 microseconds from the base time. */
static inline int64_t jlog_put_record(struct jlog_buffer *buffer, uint8_t *record, size_t bytes, int64_t now_us)
{
    struct jlog_page *page = buffer->page;
    struct jlog_slot *slot = jlog_open_slot(page);
    const uint32_t start = jlog_block_room(page, slot, bytes);
    int64_t explicit_us;
    uint64_t delta_us;

    if (start == 0 || !jlog_may_append(page, 1) || jlog_period_is_over(page, now_us))
        return -1;
    now_us = jlog_raise_to_floor_us(page, now_us);
    delta_us = (uint64_t)now_us - (uint64_t)jlog_block_base(buffer, slot, now_us); /* a body may state any base time */
    if (delta_us > UINT32_MAX)
        return -1;
    if (jlog_load32(record) & JLOG_TAG_EXPLICIT) {
        explicit_us = jlog_load64(record + JLOG_LONG_BYTES);
        page->explicit_count++;
        if (explicit_us > page->explicit_max_us)
            page->explicit_max_us = explicit_us;
    } else {
        jlog_store32(record + 4, (uint32_t)delta_us);
        page->floor_us = now_us;
    }
    memcpy(jlog_body(buffer, slot->generation) + start, record, bytes);
    return (int64_t)jlog_publish(buffer, slot, start + (uint32_t)bytes,
                                 jlog_crc32c(jlog_block_crc(buffer, slot), record, bytes), 1);
}

/* --- Waking readers ------------------------------------------------------------------------------------------- */

/* Wakes the readers that wait for a record. A full fence must stand between the store that published it and this load: without
 * one, 1 wake-up in 110 was lost in a trial. On x86-64 the exchange in jlog_unlock is that fence. */
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

/* --- Rotating --------------------------------------------------------------------------------------------------- */

/* Opens the next generation's block at this place. It uses the body of the block before the last, which is in the segment.
 * reserved_end reaches that place at every moment: space below it must never be allocated by writing zeros. */
static inline void jlog_rotate(struct jlog_page *page, uint64_t segment, uint64_t offset, uint64_t first_sequence,
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
    (void)JLOG_FAILPOINT("rotate.before");
    /* The publish word is stored first, because a power loss may catch the page between any two stores. */
    __atomic_store_n(&slot->publish_word, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    (void)JLOG_FAILPOINT("rotate.emptied");
    jlog_copy_words(slot, &next, offsetof(struct jlog_slot, publish_word));
    (void)JLOG_FAILPOINT("rotate.filled");
    jlog_store_release(&page->generation, generation);
    jlog_full_fence(); /* the body is used anew only after this */
    (void)JLOG_FAILPOINT("rotate.turned");
    page->next_sequence = first_sequence;
    page->explicit_max_us = INT64_MIN;
    page->explicit_count = 0;
}
