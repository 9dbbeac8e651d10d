from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.read.cursor cimport Cursor
from jlog._core.records.record cimport Record
from jlog._core.work.window cimport Window, jlog_entry, jlog_taken

cdef enum State:
    UNREAD
    HELD
    DONE
    LOST

cdef class Task(Record):
    cdef TaskHolder holder
    cdef uint64_t stamp  # of its handing out
    cdef uint32_t at  # its entry in the window
    cdef int state
    cdef readonly uint32_t attempt
    cdef readonly uint32_t failures
    cdef bint is_exhausted  # it has failed too often, and is to be rejected

cdef class TaskHolder:
    cdef readonly Window window
    cdef Cursor cursor  # reads records that nobody has passed
    cdef readonly object policy
    cdef uint64_t clean_at  # committed position at which retention has to look; JLOG_NONE: once the open segment has changed
    cdef uint64_t looked_at  # committed position when it looked last
    cdef uint64_t clean_segment  # the open segment when it looked last
    cdef bint looking  # a thread looks

    cdef void begin(self, uint32_t at, uint64_t stamp) noexcept
    cdef void drop(self, uint32_t at, uint64_t sequence, uint64_t stamp) noexcept
    cdef jlog_entry *entry_of(self, Task task) noexcept
    cdef jlog_entry *lock_entry(self, Task task) except? NULL
    cdef lost(self, list tasks)
    cdef int finish(self, Task task, bint rejected=*) except -1
    cdef bint should_clean(self) noexcept
    cdef int finished(self, int error, bint rings) except -1
    cdef int look_at_segments(self) except -1
    cdef int give_back(self, Task task, int64_t delay_us, bint failed) except -1
    cdef int give_back_quietly(self, Task task) except -1
    cdef int put_back(self, const jlog_taken *taken, bint later) except -1
    cdef int finish_lost(self, const jlog_taken *taken) except -1
    cdef int extend(self, Task task, int64_t lease_us) except -1
