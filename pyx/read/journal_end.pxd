from libc.stdint cimport uint64_t

from jlog._core.buffer.page cimport jlog_slot
from jlog._core.buffer.precommit cimport Precommit, Snapshot

cdef uint64_t block_bytes(const jlog_slot *slot) noexcept nogil

cdef class JournalEnd:
    cdef readonly object path
    cdef readonly bytes uuid
    cdef readonly bint durable_only
    cdef readonly object bounds_file
    cdef Precommit precommit
    cdef bint writable
    cdef Snapshot now  # the open and the immutable block
    cdef readonly bint live  # `now` comes from the page; else it was computed
    cdef uint64_t limit  # reading ends here: the durable end with durable_only, else JLOG_NONE
    cdef list stored_bodies  # the bodies of the immutable and the open block, if the end was computed
    cdef uint64_t seen_generation  # the open block when the open segment was asked for last; 0: none was found
    cdef uint64_t seen_segment  # the open segment then
    cdef object looked_at  # identity of the files from which the end was computed last

    cdef void release(self) noexcept
    cdef object read_bounds(self)
    cdef JournalEnd another(self)
    cdef const jlog_slot *written(self) noexcept
    cdef uint64_t body_offset(self, const jlog_slot *slot) noexcept
    cdef int note(self) except -1
    cdef uint64_t first_retained(self) except? -1
    cdef int look_at_name(self) except -1
    cdef bint can_be_woken(self) noexcept
