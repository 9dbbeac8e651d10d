from libc.stdint cimport int64_t, uint64_t

from jlog._core.member cimport Call, Member, Prepared

cdef class Attachment(Member):
    cdef readonly object meta
    cdef int users
    cdef int pins
    cdef Prepared *spare
    cdef uint64_t prepared_count
    cdef object state
    cdef uint64_t state_generation
    cdef public object after_roll  # called without locks once a segment has been sealed; None, or a hook

    cdef uint64_t run(self, Call *call, timeout) except? 0xFFFFFFFFFFFFFFFF
