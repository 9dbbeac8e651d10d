from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.write.member cimport Call

cdef bytes as_bytes(value)

cdef class Body:
    cdef uint8_t *data
    cdef size_t size
    cdef size_t room
    cdef uint64_t count
    cdef uint64_t explicit_count
    cdef int64_t explicit_max_us
    cdef bint has_state
    cdef bint taken
    cdef bytes packed

    cdef int take(self) except -1
    cdef int add_state(self, bytes key, bytes value) except -1
    cdef int reserve(self, size_t more) except -1
    cdef uint8_t *extend(self, size_t more) except NULL
    cdef uint32_t append(self, bytes piece) except? 0xFFFFFFFF
    cdef int add(self, value, key, headers, timestamp_us) except -1
    cdef int put_long(self, uint32_t tag, int64_t time_us, bytes value, bytes key, headers) except -1
    cdef uint32_t append_headers(self, headers) except? 0xFFFFFFFF
    cdef int describe(self, Call *call) except -1
    cdef int describe_direct(self, Call *call, int codec) except -1

cdef bytes pack(raw)
