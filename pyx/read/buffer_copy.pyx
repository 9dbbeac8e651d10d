"""Copies the bodies of the pre-commit buffer, while other processes write to it."""

from libc.stdint cimport uint32_t

from jlog._core.buffer.page cimport jlog_slot, jlog_word_used
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.recover.found_page cimport make_body

from jlog.errors import CorruptJournal


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
