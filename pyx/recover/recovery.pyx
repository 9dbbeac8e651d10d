"""Where the journal ends when nobody is there to ask, and how the next writer makes it whole.

Only processes died: the control page still says it (abandoned_buffer.pyx), and little is to do. The power failed (or the
directory was copied): the segments are read from the synced mark on, and what follows the valid prefix was promised to nobody.
"""

import os
import time
from collections import namedtuple

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from jlog._core.format.format cimport (
    JLOG_KIND_RECORDS,
    JLOG_KIND_STATE,
    JLOG_LEASE_STRIDE,
    JLOG_NUMBER_MAX,
    JLOG_TAG_KEY,
    JLOG_TAG_LONG,
    JLOG_TAG_NULL,
    JLOG_TAG_STATE,
    jlog_block_header,
    jlog_block_header_crc,
    jlog_crc32c,
    jlog_fill_block_header,
    jlog_load64,
    jlog_segment_header,
    jlog_walk,
    jlog_walk_records,
)
from jlog._core.system.file cimport jlog_sync_data, jlog_sync_directory, jlog_write_at
from jlog._core.system.lock cimport Deadline
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, JLOG_PAGE_READY, JLOG_PAGE_RECOVERING, JLOG_PAGE_STATE_OFFSET, jlog_page
from jlog._core.buffer.publish cimport jlog_rotate
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.atomic cimport jlog_full_fence
from jlog._core.system.clock cimport jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.buffer.precommit cimport Precommit
from jlog._core.segments.segment cimport SegmentFile, block_problem, fill_segment_header
from jlog._core.segments.walk cimport JLOG_BLOCK_VALID

from jlog._core.recover.abandoned_buffer import stored_bodies
from jlog._core.format.constants import NONE, SEGMENT_HEADER_BYTES
from jlog._core.system.lock import NEVER
from jlog._core.segments.segment import (
    end_of_content,
    index_name,
    list_segments,
    segment_name,
    walk_body,
)
from jlog.errors import CorruptJournal
from jlog.system.files import Directory, open_directory, open_file, read_whole, write_whole

TEMPORARY = "next.recovery"  # under this name a file is no part of a journal
# `last`: the Block before the end, where it stands in the same file and behind the mark; `durable`: so far it is known to be
# synced.
End = namedtuple("End", "segment offset sequence last clock_us durable damage")
Damage = namedtuple("Damage", "path offset reason first_sequence records_lost")


# --- Scanning ----------------------------------------------------------------------------------------------------


def scan(directory, bytes uuid not None, bounds) -> End:
    """The end of the valid prefix, from the synced mark on. Damage that a later block's durable end vouches for is
    listed and gone past; what has not been synced and does not check ends the journal."""
    segments = list_segments(directory)
    kept = [s for s in segments if s >= bounds.mark_segment] or segments
    if bounds.mark_sequence and bounds.mark_segment not in segments:
        raise CorruptJournal(os.path.join(directory, segment_name(bounds.mark_segment)), 0,
                             "the segment is missing though it was synced; restore it from a backup")
    if not kept:
        raise CorruptJournal(os.fspath(directory), 0, "there is no segment file; restore one from a backup")
    segment, offset, sequence = kept[0], SEGMENT_HEADER_BYTES, kept[0]
    last, clock_us, durable, damage = None, INT64_MIN, bounds.mark_sequence, []
    if segment == bounds.mark_segment and bounds.mark_offset and not (
            bounds.mark_sequence == segment and SegmentFile(directory, segment, uuid).replacements):
        # Where a file holds state alone the mark may be a place in one that had the name before.
        offset, sequence = bounds.mark_offset, bounds.mark_sequence
        clock_us = _clock_before_mark(SegmentFile(directory, segment, uuid), offset, sequence)
    while True:
        file = SegmentFile(directory, segment, uuid)
        for block in file.blocks(offset, with_body=True):
            if block.first_sequence != sequence:
                break
            last = block
            clock_us, durable = max(clock_us, block.clock_us), max(durable, block.durable_end)
            offset, sequence = block.end, block.end_sequence
        following = _successor(directory, uuid, segments, segment, offset, sequence)
        if following is not None:
            segment, offset, sequence, last = following, SEGMENT_HEADER_BYTES, following, None
            continue
        found = _vouched(directory, uuid, segments, segment, offset, sequence)
        if found is None:
            return End(segment, offset, sequence, last, clock_us, durable, damage)
        next_segment, next_block = found
        _, reason = file.block_at(offset)
        damage.append(Damage(file.path, offset, reason or "the sequence jumps", sequence,
                             next_block.first_sequence - sequence))
        segment, offset, sequence, last = next_segment, next_block.offset, next_block.first_sequence, None


