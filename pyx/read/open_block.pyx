"""A copy of a block of the pre-commit buffer, while other processes write to it. A reader's is extended as the block grows."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENODATA
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.format.format cimport jlog_crc32c
from jlog._core.buffer.page cimport jlog_slot, jlog_word_crc, jlog_word_used
from jlog._core.buffer.precommit cimport Precommit
from jlog._core.recover.abandoned_buffer cimport make_body
from jlog._core.system.file cimport check_result

from jlog.errors import CorruptJournal

cdef enum:
    READS_MAX = 2  # a body whose checksum fails this often is damaged
    LARGE_BYTES = 64 << 10  # a body of this size is read and checked without the GIL
    PIECE_BYTES = 16 << 20  # at most this much is read without looking for Ctrl-C


cdef class OpenBlock:
    """A copy of a block's body. Each byte is read and verified once, however often the block grows."""

    def __dealloc__(self):
        free(self.body)

    cdef int reserve(self, size_t size) except -1:
        """Makes room for a body of this size. The copy stays, but may move to another address."""
        cdef void *larger
        if size > self.room:
            larger = realloc(self.body, size)
            if larger == NULL:
                raise MemoryError
            self.body = <uint8_t *> larger
            self.room = size
        return 0

    cdef bint read(self, JournalEnd end, const jlog_slot *slot) except -1:
        """Reads the block up to the noted end. Returns False if its body has been used for another block since: then this block
        stands in its segment."""
        cdef Precommit precommit = end.precommit
        cdef bytes stored
        cdef uint32_t used = jlog_word_used(slot.publish_word)
        cdef uint32_t start = 0, crc = 0
        cdef int status = 0, turn
        if not end.live:
            stored = end.stored_bodies[slot.generation]
            memcpy(self.body, PyBytes_AS_STRING(stored), used)
            self.generation = 0
            return True
        if self.generation == slot.generation:
            start, crc = self.verified, self.verified_crc
        # No checksum covers the page's capacity, so the body is also looked for where the file's size puts it. Published bytes
        # do not change while the generation stays: a body whose checksum fails twice is damaged.
        for turn in range(2 * READS_MAX):
            status = self.fetch(precommit, slot, end.now.capacity if turn % 2 == 0 else precommit.room(), start, crc)
            if status == 0:
                return False
            if status == 1:
                self.generation, self.verified, self.verified_crc = slot.generation, used, jlog_word_crc(slot.publish_word)
                return True
        if status == -ENODATA:
            raise CorruptJournal(precommit.path, os.fstat(precommit.fd).st_size,
                                 "the pre-commit buffer is shorter than it states")
        raise CorruptJournal(precommit.path, end.body_offset(slot) + start, "a block of the buffer fails its checksum")

    cdef int fetch(self, Precommit precommit, const jlog_slot *slot, uint64_t capacity, uint32_t start,
                   uint32_t crc) except? -1:
        """Reads the body from `start` on; `crc` is the CRC of the bytes before. Returns 1 if the CRC is the slot's, 2 if it is
        not, 0 if the body may have been used for another block, -ENODATA if it is cut off."""
        cdef uint32_t used = jlog_word_used(slot.publish_word), end
        cdef int status
        while start < used:
            end = min(used, <uint64_t> start + PIECE_BYTES)
            if end - start < LARGE_BYTES:  # taking the GIL again would take longer than reading
                status = precommit.read_body(slot, capacity, self.body, start, end)
                crc = jlog_crc32c(crc, self.body + start, end - start)
            else:
                with nogil:
                    status = precommit.read_body(slot, capacity, self.body, start, end)
                    crc = jlog_crc32c(crc, self.body + start, end - start)
                PyErr_CheckSignals()
            if status != 1:
                return status if status == -ENODATA else <int> check_result(status, precommit.path)
            start = end
        return 1 if crc == jlog_word_crc(slot.publish_word) else 2


def read_buffer(directory, bytes uuid not None) -> list:
    """Returns the bodies that follow the blocks in the segments, also while writers append: the immutable block's body, if
    there is such a block, and the open one's. Every record that was appended before this call is in one of them, or before
    the first."""
    cdef JournalEnd end = JournalEnd(directory, uuid)
    cdef OpenBlock block = OpenBlock()
    while True:
        end.note()
        found = []
        if end.now.has_immutable:
            found.append(copy_body(end, block, &end.now.immutable))
        found.append(copy_body(end, block, &end.now.slot))
        if None not in found:  # otherwise a body was used for another block meanwhile
            return found


cdef object copy_body(JournalEnd end, OpenBlock block, const jlog_slot *slot):
    cdef uint32_t used = jlog_word_used(slot.publish_word)
    if used == 0:
        return make_body(slot, b"")
    block.reserve(used)
    if not block.read(end, slot):
        return None
    body = make_body(slot, block.body[:used])
    if body is None:
        raise CorruptJournal(end.page_path, end.body_offset(slot), "a block of the buffer does not consist of records")
    return body
