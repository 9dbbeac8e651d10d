"""Reads ahead in a segment, a few blocks at once, by pread."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from jlog._core.system.file cimport check_result, jlog_read_at
from jlog._core.format.format cimport JLOG_NONE, jlog_block_header, jlog_block_header_valid
from jlog._core.segments.segment cimport SegmentFile, block_problem
from jlog._core.segments.walk cimport JLOG_BLOCK_VALID, jlog_read_block_header

cdef enum:
    WINDOW_BYTES = 264 << 10  # two blocks of the default buffer and a little more


cdef class ReadAhead:
    """Holds the bytes of a segment that were read last. Each reader needs its own, because read() releases the GIL."""

    def __dealloc__(self):
        free(self.data)

    cdef void forget(self) noexcept:
        """Drops the bytes, so that the next block is read anew."""
        self.size = 0

    cdef const jlog_block_header *block(self, SegmentFile file, uint64_t offset, uint64_t open_offset,
                                        const char **problem) except? NULL:
        """Returns the header of the block at this offset, with the stored body after it. Returns NULL if no whole block stands
        there, and the reason in `problem`; the reason is NULL where no block was ever written. `open_offset`: where the open
        block begins; JLOG_NONE in a sealed segment."""
        cdef const jlog_block_header *header
        cdef uint64_t needed = sizeof(jlog_block_header), inside
        cdef int error = 0, status
        cdef bint fresh = False
        cdef jlog_block_header found
        problem[0] = NULL
        while True:
            inside = offset - self.offset
            if self.segment != file.segment or offset < self.offset or inside + needed > self.size:
                self.read(file, offset, open_offset, needed)
                inside = 0
            header = <const jlog_block_header *> (self.data + inside)
            if self.size < inside + sizeof(jlog_block_header) \
                    or not jlog_block_header_valid(header, file.uuid, file.segment, offset):
                if fresh:
                    break
                self.forget()  # it is read anew before it counts as damage
                fresh = True
                needed = sizeof(jlog_block_header)
                continue
            needed = sizeof(jlog_block_header) + header.stored_bytes
            if inside + needed <= self.size:
                return header
            if offset + needed > file.file_bytes:
                problem[0] = b"the file ends within the block"
                return NULL
        status = jlog_read_block_header(file.fd, file.uuid, file.segment, offset, &found, &error)
        if status == JLOG_BLOCK_VALID:
            problem[0] = b"the block cannot be read as a whole"
        elif status < 0 and open_offset != JLOG_NONE:
            problem[0] = block_problem(status)
        return NULL

    cdef int read(self, SegmentFile file, uint64_t offset, uint64_t open_offset, uint64_t needed) except -1:
        """Reads from this offset on. The bytes at the open block's place may still change, and are left out."""
        cdef uint64_t size = max(needed, WINDOW_BYTES), kept = 0, room
        cdef int64_t got
        cdef uint8_t *larger
        if offset + size > open_offset:
            size = max(needed, open_offset - offset if open_offset > offset else 0)
        if self.segment == file.segment and self.offset <= offset < self.offset + self.size:
            kept = self.offset + self.size - offset  # closed blocks never change
        if size > self.room:
            room = max(size, 2 * self.room)  # not new memory for each block that is a little larger: it costs page faults
            larger = <uint8_t *> malloc(room)
            if larger == NULL:
                raise MemoryError
            if kept:
                memcpy(larger, self.data + (offset - self.offset), kept)
            free(self.data)
            self.data = larger
            self.room = room
        elif kept:
            memmove(self.data, self.data + (offset - self.offset), kept)
        self.segment, self.offset, self.size = file.segment, offset, kept
        if kept < size:
            with nogil:
                got = jlog_read_at(file.fd, self.data + kept, size - kept, offset + kept)
            self.size = kept + check_result(got, file.path)
        return 0
