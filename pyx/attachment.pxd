from libc.stdint cimport int64_t, uint64_t

from jlog._core.member cimport Call, Member, Prepared

cdef class Attachment(Member):
    cdef readonly object meta
    cdef int users
    cdef int exclusive_writers
    cdef int pins
    cdef Prepared *spare
    cdef uint64_t prepared_count
    cdef object state
    cdef object state_end
    cdef uint64_t state_generation

    cdef close(self)
    cdef recover(self)
    cdef take_slot(self)
    cdef note_end(self)
    cdef int tidy_up(self, Call *call) except -1
    cdef unpin(self)
    cdef prepare(self, Call *call)
    cdef int keep_or_drop(self, Call *call) except -1
    cdef void drop(self, Prepared *prepared) noexcept
    cdef int raise_unless_done(self, int status, Call *call) except -1
    cdef object sync_pinned(self, timeout)
    cdef object sync_now(self)
    cdef uint64_t run(self, Call *call, timeout) except? 0xFFFFFFFFFFFFFFFF
