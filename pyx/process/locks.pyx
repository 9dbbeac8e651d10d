"""Takes lock words for a writing process, also from an owner that has died.

A thread that holds a lock word never waits for the GIL.
"""

from libc.stdint cimport int64_t, uint32_t
from posix.fcntl cimport F_WRLCK

from jlog._core.system.lock cimport OWNERS_BYTE
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX
from jlog._core.buffer.publish cimport jlog_wake
from jlog._core.system.atomic cimport jlog_sleep_lock, jlog_spin_lock, jlog_take_word, jlog_unlock
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.process.operation cimport DAMAGED, DONE, FAILED, SIGNALS, TAKEN_OVER, TIMED_OUT, Operation

# An OFD lock does not exclude threads of one process. So a thread holds this mutex as long as it holds a dead owner's byte.
cdef extern from "process/leaf_mutex.h" nogil:
    int jlog_leaf_start()
    void jlog_leaf_lock()
    void jlog_leaf_unlock()

cdef enum:
    SPIN_TURNS = 400  # about 20 us: longer than an append, shorter than a sleep
    FIRST_SLICE_US = 1000  # after this time a waiter tests whether the owner lives
    LONGEST_SLICE_US = 4000
    SIGNALS_EVERY_US = 50000


if jlog_leaf_start() != 0:
    raise MemoryError


cdef class Locks:
    def __cinit__(self):
        self.slot = -1

    cdef int take_slot(self) except -1:
        """Takes the byte of a free slot. From then on every lock word that names the slot belongs to this process, because no
        other process can take it over. Returns False if no slot is free."""
        cdef int slot
        for slot in range(JLOG_OWNERS_MAX):
            if self.file.try_lock(F_WRLCK, OWNERS_BYTE + slot, 1) == 0:
                self.slot = slot
                self.buffer.owner = slot + 1
                return True
        return False

    cdef int acquire(self, uint32_t *word, Operation *operation) noexcept nogil:
        """Takes a lock word, and returns DONE or TAKEN_OVER. With SIGNALS, TIMED_OUT or DAMAGED the word is not taken."""
        cdef int64_t began_us, slice_us = FIRST_SLICE_US, now_us
        cdef uint32_t found = 0
        if jlog_spin_lock(word, self.buffer.owner, SPIN_TURNS):
            return DONE
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            if jlog_sleep_lock(word, self.buffer.owner, slice_us, &found):
                return DONE
            now_us = jlog_clock_us(CLOCK_MONOTONIC)
            if now_us - began_us >= FIRST_SLICE_US and found not in (0, self.buffer.owner):
                if found > JLOG_OWNERS_MAX:
                    operation.what = (b"a lock word names no owner; close all writers, and the next process to open the "
                                      b"journal recovers it")
                    return DAMAGED
                if self.take_over(word, found) == DONE:
                    return TAKEN_OVER
                slice_us = min(slice_us * 2, LONGEST_SLICE_US)
            if operation.deadline_us >= 0 and now_us >= operation.deadline_us:
                return TIMED_OUT
            if now_us - began_us >= SIGNALS_EVERY_US:
                return SIGNALS

    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil:
        """Takes the word from an owner whose byte no process holds. This process holds the byte until it has the word: to get
        the byte proves that the owner is dead, and no other process can take the slot meanwhile."""
        cdef bint won = False
        jlog_leaf_lock()
        if self.file.try_lock(F_WRLCK, OWNERS_BYTE + dead - 1, 1) == 0:
            JLOG_FAILPOINT(b"takeover.proved")
            won = jlog_take_word(word, dead, self.buffer.owner)
            JLOG_FAILPOINT(b"takeover.taken")
            self.file.unlock(OWNERS_BYTE + dead - 1, 1)
        jlog_leaf_unlock()
        return DONE if won else FAILED

    cdef void release(self, uint32_t *word) noexcept nogil:
        jlog_unlock(word)
        if word == &self.buffer.page.append_lock:
            jlog_wake(self.buffer.page)
