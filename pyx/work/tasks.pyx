"""Hands out the records of a shared subscriber: those that are free again, and new ones; and waits for them."""

import os
import threading

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EBUSY, EINTR, ETIMEDOUT
from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.buffer.wake cimport WakeWord, jlog_await, jlog_awaited, jlog_wait_for_any, wake_word
from jlog._core.format.format cimport jlog_decode_record, jlog_record
from jlog._core.read.blocks cimport BlockReader
from jlog._core.read.cursor cimport Cursor
from jlog._core.read.iterate cimport to_next_record
from jlog._core.read.position cimport begin_use, end_use
from jlog._core.records.record cimport fill_record
from jlog._core.system.atomic cimport jlog_futex_wait, jlog_load32_acquire, jlog_try_lock
from jlog._core.system.lock cimport Deadline
from jlog._core.work.task cimport HELD, LOST, Task, TaskHolder
from jlog._core.work.window cimport (
    JLOG_HAS_DROPPED, Window, boot_us, jlog_heap_time, jlog_passage, jlog_taken, jlog_window, jlog_window_has_room,
    jlog_window_oldest, jlog_window_ring, jlog_window_ring_all, jlog_window_seize, jlog_window_take_again, jlog_window_take_new)

from jlog.errors import CorruptJournal, JournalClosed, JournalError, PositionLost
from jlog.system.threads import sleeps_beside_greenlets

cdef enum:
    BATCH = 256  # records handed out with the lock taken once
    FAR = 20_000  # so many records are rather sought than walked over
    LOOK_US = 10_000  # between two looks for dead workers, while there is other work
    SLICE_US = 1_000_000  # longest sleep: a worker, or a writer, may die before it wakes another
    POLL_MIN_US = 1_000
    POLL_MAX_US = 50_000


cdef uint64_t first_kept(error) except? 0:
    """Returns the first sequence that is kept, as a PositionLost states it. Where there is no memory for the traceback of a
    PositionLost that is caught, Cython puts a MemoryError in its place, and this raises it."""
    if not isinstance(error, PositionLost):
        raise error
    return error.first_sequence


cdef class Interrupt:
    """Ends a take() that waits: set `raised`, then call ring()."""

    cdef public bint raised


