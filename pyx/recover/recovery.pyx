"""Makes a journal whole after a power loss, before the next writer appends.

If only processes died, the control page still states where the journal ends (abandoned_buffer.pyx), and little is to do. If the
power failed, or the directory was copied, the end is found in the segments, from the synced mark on (scan.pyx). No caller was
told that the bytes after the valid prefix are durable.
"""

import os

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from jlog._core.format.format cimport (
    JLOG_NUMBER_MAX, JLOG_RESERVATION_STRIDE, JLOG_SEGMENT_VERSION, jlog_block_header, jlog_load64, jlog_segment_header,
    jlog_structure_crc)
from jlog._core.system.file cimport OpenFile, check_error, check_result, jlog_read_at, jlog_sync_data, jlog_write_at
from jlog._core.system.lock cimport Deadline
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, JLOG_PAGE_READY, JLOG_PAGE_RECOVERING, JLOG_PAGE_STATE_OFFSET, jlog_page
from jlog._core.buffer.publish cimport jlog_rotate
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.atomic cimport jlog_full_fence
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.buffer.precommit cimport Precommit
from jlog._core.segments.segment cimport SegmentFile, block_problem
from jlog._core.segments.walk cimport JLOG_BLOCK_VALID

from jlog._core.recover.abandoned_buffer import stored_bodies
from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.recover.quarantine import Quarantine
from jlog._core.recover.scan import scan
from jlog._core.segments.build import encode_block, segment_start
from jlog._core.segments.segment import index_name, list_segments, segment_name, walk_body
from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import NEVER
from jlog.errors import CorruptJournal
from jlog.system.files import file_in, is_there, make_file, open_file, read_whole, remove_file

TEMPORARY = "next.recovery"  # a file with this name is not part of the journal yet


def create_segment(directory, first_sequence, bytes start not None) -> None:
    """Creates a segment file that holds `start`, and syncs both the file and its entry in the directory."""
    def write(int fd):
        check_error(jlog_write_at(fd, <const uint8_t *> start, len(start), 0), os.path.join(directory, TEMPORARY))
        _visit(b"recovery.segment_written")

    make_file(file_in(directory, segment_name(first_sequence)), write, TEMPORARY)
    sync_directory(directory)


def recover_after_power_loss(directory, bytes uuid not None, uint64_t epoch, Precommit precommit not None, bounds_file,
                             uint64_t segment_bytes, Deadline deadline not None=NEVER, at_least=None):
    """Makes the journal whole and the mapped page valid. If the process is killed at any step, the next one begins anew.
    Returns the damage that was found. Raises JournalLocked if another process writes `bounds` until the deadline.

    at_least: the next sequence, unless the records reach beyond it. Numbers whose records a power loss took are then given out
        again. None: no number is given out twice."""
    cdef jlog_page *page = precommit.page
    cdef uint64_t generation
    page.status = JLOG_PAGE_RECOVERING
    jlog_full_fence()
    _visit(b"recovery.begun")
    bounds = bounds_file.read()
    write_unsynced_again(directory, uuid, bounds)
    _visit(b"recovery.written_again")
    end = scan(directory, uuid, bounds)
    offset, sequence, added = stored_bodies(precommit, end)
    path = file_in(directory, segment_name(end.segment))
    quarantine_what_follows(directory, end.segment, end.offset)
    _visit(b"recovery.quarantined")
    cdef OpenFile opened = open_file(path, os.O_RDWR)
    try:
        # This also cuts off a block whose longer body is written next. If the process is killed in between, the next recovery
        # finds that the body belongs exactly at the end.
        os.ftruncate(opened.fd, offset)
        end = end._replace(offset=offset, sequence=sequence)
        for body in added:
            base_us, raw = jlog_load64(<const uint8_t *> <bytes> body), body[JLOG_BASE_BYTES:]
            block = encode_block(uuid, end.segment, end.offset, raw, base_us, end.sequence)
            check_error(jlog_write_at(opened.fd, <const uint8_t *> block, len(block), end.offset), path)
            records, clock_us, _, _, _ = walk_body(raw, base_us)
            end = end._replace(offset=end.offset + len(block), sequence=end.sequence + records,
                               clock_us=max(end.clock_us, clock_us))
        check_error(jlog_sync_data(opened.fd), path)
    finally:
        opened.close()
    _visit(b"recovery.cut")
    # The first writer to open a journal removes the closed end. If it is still there, no sequence was used after it.
    closed_here = bounds.closed is not None and bounds.closed[2] in (end.sequence, _end_before_gap(directory, uuid, end))
    if at_least is not None:
        first = max(at_least, end.sequence)
    else:
        first = end.sequence if closed_here else max(bounds.reservation_limit, end.sequence)
    if first == end.segment:  # the segment has no record, and no sequence of it was ever used
        place = end.segment, end.offset
    else:
        state = SegmentFile(directory, end.segment, uuid).state_before(end.offset)
        start = segment_start(uuid, epoch, first, (end.segment, end.offset, end.sequence), state, durable_end=end.sequence,
                              floor_us=end.clock_us)
        create_segment(directory, first, start)
        place = first, len(start)
    sync_directory(directory)
    _visit(b"recovery.segment_created")
    # This closed end lets recovery be repeated: it states that no sequence from here on is used.
    bounds_file.update(mark=(*place, first), reservation_limit=first + JLOG_RESERVATION_STRIDE, closed=(*place, first),
                       durable=True, deadline=deadline)
    _visit(b"recovery.marked")
    generation = 2 + max(page.generation if page.generation < JLOG_NUMBER_MAX >> 1 else 0,
                         <uint64_t> jlog_clock_us(CLOCK_REALTIME))
    make_page(precommit, generation, segment_bytes, place[0], place[1], first, end.clock_us)
    return end.damage


