from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.member cimport Call

cdef bytes as_bytes(value)

cdef class Body:
    cdef uint8_t *data
    cdef size_t size
    cdef size_t room
    cdef uint64_t count
    cdef uint64_t explicit_count
    cdef int64_t explicit_max_us
    cdef bint has_state
    cdef bytes packed

    cdef uint8_t *extend(self, size_t more) except NULL
    cdef int add_value(self, bytes value) except -1
    cdef int put_long(self, uint32_t tag, int64_t time_us, bytes value, bytes key, bytes headers) except -1
    cdef int describe(self, Call *call) except -1
    cdef int describe_direct(self, Call *call, int codec) except -1

cdef bytes pack(raw)
