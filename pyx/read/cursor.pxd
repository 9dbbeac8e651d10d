from libc.stdint cimport uint64_t

from jlog._core.read.blocks cimport BlockReader
from jlog._core.records.columns cimport Batch
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.buffer.wake cimport WakeWord

cdef class Cursor:
    cdef readonly str path
    cdef readonly bytes uuid
    cdef BlockReader blocks
    cdef const uint64_t *process
    cdef uint64_t token  # of the process that created the cursor; 0: closed
    cdef bint in_use  # a call has taken the cursor
    cdef WakeWord wake  # the word on which that call sleeps
    cdef bint fed  # the last call of wait() found a record before a sleep would have ended

    cdef int start(self, JournalEnd stop) except -1
    cdef int refuse(self) except -1
    cdef void release(self) noexcept
    cdef int go_to(self, uint64_t sequence) except -1
    cdef bint enter_segment_of(self, uint64_t sequence) except -1
    cdef int go_to_end(self) except -1
    cdef int skip_to(self, uint64_t sequence) except -1
    cdef bint step_over_damage(self, uint64_t sequence) except -1
    cdef int read_into(self, Batch batch, Py_ssize_t max_records, Py_ssize_t max_bytes, uint64_t end) except -1
    cdef int go_back_to(self, uint64_t sequence) except -1


cdef inline int begin_use(Cursor cursor) except -1:
    """Takes the cursor, before anything that may let another thread run: that thread is refused until give()."""
    if cursor.in_use or cursor.token == 0 or cursor.process[0] != cursor.token:
        cursor.refuse()
    cursor.in_use = True
    return 0


cdef inline void end_use(Cursor cursor) noexcept:
    cursor.in_use = False
    if cursor.token == 0:  # close() was called meanwhile
        cursor.release()
