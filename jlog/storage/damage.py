"""How a reader meets damage, and how it gets past it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from jlog._core.format.constants import KIND_STATE, SEGMENT_HEADER_BYTES
from jlog._core.read.cursor import Cursor
from jlog._core.records.record import RecordBatch
from jlog._core.segments.segment import Block, SegmentFile, list_segments, walk_body
from jlog.errors import CorruptJournal, JournalError

Item = TypeVar("Item")

SECTOR_BYTES = 4096  # step by which the rest is searched around a sector that the disk cannot read


@dataclass(frozen=True)
class Damage:
    """One damaged place, whose bytes cannot be read as records."""

    path: str
    offset: int
    reason: str
    first_sequence: int
    records_lost: int


@dataclass(frozen=True)
class DamagedRange:
    """A range of a segment file in which no whole block stands, though one should. It is empty where only the sequences
    jump."""

    offset: int
    end: int
    reason: str
    first_sequence: int
    next_sequence: int  # the sequence that is known to come next

    def damage(self, path: str) -> Damage:
        return Damage(path, self.offset, self.reason, self.first_sequence, self.next_sequence - self.first_sequence)


@contextmanager
def bad_sectors_are_damage() -> Iterator[None]:
    """Raises CorruptJournal instead of the error of a disk that cannot read."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise CorruptJournal(os.fsdecode(error.filename or ""), 0, "the disk cannot read it") from error


def open_segment(path: str, name: int, uuid: bytes) -> tuple[SegmentFile, CorruptJournal | None]:
    """Opens a segment, whose blocks can be read whatever its header is. Returns the damage of the header too, or None."""
    try:
        with bad_sectors_are_damage():
            return SegmentFile(path, name, uuid), None
    except CorruptJournal as error:
        return SegmentFile(path, name, uuid, check_header=False), error


def walk_segment(
    file: SegmentFile, end: tuple[int, int | None] | None, *, bodies: bool = True
) -> Iterator[Block | DamagedRange]:
    """Yields every whole block of a segment file in order, and the ranges between them that have none.

    end: offset and sequence after the last block, where they are known; None: the blocks end where only zeros follow, or
        nothing.
    bodies: False checks only the headers of the blocks.
    """
    offset, sequence = SEGMENT_HEADER_BYTES, file.segment
    limit, end_sequence = (file.file_bytes, None) if end is None else end
    while offset < limit:
        block, reason = _block_at(file, offset, sequence)
        if block is not None:
            if block.first_sequence > sequence:
                yield DamagedRange(offset, offset, _jump(block.first_sequence, sequence), sequence, block.first_sequence)
            after, following = block.end, block.end_sequence
            problem = _problem_of_body(file, block) if bodies else None
            yield block if problem is None else DamagedRange(offset, after, problem, block.first_sequence, following)
            offset, sequence = after, following
            continue
        following_block = next_whole_block(file, offset + 1, limit, sequence)
        if following_block is not None:
            following = following_block.first_sequence
        elif reason is None and end is None:
            return
        else:
            following = max(end_sequence or sequence, sequence)
        yield DamagedRange(
            offset,
            limit if following_block is None else following_block.offset,
            reason or "no block stands here",
            sequence,
            following,
        )
        offset, sequence = limit if following_block is None else following_block.offset, following
    if end_sequence is not None and sequence < end_sequence:
        yield DamagedRange(offset, offset, _jump(end_sequence, sequence), sequence, end_sequence)


def _jump(found: int, wanted: int) -> str:
    return f"what follows begins with sequence {found} instead of {wanted}"


def _block_at(file: SegmentFile, offset: int, sequence: int) -> tuple[Block | None, str | None]:
    """Returns the block; or the reason why none stands there; or neither where only zeros or nothing follow."""
    try:
        with bad_sectors_are_damage():
            block, reason = file.block_at(offset, with_body=False)
    except CorruptJournal as error:
        return None, error.reason
    if block is None:
        return None, reason
    if block.first_sequence < sequence:
        return None, f"the block begins with sequence {block.first_sequence} instead of {sequence}"
    if (block.kind == KIND_STATE) != (offset == SEGMENT_HEADER_BYTES):
        return None, "the first block of a segment holds the state, and no other"
    return block, None


