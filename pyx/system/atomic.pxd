"""The declarations of atomic.h, for the Cython sources."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "system/atomic.h" nogil:
    enum:
        JLOG_WAITERS
        JLOG_OWNERS_MAX

    uint64_t jlog_load_acquire(const uint64_t *at)
    void jlog_store_release(uint64_t *at, uint64_t value)
    uint32_t jlog_load32_acquire(const uint32_t *at)
    void jlog_full_fence()
    void jlog_raise_to(uint64_t *at, uint64_t value)
    bint jlog_try_lock(uint32_t *word, uint32_t owner)
    void jlog_unlock(uint32_t *word)
    bint jlog_spin_lock(uint32_t *word, uint32_t owner, int turns)
    bint jlog_sleep_lock(uint32_t *word, uint32_t owner, int64_t timeout_us, uint32_t *found)
    bint jlog_take_word(uint32_t *word, uint32_t dead, uint32_t owner)
    void jlog_pause()
    void jlog_futex_wake_all(uint32_t *futex)
    uint32_t jlog_add32(uint32_t *at, int32_t change)
    uint64_t jlog_add64(uint64_t *at, uint64_t change)
    bint jlog_replace64(uint64_t *at, uint64_t expected, uint64_t value)
    void jlog_futex_wait(uint32_t *futex, uint32_t value, int64_t timeout_us)
