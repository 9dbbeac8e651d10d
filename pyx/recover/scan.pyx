"""Finds where a journal ends after a power loss, from its segments alone. It changes nothing.

A place without a whole block is either the torn end, which a power loss has left, or damage, after which the journal goes on.
It is damage if a whole block follows it, and one of these is true:

- It was synced: it lies before the closed end, or a later block's durable end says so.
- It was written: a write that a power loss took leaves zeros or the end of the file, since each byte of a segment is written
  once. A segment whose file is missing was written too, because the directory has the name of a later one.
"""

import os
from collections import namedtuple

from libc.stdint cimport INT64_MIN, int64_t, uint64_t

from jlog._core.segments.segment cimport SegmentFile

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import CorruptJournal
from jlog.system.files import read_whole

cdef enum:
    SECTOR_BYTES = 512  # a disk writes a sector whole or not at all

# `last`: the last Block before the end, if it lies in the same file and after the synced mark; otherwise None.
# `durable`: the end of the records that are known to be synced.
End = namedtuple("End", "segment offset sequence last clock_us durable damage")
ScanDamage = namedtuple("ScanDamage", "path offset reason first_sequence records_lost")


def scan(directory, bytes uuid not None, bounds) -> End:
    """Returns the End. The scan begins at the synced mark, and goes past damage, which it lists. Raises CorruptJournal where
    the mark cannot be found, or the last segment's header is damaged."""
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
        # If the file holds no records, the mark may be a place in an earlier file with the same name.
        offset, sequence = bounds.mark_offset, bounds.mark_sequence
        clock_us = _clock_before_mark(SegmentFile(directory, segment, uuid), offset, sequence)
    while True:
        file = SegmentFile(directory, segment, uuid, check_header=False)
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
        found = _after_damage(directory, uuid, segments, bounds.closed, (segment, offset, sequence))
        if found is None:
            SegmentFile(directory, segment, uuid)  # checks its header: the next block would be written to this segment
            return End(segment, offset, sequence, last, clock_us, durable, damage)
        _, reason = file.block_at(offset)
        damage.append(ScanDamage(file.path, offset, reason or "the sequence jumps", sequence, found[2] - sequence))
        (segment, offset, sequence), last = found, None


def _clock_before_mark(SegmentFile file, uint64_t mark_offset, uint64_t mark_sequence):
    """Returns the latest time in the headers of the blocks before the mark. (The state block's time is not below any in the
    segment before.) Damage before the mark is passed over, because reading reports it. Raises CorruptJournal if the mark cannot
    be a place of this file: a write there would cut off or skip blocks that the scan has not seen."""
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


def _open(directory, segment, uuid):
    """Returns the SegmentFile and whether its header is whole; (None, False) where there is no file."""
    try:
        return SegmentFile(directory, segment, uuid), True
    except CorruptJournal:
        return SegmentFile(directory, segment, uuid, check_header=False), False
    except FileNotFoundError:
        return None, False


def _successor(directory, uuid, segments, segment, offset, sequence):
    """Returns the segment whose header states that it continues exactly here; None without one. Its state block must be whole,
    otherwise the state would be lost: _after_damage() finds such a segment."""
    for later in segments:
        if later > segment:
            file, is_whole = _open(directory, later, uuid)
            if is_whole and (file.previous_segment, file.previous_end_offset, file.previous_end_sequence) == (
                    segment, offset, sequence):
                return later if file.block_at(SEGMENT_HEADER_BYTES)[0] is not None else None
    return None


def _after_damage(directory, uuid, segments, closed, place):
    """Returns (segment, offset, sequence) of the first whole block after a place that is damaged, or of the closed end; None
    where the place may be the torn end."""
    segment, offset, sequence = place
    was_closed = closed is not None and closed[2] > sequence
    first = None
    for later in segments:
        file, _ = _open(directory, later, uuid) if later >= segment else (None, False)
        if file is None:
            continue
        block = file.next_block(offset + 1 if later == segment else SEGMENT_HEADER_BYTES, file.file_bytes)
        while block is not None:
            if block.first_sequence >= sequence:
                if first is None:
                    first = later, block.offset, block.first_sequence
                    if was_closed or _was_written(directory, uuid, segments, place, first):
                        return first
                if block.durable_end > sequence:
                    return first
            block = file.next_block(block.end, file.file_bytes)
    file, _ = _open(directory, closed[0], uuid) if was_closed else (None, False)
    return closed if file is not None and file.file_bytes >= closed[1] else None


def _was_written(directory, uuid, segments, place, found) -> bool:
    """Returns whether all bytes between a place and the next whole block have been on the disk."""
    names = [name for name in segments if place[0] <= name <= found[0]]
    for name, following in zip(names, [*names[1:], None]):
        start, end = place[1] if name == place[0] else 0, found[1]
        if following is not None:
            file, is_whole = _open(directory, following, uuid)
            if is_whole and file.previous_segment == name:
                end = file.previous_end_offset
            elif is_whole and file.previous_segment not in segments:
                return True  # names of segments reach the disk in their order: the file is missing
            elif place[2] == following:
                end = start  # only the next segment's header is damaged
            else:
                end = start + 1
        if not _is_filled(SegmentFile(directory, name, uuid, check_header=False), start, end):
            return False
    return True


def _is_filled(SegmentFile file, uint64_t start, uint64_t end) -> bool:
    """Returns whether the file reaches up to `end`, and no sector from `start` on has only zeros there."""
    while start < end:
        content = read_whole(file.fd, min(end, (start | (SECTOR_BYTES - 1)) + 1) - start, start)
        if not content.strip(b"\0"):
            return False
        start += len(content)
    return <uint64_t> file.file_bytes >= end