cdef class TaskSource(TaskHolder):
    """Hands out the records of a window, and finishes them. Any number of threads may use it."""

    cdef Cursor again  # reads records that are handed out again
    cdef int64_t lease_us
    cdef object owed  # the error that the next call raises; a PositionLost stands here before its records are dropped
    cdef object telling  # the owed error that a call raises now
    cdef object reading  # held by the thread that uses the cursors
    cdef public bint stopped  # take() waits no more
    cdef int growth_error  # why the window could not grow in the last look; 0: it could, or did not have to
    cdef bint has_rejected  # the last batch had records, of which none may have been left to hand out
    cdef uint64_t lost  # records before it are lost, and not dropped yet: the first take raises PositionLost
    cdef readonly bint is_full  # the last look has found new records, and no room for them

    def __init__(self, Window window not None, Cursor cursor not None, Cursor again not None, policy, lease):
        self.window, self.cursor, self.again, self.policy = window, cursor, again, policy
        self.lease_us = 0 if lease is None else <int64_t> (lease * 1e6)
        self.reading = threading.Lock()

    # --- Taking --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Goes to the first record that nobody has passed. If retention has removed unfinished records, the first take raises
        PositionLost."""
        cdef uint64_t lost = 0  # the records before it are lost
        while True:
            try:
                self.cursor.kept(max(lost, jlog_window_oldest(self.window.page)))  # a gap at the beginning loses nothing
                self.with_cursor(lambda: self.seek_next(lost))
                break
            except PositionLost as error:
                self.owed, lost = error, first_kept(error)
        self.lost = lost

    cdef int drop_lost_records(self) except -1:
        """Finishes what retention had removed when this worker opened, unless another worker has done so since: one take of
        all workers raises PositionLost. A worker that never takes leaves it to those that do."""
        cdef uint64_t lost = self.lost
        self.lost = 0
        if jlog_window_oldest(self.window.page) >= lost:
            self.owed = None
            return 0
        try:
            self.window.drop_before(lost, keep_taken=True)
        except (MemoryError, OSError):
            pass  # a later take drops them, or writes the position

    def seek_next(self, uint64_t least=0) -> None:
        """Goes to the first record that nobody has passed, and not before `least`."""
        begin_use(self.cursor)
        try:
            self.cursor.blocks.begin()
            self.seek(max(least, self.window.page.next))
        finally:
            end_use(self.cursor)

    def with_cursor(self, call):
        """Returns what the call returns, while no other thread uses the cursors."""
        self.window.check()  # in a child of a fork the lock may be held by a thread that only the parent has
        self.reading.acquire()
        try:
            return call()
        finally:
            self.reading.release()

    def take(self, Py_ssize_t most, Deadline deadline not None, Interrupt interrupt=None) -> list:
        """Takes at least one record and at most `most`, or none if there was none until the deadline or the interrupt."""
        cdef list tasks = self.look(most)
        if not tasks:
            tasks = self.wait(most, deadline, interrupt)
        return tasks

    def seize(self, uint64_t sequence) -> Task:
        """Takes an unfinished record from the worker that has it, whose ack() then raises LeaseLost, or out of its delay.
        Raises JournalError if no worker has come to the record yet, if it is finished, or if it waits for an earlier one of
        its key."""
        cdef jlog_taken taken
        cdef Window window = self.window
        cdef list tasks = []
        cdef int error
        self.reading.acquire()
        try:
            window.lock()
            error = jlog_window_seize(window.page, sequence, window.owner, &taken)
            window.unlock()
            if error == 0:
                self.make_tasks(tasks, &taken, 1)
        finally:
            self.reading.release()
        if tasks:
            return tasks[0]
        why = "waits for an earlier one of its key" if error == EBUSY else "is finished, or no worker has come to it yet"
        raise JournalError(f"{self.window.path}: record {sequence} {why}; `jlogtool work-ls` shows the unfinished ones")

    def untold(self, error) -> None:
        """Keeps the owed error for the next call if `error`, such as a MemoryError, has come out of this call in its place: on
        its way to the caller an error needs memory in each frame."""
        told, self.telling = self.telling, None
        if self.owed is None and error is not told and not isinstance(error, JournalError):
            self.owed = told

    cdef list look(self, Py_ssize_t most):
        """Takes what there is now."""
        cdef list tasks = []
        cdef Window window = self.window
        cdef int64_t lease_end_us = boot_us() + self.lease_us
        window.check()  # in a child of a fork the lock may be held by a thread that only the parent has
        if not self.reading.acquire(False):
            self.reading.acquire()
        try:
            window.check()
            if self.lost:
                self.drop_lost_records()
            if self.owed is not None:
                raise self.owed
            self.look_in_turn(tasks, most)
        except Exception as error:
            if not tasks:
                if error is self.owed:
                    self.telling, self.owed = error, None
                raise
            if self.owed is None and not isinstance(error, MemoryError):  # that says nothing about the next call
                self.owed = error  # the tasks come first, and the next call raises it
        except BaseException:
            for task in tasks:
                self.give_back_quietly(task)
            raise
        finally:
            self.reading.release()
        if self.lease_us and boot_us() >= lease_end_us:
            self.drop_lost(tasks)
        return tasks

    cdef int drop_lost(self, list tasks) except -1:
        """Drops what others have taken already, because the look lasted longer than the lease. The same record may be among
        the tasks twice then."""
        cdef Task task
        self.window.lock()
        for task in tasks:
            if self.entry_of(task) == NULL:
                task.state = LOST
        self.window.unlock()
        tasks[:] = [task for task in tasks if task.state == HELD]
        return 0

    cdef int look_in_turn(self, list tasks, Py_ssize_t most) except -1:
        cdef Window window = self.window
        cdef int64_t now_us = boot_us()
        cdef Py_ssize_t before
        if window.page.slots[window.owner - 1].left & JLOG_HAS_DROPPED:
            window.release_dropped(window.owner)
        if now_us - window.looked_us >= LOOK_US:
            window.bury_the_dead(now_us)
        while len(tasks) < most:
            before = len(tasks)
            if self.take_batch(tasks, min(most - before, BATCH), now_us) == 0:
                if self.growth_error != 0 and not tasks:
                    raise OSError(self.growth_error, f"{os.strerror(self.growth_error)}: the window cannot grow beyond "
                                  f"{window.page.capacity} unfinished records; make space, or finish some", window.path)
                return 0
            if len(tasks) == before and not self.has_rejected and not self.load():
                return 0
        return 0

    cdef int take_batch(self, list tasks, Py_ssize_t most, int64_t now_us) except -1:
        """Takes records that are free again, or else new ones of the loaded block. Returns 0 if the window is full."""
        cdef jlog_taken taken[BATCH]
        cdef jlog_passage passage
        cdef BlockReader blocks = self.cursor.blocks
        cdef Window window = self.window
        cdef jlog_window *page
        cdef int64_t lease_end_us = now_us + self.lease_us if self.lease_us else 0
        cdef uint32_t count = 0
        cdef bint goes_on = True
        begin_use(self.cursor)  # a finalizer that runs meanwhile moves the cursor no further
        try:
            window.lock()
            page = window.page
            self.growth_error = 0
            count = jlog_window_take_again(page, window.owner, now_us, lease_end_us, taken, most)
            if count == 0:
                passage.at, passage.end, passage.sequence = blocks.at, blocks.end, blocks.sequence
                while True:
                    count = jlog_window_take_new(page, window.owner, lease_end_us, &passage, taken, most)
                    if count or passage.at == passage.end or jlog_window_has_room(page) or page.used >= page.limit:
                        break
                    self.growth_error = window.grow()
                    if self.growth_error != 0:
                        break
                    page = window.page
                blocks.at, blocks.sequence = passage.at, passage.sequence
                self.is_full = count == 0 and passage.at != passage.end and not jlog_window_has_room(page)
                goes_on = not self.is_full
            window.unlock()
            self.make_tasks(tasks, taken, count)
            self.has_rejected = count != 0
        finally:
            end_use(self.cursor)
        return goes_on

    cdef int make_tasks(self, list tasks, jlog_taken *taken, uint32_t count) except -1:
        cdef uint32_t i = 0, failed = 0
        cdef Task task
        try:
            while i < count:
                failed = i
                task = self.make_task(&taken[i])
                if task is not None and not task.is_exhausted:
                    tasks.append(task)  # without memory for it the task is put back
                i += 1
                if task is not None:
                    task.state = HELD
                    if task.is_exhausted:
                        self.policy.reject_exhausted(self, task)  # which puts it off where that fails
        except BaseException as error:
            while i < count:  # those that it has failed for come later, so that the others are handed out meanwhile
                if isinstance(error, PositionLost) and taken[i].sequence < error.first_sequence:
                    self.finish_lost(&taken[i])
                else:
                    self.put_back(&taken[i], i == failed and isinstance(error, (CorruptJournal, OSError)))
                i += 1
            raise
        return 0

    cdef Task make_task(self, const jlog_taken *taken):
        """Returns the task of what was taken; None if its record was lost to a repair, and is in a gap now."""
        cdef jlog_record record
        cdef BlockReader blocks = self.cursor.blocks
        cdef Task task = Task.__new__(Task)
        task.holder, task.stamp, task.at, task.sequence = self, taken.stamp, taken.at, taken.sequence
        task.attempt, task.failures, task.is_exhausted = taken.attempt, taken.failures, taken.is_exhausted
        if taken.record != NULL:
            jlog_decode_record(taken.record, blocks.block_end - taken.record, blocks.base_time_us, &record)
            fill_record(task, &record, taken.sequence)
            return task
        if self.read_again(task):
            return task
        self.finish_lost(taken)
        return None

    cdef bint read_again(self, Task task) except -1:
        """Reads the task's record. Returns False if it is in a gap."""
        cdef jlog_record record
        cdef BlockReader blocks = self.again.blocks
        cdef bint found = False
        cdef size_t size
        begin_use(self.again)
        try:
            try:
                if blocks.sequence < task.sequence:
                    blocks.skip_to(blocks.end, task.sequence)
                if blocks.sequence == task.sequence and blocks.at < blocks.end:
                    found = to_next_record(blocks, &record, &size)  # only state may follow, up to the end that was noted
                if not found:
                    blocks.begin()
                    self.again.go_to(task.sequence)
                    found = to_next_record(blocks, &record, &size)
                if not found:
                    raise ValueError(f"{self.again.path} ends before the record {task.sequence}, which a worker has taken")
            except PositionLost as error:
                self.drop_told(first_kept(error), error)
                raise
            if blocks.sequence != task.sequence:
                return False
            fill_record(task, &record, task.sequence)
            blocks.at += size
            blocks.sequence += 1
            return True
        finally:
            end_use(self.again)

    cdef int drop_told(self, uint64_t first, error) except -1:
        """Finishes the records before `first`, which are lost. The caller raises the error afterwards. If there is no memory or
        no room for the position in between, a later call raises it."""
        self.owed = error
        self.window.drop_before(first, keep_taken=True)
        return 0

    cdef bint load(self) except -1:
        """Loads the next records that nobody has passed, as far as they are published. Returns False if there are none."""
        cdef BlockReader blocks = self.cursor.blocks
        cdef uint64_t first, following = self.window.page.next
        cdef jlog_record record
        cdef size_t size
        begin_use(self.cursor)
        try:
            if blocks.at < blocks.end:
                return to_next_record(blocks, &record, &size)  # raises for a record that cannot be decoded
            blocks.begin()
            if blocks.sequence + FAR < following:
                self.seek(following)
            try:
                return blocks.advance()
            except PositionLost as error:
                first = first_kept(error)
                if first > following:
                    self.drop_told(first, error)
                    self.seek(first)
                    raise
                self.seek(following)  # other workers have passed what was removed
            return blocks.advance()
        finally:
            end_use(self.cursor)

    cdef int seek(self, uint64_t sequence) except -1:
        try:
            self.cursor.go_to(sequence)
        except JournalClosed:  # a ValueError too
            raise
        except ValueError:
            return 0  # beyond the end, where it stands now: a power loss has taken records that were finished

    # --- Waiting --------------------------------------------------------------------------------------------------

    cdef list wait(self, Py_ssize_t most, Deadline deadline, Interrupt interrupt):
        """Waits for a record to take. One sleeping worker of all, the scout, listens to the journal, and is the only one that
        a new record wakes. When it goes it rings, and another worker takes its place. The others sleep on the bell alone, which
        whoever frees a record rings."""
        cdef list tasks
        cdef Window window = self.window
        cdef Waiting waiting = Waiting(self)
        cdef int64_t now_us, look_after_us = 0
        try:
            while True:
                now_us = boot_us()
                if window.should_look(now_us, look_after_us):
                    window.bury_the_dead(now_us)
                look_after_us = SLICE_US  # one of the sleeping workers looks for all
                window.looked_us = now_us  # so that look() does not do it either
                waiting.prepare()
                tasks = self.look(most)
                if not tasks and now_us - self.cursor.checked_us >= SLICE_US:
                    self.cursor.check_path()
                    self.cursor.checked_us = now_us
                if tasks or self.stopped or deadline.left_us(1) == 0 or (interrupt is not None and interrupt.raised):
                    return tasks
                if self.is_full:
                    self.policy.warn_full(window.page.limit)
                waiting.sleep(deadline)
        finally:
            waiting.end()

    def ring(self) -> None:
        """Wakes all threads that wait in take(), so that they look again."""
        jlog_window_ring_all(self.window.page)

    def close(self) -> None:
        """Gives back what is held, and frees the worker's slot. Threads that wait in take() get JournalClosed."""
        try:
            self.window.unregister()
        finally:
            self.cursor.close()
            self.again.close()
            self.window.shut()


