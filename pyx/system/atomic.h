/* Words that processes share through a mapping: ordered loads and stores, waiting, and lock words. */
#pragma once

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t jlog_load_acquire(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void jlog_store_release(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline uint32_t jlog_load32_acquire(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void jlog_full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* Copies words that others store or read meanwhile. Each word is copied whole, the words in no order. */
typedef uint64_t __attribute__((may_alias)) jlog_shared_word;

static inline void jlog_copy_words(void *target, const void *source, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(jlog_shared_word); i++)
        __atomic_store_n((jlog_shared_word *)target + i,
                         __atomic_load_n((const jlog_shared_word *)source + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static inline void jlog_raise_to(uint64_t *at, uint64_t value)
{
    uint64_t found = __atomic_load_n(at, __ATOMIC_RELAXED);

    while (found < value && !__atomic_compare_exchange_n(at, &found, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
}

static inline uint32_t jlog_add32(uint32_t *at, int32_t change)
{
    return __atomic_add_fetch(at, (uint32_t)change, __ATOMIC_SEQ_CST);
}

static inline uint64_t jlog_add64(uint64_t *at, uint64_t change)
{
    return __atomic_add_fetch(at, change, __ATOMIC_SEQ_CST);
}

static inline int jlog_replace64(uint64_t *at, uint64_t expected, uint64_t value)
{
    return __atomic_compare_exchange_n(at, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* --- Waiting ----------------------------------------------------------------------------------------------------- */

static inline long jlog_futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

/* Waits until the futex has another value or the time has passed; with NULL, until the time has passed. The futex may lie in a
 * mapping that is never dereferenced. */
static inline void jlog_futex_wait(uint32_t *futex, uint32_t value, int64_t timeout_us)
{
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000};

    if (futex != NULL)
        jlog_futex(futex, FUTEX_WAIT, value, &timeout);
    else
        nanosleep(&timeout, NULL);
}

/* Wakes all threads that wait on the futex. */
static inline void jlog_futex_wake_all(uint32_t *futex) { jlog_futex(futex, FUTEX_WAKE, INT_MAX, NULL); }

/* --- The lock words --------------------------------------------------------------------------------------------
 * A lock word is 0, or its owner: a writer slot + 1. JLOG_WAITERS beside the owner states that a thread sleeps on the word. */

#define JLOG_WAITERS 0x80000000u
#define JLOG_OWNERS_MAX 1024u /* this many processes may write to a journal at once */

static inline int jlog_try_lock(uint32_t *word, uint32_t owner)
{
    uint32_t expected = 0;
    return __atomic_compare_exchange_n(word, &expected, owner, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void jlog_unlock(uint32_t *word)
{
    if (__builtin_expect(__atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST) & JLOG_WAITERS, 0))
        jlog_futex(word, FUTEX_WAKE, 1, NULL);
}

static inline void jlog_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Tries to take the word without sleeping, for about as long as another process's append takes. */
static inline int jlog_spin_lock(uint32_t *word, uint32_t owner, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0 && jlog_try_lock(word, owner))
            return 1;
        jlog_pause();
    }
    return 0;
}

/* Sleeps until the word is free or timeout_us has passed. Returns 1 with the lock taken; else 0, and *found is the word's last
 * owner. After a sleep the lock is taken with the waiters bit, because others may still sleep. */
static inline int jlog_sleep_lock(uint32_t *word, uint32_t owner, int64_t timeout_us, uint32_t *found)
{
    struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000};
    uint32_t value = 0;

    if (__atomic_compare_exchange_n(word, &value, owner | JLOG_WAITERS, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 1;
    *found = value & ~JLOG_WAITERS;
    if (!(value & JLOG_WAITERS) &&
        !__atomic_compare_exchange_n(word, &value, value | JLOG_WAITERS, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return 0; /* the word has changed meanwhile: the caller tries again */
    jlog_futex(word, FUTEX_WAIT, *found | JLOG_WAITERS, &timeout);
    value = 0;
    return __atomic_compare_exchange_n(word, &value, owner | JLOG_WAITERS, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Takes the word over from a dead owner. The caller holds the owner's byte in the lock file: that is the proof of its death. */
static inline int jlog_take_word(uint32_t *word, uint32_t dead, uint32_t owner)
{
    uint32_t value = dead;

    if (__atomic_compare_exchange_n(word, &value, owner | JLOG_WAITERS, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 1;
    value = dead | JLOG_WAITERS;
    return __atomic_compare_exchange_n(word, &value, owner | JLOG_WAITERS, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
