"""A block of the pre-commit buffer as a reader has it: a copy of its body, read on as it grows."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENODATA
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.end cimport JournalEnd
from jlog._core.format cimport jlog_crc32c
from jlog._core.page cimport jlog_slot, jlog_word_crc, jlog_word_used
from jlog._core.precommit cimport Precommit

from jlog.errors import CorruptJournal

cdef enum:
    TEARS_MAX = 10000  # reads beside stores that may tear before it is called damage


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
        cdef uint64_t capacity
        cdef int status, turn
        if not end.live:
            stored = end.stored_bodies[slot.generation]
            memcpy(self.body, PyBytes_AS_STRING(stored), used)
            self.generation = 0
            return True
        if self.generation == slot.generation:
            start, crc = self.verified, self.verified_crc
        for turn in range(TEARS_MAX):
            capacity = precommit.room() if turn % 2 else end.now.capacity  # no checksum is over the page's
            status = precommit.read_body(slot, capacity, self.body, start)
            if status == -ENODATA and turn:
                raise CorruptJournal(precommit.path, os.fstat(precommit.fd).st_size, "the pre-commit buffer is cut off")
            if status < 0 and status != -ENODATA:
                raise OSError(-status, os.strerror(-status), precommit.path)
            if status == 0:
                return False
            if status == 1 and jlog_crc32c(crc, self.body + start, used - start) == jlog_word_crc(slot.word):
                self.generation, self.verified, self.verified_crc = slot.generation, used, jlog_word_crc(slot.word)
                return True
            PyErr_CheckSignals()
        raise CorruptJournal(precommit.path, end.body_offset(slot) + start, "a block of the buffer fails its checksum")
