"""Pieces of a journal that is written anew, by a repair or into a backup: a segment's header, a block at another place,
and what the pre-commit buffer holds."""

import os
from collections import namedtuple

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jlog._core.recover.abandoned_buffer cimport stored_body
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.system.file cimport jlog_write_at
from jlog._core.format.format cimport (
    JLOG_BOUNDS_MAGIC,
    JLOG_COPY_BYTES,
    JLOG_CRC_OFFSET,
    JLOG_POSITION_MAGIC,
    JLOG_SEGMENT_MAGIC,
    jlog_block_header,
    jlog_block_header_crc,
    jlog_bounds,
    jlog_load32,
    jlog_load64,
    jlog_position,
    jlog_segment_header,
    jlog_structure_crc,
    jlog_walk,
    jlog_walk_records,
)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES,
    JLOG_PAGE_BYTES,
    JLOG_PAGE_RECOVERING,
    JLOG_STATUS_OFFSET,
    jlog_page,
    jlog_is_closing,
    jlog_open_slot,
    jlog_slot,
    jlog_slot_valid,
    jlog_unwritten_slot,
    jlog_word_used,
)
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.buffer.precommit cimport PAGE_VALID, Precommit
from jlog._core.segments.segment cimport fill_segment_header

from jlog._core.format.constants import NONE
from jlog.errors import CorruptJournal

SIGNATURE_BYTES = max(sizeof(jlog_segment_header), sizeof(jlog_position), sizeof(jlog_bounds))
COPIES_AT = 0, JLOG_COPY_BYTES
Signature = namedtuple("Signature", "uuid epoch first_sequence")
Body = namedtuple("Body", "segment offset first_sequence base_time_us raw records clock_us")
Page = namedtuple("Page", "ready current whole direct sync_failed segment offset first_sequence open_first_sequence bodies")


def segment_header(bytes uuid not None, uint64_t epoch, uint64_t first_sequence, previous, int64_t created_us,
                   uint64_t replacements) -> bytes:
    """`previous`: (segment, end offset, end sequence) of the file before, or None."""
    cdef jlog_segment_header header
    segment, offset, sequence = previous if previous is not None else (NONE, 0, 0)
    fill_segment_header(&header, uuid, epoch, first_sequence, segment, offset, sequence, replacements)
    header.created_us = created_us
    header.crc = jlog_structure_crc(&header, sizeof(header))
    return (<uint8_t *> &header)[:sizeof(header)]


def moved_block(bytes block not None, bytes uuid not None, uint64_t segment, uint64_t offset) -> bytes:
    """The same block, header and stored body, as it stands at another place."""
    cdef jlog_block_header header
    if len(block) < <Py_ssize_t> sizeof(header):
        raise ValueError("this is no block")
    memcpy(&header, <const uint8_t *> block, sizeof(header))
    header.header_crc = jlog_block_header_crc(&header, uuid, segment, offset)
    return (<uint8_t *> &header)[:sizeof(header)] + block[sizeof(header):]


cdef object make_body(const jlog_slot *slot, bytes body):
    """What the slot says and the body holds; None where it is no sequence of records."""
    cdef jlog_walk walk
    if not body:
        return Body(slot.segment, slot.offset, slot.first_sequence, 0, b"", 0, 0)
    raw = body[JLOG_BASE_BYTES:]
    base_us = jlog_load64(<const uint8_t *> body)
    if jlog_walk_records(<const uint8_t *> <bytes> raw, len(raw), base_us, &walk) != 0:
        return None
    return Body(slot.segment, slot.offset, slot.first_sequence, base_us, raw, walk.record_count, walk.clock_max_us)


def read_buffer(directory, bytes uuid not None) -> list:
    """What follows the blocks that are in segments, beside living writers too: the closing block's body, if there is such a
    block, and the open one's. Every record that was appended before this call is in one of them, or before the first."""
    cdef JournalEnd end = JournalEnd(directory, uuid)
    cdef OpenBlock block = OpenBlock()
    while True:
        end.note()
        found = []
        if end.now.is_closing:
            found.append(copy_body(end, block, &end.now.closing))
        found.append(copy_body(end, block, &end.now.slot))
        if None not in found:  # else one has been used anew meanwhile
            return found


cdef object copy_body(JournalEnd end, OpenBlock block, const jlog_slot *slot):
    cdef uint32_t used = jlog_word_used(slot.word)
    if used == 0:
        return make_body(slot, b"")
    block.make_room(used)
    if not block.read(end, slot):
        return None
    body = make_body(slot, block.body[:used])
    if body is None:
        raise CorruptJournal(end.page_path, end.body_offset(slot), "a block of the buffer is no sequence of records")
    return body


