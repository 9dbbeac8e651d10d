/* The publish protocol of pyx/buffer/publish.h with real threads, for ThreadSanitizer: writers append under the lock word,
 * rotate, and write the immutable block back; readers follow generation, slot, publish word and body, and check every
 * checksum, as pyx/buffer/precommit.pyx does.
 *
 *     publish SECONDS [WRITERS [READERS]]
 *
 * Readers of the library copy the page and the bodies with pread, and so the kernel does it, which no sanitizer looks at: here
 * copy_as_the_kernel() stands for that. All else is the library's own code, and is to be free of data races. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "buffer/publish.h"
#include "segments/build.h"

enum { CAPACITY = 4096, SEGMENT_BYTES = 1 << 22, THREADS_MAX = 16, SPIN_TURNS = 400 };

static const uint8_t uuid[16] = "publish protocol";
static struct jlog_page *page;
static uint8_t *bodies;
static uint8_t *segment;                                 /* stands for the file: blocks are written to their places in it */
static uint32_t over;
static uint64_t appended, blocks_written, snapshots, bodies_read, reused;

/* What pread does: words are read while others write them, in any order, and the reader finds out by the checksums. Both are
 * aligned, and the target has room for whole words. */
__attribute__((no_sanitize("thread"), noinline)) static void copy_as_the_kernel(void *target, const volatile void *source,
                                                                                size_t bytes)
{
    for (size_t i = 0; i < (bytes + 7) / 8; i++)
        ((volatile jlog_shared_word *)target)[i] = ((const volatile jlog_shared_word *)source)[i];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static void lock(uint32_t *word, uint32_t owner)
{
    uint32_t found;

    while (!jlog_spin_lock(word, owner, SPIN_TURNS) && !jlog_sleep_lock(word, owner, 1000, &found))
        ;
}

/* --- Writing, as append.pyx and write_back.pyx do ---------------------------------------------------------------------- */

static void fill_header(struct jlog_buffer *buffer, const struct jlog_slot *slot)
{
    const uint8_t *body = jlog_body(buffer, slot->generation);
    const uint32_t bytes = jlog_word_raw(slot->publish_word), crc = jlog_crc32c(0, body + JLOG_BASE_BYTES, bytes);
    const struct jlog_block_content content = {
        .kind = JLOG_KIND_RECORDS, .codec = JLOG_CODEC_NONE, .record_count = page->next_sequence - slot->first_sequence,
        .first_sequence = slot->first_sequence, .raw_bytes = bytes, .stored_bytes = bytes,
        .raw_crc = crc, .stored_crc = crc, .base_time_us = jlog_load64(body), .max_timestamp_us = INT64_MIN,
    };

    jlog_build_block_header(&page->immutable, &content, 0, 0, uuid, slot->segment, slot->offset);
}

/* The immutable block to its place, without the append lock; the write lock is let go. */
static void write_back(struct jlog_buffer *buffer)
{
    const uint64_t generation = jlog_load_acquire(&page->unwritten);
    const struct jlog_slot *slot = &page->slots[generation & 1];
    const uint8_t *body = jlog_body(buffer, generation);
    uint8_t *place = segment + slot->offset;

    assert(jlog_block_header_valid(&page->immutable, uuid, slot->segment, slot->offset));
    memcpy(place, &page->immutable, sizeof page->immutable);
    memcpy(place + sizeof page->immutable, body + JLOG_BASE_BYTES, page->immutable.stored_bytes);
    assert(jlog_crc32c(0, place + sizeof page->immutable, page->immutable.stored_bytes) == page->immutable.stored_crc);
    __atomic_add_fetch(&blocks_written, 1, __ATOMIC_RELAXED);
    jlog_store_release(&page->unwritten, 0);
    jlog_unlock(&page->write_lock);
}

/* Under the append lock: the open block becomes the immutable one. 0 where another immutable one is still being written. */
static int defer_block(struct jlog_buffer *buffer)
{
    struct jlog_slot *slot = jlog_open_slot(page);
    uint64_t next;

    if (jlog_has_immutable(page) || !jlog_try_lock(&page->write_lock, buffer->owner))
        return 0;
    fill_header(buffer, slot);
    next = slot->offset + sizeof page->immutable + page->immutable.stored_bytes;
    if (next + 2 * CAPACITY > SEGMENT_BYTES) /* as if to the next segment */
        next = JLOG_FIRST_BLOCK + sizeof(struct jlog_block_header);
    jlog_store_release(&page->unwritten, page->generation);
    jlog_rotate(page, slot->segment, next, page->next_sequence, slot->offset, CAPACITY);
    return 1;
}

static void *write_records(void *argument)
{
    struct jlog_buffer buffer = {.page = page, .bodies = bodies, .owner = (uint32_t)(uintptr_t)argument};
    uint8_t value[96];

    for (uint64_t count = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); count++) {
        const size_t bytes = 8 + count % (sizeof value - 8);
        int writes_back = 0;
        int64_t sequence;

        memset(value, (int)count, sizeof value);
        memcpy(value, &count, sizeof count);
        lock(&page->append_lock, buffer.owner);
        sequence = jlog_put_value(&buffer, value, bytes, jlog_now_us(&buffer.clock));
        if (sequence < 0)
            writes_back = defer_block(&buffer);
        jlog_unlock(&page->append_lock);
        if (writes_back)
            write_back(&buffer);
        if (sequence >= 0) {
            __atomic_add_fetch(&appended, 1, __ATOMIC_RELAXED);
            jlog_wake(page);
        }
    }
    return NULL;
}

