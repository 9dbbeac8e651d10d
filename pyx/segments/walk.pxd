"""The declarations of walk.h, for the Cython sources."""

from libc.stdint cimport uint8_t, uint64_t

from jlog._core.format.format cimport jlog_block_header


cdef extern from "segments/walk.h" nogil:
    enum:
        JLOG_BLOCK_VALID
        JLOG_BLOCK_NONE
        JLOG_BLOCK_BAD_HEADER
        JLOG_BLOCK_BAD_BODY
        JLOG_BLOCK_UNREADABLE
        JLOG_LATER

    struct jlog_block_walk:
        uint64_t next
        uint64_t offset
        jlog_block_header header
        uint8_t *body
        int status
        int error

    uint64_t jlog_block_end(const jlog_block_header *header, uint64_t offset)
    int jlog_read_block_header(int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, jlog_block_header *header,
                               int *error)
    int jlog_check_block(int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, jlog_block_header *header, int *error)
    void jlog_begin_walk(jlog_block_walk *walk, int fd, const uint8_t *uuid, uint64_t segment, uint64_t offset, uint64_t end,
                         bint with_body)
    bint jlog_next_block(jlog_block_walk *walk)
