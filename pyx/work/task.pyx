# cython: freelist=64
"""Tasks: records that a worker has taken; and how a worker finishes them, or gives them back."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.format.format cimport JLOG_NONE
from jlog._core.work.window cimport (
    JLOG_HAS_DROPPED, JLOG_NO_ENTRY, JLOG_POSITION_STEP, Window, boot_us, jlog_backoff_us, jlog_entry, jlog_entry_at,
    jlog_entry_drop, jlog_entry_finish, jlog_entry_mark, jlog_entry_return, jlog_heap_add, jlog_heap_remove, jlog_slot_note,
    jlog_taken, jlog_window, jlog_window_held, jlog_window_oldest, jlog_window_ring)

from jlog.errors import JournalError, LeaseLost
from jlog.system.arguments import SECONDS_MAX, check_seconds

cdef enum:
    AT_ONCE = 1024  # records finished with the lock taken once
    RETRY_US = 1_000_000  # a record that cannot be read, or rejected, is tried again after so long


@cython.no_gc_clear  # __dealloc__ needs the holder
cdef class Task(Record):
    """A record that this worker has taken, and that no other one gets while it lives and the lease runs. One that the program
    has neither finished nor given back, and has no reference to any more, is given back without a failure. `attempt` counts how
    often it was handed out: 1, 2, … `failures` counts how often it has failed before: by a nack, an exception, a lease that was
    taken over, or the death of a worker that had it in work."""

    def __dealloc__(self):
        if self.state == HELD and self.holder is not None:
            self.holder.drop(self.at, self.sequence, self.stamp)

    def begin(self) -> None:
        """Notes that the record is in work: if this process dies before the record is finished or given back, that is a failure
        of it. `with task`, run() and iterations call this. A second call does nothing."""
        if self.state == HELD:
            self.holder.begin(self.at, self.stamp)

    @property
    def decoded(self):
        """The value as the worker's codec decodes it."""
        return self.holder.policy.decode(self)

    def ack(self, *, bint durable=False) -> None:
        """Finishes the record: it is never handed out again. With `durable=True` also after a power loss. A second call does
        nothing. Raises LeaseLost if the record was handed out again or finished since it was taken."""
        self.holder.finish(self)
        if durable:
            self.holder.policy.sync_finishes()

    def nack(self, *, delay=None, reason="") -> None:
        """Gives the record back after a failure, to be handed out again in `delay` seconds; None: after the subscriber's
        backoff. With the last failure that max_attempts allows it is rejected instead, for this reason. Raises LeaseLost as
        ack() does."""
        check_reason(reason)
        cdef int64_t delay_us = -1
        if delay is not None:
            delay_us = <int64_t> (check_seconds("delay", delay, SECONDS_MAX, zero=True) * 1e6)
        if self.state == HELD and self.holder.has_no_attempt_left(self):
            self.holder.policy.reject(self.holder, self, reason)
        else:
            self.holder.give_back(self, delay_us, True)
            if reason:
                self.holder.policy.note_reason(self.sequence, reason)

    def reject(self, reason="") -> None:
        """Puts the record into the subscriber's dead letters, durably, and finishes it. Raises LeaseLost as ack() does; where
        the dead letter cannot be written, what its journal raises: then the record stays unfinished."""
        check_reason(reason)
        self.holder.check_held(self)
        if self.state == HELD:
            self.holder.policy.reject(self.holder, self, reason)

    def release(self) -> None:
        """Gives the record back at once, as if it had not been taken: neither an attempt nor a failure counts."""
        self.holder.give_back(self, 0, False)

    def release_quietly(self) -> None:
        """Does what release() does, if the record is still held."""
        self.holder.give_back_quietly(self)

    def extend(self, lease_seconds) -> None:
        """Lets the lease end in so many seconds from now. Raises LeaseLost as ack() does."""
        self.holder.extend(self, <int64_t> (check_seconds("lease_seconds", lease_seconds, SECONDS_MAX) * 1e6))

    def __enter__(self):
        if self.state == HELD:
            self.holder.begin(self.at, self.stamp)
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.holder.finish(self)
        elif self.state == HELD:
            self.holder.policy.failed(self.holder, self, error)

    def __repr__(self):
        return f"<jlog.Task {self.sequence} attempt {self.attempt}>"

    def __reduce__(self):
        raise TypeError("a Task cannot be pickled: it belongs to the worker that has taken it")


cdef int check_reason(reason) except -1:
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a str, not {reason!r}")
    return 0


