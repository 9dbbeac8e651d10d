from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.buffer.page cimport jlog_slot
from jlog._core.buffer.precommit cimport Precommit

cdef class OpenBlock:
    cdef uint8_t *body
    cdef size_t room
    cdef uint64_t generation  # generation of the copied block; 0: none
    cdef uint32_t verified  # bytes of the body that were read and verified
    cdef uint32_t verified_crc  # their CRC

    cdef int reserve(self, size_t size) except -1
    cdef bint read(self, JournalEnd end, const jlog_slot *slot) except -1
    cdef int fetch(self, Precommit precommit, const jlog_slot *slot, uint64_t capacity, uint32_t start, uint32_t crc) except? -1
