"""Looks at the control page and the bodies that writers have left, for a repair."""

import os
from collections import namedtuple

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, JLOG_PAGE_BYTES, JLOG_PAGE_RECOVERING, JLOG_STATUS_OFFSET, jlog_has_immutable, jlog_open_slot, jlog_page,
    jlog_slot, jlog_slot_valid, jlog_unwritten_slot)
from jlog._core.buffer.precommit cimport PAGE_VALID, Precommit
from jlog._core.format.format cimport jlog_load64, jlog_walk, jlog_walk_records
from jlog._core.system.file cimport check_error, jlog_write_at

Body = namedtuple("Body", "segment offset first_sequence base_time_us raw records clock_us")
Page = namedtuple("Page", "ready current whole direct sync_failed segment offset first_sequence open_first_sequence bodies")


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
        if not jlog_slot_valid(slot, precommit.uuid) or slot.publish_word == 0:
            continue
        body = precommit.stored_body(slot, page.capacity)
        found = make_body(slot, body) if body is not None else None
        if found is not None:
            bodies.append(found)
    slot = jlog_open_slot(<jlog_page *> page)
    ready = precommit.identify(page) == PAGE_VALID
    current = ready and slot.generation == page.generation and jlog_slot_valid(slot, precommit.uuid)
    empty = slot.publish_word == 0
    open_first, whole = slot.first_sequence, empty or is_among(bodies, slot)
    if current and jlog_has_immutable(page):
        slot = jlog_unwritten_slot(<jlog_page *> page)
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