def _clock_before_mark(SegmentFile file, uint64_t mark_offset, uint64_t mark_sequence):
    """The clock that was reached: the headers before the mark tell it, and the state block has taken it over. Damage among them
    is passed over here, for reading meets it. CorruptJournal where the mark cannot be one of this file: to write there would
    cut off, or skip, what nobody has looked at."""
    cdef uint64_t reached = SEGMENT_HEADER_BYTES, sequence = file.segment
    cdef int64_t clock_us = INT64_MIN
    for block in file.blocks(end=mark_offset):
        clock_us = max(clock_us, block.clock_us)
        reached, sequence = block.end, block.end_sequence
    if <uint64_t> file.file_bytes < mark_offset:
        raise CorruptJournal(file.path, file.file_bytes, f"the file was synced up to byte {mark_offset}, and ends before it; "
                                                         "restore it from a backup")
    if reached > mark_offset or (reached == mark_offset and sequence != mark_sequence):
        raise CorruptJournal(file.path, reached, f"the synced mark, byte {mark_offset} with sequence {mark_sequence}, is not "
                                                 "between two blocks of it")
    return clock_us


def _successor(directory, uuid, segments, segment, offset, sequence):
    """The segment whose header says that it goes on exactly here. Its block with the state must be whole: without it the
    state would be lost, and nothing else of the file can be."""
    for later in segments:
        if later > segment:
            try:
                file = SegmentFile(directory, later, uuid)
            except (CorruptJournal, FileNotFoundError):
                continue
            if (file.previous_segment, file.previous_end_offset, file.previous_end_sequence) == (segment, offset, sequence):
                return later if file.block_at(SEGMENT_HEADER_BYTES)[0] is not None else None
    return None


def _vouched(directory, uuid, segments, segment, offset, sequence):
    """(segment, first whole block behind this place), if some later block knew the place to be synced; else None."""
    first = None
    for later in segments:
        if later < segment:
            continue
        try:
            file = SegmentFile(directory, later, uuid)
        except (CorruptJournal, FileNotFoundError):
            continue
        at = offset + 1 if later == segment else SEGMENT_HEADER_BYTES
        block = file.next_block(at, file.file_bytes)
        while block is not None:
            if block.first_sequence >= sequence:
                first = first or (later, block)
                if block.durable_end > sequence:
                    return first
            block = file.next_block(block.end, file.file_bytes)
    return None


# --- Writing what is missing ------------------------------------------------------------------------------------


def encode_block(bytes uuid not None, uint64_t segment, uint64_t offset, bytes raw not None, int64_t base_time_us,
                 uint64_t first_sequence, *, bint snapshot=False, uint64_t durable_end=0, int64_t clamp_us=INT64_MIN) -> bytes:
    """A block as it stands at this place: header and body."""
    cdef jlog_block_header header
    cdef jlog_walk walk
    if jlog_walk_records(raw, len(raw), base_time_us, &walk) != 0:
        raise ValueError("these are no records")
    memset(&header, 0, sizeof(header))
    jlog_fill_block_header(&header, JLOG_KIND_STATE if snapshot else JLOG_KIND_RECORDS, walk.has_state, walk.record_count,
                           len(raw), first_sequence)
    header.stored_crc = header.raw_crc = jlog_crc32c(0, <const uint8_t *> raw, len(raw))
    header.base_time_us = base_time_us
    header.max_timestamp_us = max(walk.clock_max_us, walk.explicit_max_us)
    header.clock_us = max(jlog_clock_us(0), clamp_us)
    header.durable_end = durable_end
    header.header_crc = jlog_block_header_crc(&header, uuid, segment, offset)
    return (<uint8_t *> &header)[:sizeof(header)] + raw


