"""Reads the buffer that dead writers have left: tests whether its page is current, and returns its bodies."""

import os
from collections import namedtuple

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jlog._core.system.file cimport check_error, jlog_inode, jlog_write_at
from jlog._core.format.format cimport (
    jlog_block_header, jlog_block_header_valid, jlog_crc32c, jlog_load64, jlog_walk, jlog_walk_records)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, JLOG_CAPACITY_MIN, JLOG_PAGE_BYTES, JLOG_PAGE_RECOVERING, JLOG_STATUS_OFFSET, jlog_body_offset,
    jlog_has_immutable, jlog_is_whole_body, jlog_open_slot, jlog_page, jlog_slot, jlog_slot_valid, jlog_unwritten_slot,
    jlog_word_raw, jlog_word_used)
from jlog._core.buffer.precommit cimport PAGE_VALID, Precommit
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.segments.walk cimport JLOG_BLOCK_VALID, jlog_block_end

from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog.errors import CorruptJournal
from jlog.system.files import read_whole

Body = namedtuple("Body", "segment offset first_sequence base_time_us raw records clock_us")
Page = namedtuple("Page", "ready current whole direct sync_failed segment offset first_sequence open_first_sequence bodies")


cdef bint body_is_whole(Precommit precommit, const jlog_slot *slot) noexcept:
    """Returns whether the mapped body is what the slot's publish word says. The page's capacity fits into the file."""
    cdef uint32_t used = jlog_word_used(slot.publish_word)
    return used <= precommit.page.capacity and jlog_is_whole_body(slot, mapped_body(precommit, slot), used)


cdef const uint8_t *mapped_body(Precommit precommit, const jlog_slot *slot) noexcept:
    return <uint8_t *> precommit.page + jlog_body_offset(slot.generation, precommit.page.capacity)


cdef bint immutable_is_whole(Precommit precommit) noexcept:
    """Returns whether the immutable block's header fits its place and its body, and the open block begins after it."""
    cdef jlog_page *page = precommit.page
    cdef const jlog_block_header *header = &page.immutable
    cdef jlog_slot *slot = jlog_unwritten_slot(page)
    cdef jlog_slot *following = jlog_open_slot(page)
    cdef uint32_t used = jlog_word_used(slot.publish_word)
    if slot.generation != page.generation - 1 or not jlog_slot_valid(slot, precommit.uuid):
        return False
    if used <= JLOG_BASE_BYTES or not body_is_whole(precommit, slot):
        return False
    return (jlog_block_header_valid(header, precommit.uuid, slot.segment, slot.offset)
            and header.first_sequence == slot.first_sequence and header.stored_bytes == used - JLOG_BASE_BYTES
            and header.stored_crc == jlog_crc32c(0, mapped_body(precommit, slot) + JLOG_BASE_BYTES, used - JLOG_BASE_BYTES)
            and following.segment == slot.segment and following.offset == jlog_block_end(header, slot.offset)
            and following.first_sequence == slot.first_sequence + header.record_count)


def only_processes_died(directory, bytes uuid not None, Precommit precommit not None, bounds) -> bool:
    """Returns whether the mapped page is current although no writer lives: it is of this boot and of this file, and the
    blocks of the segment agree with it."""
    cdef uint64_t said = precommit.page.capacity
    if precommit.identify(precommit.page) != PAGE_VALID:
        return False
    # No checksum covers the capacity. Of the two candidates the right one is that with which the bodies are whole.
    for capacity in dict.fromkeys((said, precommit.room())):
        if JLOG_CAPACITY_MIN <= capacity <= precommit.room():
            precommit.page.capacity = capacity
            if agrees(directory, uuid, precommit, bounds):
                return True
    precommit.page.capacity = said
    return False


