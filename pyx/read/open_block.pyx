"""A block of the pre-commit buffer as a reader has it: a copy of its body, read on as it grows."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENODATA
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.read.end cimport JournalEnd
from jlog._core.format.format cimport jlog_crc32c
from jlog._core.buffer.page cimport jlog_slot, jlog_word_crc, jlog_word_used
from jlog._core.buffer.precommit cimport Precommit

from jlog.errors import CorruptJournal

cdef enum:
    READS_MAX = 2  # of a body that is not what its word says, before it is called damage
    LARGE_BYTES = 64 << 10  # is read and checked without the interpreter,
    PIECE_BYTES = 16 << 20  # so much at once: then Ctrl-C gets through


cdef class OpenBlock:
    """Each byte is read and verified once, however often the block has grown."""

    def __dealloc__(self):
        free(self.body)

    cdef int make_room(self, size_t size) except -1:
        """For a body of this size; what is held is kept, but may lie elsewhere then."""
        cdef void *larger
        if size > self.room:
            larger = realloc(self.body, size)
            if larger == NULL:
                raise MemoryError
            self.body = <uint8_t *> larger
            self.room = size
        return 0

    cdef bint read(self, JournalEnd end, const jlog_slot *slot) except -1:
        """As far as the end was noted, the open block or the closing one. False when the body has been used anew: then the
        block stands in the segment."""
        cdef Precommit precommit = end.precommit
        cdef bytes stored
        cdef uint32_t used = jlog_word_used(slot.word)
        cdef uint32_t start = 0, crc = 0
        cdef int status = 0, turn
        if not end.live:
            stored = end.stored_bodies[slot.generation]
            memcpy(self.body, PyBytes_AS_STRING(stored), used)
            self.generation = 0
            return True
        if self.generation == slot.generation:
            start, crc = self.verified, self.verified_crc
        # No checksum is over the page's capacity. What is below the word does not change while the generation stands: a body
        # that is another once it has been read anew is damaged.
        for turn in range(2 * READS_MAX):
            status = self.fetch(precommit, slot, end.now.capacity if turn % 2 == 0 else precommit.room(), start, crc)
            if status == 0:
                return False
            if status == 1:
                self.generation, self.verified, self.verified_crc = slot.generation, used, jlog_word_crc(slot.word)
                return True
        if status == -ENODATA:
            raise CorruptJournal(precommit.path, os.fstat(precommit.fd).st_size, "the pre-commit buffer is cut off")
        raise CorruptJournal(precommit.path, end.body_offset(slot) + start, "a block of the buffer fails its checksum")

    cdef int fetch(self, Precommit precommit, const jlog_slot *slot, uint64_t capacity, uint32_t start,
                   uint32_t crc) except? -1:
        """Reads the body from `start` on, before which its CRC is `crc`. 1 when it is what the word says, 2 when it is not,
        0 when it may have been used anew, -ENODATA where it is cut off."""
        cdef uint32_t used = jlog_word_used(slot.word), end
        cdef int status
        while start < used:
            end = min(used, <uint64_t> start + PIECE_BYTES)
            if end - start < LARGE_BYTES:  # to wait for the interpreter would take longer
                status = precommit.read_body(slot, capacity, self.body, start, end)
                crc = jlog_crc32c(crc, self.body + start, end - start)
            else:
                with nogil:
                    status = precommit.read_body(slot, capacity, self.body, start, end)
                    crc = jlog_crc32c(crc, self.body + start, end - start)
                PyErr_CheckSignals()
            if status != 1:
                if status < 0 and status != -ENODATA:
                    raise OSError(-status, os.strerror(-status), precommit.path)
                return status
            start = end
        return 1 if crc == jlog_word_crc(slot.word) else 2
