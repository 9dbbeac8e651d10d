from libc.stdint cimport uint8_t, uint64_t

from jlog._core.format.format cimport jlog_block_header
from jlog._core.segments.segment cimport SegmentFile

cdef class ReadAhead:
    cdef uint8_t *data
    cdef size_t room
    # The bytes that `data` holds: the segment, the offset in it, and how many.
    cdef uint64_t segment
    cdef uint64_t offset
    cdef size_t size

    cdef void forget(self) noexcept
    cdef const jlog_block_header *block(self, SegmentFile file, uint64_t offset, uint64_t open_offset,
                                        const char **problem) except? NULL
    cdef int read(self, SegmentFile file, uint64_t offset, uint64_t open_offset, uint64_t needed) except -1
