"""Finds the sequence that "begin", "end", a number, a time or a checkpoint's name means."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from typing import Protocol

from jlog._core.read.cursor import Cursor
from jlog._core.read.journal_end import JournalEnd
from jlog._core.segments.index import build_index, load_index, points_at_block
from jlog._core.segments.segment import list_segments
from jlog.errors import CheckpointNotFound, JournalError, PositionLost
from jlog.positions.names import FORMS, Start, resolved, timestamp_us_of
from jlog.positions.position_files import CHECKPOINT, PositionFile
from jlog.positions.times import reads_as_a_time
from jlog.storage.meta import Meta


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
        return find_time(path, meta, timestamp_us_of(start), cursor.durable_only)
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
            file = PositionFile(path, meta, CHECKPOINT, start)
        except CheckpointNotFound as error:
            meant = {"earliest": "begin", "latest": "end"}.get(start)  # Kafka's words
            if meant is None and reads_as_a_time(start):  # the command line has more forms of times
                raise CheckpointNotFound(f"{error}; a position is {FORMS}") from None
            if meant is None:
                raise
            raise CheckpointNotFound(f"{error}; did you mean {meant!r}?") from None
        try:
            return _before_end(path, cursor, f"checkpoint {start!r}", file.read())
        finally:
            file.close()
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


def _before_end(path: str, cursor: Ends, what: str, sequence: int) -> int:
    if sequence > cursor.next_sequence:
        raise JournalError(
            f"{path}: {what} is at {sequence}, beyond the end of the journal ({cursor.next_sequence}): the journal was "
            "replaced by an older one; move the checkpoint with `jlogtool checkpoint set`"
        )
    return sequence


def find_time(path: str, meta: Meta, timestamp_us: int, durable_only: bool = False) -> int:
    """Returns the sequence of the first record at or after this time, or the end where all are earlier. The indexes' running
    maximum finds the block, and the search goes on inside it."""
    cursor = Cursor(path, meta.uuid, durable_only=durable_only)
    try:
        while True:
            first = cursor.first_sequence
            try:
                cursor.seek(_before(path, meta, cursor, timestamp_us))
                return first_at(cursor, timestamp_us)
            except (FileNotFoundError, PositionLost):
                if cursor.first_sequence == first:
                    raise  # else the segment has just been removed
    finally:
        cursor.close()


def first_at(cursor: Cursor, timestamp_us: int) -> int:
    """Returns the sequence of the first record from the position on that is not earlier."""
    while True:
        batch = cursor.read(4096, 4 << 20)
        if not len(batch):
            return int(cursor.position)
        for record in batch:
            if record.timestamp_us >= timestamp_us:
                return int(record.sequence)


def _before(path: str, meta: Meta, cursor: Cursor, timestamp_us: int) -> int:
    """Returns a sequence before which every record is earlier, near the first record that is not."""
    open_segment, open_offset, open_sequence = cursor.end_place
    first = int(cursor.first_sequence)
    segments = [name for name in list_segments(path) if name <= open_segment]
    for segment in segments[max(0, bisect_right(segments, first) - 1) :]:  # the segments before are being removed
        end_offset = open_offset if segment == open_segment else 1 << 62
        index = load_index(path, segment, meta.uuid, end_offset)
        entry = index.locate_time(timestamp_us)
        if entry is not None and not points_at_block(path, segment, meta.uuid, entry[0], entry[1]):
            entry = build_index(path, segment, meta.uuid, end_offset).locate_time(timestamp_us)
        if entry is not None:
            return max(first, int(entry[0]))
    return max(first, int(open_sequence))
