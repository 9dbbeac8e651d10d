"""Group commit: one fdatasync serves all calls of all threads and processes that wait for one. One of them leads it."""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from jlog._core.format.dual_slot cimport BoundsFile, SyncedMark
from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport Deadline
from jlog._core.system.notices cimport warn
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX, jlog_page
from jlog._core.system.atomic cimport (
    JLOG_WAITERS, jlog_add32, jlog_add64, jlog_futex_wait, jlog_load32_acquire, jlog_load_acquire, jlog_replace64,
    jlog_store_release, jlog_futex_wake_all, jlog_try_lock)
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.process.operation cimport DONE, TAKEN_OVER, Operation
from jlog._core.append.operations cimport Operations

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    ALONE_AFTER_US = 1_000_000  # time without any sync after which a thread syncs alone: the lock's owner may be stopped
    SLICE_US = 20_000
    GATHER_SYNCS = 2  # the first thread of a group waits for the others as long as this many fdatasyncs take
    GATHER_MAX_US = 500  # the longest time of that wait
    PATIENT_SYNCS = 8  # the others wait for the first as long as this many fdatasyncs take
    TURN_US = 60  # a turn to take the GIL ends after this time


cdef int64_t turn_us = 0  # when the thread that has the turn took it; 0: no thread of this process has it


cdef void take_turn() noexcept nogil:
    """Takes the turn to take the GIL. All threads that one sync has served need the GIL for a moment, and a thread that finds
    it taken sleeps again, for longer. With turns they take it one after another. A turn ends when its holder waits for the next
    sync, or after TURN_US."""
    cdef int64_t now_us = jlog_clock_us(CLOCK_MONOTONIC), until_us = now_us + TURN_US, taken_us
    while now_us < until_us:
        taken_us = jlog_load_acquire(<uint64_t *> &turn_us)
        if now_us - taken_us > TURN_US and jlog_replace64(<uint64_t *> &turn_us, taken_us, now_us):
            return
        sched_yield()
        now_us = jlog_clock_us(CLOCK_MONOTONIC)


cdef void leave_turn() noexcept nogil:
    jlog_store_release(<uint64_t *> &turn_us, 0)


