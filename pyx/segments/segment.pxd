from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.format.format cimport jlog_block_header, jlog_segment_header
from jlog._core.segments.walk cimport jlog_block_walk
from jlog._core.system.file cimport jlog_identity

cdef const char *block_problem(int status) noexcept nogil
cdef int check_walk(const jlog_block_walk *walk, path) except -1
cdef bytes body_of(path, uint64_t offset, const jlog_block_header *header, const uint8_t *stored)
cdef int fill_segment_header(jlog_segment_header *header, const uint8_t *uuid, uint64_t epoch, uint64_t first_sequence,
                             uint64_t previous_segment, uint64_t previous_end_offset,
                             uint64_t previous_end_sequence, uint64_t replacements) noexcept nogil

cdef class SegmentFile:
    cdef readonly object path
    cdef readonly uint64_t segment
    cdef readonly uint64_t epoch
    cdef readonly uint64_t previous_segment
    cdef readonly uint64_t previous_end_offset
    cdef readonly uint64_t previous_end_sequence
    cdef readonly int64_t created_us
    cdef readonly uint64_t replacements
    cdef int fd
    cdef jlog_identity file
    cdef uint8_t uuid[16]
    cdef jlog_block_walk walk  # the block that was read last

    cdef int read_block(self, uint64_t offset, bint with_body) except? -100
    cdef void begin_walk(self, uint64_t offset, uint64_t end, bint with_body) noexcept
    cdef bint next_block_of_walk(self) except -1
    cdef object _block(self)

cdef class ReadAhead:
    cdef size_t least  # bytes that are read at once
    cdef uint8_t *data
    cdef size_t room
    # The bytes that `data` holds: the segment, the offset in it, and how many.
    cdef uint64_t segment
    cdef uint64_t offset
    cdef size_t size

    cdef void forget(self) noexcept
    cdef const jlog_block_header *block(self, SegmentFile file, uint64_t offset, uint64_t open_offset,
                                        const char **problem) except? NULL
    cdef bint header(self, SegmentFile file, uint64_t offset, uint64_t open_offset, bint ahead,
                     jlog_block_header *found) except -1
    cdef bint holds(self, SegmentFile file, uint64_t offset, uint64_t size) noexcept
    cdef int read(self, SegmentFile file, uint64_t offset, uint64_t open_offset, uint64_t needed) except -1