def look_at_page(directory, bytes uuid not None):
    """What the file `precommit` says while nobody writes; None where it is missing. `ready`: it is of this boot and file, so
    that readers believe it. `current`: its open slot is right too, and so it says where the segments end: at `segment`,
    `offset`, `first_sequence`, and with which sequence the open block begins. `whole`: the open block is empty, or, as a
    closing one, among `bodies`: each slot whose CRC is right, with the body that its word vouches for. `sync_failed`: the
    kernel may have dropped what was written since the synced mark, though it still reads it."""
    cdef Precommit precommit
    cdef jlog_page copied  # the compiler counts on a page's alignment, which bytes do not have
    cdef const jlog_page *page = &copied
    cdef jlog_slot *slot
    cdef bytes content, body
    try:
        precommit = Precommit(directory, uuid, writable=False)
    except FileNotFoundError:
        return None
    content = os.pread(precommit.fd, JLOG_PAGE_BYTES, 0)
    content = content.ljust(JLOG_PAGE_BYTES, b"\0")
    memcpy(&copied, <const uint8_t *> content, sizeof(copied))
    bodies = []
    for parity in range(2):
        slot = <jlog_slot *> &page.slots[parity]
        if not jlog_slot_valid(slot, precommit.uuid) or slot.word == 0:
            continue
        body = stored_body(precommit.fd, page, slot)
        found = make_body(slot, body) if body is not None else None
        if found is not None:
            bodies.append(found)
    slot = jlog_open_slot(<jlog_page *> page)
    ready = precommit.identify(page) == PAGE_VALID
    current = ready and slot.generation == page.generation and jlog_slot_valid(slot, precommit.uuid)
    empty = slot.word == 0
    open_first, whole = slot.first_sequence, empty or is_among(bodies, slot)
    if current and jlog_is_closing(page):
        slot = jlog_unwritten_slot(<jlog_page *> page)
        whole = whole and is_among(bodies, slot)
    return Page(ready, current, current and whole, current and empty and page.direct == page.generation,
                current and page.sync_error != 0, slot.segment, slot.offset, slot.first_sequence, open_first, bodies)


cdef bint is_among(list bodies, const jlog_slot *slot):
    place = slot.segment, slot.offset, slot.first_sequence
    return place in [(body.segment, body.offset, body.first_sequence) for body in bodies]


def invalidate_page(directory, bytes uuid not None) -> None:
    """In place, for a reader may have it open: whoever looks at it from now on finds the journal's end in the segments."""
    cdef Precommit precommit
    cdef uint32_t status = JLOG_PAGE_RECOVERING
    cdef int error
    try:
        precommit = Precommit(directory, uuid)
    except FileNotFoundError:
        return
    if os.fstat(precommit.fd).st_size >= <int64_t> (JLOG_STATUS_OFFSET + sizeof(status)):
        error = jlog_write_at(precommit.fd, <const uint8_t *> &status, sizeof(status), JLOG_STATUS_OFFSET)
        if error != 0:
            raise OSError(error, os.strerror(error), precommit.path)


def whose(bytes image not None):
    """The Signature of a file that begins so; None where it is neither a segment nor a position nor `bounds`, or not
    whole. What it does not say is None."""
    cdef const uint8_t *at = image
    cdef jlog_segment_header *segment = <jlog_segment_header *> at
    cdef jlog_position *position = <jlog_position *> at
    cdef jlog_bounds *bounds = <jlog_bounds *> at
    if is_whole(image, JLOG_SEGMENT_MAGIC, sizeof(jlog_segment_header)):
        return Signature(segment.uuid[:16], segment.epoch, segment.first_sequence)
    if is_whole(image, JLOG_POSITION_MAGIC, sizeof(jlog_position)):
        return Signature(position.uuid[:16], position.epoch, None)
    if is_whole(image, JLOG_BOUNDS_MAGIC, sizeof(jlog_bounds)):
        return Signature(bounds.uuid[:16], None, None)
    return None


cdef bint is_whole(bytes image, const char *magic, size_t size) except -1:
    cdef const uint8_t *at = image
    return (<size_t> len(image) >= size and memcmp(at, magic, 8) == 0
            and jlog_load32(at + JLOG_CRC_OFFSET) == jlog_structure_crc(at, size))