cdef class TaskHolder:
    """Finishes the tasks of one worker, and gives them back. Any number of threads may use it.

    policy: a TaskPolicy, which does the rest.
    """

    cdef void begin(self, uint32_t at, uint64_t stamp) noexcept:
        """Marks a record as in work, without the lock."""
        cdef Window window = self.window
        if at < window.capacity and window.owner != 0 and window.locks.is_open():  # not in a child of a fork
            jlog_entry_mark(jlog_entry_at(window.page, at), window.owner, stamp, <uint32_t> stamp)

    cdef void drop(self, uint32_t at, uint64_t sequence, uint64_t stamp) noexcept:
        """Gives back the record of a task that the program has no reference to. Called by a finalizer, at any moment. Where the
        lock is not free the record is marked, and whichever worker looks next gives it back."""
        cdef Window window = self.window
        cdef jlog_entry *entry
        if window is None:  # the garbage collector frees it together with the task, and then everything is given back
            return
        if window.lock_at_once():
            entry = jlog_window_held(window.page, at, sequence, stamp)
            if entry != NULL and entry.owner == window.owner:
                jlog_entry_drop(window.page, at)
            window.unlock()
        elif at < window.capacity and window.owner != 0 and window.locks.is_open():
            jlog_entry_mark(jlog_entry_at(window.page, at), window.owner, stamp, ~<uint32_t> stamp)
            jlog_slot_note(window.page, window.owner, JLOG_HAS_DROPPED)
        else:
            return
        jlog_window_ring(window.page)

    cdef jlog_entry *entry_of(self, Task task) noexcept:
        """Returns the task's entry, or NULL if it is lost. Called with the lock held."""
        cdef jlog_entry *entry = jlog_window_held(self.window.page, task.at, task.sequence, task.stamp)
        return entry if entry != NULL and entry.owner == self.window.owner else NULL

    cdef lost(self, list tasks):
        cdef Task task
        for task in tasks:
            task.state = LOST
        sequences = ", ".join(str(task.sequence) for task in tasks[:5]) + (", …" if len(tasks) > 5 else "")
        return LeaseLost(f"{self.window.locks.path}: {len(tasks)} records of this worker ({sequences}) were handed out again, "
                         "or finished, since it took them; take a longer lease, or extend it", tasks)

    cdef jlog_entry *lock_entry(self, Task task) except? NULL:
        """Takes the lock, and returns the task's entry. Returns NULL, without the lock, if this worker has finished the task or
        given it back. Raises LeaseLost if it is lost."""
        cdef jlog_entry *entry
        if task.state == HELD:
            self.window.lock()
            entry = self.entry_of(task)
            if entry != NULL:
                return entry
            self.window.unlock()
        if task.state != DONE:
            raise self.lost([task])
        self.window.check()
        return NULL

    def check_held(self, Task task not None) -> None:
        """Raises LeaseLost if the task is lost."""
        if self.lock_entry(task) != NULL:
            self.window.unlock()

    cdef int finish(self, Task task, bint rejected=False) except -1:
        cdef Window window = self.window
        cdef jlog_window *page
        cdef int error = 0
        cdef bint rings
        if self.lock_entry(task) == NULL:
            return 0
        page = window.page  # with the lock: it may be another one since
        rings = page.used >= page.limit
        jlog_entry_finish(page, task.at)
        page.rejections += rejected
        task.state = DONE
        error = window.move_position(self.should_clean())
        window.unlock()
        return self.finished(error, rings)

    cdef bint should_clean(self) noexcept:
        return (jlog_window_oldest(self.window.page) >= self.clean_at
                or self.cursor.blocks.stop.now.slot.segment != self.clean_segment)

    cdef int finished(self, int error, bint rings) except -1:
        """Does what comes after a finish: wakes workers, and lets retention look."""
        cdef jlog_window *page = self.window.page
        if page.asleep and (rings or page.ready.first != JLOG_NO_ENTRY):
            jlog_window_ring(page)
        if error != 0:
            raise OSError(error, "the committed position was not written", str(self.window.locks.path))
        if page.stored >= self.looked_at + JLOG_POSITION_STEP or self.should_clean():
            self.look_at_segments()
        return 0

    cdef int look_at_segments(self) except -1:
        """Lets retention remove the segments that the committed position has passed, in one thread at a time."""
        cdef uint64_t committed = self.window.page.stored, segment = self.cursor.blocks.stop.now.slot.segment
        cdef uint64_t clean_at
        if self.looking or committed == JLOG_NONE:  # another worker repairs the window, and has not written the position yet
            return 0
        self.looking = True
        try:
            clean_at = self.policy.passed(committed)
        finally:
            self.looking = False
        self.looked_at, self.clean_segment = committed, segment
        self.clean_at = clean_at if clean_at > committed + 1 else JLOG_NONE
        return 0

    def finish_all(self, list tasks not None) -> None:
        """Finishes the tasks that are still held, then raises LeaseLost for the others, if there are any."""
        cdef Window window = self.window
        cdef jlog_window *page
        cdef Py_ssize_t start, i, count = len(tasks)
        cdef Task task
        cdef int error = 0
        cdef bint rings = False
        cdef list lost
        for task in tasks:
            if task is None or task.holder is not self:
                raise ValueError(f"{task!r} is not a task of this worker")
        window.check()
        start = 0
        while start < count:
            window.lock()
            page = window.page
            rings |= page.used >= page.limit
            for i in range(start, min(count, start + AT_ONCE)):
                task = <Task> tasks[i]
                if task.state == HELD:
                    task.state = DONE
                    if self.entry_of(task) == NULL:
                        task.state = LOST
                    else:
                        jlog_entry_finish(page, task.at)
            error = window.move_position(start + AT_ONCE >= count)
            window.unlock()
            start += AT_ONCE
        self.finished(error, rings)
        lost = [task for task in tasks if (<Task> task).state == LOST]
        if lost:
            raise self.lost(lost)

    def has_no_attempt_left(self, Task task not None) -> bool:
        self.window.check()
        return self.window.page.max_attempts != 0 and task.failures + 1 >= self.window.page.max_attempts

    cdef int give_back(self, Task task, int64_t delay_us, bint failed) except -1:
        """Gives a record back, after a delay; -1: after the backoff."""
        cdef Window window = self.window
        cdef int64_t now_us = boot_us()
        cdef jlog_entry *entry = self.lock_entry(task)
        if entry == NULL:
            return 0
        if delay_us < 0:
            delay_us = jlog_backoff_us(window.page, entry.failures + 1)
        window.page.failures += failed
        if not failed and not task.is_exhausted:
            entry.attempts -= entry.attempts > 0
        jlog_entry_return(window.page, task.at, now_us + delay_us if delay_us else 0, failed)
        task.state = DONE
        window.unlock()
        jlog_window_ring(window.page)
        return 0

    cdef int give_back_quietly(self, Task task) except -1:
        if task.state == HELD:
            try:
                self.give_back(task, 0, False)
            except JournalError:
                return 0
        return 0

    cdef int put_back(self, const jlog_taken *taken, bint later) except -1:
        """Puts back what was taken and never handed out; `later`: after a second, because its record cannot be read."""
        cdef Window window = self.window
        cdef jlog_entry *entry
        cdef int64_t now_us = boot_us()
        window.lock()
        entry = jlog_window_held(window.page, taken.at, taken.sequence, taken.stamp)
        if entry != NULL and entry.owner == window.owner:
            entry.attempts -= entry.attempts > 0 and not taken.is_exhausted
            jlog_entry_return(window.page, taken.at, now_us + RETRY_US if later else 0, False)
        window.unlock()
        return 0

    cdef int finish_lost(self, const jlog_taken *taken) except -1:
        """Finishes what was taken and is not in the journal any more."""
        cdef Window window = self.window
        window.lock()
        if jlog_window_held(window.page, taken.at, taken.sequence, taken.stamp) != NULL:
            jlog_entry_finish(window.page, taken.at)
        window.move_position(True)  # where that fails, the next finish does it
        window.unlock()
        return 0

    cdef int extend(self, Task task, int64_t lease_us) except -1:
        cdef Window window = self.window
        cdef jlog_entry *entry
        cdef int64_t until_us = boot_us() + lease_us
        if lease_us <= 0:
            raise ValueError(f"a lease must be longer than 0 seconds, not {lease_us / 1e6}")
        entry = self.lock_entry(task)
        if entry == NULL:
            return 0
        if entry.until_us != 0:
            jlog_heap_remove(window.page, task.at)
        entry.until_us = until_us
        jlog_heap_add(window.page, task.at)
        window.unlock()
        return 0

    def put_off(self, Task task not None) -> None:
        """Gives back a record that could not be rejected, to be tried again a second later. Its failure counts."""
        self.give_back(task, RETRY_US, not task.is_exhausted)

    def count_rejection(self, Task task not None) -> None:
        """Finishes a rejected record."""
        self.finish(task, True)
