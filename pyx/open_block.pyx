"""The open block as a reader has it: a copy of the body in the pre-commit buffer, read on as it grows."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENODATA
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.end cimport JournalEnd
from jlog._core.format cimport jlog_crc32c
from jlog._core.page cimport JLOG_PAGE_BYTES
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

    cdef bint read(self, JournalEnd end) except -1:
        """As far as the end was noted; there is room. False when the block has been switched away from: then it stands
        in the segment."""
        cdef Precommit precommit = end.precommit
        cdef uint32_t start = 0, crc = 0
        cdef int status, _turn
        if not end.live:
            memcpy(self.body, PyBytes_AS_STRING(end.stored_body), end.now.used)
            self.generation = 0
            return True
        if self.generation == end.now.slot.generation:
            start, crc = self.verified, self.verified_crc
        for _turn in range(TEARS_MAX):
            status = precommit.read_body(&end.now, self.body, start)
            if status == -ENODATA:
                raise CorruptJournal(precommit.path, os.fstat(precommit.fd).st_size, "the pre-commit buffer is cut off")
            if status < 0:
                raise OSError(-status, os.strerror(-status), precommit.path)
            if status == 0:
                return False
            if jlog_crc32c(crc, self.body + start, end.now.used - start) == end.now.crc:
                self.generation, self.verified, self.verified_crc = end.now.slot.generation, end.now.used, end.now.crc
                return True
            PyErr_CheckSignals()
        raise CorruptJournal(precommit.path, JLOG_PAGE_BYTES + start, "the open block fails its checksum")
