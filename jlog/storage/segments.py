"""The segments of a journal as its users see them."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import ClassVar

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.read.cursor import Cursor
from jlog._core.segments.index import locate, segment_end
from jlog._core.segments.segment import Block, SegmentFile, first_time, list_segments, segment_name, walk_body
from jlog.errors import CorruptJournal
from jlog.storage.meta import Meta, read_meta
from jlog.system.clock import time_of


@dataclass(frozen=True)
class Segment:
    """One file of the journal. Records and size of the open segment include the pre-commit buffer: the size is that of the file
    once the buffer is written there, uncompressed.

    The timestamps are looked up when they are asked for; FileNotFoundError where the file has been removed since.
    """

    path: str
    first_sequence: int
    records: int
    size_bytes: int
    sealed: bool
    end_sequence: int
    next_segment: int  # first sequence of the next segment, which is above end_sequence where there is a gap
    _meta: Meta = field(repr=False, compare=False)
    _written_end: int = field(repr=False, compare=False)  # offset in the file at which its blocks end
    reason: str | None = field(default=None, compare=False)  # why retention lets it go: read, max_bytes or max_age
    archived: ClassVar[bool] = False

    @property
    def first_timestamp(self) -> datetime | None:
        """Timestamp of its first record; None without one in the file."""
        return time_of(self.first_timestamp_us)

    @property
    def last_timestamp(self) -> datetime | None:
        """Timestamp of its last record; None without one in the file."""
        return time_of(self.last_timestamp_us)

    @cached_property
    def first_timestamp_us(self) -> int | None:
        with closing(self._file()) as file:
            for block in file.blocks():
                if block.records and block.offset < self._written_end:
                    return first_time_of(file, block)
            return None

    @cached_property
    def last_timestamp_us(self) -> int | None:
        with closing(self._file()) as file:
            last = self._last_block(file)
            return None if last is None else last_time_of(file, last)

    @property
    def written_us(self) -> int | None:
        """Time of the clock when its newest record was written. Where its end is damaged, the time when the next segment was
        begun; None where that is not known either."""
        last = self._newest_block()
        if last is not None and last.first_sequence + last.records == self.end_sequence:
            return last.clock_us
        return self.next_created_us

    @property
    def block_written_us(self) -> int | None:
        """Time of the clock when its newest block was written; None without a block that has records. Of the open segment, too,
        whose newest records may be in no block yet."""
        last = self._newest_block()
        return None if last is None else last.clock_us

    @property
    def created_us(self) -> int | None:
        """Time of the clock when the segment was begun, which is read without a record; None where that is not known."""
        return self._created_us_of(self.first_sequence)

    @property
    def next_created_us(self) -> int | None:
        """Time of the clock when the next segment was begun; None where that is not known."""
        return self._created_us_of(self.next_segment)

    def _created_us_of(self, segment: int) -> int | None:
        try:
            return SegmentFile(os.path.dirname(self.path), segment, self._meta.uuid).created_us
        except CorruptJournal:
            return None

    def _newest_block(self) -> Block | None:
        with closing(self._file()) as file:
            return self._last_block(file)

    def _last_block(self, file: SegmentFile) -> Block | None:
        """Returns the last block with records."""
        directory, uuid = os.path.dirname(self.path), self._meta.uuid
        _, offset = locate(directory, self.first_sequence, uuid, self._written_end, self.end_sequence)
        last = None
        for block in file.blocks(offset):
            if block.offset >= self._written_end:
                break
            last = block if block.records else last
        return last

    def _file(self) -> SegmentFile:
        return SegmentFile(os.path.dirname(self.path), self.first_sequence, self._meta.uuid, check_header=False)


def first_time_of(file: SegmentFile, block: Block) -> int:
    """Returns the timestamp of the block's first record. Raises CorruptJournal for a damaged body."""
    try:
        return first_time(file.raw_body(block.offset), block.base_time_us)
    except ValueError as error:
        raise CorruptJournal(file.path, block.offset, str(error)) from None


def last_time_of(file: SegmentFile, block: Block) -> int:
    """Returns the timestamp of the block's last record. Raises CorruptJournal for a damaged body."""
    try:
        return walk_body(file.raw_body(block.offset), block.base_time_us)[3]
    except ValueError as error:
        raise CorruptJournal(file.path, block.offset, str(error)) from None


def segments_of(
    path: str,
    meta: Meta,
    names: Sequence[int],
    written_place: tuple[int, int, int],
    buffered_bytes: int,
    next_sequence: int | None = None,
) -> Iterator[Segment]:
    """Creates Segments from the first sequences that name the files, up to the open one. The header of each next file says
    where a segment ends. `buffered_bytes` are added to the open one."""
    for name, following in zip(names, [*names[1:], None], strict=True):
        if following is None:
            end_offset, end_sequence = (written_place[1], written_place[2] if next_sequence is None else next_sequence)
        else:
            end_offset, end_sequence, _ = segment_end(path, name, following, meta.uuid)
        yield Segment(
            path=os.path.join(path, segment_name(name)),
            first_sequence=name,
            records=end_sequence - name,
            size_bytes=max(end_offset, SEGMENT_HEADER_BYTES) + (buffered_bytes if following is None else 0),
            sealed=following is not None,
            end_sequence=end_sequence,
            next_segment=end_sequence if following is None else following,
            _meta=meta,
            _written_end=max(end_offset, SEGMENT_HEADER_BYTES),
        )


def end_now(path: str, uuid: bytes, *, durable_only: bool = False) -> int:
    """Returns the end of the records; with durable_only, of those that are known to survive a power loss. Only reads."""
    with closing(Cursor(path, uuid, durable_only=durable_only)) as cursor:
        return int(cursor.next_sequence)


def segments_now(path: str, meta: Meta, start: int = 0, end: int | None = None) -> list[Segment]:
    """Lists the retained segments, oldest first, with the open one. `start` leaves out those before the segment that it lies
    in, and `end` those that begin at or after it: the effort depends on the segments listed, and not on the journal's
    length."""
    while True:
        cursor = Cursor(path, meta.uuid)
        end_place, buffered_bytes = cursor.end_place, cursor.buffered_bytes
        next_sequence = int(cursor.next_sequence)
        first = max(start, int(cursor.first_sequence))
        kept = [name for name in list_segments(path) if name <= end_place[0]]
        kept = kept[max(0, bisect_right(kept, first) - 1) :]
        wanted = len(kept) if end is None else max(1, bisect_left(kept, end))
        try:
            # The file after the last one that is wanted says where that one ends.
            names = kept[: wanted + 1]
            return list(segments_of(path, meta, names, end_place, buffered_bytes, next_sequence))[:wanted]
        except FileNotFoundError:
            continue  # removed in the meantime


def read_state(path: str, uuid: bytes, cursor: Cursor) -> dict[bytes, bytes]:
    """Returns the newest value of every key that Writer.extend(state=) has stored."""
    while True:
        place = segment, offset, _ = cursor.end_place
        try:
            with closing(SegmentFile(path, segment, uuid)) as file:
                return dict(file.state_before(offset))
        except (CorruptJournal, FileNotFoundError):
            if cursor.end_place == place:
                raise  # else another file has the segment's name by now, or retention has removed it


def state_of(path: str) -> dict[bytes, bytes]:
    """Returns the same of the journal at the absolute `path`, which it opens for that."""
    uuid = read_meta(path).uuid
    with closing(Cursor(path, uuid)) as cursor:
        return read_state(path, uuid, cursor)