def encode_state(dict state not None) -> bytes:
    """State records: key and value of each entry."""
    parts = []
    for key, value in state.items():
        tag = JLOG_TAG_LONG | JLOG_TAG_STATE | JLOG_TAG_KEY | (JLOG_TAG_NULL if value is None else 0)
        for number in (tag, 0, len(value or b""), len(key), 0):
            parts.append(int(number).to_bytes(4, "little"))
        parts += [key, value or b""]
    return b"".join(parts)


def segment_start(bytes uuid not None, uint64_t epoch, uint64_t first_sequence, previous, dict state not None,
                  *, uint64_t durable_end=0, int64_t clamp_us=INT64_MIN, uint64_t replacements=0) -> bytes:
    """What every segment file begins with: its header, and a block with the state as it is. `previous`: (segment, end
    offset, end sequence) of the file before, or None."""
    cdef jlog_segment_header header
    segment, offset, sequence = previous if previous is not None else (NONE, 0, 0)
    fill_segment_header(&header, uuid, epoch, first_sequence, segment, offset, sequence, replacements)
    return (<uint8_t *> &header)[:sizeof(header)] + encode_block(
        uuid, first_sequence, sizeof(header), encode_state(state), header.created_us, first_sequence,
        snapshot=True, durable_end=durable_end, clamp_us=clamp_us)


def create_segment(directory, first_sequence, bytes start not None) -> None:
    """A segment file that holds `start`, synced, and its entry in the directory too."""
    with Directory(directory) as place, place.made(segment_name(first_sequence), TEMPORARY) as fd:
        _check(jlog_write_at(fd, <const uint8_t *> start, len(start), 0), os.path.join(directory, TEMPORARY))
        _visit(b"recovery.segment_written")
    sync_directory(directory)


def sync_data(int fd, path) -> None:
    """What was written through this descriptor survives a power loss when this returns."""
    cdef int error
    with nogil:
        error = jlog_sync_data(fd)
    _check(error, path)


def sync_directory(path) -> None:
    fd = open_directory(path)
    try:
        _check(jlog_sync_directory(fd), path)
    finally:
        os.close(fd)


def recover_after_power_loss(directory, bytes uuid not None, uint64_t epoch, Precommit precommit not None, bounds_file,
                             uint64_t segment_bytes, Deadline deadline not None=NEVER):
    """Makes the journal whole and the mapped page valid. Killed anywhere, the next one does it again. Returns what was
    found damaged. JournalLocked where others write `bounds` until the deadline."""
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
    path = os.path.join(directory, segment_name(end.segment))
    quarantine_what_follows(directory, end.segment, end.offset)
    _visit(b"recovery.quarantined")
    fd = open_file(path, os.O_RDWR)
    try:
        # Also of the block that a longer body is written over: killed in between, the body belongs exactly at the end.
        os.ftruncate(fd, offset)
        end = end._replace(offset=offset, sequence=sequence)
        for body in added:
            base_us, raw = jlog_load64(<const uint8_t *> <bytes> body), body[JLOG_BASE_BYTES:]
            block = encode_block(uuid, end.segment, end.offset, raw, base_us, end.sequence)
            _check(jlog_write_at(fd, <const uint8_t *> block, len(block), end.offset), path)
            records, clock_us, _, _, _ = walk_body(raw, base_us)
            end = end._replace(offset=end.offset + len(block), sequence=end.sequence + records,
                               clock_us=max(end.clock_us, clock_us))
        _check(jlog_sync_data(fd), path)
    finally:
        os.close(fd)
    _visit(b"recovery.cut")
    # The note was taken away by whoever opened the journal next: all that was given out by then is there.
    closed_here = bounds.closed is not None and bounds.closed[2] == end.sequence
    first = end.sequence if closed_here else max(bounds.lease_limit, end.sequence)
    if first == end.segment:  # no record is in the segment yet, and none was ever given out
        place = end.segment, end.offset
    else:
        state = SegmentFile(directory, end.segment, uuid).state_before(end.offset)
        start = segment_start(uuid, epoch, first, (end.segment, end.offset, end.sequence), state, durable_end=end.sequence,
                              clamp_us=end.clock_us)
        create_segment(directory, first, start)
        place = first, len(start)
    sync_directory(directory)
    _visit(b"recovery.segment_created")
    # The note that the journal is closed here makes it all repeatable: nothing was given out since.
    bounds_file.update(mark=(*place, first), lease_limit=first + JLOG_LEASE_STRIDE, closed=(*place, first), durable=True,
                       deadline=deadline)
    _visit(b"recovery.marked")
    generation = max(page.generation if page.generation < JLOG_NUMBER_MAX >> 1 else 0, <uint64_t> jlog_clock_us(0)) + 2
    make_page(precommit, generation, segment_bytes, place[0], place[1], first, end.clock_us)
    return end.damage


