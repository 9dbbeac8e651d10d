"""What damage looks like to who reads, and the way past it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jlog._core.cursor import Cursor
from jlog._core.segment import SEGMENT_HEADER_BYTES, SegmentFile, list_segments
from jlog.errors import CorruptJournal, JournalError


@dataclass(frozen=True)
class Damage:
    """One damaged place: what was there cannot be read."""

    path: str
    offset: int
    reason: str
    first_sequence: int
    records_lost: int


def skip_damage(cursor: Cursor) -> Damage:
    """Moves the cursor behind the damage at its position. JournalError where there is none."""
    try:
        cursor.refresh()
        if cursor.can_go_on():
            raise JournalError(f"{cursor.path}: there is no damage at sequence {cursor.position}; read on")
    except CorruptJournal as error:
        return _skip(cursor, error)
    raise JournalError(
        f"{cursor.path}: there is no damage at sequence {cursor.position}; it is the journal's end"
    )


def _skip(cursor: Cursor, error: CorruptJournal) -> Damage:
    first = int(cursor.position)
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