cdef class GroupCommit:
    def __init__(self, Operations operations not None):
        self.operations = operations
        self.process = operations.process
        self.segments = SegmentSync(operations.process)

    cdef int make_durable(self, Deadline deadline) except -1:
        """Returns when all records that are published now are durable. The caller has pinned the attachment."""
        cdef jlog_page *page = self.process.buffer.page
        cdef uint64_t generation
        if page.sync_error != 0:
            self.segments.fail(page.sync_error)
        while True:
            generation = jlog_load_acquire(&page.generation)
            empty = jlog_load_acquire(&page.slots[generation & 1].publish_word) == 0
            if jlog_load_acquire(&page.generation) == generation:
                break
        return self.wait_durable(generation if empty else generation + 1, deadline)

    cdef int wait_durable(self, uint64_t wanted, Deadline deadline) except -1:
        """Waits until the blocks of all generations before `wanted` are synced, by this thread or by another owner of the sync
        lock. Once the deadline has passed, or the owner of the lock seems to be stopped, this thread syncs alone."""
        cdef jlog_page *page = self.process.buffer.page
        cdef uint32_t counter, last, arrival, leads, last_leads
        cdef int64_t began_us, pause_us
        if jlog_load_acquire(&page.durable_generation) >= wanted:
            return 0
        arrival = jlog_add32(&page.sync_arrivals, 1)
        last, last_leads = jlog_load32_acquire(&page.sync_counter), jlog_load32_acquire(&page.sync_leads)
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            counter = jlog_load32_acquire(&page.sync_counter)
            if jlog_load_acquire(&page.durable_generation) >= wanted:
                jlog_add64(&page.counters.sync_waits, 1)
                return 0
            pause_us = self.gather_us(arrival)
            if pause_us == 0:
                if jlog_try_lock(&page.sync_lock, self.process.buffer.owner):
                    return self.lead(wanted, deadline)
                pause_us = SLICE_US
            if page.sync_error != 0:
                self.segments.fail(page.sync_error)
            leads = jlog_load32_acquire(&page.sync_leads)
            if self.is_stuck():
                return self.lead(wanted, deadline) if self.take_sync_lock_from_dead() else self.sync_alone(deadline)
            if counter != last or leads != last_leads:
                last, last_leads, began_us = counter, leads, jlog_clock_us(CLOCK_MONOTONIC)
            pause_us = deadline.left_us(pause_us)
            with nogil:
                leave_turn()
                jlog_futex_wait(&page.sync_counter, counter, pause_us)
                take_turn()
            if jlog_load32_acquire(&page.sync_counter) != counter or jlog_load_acquire(&page.durable_generation) >= wanted:
                continue
            PyErr_CheckSignals()
            if self.take_sync_lock():
                return self.lead(wanted, deadline)
            if jlog_clock_us(CLOCK_MONOTONIC) - began_us > ALONE_AFTER_US:
                page.sync_stuck = leads  # later calls do not wait for this lead either
                return self.sync_alone(deadline)
            if deadline.left_us(1) == 0:
                return self.sync_alone(deadline)

    cdef int64_t gather_us(self, uint32_t arrival) noexcept:
        """Returns how long this thread waits for others to come; 0 if it is to lead. The threads that the last sync served are
        about to come again, and the last of them leads, so that no thread has to be woken for it. If they do not come, the
        first one leads. If the first one is gone or stopped, the thread that has waited longest leads."""
        cdef jlog_page *page = self.process.buffer.page
        cdef uint32_t served
        if jlog_load32_acquire(&page.sync_lock) != 0:
            return SLICE_US
        served = jlog_load32_acquire(&page.sync_served)
        if <int32_t> (arrival - served) <= 0 or jlog_load32_acquire(&page.sync_arrivals) - served >= page.sync_group:
            return 0
        if arrival - served == 1:
            return min(GATHER_SYNCS * self.segments.last_us, GATHER_MAX_US)
        return min(PATIENT_SYNCS * self.segments.last_us or SLICE_US, SLICE_US)

    cdef bint take_sync_lock(self) noexcept:
        """Takes the sync lock, also from a dead owner. Returns False while a living owner has it."""
        cdef Operation attempt
        cdef int status
        memset(&attempt, 0, sizeof(attempt))
        attempt.deadline_us = jlog_clock_us(CLOCK_MONOTONIC)
        with nogil:
            status = self.process.locks.acquire(&self.process.buffer.page.sync_lock, &attempt)
        return status == DONE or status == TAKEN_OVER

    cdef bint is_stuck(self) noexcept:
        """Returns whether a thread has waited in vain for the present owner of the sync lock."""
        cdef jlog_page *page = self.process.buffer.page
        return jlog_load32_acquire(&page.sync_lock) != 0 and page.sync_leads == page.sync_stuck

    cdef bint take_sync_lock_from_dead(self) noexcept:
        """Takes the sync lock if its owner is dead. It does not wait for an owner that lives."""
        cdef uint32_t *word = &self.process.buffer.page.sync_lock
        cdef uint32_t owner = jlog_load32_acquire(word) & ~JLOG_WAITERS
        if not 0 < owner <= JLOG_OWNERS_MAX or owner == self.process.buffer.owner:
            return False
        return self.process.locks.take_over(word, owner) == DONE

    cdef int lead(self, uint64_t wanted, Deadline deadline) except -1:
        """Writes back the open block, and syncs for all calls that wait. The caller has the sync lock."""
        cdef jlog_page *page = self.process.buffer.page
        cdef uint32_t served = page.sync_served
        cdef SyncedMark mark
        mark.segment = JLOG_NONE
        page.sync_leads += 1
        leave_turn()
        try:
            if jlog_load_acquire(&page.durable_generation) < wanted:
                page.sync_served = jlog_load32_acquire(&page.sync_arrivals)
                self.operations.flush(deadline)
                self.segments.sync(&mark)
                page.sync_group = jlog_load32_acquire(&page.sync_arrivals) - served
        finally:
            self.tell(&mark, True)
        return 0

    cdef int sync_alone(self, Deadline deadline) except -1:
        """Syncs without the sync lock. The owner of the lock may be stopped, and may know of a failed sync."""
        cdef SyncedMark mark
        self.operations.flush(deadline)
        self.segments.sync(&mark)
        return self.tell(&mark, False)

    cdef int tell(self, const SyncedMark *mark, bint has_word) except -1:
        """Lets the waiting threads go on, and then moves the synced mark, which is less urgent. It releases the GIL, because
        those threads need it."""
        cdef jlog_page *page = self.process.buffer.page
        cdef BoundsFile bounds = self.process.bounds
        cdef bint moves
        cdef int error = 0
        if has_word:  # first: what follows may find no memory
            self.process.locks.release(&page.sync_lock)
        jlog_add32(&page.sync_counter, 1)
        moves = mark.segment != JLOG_NONE and bounds.mutex.try_take()
        with nogil:
            jlog_futex_wake_all(&page.sync_counter)
            JLOG_FAILPOINT(b"sync.told")
            if moves:
                error = bounds.advance_synced_mark(mark)
            take_turn()
        if moves:
            bounds.mutex.give()
        if error != self.synced_mark_error:
            self.synced_mark_error = error
            if error != 0:  # the records are durable all the same; a call that needs a reservation raises
                warn(bounds.path, "the synced mark cannot be moved", os.strerror(error))
        return 0