def _end_before_gap(directory, bytes uuid not None, end):
    """Returns the end of the segment before, if the last one has no record and begins after a gap; otherwise None."""
    file = SegmentFile(directory, end.segment, uuid)
    return file.previous_end_sequence if end.sequence == end.segment != file.previous_end_sequence else None


def make_page(Precommit precommit not None, uint64_t generation, uint64_t segment_bytes, uint64_t segment, uint64_t offset,
              uint64_t first_sequence, int64_t floor_us) -> None:
    """Makes the page valid, with an empty open block at this place. The process that opens the journal sets the reservation."""
    cdef jlog_page *page = precommit.page
    page.status = JLOG_PAGE_RECOVERING
    jlog_full_fence()
    memset(<uint8_t *> page + JLOG_PAGE_STATE_OFFSET, 0, sizeof(jlog_page) - JLOG_PAGE_STATE_OFFSET)
    precommit.imprint()
    page.segment_bytes = segment_bytes
    page.floor_us = floor_us if floor_us > INT64_MIN else 0
    page.durable_end = first_sequence
    page.durable_segment = segment
    page.durable_generation = generation
    page.generation = generation - 1
    jlog_rotate(page, segment, offset, first_sequence, 0, jlog_block_capacity(page, offset))
    jlog_full_fence()
    page.status = JLOG_PAGE_READY


cdef int _visit(const char *failpoint) except -1:
    return check_error(JLOG_FAILPOINT(failpoint), "failpoint")


def quarantine_what_follows(directory, uint64_t segment, uint64_t offset) -> None:
    """Keeps all bytes after the end in `quarantine/`: moves later segments there, and copies the rest of this one. The moves
    are durable once the journal's directory is synced. The newest segment goes first: if the power fails in between, none is
    missing before one that is left, which would be damage."""
    quarantine = Quarantine(directory)
    for later in reversed(list_segments(directory)):
        if later > segment:
            quarantine.move(file_in(directory, segment_name(later)))
        if later >= segment and is_there(file_in(directory, index_name(later))):
            remove_file(file_in(directory, index_name(later)))  # it lists blocks that are gone
    quarantine.copy(file_in(directory, segment_name(segment)), offset)


# --- After a failed fdatasync -----------------------------------------------------------------------------------


def write_unsynced_again(directory, bytes uuid not None, bounds) -> None:
    """Writes each whole block after the mark once more to its place, and syncs it. A block that can be read may exist in the
    page cache alone, and the kernel may call its pages clean: the kernel reports a failed write once, and perhaps to a process
    that has died. So recovery trusts no write of another descriptor, whether or not a failure is known."""
    cdef SegmentFile file
    cdef OpenFile opened
    for segment in [s for s in list_segments(directory) if s >= bounds.mark_segment]:
        file = SegmentFile(directory, segment, uuid, check_header=False)
        # If no record lies before the mark, the mark may be a place in an earlier file with the same name.
        marked = segment == bounds.mark_segment and bounds.mark_sequence != segment
        opened = open_file(file.path, os.O_RDWR)
        try:
            _write_whole_blocks(file, bounds.mark_offset if marked else 0, opened.fd)
            check_error(jlog_sync_data(opened.fd), file.path)
        finally:
            opened.close()


