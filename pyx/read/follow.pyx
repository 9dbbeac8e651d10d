"""Waits for records, and replays them at the pace at which they were written."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t

from jlog._core.read.cursor cimport Cursor
from jlog._core.read.position cimport begin_step, begin_use, end_use
from jlog._core.format.format cimport jlog_record
from jlog._core.read.iterate cimport next_record, to_next_record
from jlog._core.system.lock cimport Deadline
from jlog._core.system.atomic cimport jlog_futex_wait
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.buffer.wake cimport WakeWord, wake_word

from jlog.system.threads import sleeps_beside_greenlets

cdef enum:
    SPIN_TURNS = 20  # about 10 us: a busy writer's next record comes sooner than a sleep would end
    FED_TURNS = 100  # about 50 us, after a record that came within FED_US
    FED_US = 50  # a sleep costs as much; milliseconds if the scheduler wakes the reader on the writer's core
    SLICE_US = 1_000_000  # longest sleep: a writer may die between publishing and waking
    POLL_MIN_US = 1_000
    POLL_MAX_US = 50_000
    TURN_US = 2_000  # for records that are there already, before other tasks of an event loop get their turn


def wait(Cursor cursor not None, Deadline deadline not None) -> bool:
    """Waits until there is a record to read; returns as soon as a writer publishes one. Returns False if the deadline has
    passed. A waiting reader uses no CPU. One that may not write to the control page polls instead, at least every 50 ms."""
    begin_step(cursor)
    try:
        return wait_in_use(cursor, deadline)
    finally:
        end_use(cursor)


cdef bint wait_in_use(Cursor cursor, Deadline deadline) except -1:
    cdef int64_t slice_us, poll_us = POLL_MIN_US
    cdef uint32_t counter = 0
    cdef int turn = 0, spin_turns = FED_TURNS if cursor.fed else SPIN_TURNS
    cdef int64_t began_us = jlog_clock_us(CLOCK_MONOTONIC)
    cdef bint told
    cdef WakeWord wake
    while True:
        told = False
        wake = None
        if turn >= spin_turns and cursor.blocks.stop.can_be_woken():
            cursor.wake = wake = wake_word(cursor.wake, cursor.blocks.stop.precommit)  # so that close() can wake this thread
            counter = wake.counter()
            told = wake.ask()
        cursor.blocks.begin()
        if cursor.blocks.advance():
            cursor.fed = jlog_clock_us(CLOCK_MONOTONIC) - began_us <= FED_US
            return True
        if turn >= spin_turns and jlog_clock_us(CLOCK_MONOTONIC) - cursor.checked_us >= SLICE_US:
            cursor.check_path()
            cursor.checked_us = jlog_clock_us(CLOCK_MONOTONIC)
        turn += 1
        slice_us = deadline.left_us(SLICE_US if told else poll_us)
        if slice_us == 0:
            cursor.fed = False
            return False
        if turn <= spin_turns:
            continue
        if not sleeps_beside_greenlets(min(slice_us, poll_us) / 1e6):
            with nogil:
                jlog_futex_wait(wake.word if told else NULL, counter, slice_us)
            PyErr_CheckSignals()
        poll_us = min(poll_us * 2, POLL_MAX_US)


cdef class FollowIterator:
    """Iterates over records as they are published, and ends after `timeout` seconds without one. `pace`, if not None, is an
    object whose delay(timestamp_us) says in how many seconds a record is due."""

    cdef Cursor cursor
    cdef object timeout
    cdef object pace
    cdef bint ended

    def __init__(self, Cursor cursor not None, timeout, pace):
        cursor.refresh()
        self.cursor = cursor
        self.timeout = timeout
        self.pace = pace

    def __iter__(self):
        return self

    def __next__(self):
        cdef Cursor cursor = self.cursor
        if self.ended:
            raise StopIteration
        begin_use(cursor)
        try:
            found = next_record(cursor.blocks) if self.pace is None else None
            if found is None:
                found = self.wait_for_next()
        finally:
            end_use(cursor)
        if found is None:
            self.ended = True
            raise StopIteration
        return found

    cdef object wait_for_next(self):
        cdef Deadline deadline = None
        while True:
            found, seconds = self.find()
            if found is not None:
                return found
            if seconds > 0:
                deadline = None
                self.sleep(min(seconds, SLICE_US / 1e6))
            else:
                deadline = deadline or Deadline(self.timeout)
                if not wait_in_use(self.cursor, deadline):
                    return None

    def step(self) -> tuple:
        """Returns (the next record, 0), (None, seconds until it is due), or (None, 0) at the noted end."""
        begin_use(self.cursor)
        try:
            return self.find()
        finally:
            end_use(self.cursor)

    cdef tuple find(self):
        cdef jlog_record record
        cdef size_t size
        if self.pace is not None and to_next_record(self.cursor.blocks, &record, &size):
            seconds = self.pace.delay(record.timestamp_us)
            if seconds > 0:
                return None, seconds
        return next_record(self.cursor.blocks), 0

    cdef int sleep(self, double seconds) except -1:
        cdef int64_t duration_us = <int64_t> (seconds * 1e6)
        if not sleeps_beside_greenlets(seconds):
            with nogil:
                jlog_futex_wait(NULL, 0, duration_us)
            PyErr_CheckSignals()
        self.cursor.check_open()
        return 0


cdef class AsyncFollow:
    """Iterates over records as they are published, for an event loop. Its steps are compiled, so that no exception of a
    signal's handler comes between a record and the caller. A subclass says how to wait, and sets `ended`."""

    cdef FollowIterator following
    cdef int64_t turn_ends_us
    cdef public bint ended

    def __init__(self, Cursor cursor not None, pace):
        self.following = FollowIterator(cursor, None, pace)
        self.turn_ends_us = 0
        self.ended = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if jlog_clock_us(CLOCK_MONOTONIC) >= self.turn_ends_us:
            await self._give_turn()
            self.begin_turn()
        deadline = None
        while not self.ended:
            record, seconds = self.following.step()
            if record is not None:
                return record
            deadline = await self._wait(seconds, deadline)
            self.begin_turn()
        raise StopAsyncIteration

    cdef int begin_turn(self) noexcept:
        self.turn_ends_us = jlog_clock_us(CLOCK_MONOTONIC) + TURN_US
        return 0