cdef bint agrees(directory, bytes uuid, Precommit precommit, bounds) except -1:
    cdef jlog_page *page = precommit.page
    cdef jlog_slot *slot
    cdef jlog_walk walk
    cdef const uint8_t *body
    cdef uint32_t used
    cdef size_t raw
    cdef uint64_t offset, previous
    cdef SegmentFile file
    slot = jlog_open_slot(page)
    if slot.generation != page.generation or not jlog_slot_valid(slot, precommit.uuid):
        return False
    if slot.capacity > page.capacity:  # records would be written beyond the body
        return False
    if not body_is_whole(precommit, slot):
        return False
    body = mapped_body(precommit, slot)
    used = jlog_word_used(slot.publish_word)
    raw = jlog_word_raw(slot.publish_word)
    if jlog_walk_records(body + JLOG_BASE_BYTES, raw, jlog_load64(body), &walk) != 0:
        return False
    if (bounds.mark_sequence, bounds.mark_segment) > (slot.first_sequence + walk.record_count, slot.segment):
        return False
    try:
        file = SegmentFile(directory, slot.segment, uuid)
    except (CorruptJournal, FileNotFoundError):
        return False
    if jlog_has_immutable(page):
        if not immutable_is_whole(precommit):
            return False
        slot = jlog_unwritten_slot(page)
    offset, previous = slot.offset, slot.previous_offset
    if page.incarnation & 1 and jlog_inode(file.fd) == page.new_inode:  # killed before the replacement was complete
        offset, previous = page.new_end, 0
    if previous:
        if file.read_block(previous, True) != JLOG_BLOCK_VALID:
            return False
    elif blocks_end(file, offset) != offset:
        return False
    if jlog_has_immutable(page) or file.read_block(offset, True) != JLOG_BLOCK_VALID:
        return True
    if used == 0:
        return page.direct == page.generation
    return (file.walk.header.first_sequence == slot.first_sequence
            and begins_with(body, used, file.walk.header.base_time_us, file.walk.header.raw_bytes, file.walk.header.raw_crc))


cdef bint begins_with(const uint8_t *body, uint32_t used, int64_t base_time_us, uint32_t raw_bytes, uint32_t raw_crc) noexcept:
    """Returns whether the records of the block at this body's place are the first of the body's, or all of them: a write back
    that was killed or failed has written the body as it was then, compressed or not."""
    return (JLOG_BASE_BYTES + <uint64_t> raw_bytes <= used and base_time_us == jlog_load64(body)
            and raw_crc == jlog_crc32c(0, body + JLOG_BASE_BYTES, raw_bytes))


cdef uint64_t blocks_end(SegmentFile file, uint64_t limit) except? 0:
    """Returns the offset of the first block at or after `limit`, or the end of the blocks if that comes before."""
    file.begin_walk(SEGMENT_HEADER_BYTES, limit, False)
    while file.next_block_of_walk():
        pass
    return file.walk.offset


# --- Without mapping it, so that no right to write is needed ---------------------------------------------------------


cdef int copy_page(Precommit precommit, jlog_page *page) except -1:
    """Copies the page, with zeros where the file is cut off. It is copied because bytes do not have a page's alignment, on
    which the compiler counts."""
    cdef bytes content = read_whole(precommit.fd, JLOG_PAGE_BYTES, 0).ljust(JLOG_PAGE_BYTES, b"\0")
    memcpy(page, <const uint8_t *> content, sizeof(page[0]))
    return 0


def stored_bodies(Precommit precommit not None, end not None) -> tuple:
    """Returns (offset, sequence, bodies): where the buffer continues after this End, and the bodies in their order, each with
    its base time: none, the open block's, the immutable one's, or both.

    The bodies begin at the end; or where the last block does, if its records are the first of a longer body's. The journal
    never rotated after a block with fewer records than the body of its place, so no caller was told that it is durable."""
    cdef jlog_page page
    begin = end.offset, end.sequence
    copy_page(precommit, &page)
    first = body_at(precommit, &page, end.segment, begin)
    if first is None and end.last is not None and not end.last.has_state:
        begin = end.last.offset, end.last.first_sequence
        first = body_at(precommit, &page, end.segment, begin)
        if first is None or not is_longer(first[0], end.last):
            return end.offset, end.sequence, []
    if first is None:
        return *begin, []
    body, following = first
    second = body_at(precommit, &page, end.segment, following)
    return *begin, [body] if second is None else [body, second[0]]