cdef int _write_whole_blocks(SegmentFile file, uint64_t offset, int fd) except -1:
    """Writes every whole block from this offset on to its place again, also those after damage. From offset 0 it also writes
    the segment's header."""
    if offset == 0:
        header = read_whole(file.fd, SEGMENT_HEADER_BYTES, 0)
        check_error(jlog_write_at(fd, <const uint8_t *> <bytes> header, len(header), 0), file.path)
        offset = SEGMENT_HEADER_BYTES
    while file.read_block(offset, True) == JLOG_BLOCK_VALID or file.next_block(offset, file.file_bytes) is not None:
        _write_block(file, fd)
        offset = file.walk.next
    return 0


cdef int _write_block(SegmentFile file, int fd) except -1:
    """Writes the block that was read last to its place again."""
    cdef jlog_block_header *header = &file.walk.header
    check_error(jlog_write_at(fd, <const uint8_t *> header, sizeof(header[0]), file.walk.offset), file.path)
    return check_error(jlog_write_at(fd, file.walk.body, header.stored_bytes, file.walk.offset + sizeof(header[0])), file.path)


def copy_unsynced(directory, bytes uuid not None, bounds, open_segment, open_offset) -> bool:
    """Copies each segment from the synced mark's on to a new file, checks and syncs it, and renames it over the old one. The
    old file is not trusted: the kernel may have dropped pages that it could not write, and calls them clean. Returns False if
    a block cannot be read any more."""
    names = [s for s in list_segments(directory) if bounds.mark_segment <= s <= open_segment]
    for segment, following in zip(names, [*names[1:], None]):
        try:
            end = open_offset if following is None else SegmentFile(directory, following, uuid).previous_end_offset
            copy_segment(SegmentFile(directory, segment, uuid), end)
        except CorruptJournal:
            return False
        _visit(b"recovery.copied")
    sync_directory(directory)
    return True


def copy_segment(SegmentFile file not None, uint64_t end) -> None:
    """Replaces the file by a copy of its blocks up to `end`. Raises CorruptJournal if the blocks do not reach that far."""
    make_file(file.path, lambda fd: write_blocks(file, end, fd), TEMPORARY)


def rewrite_unsynced_blocks(directory, segment, bytes uuid not None, end, fd, durable_end) -> None:
    """Writes the blocks that are not durable once more through this descriptor. Their pages are dirty then, and the kernel
    reports to this descriptor how the kernel's write-back ends. `end`: where the blocks end; 0 for a sealed segment."""
    file = SegmentFile(directory, segment, uuid)
    if end == 0:
        following = min(name for name in list_segments(directory) if name > segment)
        end = SegmentFile(directory, following, uuid).previous_end_offset
    write_blocks(file, end, fd, durable_end)


def write_blocks(SegmentFile file not None, uint64_t end, int fd, uint64_t durable_end=0) -> None:
    """Writes the segment's header, and its blocks up to `end` that reach beyond `durable_end`, to the same places of another
    descriptor. Checks every block up to `end`."""
    cdef bytes header = read_whole(file.fd, SEGMENT_HEADER_BYTES, 0)
    check_error(jlog_write_at(fd, <const uint8_t *> header, len(header), 0), file.path)
    for block in file.blocks(end=end, with_body=True):
        # The first test is for a block without records: its end_sequence is its first_sequence.
        if block.first_sequence >= durable_end or block.end_sequence > durable_end:
            _write_block(file, fd)
    if file.walk.offset < end:
        raise CorruptJournal(file.path, file.walk.offset, block_problem(file.walk.status).decode())


def state_version(directory, uint64_t segment, bytes uuid not None) -> None:
    """Stores this version in the header of the open segment if an earlier version has begun it, since blocks of this version
    will follow. A damaged header stays as it is. Called while no other process writes."""
    cdef jlog_segment_header header
    path = file_in(directory, segment_name(segment))
    cdef OpenFile opened = open_file(path, os.O_RDWR)
    cdef int64_t got = check_result(jlog_read_at(opened.fd, &header, sizeof(header), 0), path)
    if got != sizeof(header) or header.version >= JLOG_SEGMENT_VERSION or header.uuid[:16] != uuid \
            or header.crc != jlog_structure_crc(&header, sizeof(header)):
        return
    header.version = JLOG_SEGMENT_VERSION
    header.crc = jlog_structure_crc(&header, sizeof(header))
    check_error(jlog_write_at(opened.fd, &header.version, sizeof(header.version) + sizeof(header.crc),
                              <uint8_t *> &header.version - <uint8_t *> &header), path)
