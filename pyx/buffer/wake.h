/* Waits for a word to change: the futexes of readers, and of a thread that waits for many journals. */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "system/failpoint.h"
#include "buffer/page.h"

#define JLOG_WORDS_MAX 128                               /* the kernel waits for at most so many words in one call */

/* From linux/futex.h since 5.16. The headers at compilation may be older than the kernel at run time. */
#define JLOG_SYS_FUTEX_WAITV 449
#define JLOG_FUTEX_32 2u

struct jlog_awaited {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};

/* Fills in one word of a call of jlog_wait_for_any. */
static inline void jlog_await(struct jlog_awaited *awaited, const uint32_t *word, uint32_t value, int shared)
{
    awaited->value = value;
    awaited->address = (uint64_t)(uintptr_t)word;
    awaited->flags = JLOG_FUTEX_32 | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    awaited->reserved = 0;
}

/* Waits until one of the words has another value or the time has passed. Returns 0 or an errno: ENOSYS from a kernel that
 * cannot wait so. */
static inline int jlog_wait_for_any(struct jlog_awaited *awaited, unsigned count, int64_t timeout_us)
{
    const int failure = JLOG_FAILPOINT("wake.wait_for_any");
    struct timespec until;

    if (failure != 0)
        return failure;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += timeout_us % 1000000 * 1000;
    until.tv_sec += timeout_us / 1000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return syscall(JLOG_SYS_FUTEX_WAITV, awaited, count, 0, &until, CLOCK_MONOTONIC) < 0 ? errno : 0;
}

/* Waits for a word that only this process sees. */
static inline void jlog_wait_private(uint32_t *word, uint32_t value, int64_t timeout_us)
{
    const struct timespec timeout = {timeout_us / 1000000, timeout_us % 1000000 * 1000};

    jlog_futex(word, FUTEX_WAIT_PRIVATE, value, &timeout);
}

/* Changes the word and wakes the threads of this process that wait for it. */
static inline void jlog_ring(uint32_t *word)
{
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    jlog_futex(word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}
