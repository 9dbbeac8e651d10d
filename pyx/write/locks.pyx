"""How a writing process takes a lock word, also from an owner that has died.

No lock word is held while the GIL is waited for.
"""

from libc.stdint cimport int64_t, uint32_t

from jlog._core.system.lock cimport OWNERS_BYTE
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX
from jlog._core.buffer.publish cimport jlog_wake
from jlog._core.system.atomic cimport jlog_sleep_lock, jlog_spin_lock, jlog_take_word, jlog_unlock
from jlog._core.system.clock cimport jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.write.operation cimport DAMAGED, DONE, FAILED, SIGNALS, TAKEN_OVER, TIMED_OUT, Operation

cdef extern from "<fcntl.h>" nogil:
    enum:
        F_WRLCK

# An OFD lock does not exclude threads of one process; the mutex does, from taking a dead owner's byte to letting it go.
cdef extern from "write/leaf_mutex.h" nogil:
    int jlog_leaf_start()
    void jlog_leaf_lock()
    void jlog_leaf_unlock()

cdef enum:
    CLOCK_MONOTONIC = 1
    SPIN_TURNS = 400  # some 20 us: longer than an append, shorter than a sleep
    FIRST_SLICE_US = 1000  # after this a waiter asks whether the owner lives
    LONGEST_SLICE_US = 4000
    SIGNALS_EVERY_US = 50000


if jlog_leaf_start() != 0:
    raise MemoryError


cdef class Locks:
    def __cinit__(self):
        self.slot = -1

    cdef int take_slot(self) except -1:
        """Takes the byte of a free slot: from then on every lock word that names the slot is ours, for nobody else can ever
        take that over. Returns False if there is none."""
        cdef int slot
        for slot in range(JLOG_OWNERS_MAX):
            if self.file.try_lock(F_WRLCK, OWNERS_BYTE + slot, 1) == 0:
                self.slot = slot
                self.buffer.owner = slot + 1
                return True
        return False

    cdef int acquire(self, uint32_t *word, Operation *operation) noexcept nogil:
        """Takes a lock word: DONE, or TAKEN_OVER. Else SIGNALS, TIMED_OUT, DAMAGED or FAILED, with the word not taken."""
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
                    operation.what = b"a lock word names no owner; close all writers, the next to open alone recovers"
                    return DAMAGED
                if self.take_over(word, found) == DONE:
                    return TAKEN_OVER
                slice_us = min(slice_us * 2, LONGEST_SLICE_US)
            if operation.deadline_us >= 0 and now_us >= operation.deadline_us:
                return TIMED_OUT
            if now_us - began_us >= SIGNALS_EVERY_US:
                return SIGNALS

    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil:
        """Takes the word from an owner whose byte nobody holds. The byte is held until the word is ours: it is the proof of
        death, and keeps the slot from being taken meanwhile."""
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