def _problem_of_body(file: SegmentFile, block: Block) -> str | None:
    try:
        with bad_sectors_are_damage():
            records = walk_body(file.raw_body(block.offset), block.base_time_us)[0]
    except CorruptJournal as error:
        return error.reason
    except ValueError as error:
        return str(error)
    if records != block.records:
        return f"the block holds {records} records, its header says {block.records}"
    return None


def next_whole_block(file: SegmentFile, offset: int, limit: int, sequence: int) -> Block | None:
    """Returns the first block that begins at or after `offset`, with this sequence or a later one."""
    while True:
        block = _search(file, offset, limit)
        if block is None or (block.first_sequence >= sequence and block.kind != KIND_STATE):
            return block
        offset = block.offset + 1


def _search(file: SegmentFile, offset: int, limit: int) -> Block | None:
    try:
        with bad_sectors_are_damage():
            return file.next_block(offset, limit)
    except CorruptJournal:
        pass  # a bad sector lies in this range: search it piece by piece
    while offset < limit:
        after = offset - offset % SECTOR_BYTES + SECTOR_BYTES
        try:
            with bad_sectors_are_damage():
                block = file.next_block(offset, min(after + 3, limit))  # a magic may reach into the next sector
        except CorruptJournal:
            block = None
        if block is not None:
            return block
        offset = after
    return None


def past_damage(
    read: Callable[[], Item | None], skip: Callable[[], Damage] | None, on_damage: Callable[[Damage], object] = bool
) -> Iterator[Item]:
    """Yields what `read` returns, up to the first None, and goes on after damage.

    skip: moves the position of `read` past damage; None: only a journal's reader can do that, and the damage is raised.
    on_damage: is told what was lost each time.
    """
    while True:
        try:
            item = read()
        except CorruptJournal:
            if skip is None:
                raise
            on_damage(skip())
            continue
        if item is None:
            return
        yield item


def batches_to(end: int, reader: Any, max_records: int, max_bytes: int) -> Callable[[], RecordBatch | None]:
    """Returns a function for past_damage() that reads with a Reader or a Cursor from its position to before `end`."""

    def read() -> RecordBatch | None:
        left = end - reader.position
        return reader.read(min(max_records, left), max_bytes) or None if left > 0 else None

    return read


def skip_damage(cursor: Cursor) -> Damage:
    """Moves the cursor past the damage at its position. Raises JournalError where there is none."""
    try:
        cursor.refresh()
        if cursor.can_go_on():
            raise JournalError(f"{cursor.path}: there is no damage at sequence {cursor.reached}; read on")
    except CorruptJournal as error:
        return _skip(cursor, error)
    raise JournalError(f"{cursor.path}: there is no damage at sequence {cursor.reached}; it is the journal's end")


def _skip(cursor: Cursor, error: CorruptJournal) -> Damage:
    first = int(cursor.reached)
    segment, offset = cursor.place
    open_segment, open_offset, open_sequence = cursor.end_place
    for name in list_segments(cursor.path):
        if segment <= name <= open_segment:
            file = SegmentFile(cursor.path, name, cursor.uuid, check_header=False)
            start = offset + 1 if name == segment else SEGMENT_HEADER_BYTES
            block = file.next_block(start, open_offset if name == open_segment else file.file_bytes)
            while block is not None and block.first_sequence < first:
                block = file.next_block(block.offset + 1, file.file_bytes)
            if block is not None:
                cursor.enter(file, block.offset, block.first_sequence)
                return Damage(error.path, error.offset, error.reason, first, block.first_sequence - first)
    if os.path.basename(error.path) == "precommit":
        raise error
    file = SegmentFile(cursor.path, open_segment, cursor.uuid, check_header=False)
    cursor.enter(file, open_offset, open_sequence)
    return Damage(error.path, error.offset, error.reason, first, open_sequence - first)