cdef object body_at(Precommit precommit, jlog_page *page, segment, place):
    """Returns a whole body that belongs at this place, (offset, sequence), and the place after it; None without one."""
    cdef jlog_slot *slot
    cdef bytes body
    offset, sequence = place
    for parity in range(2):
        slot = &page.slots[parity]
        if not jlog_slot_valid(slot, precommit.uuid) or jlog_word_used(slot.publish_word) == 0:
            continue
        if (slot.segment, slot.offset, slot.first_sequence) != (segment, offset, sequence):
            continue
        body = precommit.stored_body(slot, page.capacity)
        found = make_body(slot, body) if body is not None else None
        if found is not None:
            return body, (offset + BLOCK_HEADER_BYTES + len(found.raw), sequence + found.records)
    return None


def is_longer(bytes body not None, block not None) -> bool:
    """Returns whether the body at a Block's place has all records of the block, and more."""
    return (len(body) > JLOG_BASE_BYTES + block.raw_bytes
            and begins_with(<const uint8_t *> body, len(body), block.base_time_us, block.raw_bytes, block.raw_crc))


# --- For a repair ------------------------------------------------------------------------------------------------------


cdef object make_body(const jlog_slot *slot, bytes body):
    """Returns a Body with the facts of its slot and its records; None if the bytes are not whole records."""
    cdef jlog_walk walk
    if not body:
        return Body(slot.segment, slot.offset, slot.first_sequence, 0, b"", 0, 0)
    raw = body[JLOG_BASE_BYTES:]
    base_us = jlog_load64(<const uint8_t *> body)
    if jlog_walk_records(<const uint8_t *> <bytes> raw, len(raw), base_us, &walk) != 0:
        return None
    return Body(slot.segment, slot.offset, slot.first_sequence, base_us, raw, walk.record_count, walk.clock_max_us)


def look_at_page(directory, bytes uuid not None):
    """Returns a Page with the facts that the file `precommit` holds while no process writes; None if the file is missing.

    ready: the page is of this boot and of this file, so readers trust it.
    current: its open slot is right too. So the segments end at `segment`, `offset`, `first_sequence`, and the open block begins
        with `open_first_sequence`.
    bodies: a Body for each slot whose CRC is right and whose publish word vouches for the body.
    whole: the open block is empty or among `bodies`, and so is an immutable block if there is one.
    direct: the open block is empty, and the page has the intent of a direct block at its place.
    sync_failed: the kernel may have dropped bytes that were written since the synced mark, although they can still be read.
    """
    cdef Precommit precommit
    cdef jlog_page page
    cdef jlog_slot *slot
    cdef bytes body
    try:
        precommit = Precommit(directory, uuid, writable=False)
    except FileNotFoundError:
        return None
    copy_page(precommit, &page)
    bodies = []
    for parity in range(2):
        slot = &page.slots[parity]
        if not jlog_slot_valid(slot, precommit.uuid) or slot.publish_word == 0:
            continue
        body = precommit.stored_body(slot, page.capacity)
        found = make_body(slot, body) if body is not None else None
        if found is not None:
            bodies.append(found)
    slot = jlog_open_slot(&page)
    ready = precommit.identify(&page) == PAGE_VALID
    current = ready and slot.generation == page.generation and jlog_slot_valid(slot, precommit.uuid)
    empty = slot.publish_word == 0
    open_first, whole = slot.first_sequence, empty or is_among(bodies, slot)
    if current and jlog_has_immutable(&page):
        slot = jlog_unwritten_slot(&page)
        whole = whole and is_among(bodies, slot)
    return Page(ready, current, current and whole, current and empty and page.direct == page.generation,
                current and page.sync_error != 0, slot.segment, slot.offset, slot.first_sequence, open_first, bodies)


cdef bint is_among(list bodies, const jlog_slot *slot):
    place = slot.segment, slot.offset, slot.first_sequence
    return place in [(body.segment, body.offset, body.first_sequence) for body in bodies]


def invalidate_page(directory, bytes uuid not None) -> None:
    """Marks the page as not valid. From now on readers find the journal's end in the segments. The file stays in its place,
    because a reader may have it open."""
    cdef Precommit precommit
    cdef uint32_t status = JLOG_PAGE_RECOVERING
    try:
        precommit = Precommit(directory, uuid)
    except FileNotFoundError:
        return
    if os.fstat(precommit.fd).st_size >= <int64_t> (JLOG_STATUS_OFFSET + sizeof(status)):
        check_error(jlog_write_at(precommit.fd, <const uint8_t *> &status, sizeof(status), JLOG_STATUS_OFFSET), precommit.path)