cdef class Waiting:
    """One call of take() that waits."""

    cdef TaskSource source
    cdef bint is_scout
    cdef bint told  # the journal's writers were asked to wake this call
    cdef int64_t alarm_us  # when it will wake by itself for a record that is due; 0: another one will, or none is
    cdef uint32_t bell
    cdef uint32_t counter
    cdef WakeWord wake
    cdef int64_t poll_us

    def __init__(self, TaskSource source):
        self.source = source
        self.poll_us = POLL_MIN_US

    cdef int prepare(self) except -1:
        """Notes what it will sleep on, before the last look."""
        cdef jlog_window *page = self.source.window.page
        cdef Cursor cursor = self.source.cursor
        self.source.window.check()
        page.asleep = 1
        self.bell = jlog_load32_acquire(&page.bell)
        if not self.is_scout:
            self.is_scout = jlog_try_lock(&page.scout, self.source.window.owner)
        self.told = False
        if self.is_scout and cursor.blocks.stop.can_be_woken():
            self.wake = wake_word(self.wake, cursor.blocks.stop.precommit)
            self.counter = self.wake.counter()
            self.told = self.wake.ask()
        return 0

    cdef int64_t slice_us(self, Deadline deadline) noexcept:
        """Returns how long to sleep. If a record is due before any other worker will wake, this one sets the alarm."""
        cdef Window window = self.source.window
        cdef jlog_window *page = window.page
        cdef int64_t now_us = boot_us(), due_us, slice_us = SLICE_US
        if page.heap_count:
            due_us = jlog_heap_time(page, 0)
            if not now_us < page.alarm_us <= due_us or page.alarm_us == self.alarm_us:
                page.alarm_us = self.alarm_us = due_us
                slice_us = min(slice_us, max(due_us - now_us, 1))
        if self.is_scout and not self.told:
            slice_us = min(slice_us, self.poll_us)
            self.poll_us = min(self.poll_us * 2, POLL_MAX_US)
        return deadline.left_us(slice_us)

    cdef int sleep(self, Deadline deadline) except -1:
        cdef jlog_awaited awaited[2]
        cdef Window window = self.source.window
        cdef uint32_t *bell
        cdef int64_t slice_us
        cdef int error = 0
        window.lock()
        error = window.move_position(True)
        slice_us = self.slice_us(deadline)
        window.unlock()
        self.source.finished(error, False)
        bell = &window.page.bell
        if sleeps_beside_greenlets(min(slice_us, self.poll_us) / 1e6):
            self.poll_us = min(self.poll_us * 2, POLL_MAX_US)
        elif self.is_scout and self.told:
            jlog_await(&awaited[0], bell, self.bell, True)
            jlog_await(&awaited[1], self.wake.word, self.counter, True)
            with nogil:
                error = jlog_wait_for_any(awaited, 2, slice_us)
                if error not in (0, EAGAIN, EINTR, ETIMEDOUT):  # a kernel that waits for one word only
                    jlog_futex_wait(bell, self.bell, min(slice_us, POLL_MAX_US))
        else:
            with nogil:
                jlog_futex_wait(bell, self.bell, slice_us)
        PyErr_CheckSignals()
        window.check()
        return 0

    cdef int end(self) except -1:
        """Lets another sleeping worker listen to the journal, or set the alarm."""
        cdef Window window = self.source.window
        cdef jlog_window *page = window.page
        if window.owner == 0 or not window.locks.is_open():
            return 0
        if self.alarm_us and page.alarm_us == self.alarm_us:
            page.alarm_us = 0
        if self.is_scout and page.scout == window.owner:
            page.scout = 0
        if self.is_scout or self.alarm_us:
            jlog_window_ring(page)
        return 0