/* --- Reading, as precommit.pyx does -------------------------------------------------------------------------------- */

struct snapshot {
    struct jlog_slot slot, immutable;
    int has_immutable;
};

static int is_slot_of(const struct jlog_slot *slot, uint64_t generation)
{
    return slot->generation == generation && jlog_slot_valid(slot, uuid);
}

/* 0 if the journal has rotated meanwhile. */
static int take_snapshot(struct snapshot *found)
{
    struct jlog_page copied;

    copy_as_the_kernel(&copied, page, JLOG_SNAPSHOT_BYTES);
    copied.unwritten = jlog_load_acquire(&page->unwritten); /* after the generation, and after the slot */
    found->slot = copied.slots[copied.generation & 1];
    found->immutable = copied.slots[(copied.generation - 1) & 1];
    found->has_immutable = copied.unwritten == copied.generation - 1;
    if (!is_slot_of(&found->slot, copied.generation))
        return 0;
    if (jlog_load_acquire(&page->generation) != copied.generation)
        return 0; /* the slot may be another generation's by now, with this one's publish word */
    return !found->has_immutable || is_slot_of(&found->immutable, copied.generation - 1);
}

/* Every record that its publish word counts, or nothing where the body has been used anew. */
static void read_body(const struct jlog_slot *slot)
{
    static _Thread_local _Alignas(8) uint8_t body[CAPACITY];
    const uint32_t used = jlog_word_used(slot->publish_word);
    struct jlog_walk walk;

    copy_as_the_kernel(body, bodies + (slot->generation & 1) * CAPACITY, used);
    if (jlog_load_acquire(&page->generation) - slot->generation > 1) {
        __atomic_add_fetch(&reused, 1, __ATOMIC_RELAXED);
        return;
    }
    if (jlog_crc32c(0, body, used) != jlog_word_crc(slot->publish_word) ||
        (used != 0 && jlog_walk_records(body + JLOG_BASE_BYTES, used - JLOG_BASE_BYTES, 0, &walk) != 0)) {
        fprintf(stderr, "generation %llu: what its publish word counts is not there\n", (unsigned long long)slot->generation);
        abort();
    }
    __atomic_add_fetch(&bodies_read, 1, __ATOMIC_RELAXED);
}

static void *read_records(void *argument)
{
    uint64_t last = 0;

    (void)argument;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        struct snapshot found;

        if (!take_snapshot(&found))
            continue;
        __atomic_add_fetch(&snapshots, 1, __ATOMIC_RELAXED);
        assert(found.slot.generation >= last);
        last = found.slot.generation;
        read_body(&found.slot);
        if (found.has_immutable)
            read_body(&found.immutable);
    }
    return NULL;
}

/* Whoever syncs looks at the page that it has mapped, without the append lock. */
static void *look_for_the_written_end(void *argument)
{
    (void)argument;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        const struct jlog_slot slot = jlog_first_unwritten(page);

        if (slot.crc != jlog_slot_crc(&slot, uuid)) {
            fprintf(stderr, "the first block that is not written: its slot is not whole\n");
            abort();
        }
        jlog_pause();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
    const int writers = argc > 2 ? atoi(argv[2]) : 4, readers = argc > 3 ? atoi(argv[3]) : 3;
    const int threads = writers + readers + 1;
    const struct timespec length = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    pthread_t running[THREADS_MAX];
    uint8_t *mapped;

    assert(writers > 0 && readers >= 0 && threads <= THREADS_MAX);
    mapped = mmap(NULL, JLOG_PAGE_BYTES + 2 * CAPACITY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    segment = malloc(SEGMENT_BYTES);
    if (mapped == MAP_FAILED || segment == NULL)
        return 2;
    page = (struct jlog_page *)(void *)mapped;
    bodies = mapped + JLOG_PAGE_BYTES;
    memcpy(page->uuid, uuid, sizeof uuid);
    page->capacity = CAPACITY;
    page->segment_bytes = SEGMENT_BYTES;
    page->reserved_end = 1ull << 40;
    page->reservation_limit = JLOG_NUMBER_MAX;
    page->period_us = UINT64_MAX;
    page->generation = 6;
    jlog_rotate(page, 0, JLOG_FIRST_BLOCK + sizeof(struct jlog_block_header), 0, 0, CAPACITY);
    for (int i = 0; i < threads; i++)
        pthread_create(&running[i], NULL, i < writers ? write_records : i < threads - 1 ? read_records : look_for_the_written_end,
                       (void *)(uintptr_t)(i + 1));
    nanosleep(&length, NULL);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    printf("%llu records, %llu blocks, %llu snapshots, %llu bodies checked, %llu used anew meanwhile\n",
           (unsigned long long)appended, (unsigned long long)blocks_written, (unsigned long long)snapshots,
           (unsigned long long)bodies_read, (unsigned long long)reused);
    return appended == 0 || (readers > 0 && bodies_read == 0);
}
