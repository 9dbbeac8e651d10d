"""Finds the sequence that "begin", "end", a number, a time or a checkpoint's name means."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from jlog._core.read.cursor import Cursor
from jlog._core.read.journal_end import JournalEnd
from jlog._core.segments.index import SparseIndex, build_index, load_index, points_at_block, segment_end
from jlog._core.segments.segment import list_segments
from jlog.errors import CheckpointNotFound, CorruptJournal, JournalError, PositionLost
from jlog.positions import position_files
from jlog.positions.names import FORMS, Start, resolved, timestamp_us_of
from jlog.positions.position_files import CHECKPOINT
from jlog.storage.meta import Meta
from jlog.system.texts import reads_as_a_time

TIME_LEAST, TIME_MOST = -(1 << 63), (1 << 63) - 1  # of timestamps
FIRST_AT_BYTES = 128 << 10  # an index leads to a block that is at most some 64 KiB before the record
Range = tuple[int, int | None]  # first sequence, and exclusive end; None: the end of the journal


class Ends(Protocol):
    """A cursor of a journal, or of an archive."""

    @property
    def first_sequence(self) -> int: ...
    @property
    def next_sequence(self) -> int: ...


def find_start(path: str, meta: Meta, cursor: Cursor, start: Start, *, checkpoints: bool = True) -> int:
    """Returns the sequence that `start` means, which may also be a time. Raises what find_sequence raises."""
    start = resolved(start)
    if isinstance(start, datetime):
        return find_time(path, meta, timestamp_us_of(start), cursor)
    return find_sequence(path, meta, cursor, start, checkpoints=checkpoints)


def find_sequence(path: str, meta: Meta, cursor: Ends, start: str | int, *, checkpoints: bool = True) -> int:
    """Returns the sequence that "begin", "end", a number or a checkpoint's name means. Raises ValueError for a start that is
    not a position, or lies beyond the end, and CheckpointNotFound for a name that no checkpoint has."""
    if start == "begin":
        return int(cursor.first_sequence)
    if start == "end":
        return int(cursor.next_sequence)
    if isinstance(start, str):
        if not checkpoints:
            raise ValueError(f"seek goes to 'begin', 'end', a sequence or an aware datetime, not {start!r}; rewind() goes to "
                             "a checkpoint")  # fmt: skip
        try:
            sequence = position_files.read(path, meta, CHECKPOINT, start)
        except CheckpointNotFound as error:
            meant = {"earliest": "begin", "latest": "end"}.get(start)  # Kafka's words
            if meant is None and reads_as_a_time(start):  # the command line has more forms of times
                raise CheckpointNotFound(f"{error}; a position is {FORMS}") from None
            if meant is None:
                raise
            raise CheckpointNotFound(f"{error}; did you mean {meant!r}?") from None
        if sequence > cursor.next_sequence:
            raise JournalError(
                f"{path}: checkpoint {start!r} is at {sequence}, beyond the end of the journal ({cursor.next_sequence}): the "
                "journal was replaced by an older one; move the checkpoint with `jlogtool checkpoint set`"
            )
        return sequence
    if start < 0:
        raise ValueError(f"a sequence must be 0 or more, not {start}")
    end = int(cursor.next_sequence)
    if start > end:
        raise ValueError(f"{path} ends at sequence {end}; {start} is beyond it")
    return start


def outlives_its_records(path: str, meta: Meta, sequence: int, next_sequence: int) -> bool:
    """Says whether a power loss may have kept a position at this sequence, and not the records before it: the journal ends at
    `next_sequence` now, and was not closed there. The next writer begins after every sequence that may have been given out, so
    that no record is passed over."""
    end = JournalEnd(path, meta.uuid)
    end.refresh()
    bounds = end.bounds_file.read()
    was_closed_here = bounds.closed is not None and bounds.closed[2] == next_sequence
    return not end.live and not was_closed_here and sequence <= bounds.reservation_limit


def find_time(path: str, meta: Meta, timestamp_us: int, cursor: Cursor) -> int:
    """Returns the sequence of the first record at or after this time, or the end where all are earlier. The indexes' running
    maximum finds the block, and the search goes on inside it. It moves the cursor, which then holds that block."""
    while True:
        first = cursor.first_sequence
        try:
            cursor.seek(_before(path, meta, cursor, timestamp_us))
            return first_at(cursor, timestamp_us)
        except (FileNotFoundError, PositionLost):
            if cursor.first_sequence == first:
                raise  # else the segment has just been removed


def first_at(cursor: Cursor, timestamp_us: int, end: int | None = None) -> int:
    """Returns the sequence of the first record from the position on that is not earlier, or that of the end without one."""
    while True:
        batch = cursor.read(4096, FIRST_AT_BYTES) if end is None or cursor.reached < end else ()
        if not len(batch):
            return int(cursor.reached)
        for record in batch:
            if record.timestamp_us >= timestamp_us:
                return int(record.sequence)


def _before(path: str, meta: Meta, cursor: Cursor, timestamp_us: int) -> int:
    """Returns a sequence before which every record is earlier, near the first record that is not."""
    end = 0
    for index in _indexes(path, meta, cursor):
        begin, _ = index.located(timestamp_us, TIME_MOST)
        if begin is not None:
            return begin
        end = index.following
    return end


def time_ranges(path: str, meta: Meta, times_us: tuple[int, int], cursor: Cursor) -> list[Range]:
    """Returns ranges of sequences, ascending, outside of which no record has a time from the first to the last of `times_us`.

    Each segment is looked at by itself, as times go back where a clock was set right at a roll. Where the blocks do not state
    how early their records are, as earlier versions wrote them, or where a block is damaged, the rest of the segment counts.
    It moves the cursor, to where no record before it is of these times, and which then holds the first block of the ranges."""
    while True:
        first = int(cursor.first_sequence)
        try:
            end, found = first, []
            for index in _indexes(path, meta, cursor):
                begin, later = index.located(*times_us)
                if not index.is_whole:
                    begin, later = index.end if begin is None else begin, index.following
                if begin is not None and begin < later:
                    found.append((begin, later))
                end = index.following
            ranges = joined([*found, (end, None)])
            return ranges if times_us[0] == TIME_LEAST else _exact(cursor, ranges, times_us[0])
        except (FileNotFoundError, PositionLost):
            if cursor.first_sequence == first:
                raise  # else the segment has just been removed


def _exact(cursor: Cursor, ranges: list[Range], since_us: int) -> list[Range]:
    """Lets the first of the ranges begin with a record that is not earlier, as far as no damage hides it."""
    (first, end), *others = ranges
    try:
        cursor.seek(first)
        first = first_at(cursor, since_us, end)
        cursor.seek(first)
    except CorruptJournal:
        return ranges
    return others if end is not None and first >= end else [(first, end), *others]


@dataclass
class _SegmentIndex:
    """The index of a segment, whose entries are checked against the blocks before they are used."""

    path: str
    uuid: bytes
    segment: int
    following: int  # first sequence of the next segment, or of the first block that is not in its segment
    end_offset: int
    first: int  # no sequence below this one is retained
    index: SparseIndex

    @property
    def is_whole(self) -> bool:
        """Says whether it describes all blocks of the segment."""
        return self.index.end[1] == self.end_offset

    @property
    def end(self) -> int:
        """The sequence at which the blocks end that it describes."""
        return self.index.end[0]

    def located(self, since_us: int, until_us: int) -> tuple[int | None, int]:
        """Returns the sequence of a block before which every record is earlier, None if all are, and the sequence of one from
        which on every record is later."""
        for _ in range(2):
            begin, end = self.index.locate_time(since_us), self.index.locate_after(until_us)
            named = [entry for entry in (begin, end) if entry is not None and entry != self.index.end]
            if all(points_at_block(self.path, self.segment, self.uuid, entry[0], entry[1]) for entry in named):
                break
            self.index = build_index(self.path, self.segment, self.uuid, self.end_offset)
        return None if begin is None else max(self.first, begin[0]), end[0]


def _indexes(path: str, meta: Meta, cursor: Cursor) -> Iterator[_SegmentIndex]:
    """Yields the index of each segment, oldest first."""
    open_segment, open_offset, open_sequence = cursor.end_place
    first = int(cursor.first_sequence)
    segments = [name for name in list_segments(path) if name <= open_segment]
    kept = segments[max(0, bisect_right(segments, first) - 1) :]  # the segments before are being removed
    for segment, following in zip(kept, [*kept[1:], max(first, int(open_sequence))], strict=True):
        end_offset = open_offset
        if segment != kept[-1]:
            end_offset, _, _ = segment_end(path, segment, following, meta.uuid)
        index = load_index(path, segment, meta.uuid, end_offset)
        yield _SegmentIndex(path, meta.uuid, segment, following, end_offset, first, index)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Returns the ranges, of which those that touch are one."""
    found: list[Range] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            first = found.pop()[0]
        found.append((first, end))
    return found