def make_page(Precommit precommit not None, uint64_t generation, uint64_t segment_bytes, uint64_t segment, uint64_t offset,
              uint64_t first_sequence, int64_t clamp_us) -> None:
    """A valid page whose open block is empty and lies at this place. Its lease is set by whoever opens it."""
    cdef jlog_page *page = precommit.page
    page.status = JLOG_PAGE_RECOVERING
    jlog_full_fence()
    memset(<uint8_t *> page + JLOG_PAGE_STATE_OFFSET, 0, sizeof(jlog_page) - JLOG_PAGE_STATE_OFFSET)
    precommit.imprint()
    page.segment_bytes = segment_bytes
    page.clamp_us = clamp_us if clamp_us > INT64_MIN else 0
    page.durable_end = first_sequence
    page.durable_segment = segment
    page.durable_generation = generation
    page.generation = generation - 1
    jlog_rotate(page, segment, offset, first_sequence, 0, jlog_block_capacity(page, offset))
    jlog_full_fence()
    page.status = JLOG_PAGE_READY


def quarantine_what_follows(directory, uint64_t segment, uint64_t offset) -> None:
    """Moves later segments, and what stands behind the end in this one, into `quarantine/`: nothing is thrown away."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    path = os.path.join(directory, segment_name(segment))
    for later in list_segments(directory):
        if later > segment:
            name = segment_name(later)
            with Directory(directory, "quarantine", make=True) as target:
                os.rename(os.path.join(directory, name), target.free_name(f"{name}.{stamp}"), dst_dir_fd=target.fd)
        if later >= segment and os.path.exists(os.path.join(directory, index_name(later))):
            os.unlink(os.path.join(directory, index_name(later)))  # it speaks of blocks that are gone
    with open(path, "rb", opener=open_file) as file:
        end = end_of_content(file.fileno(), offset, os.fstat(file.fileno()).st_size)
        if end == offset:
            return
        with Directory(directory, "quarantine", make=True) as target:
            with target.made(target.free_name(f"{segment_name(segment)}.{offset}.{stamp}")) as kept:
                for at in range(offset, end, 1 << 20):
                    write_whole(kept, read_whole(file.fileno(), min(1 << 20, end - at), at), at - offset)
            sync_directory(target.path)


cdef int _check(int error, path) except -1:
    if error != 0:
        raise OSError(error, os.strerror(error), os.fspath(path))
    return 0


cdef int _visit(const char *failpoint) except -1:
    return _check(JLOG_FAILPOINT(failpoint), "failpoint")


# --- After a failed fdatasync -----------------------------------------------------------------------------------


def write_unsynced_again(directory, bytes uuid not None, bounds) -> None:
    """Writes each whole block behind the mark once more to its place, and syncs it. What can be read may be in the page cache
    alone, and the kernel may call it clean: it tells of a failed write once, and perhaps it told a process that has died. So
    nothing is believed that another descriptor wrote, whether or not a failure is known."""
    cdef SegmentFile file
    for segment in [s for s in list_segments(directory) if s >= bounds.mark_segment]:
        file = SegmentFile(directory, segment, uuid, check_header=False)
        # The mark may be a place in a file that had the name before, where no record lies before it.
        marked = segment == bounds.mark_segment and bounds.mark_sequence != segment
        fd = open_file(file.path, os.O_RDWR)
        try:
            _write_whole_blocks(file, bounds.mark_offset if marked else 0, fd)
            _check(jlog_sync_data(fd), file.path)
        finally:
            os.close(fd)


cdef int _write_whole_blocks(SegmentFile file, uint64_t offset, int fd) except -1:
    """Writes every whole block from this offset on to its place again, those behind damage too. Offset 0: also the segment's
    header."""
    if offset == 0:
        header = read_whole(file.fd, SEGMENT_HEADER_BYTES, 0)
        _check(jlog_write_at(fd, <const uint8_t *> <bytes> header, len(header), 0), file.path)
        offset = SEGMENT_HEADER_BYTES
    while file.read_block(offset, True) == JLOG_BLOCK_VALID or file.next_block(offset, file.file_bytes) is not None:
        _write_block(file, fd)
        offset = file.walk.next
    return 0


cdef int _write_block(SegmentFile file, int fd) except -1:
    """Writes the block that was read last to its place."""
    cdef jlog_block_header *header = &file.walk.header
    _check(jlog_write_at(fd, <const uint8_t *> header, sizeof(header[0]), file.walk.offset), file.path)
    return _check(jlog_write_at(fd, file.walk.body, header.stored_bytes, file.walk.offset + sizeof(header[0])), file.path)


def copy_unsynced(directory, bytes uuid not None, bounds, open_segment, open_offset) -> bool:
    """The kernel may have dropped pages that it could not write, and calls them clean: what follows the synced mark is
    copied to new files, checked, synced and renamed over. False where a block cannot be read any more."""
    names = [s for s in list_segments(directory) if bounds.mark_segment <= s <= open_segment]
    for segment, following in zip(names, [*names[1:], None]):
        try:
            end = open_offset if following is None else SegmentFile(directory, following, uuid).previous_end_offset
            copy_segment(SegmentFile(directory, segment, uuid), end)
        except CorruptJournal:
            return False
        _visit(b"mend.copied")
    sync_directory(directory)
    return True


def copy_segment(SegmentFile file not None, uint64_t end) -> None:
    """Replaces the file by a copy of its blocks up to `end`. CorruptJournal where they do not reach that far."""
    with Directory(os.path.dirname(file.path)) as place, place.made(os.path.basename(file.path), TEMPORARY) as fd:
        write_blocks(file, end, fd)


def write_again(directory, segment, bytes uuid not None, end, fd, durable_end) -> None:
    """Writes the blocks that are not durable once more through this descriptor. Then they are dirty, and the kernel tells this
    descriptor how their write-back ends. `end`: 0 for a sealed segment."""
    file = SegmentFile(directory, segment, uuid)
    if end == 0:
        following = min(name for name in list_segments(directory) if name > segment)
        end = SegmentFile(directory, following, uuid).previous_end_offset
    write_blocks(file, end, fd, durable_end)


def write_blocks(SegmentFile file not None, uint64_t end, int fd, uint64_t durable_end=0) -> None:
    """Writes the segment's header, and of its blocks up to `end` those that reach behind `durable_end`, to the same places of
    another descriptor. Every block up to `end` is checked."""
    cdef bytes header = read_whole(file.fd, SEGMENT_HEADER_BYTES, 0)
    _check(jlog_write_at(fd, <const uint8_t *> header, len(header), 0), file.path)
    for block in file.blocks(end=end, with_body=True):
        # A block that has no record lies behind the end too, if it lies there.
        if block.first_sequence >= durable_end or block.end_sequence > durable_end:
            _write_block(file, fd)
    if file.walk.offset < end:
        raise CorruptJournal(file.path, file.walk.offset, block_problem(file.walk.status).decode())
