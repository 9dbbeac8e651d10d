from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.format.format cimport jlog_block_header, jlog_segment_header

cdef enum:
    BLOCK_VALID = 1
    BLOCK_NONE = 0  # the end of the file, or zeros
    BLOCK_BAD_HEADER = -1
    BLOCK_BAD_BODY = -2
    BLOCK_UNREADABLE = -3  # the system call failed: see errno in `error`

cdef const char *block_problem(int status) noexcept nogil
cdef int read_block_header(int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, jlog_block_header *header,
                           int *error) noexcept nogil
cdef int check_block(int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, jlog_block_header *header,
                     uint8_t **body, size_t *room, int *error) noexcept nogil
cdef int check_block_in_place(int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, jlog_block_header *header,
                              int *error) noexcept nogil
cdef int fill_segment_header(jlog_segment_header *header, const uint8_t *uuid, uint64_t epoch, uint64_t first_sequence,
                             uint64_t previous_segment, uint64_t previous_end_offset,
                             uint64_t previous_end_sequence, uint64_t replacements) noexcept nogil

cdef class SegmentFile:
    cdef readonly str path
    cdef readonly uint64_t segment
    cdef readonly uint64_t epoch
    cdef readonly uint64_t previous_segment
    cdef readonly uint64_t previous_end_offset
    cdef readonly uint64_t previous_end_sequence
    cdef readonly int64_t created_us
    cdef readonly uint64_t replacements
    cdef int fd
    cdef uint8_t uuid[16]
    cdef uint8_t *body
    cdef size_t room
    cdef jlog_block_header header

    cdef int read_block(self, uint64_t offset, bint with_body) except? -100
    cdef object _block(self, uint64_t offset)
