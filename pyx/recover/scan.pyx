"""Finds where a journal ends after a power loss, from its segments alone. It changes nothing."""

import os
from collections import namedtuple

from libc.stdint cimport INT64_MIN, int64_t, uint64_t

from jlog._core.segments.segment cimport SegmentFile

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import CorruptJournal

# `last`: the last Block before the end, if it lies in the same file and after the synced mark; otherwise None.
# `durable`: the end of the records that are known to be synced.
End = namedtuple("End", "segment offset sequence last clock_us durable damage")
ScanDamage = namedtuple("ScanDamage", "path offset reason first_sequence records_lost")


def scan(directory, bytes uuid not None, bounds) -> End:
    """Returns the End of the valid prefix. The scan begins at the synced mark, and ends at the first place without a whole
    block. It goes past such a place, and lists it as damage, only if a later block's durable end shows that the place was
    synced."""
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
        damage.append(ScanDamage(file.path, offset, reason or "the sequence jumps", sequence,
                                 next_block.first_sequence - sequence))
        segment, offset, sequence, last = next_segment, next_block.offset, next_block.first_sequence, None


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


def _successor(directory, uuid, segments, segment, offset, sequence):
    """Returns the segment whose header states that it continues exactly here; None without one. Its state block must be whole,
    otherwise the state would be lost. _vouched() still finds the segment if one of its later blocks was synced."""
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
    """Returns (segment, first whole block after this place) if some later block's durable end shows that the place was synced;
    otherwise None."""
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
