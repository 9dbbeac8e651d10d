from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jlog._core.read.end cimport JournalEnd
from jlog._core.buffer.page cimport jlog_slot
from jlog._core.buffer.precommit cimport Precommit

cdef class OpenBlock:
    cdef uint8_t *body
    cdef size_t room
    cdef uint64_t generation  # whose bytes these are
    cdef uint32_t verified
    cdef uint32_t verified_crc

    cdef int make_room(self, size_t size) except -1
    cdef bint read(self, JournalEnd end, const jlog_slot *slot) except -1
    cdef int fetch(self, Precommit precommit, const jlog_slot *slot, uint64_t capacity, uint32_t start, uint32_t crc) except? -1
