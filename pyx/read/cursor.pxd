from libc.stdint cimport int64_t, uint64_t

from jlog._core.read.blocks cimport BlockReader
from jlog._core.read.position cimport ReadPosition
from jlog._core.records.columns cimport Batch
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.buffer.wake cimport WakeWord

cdef class Cursor(ReadPosition):
    cdef readonly bytes uuid
    cdef BlockReader blocks
    cdef WakeWord wake  # the word on which that call sleeps
    cdef int64_t checked_us  # when a waiting call has last compared the path with the journal
    cdef bint fed  # the last call of wait() found a record before a sleep would have ended

    cdef int start(self, JournalEnd stop) except -1
    cdef int check_path(self) except -1
    cdef uint64_t find_end(self, bint durable_only) except? -1
    cdef int go_to(self, uint64_t sequence) except -1
    cdef bint enter_segment_of(self, uint64_t sequence) except -1
    cdef int go_to_end(self) except -1
    cdef bint step_over_damage(self, uint64_t sequence) except -1
    cdef int read_into(self, Batch batch, Py_ssize_t max_records, Py_ssize_t max_bytes, uint64_t end) except -1
