"""Checks every byte of a journal that is kept, and says what is damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from jlog import positions
from jlog._core.copies import BoundsFile
from jlog._core.cursor import Cursor
from jlog._core.segment import (
    BLOCK_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentFile,
    list_segments,
    segment_name,
    walk_body,
)
from jlog.damage import Damage
from jlog.errors import CorruptJournal
from jlog.holes import Holes
from jlog.meta import Meta, read_meta
from jlog.positions import CHECKPOINT, SUBSCRIBER, PositionFile


@dataclass
class Report:
    """What verify() found. `ok`: no damage."""

    records: int = 0
    blocks: int = 0
    segments: int = 0
    damage: list[Damage] = field(default_factory=list)
    skipped: list[tuple[int, int]] = field(default_factory=list)  # numbers that were never given out

    @property
    def ok(self) -> bool:
        return not self.damage


def verify(path: str) -> Report:
    meta = read_meta(path)
    report = Report()
    _check_small_files(path, meta, report)
    cursor = Cursor(path, meta.uuid)
    try:
        open_place = cursor.end_place
        first_kept = int(cursor.first_sequence)
    except CorruptJournal as error:  # both copies of bounds: nothing says where reading may begin
        if all(damage.path != error.path for damage in report.damage):
            report.damage.append(Damage(error.path, error.offset, error.reason, 0, 0))
        return report
    names = [name for name in list_segments(path) if name <= open_place[0]]
    names = [name for name, after in zip(names, [*names[1:], 1 << 64], strict=True) if after > first_kept]
    for name, following in zip(names, [*names[1:], None], strict=True):
        try:
            _check_segment(path, meta, name, following, open_place, report)
        except FileNotFoundError:
            continue  # cleaned meanwhile
    _check_open_block(cursor, report)
    report.skipped = Holes(path, meta.uuid).all()
    return report


def _check_small_files(path: str, meta: Meta, report: Report) -> None:
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in positions.names(path, kind):
            file = PositionFile(path, meta, kind, name)
            try:
                file.read()
            except CorruptJournal as error:
                report.damage.append(Damage(error.path, error.offset, error.reason, 0, 0))
            finally:
                file.close()
    bounds = BoundsFile(os.path.join(path, "bounds"), meta.uuid, None, writable=False)
    try:
        bounds.read()
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, 0, 0))
    finally:
        bounds.close()


def _check_segment(
    path: str, meta: Meta, name: int, following: int | None, open_place: tuple[int, int, int], report: Report
) -> None:
    end_offset, end_sequence = (
        open_place[1:] if following is None else _end_before(path, meta, name, following, report)
    )
    report.segments += 1
    try:
        file = SegmentFile(path, name, meta.uuid)
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, name, 0))
        file = SegmentFile(path, name, meta.uuid, check_header=False)
    offset, sequence = SEGMENT_HEADER_BYTES, name
    while end_offset is None or offset < end_offset:
        block, reason = file.block_at(offset)
        if block is not None and block.first_sequence != sequence:
            reason, block = (
                f"the block begins with sequence {block.first_sequence} instead of {sequence}",
                None,
            )
        if block is None and reason is None and end_offset is None:
            break
        if block is not None:
            reason = _body_problem(file, block)
            if reason is None:
                report.blocks += 1
                report.records += block.records
            else:
                report.damage.append(Damage(file.path, offset, reason, sequence, block.records))
            offset += BLOCK_HEADER_BYTES + block.stored_bytes
            sequence += block.records
            continue
        limit = file.file_bytes if end_offset is None else end_offset
        behind = file.next_block(offset + 1, limit)
        next_sequence = (
            behind.first_sequence if behind is not None else max(end_sequence or sequence, sequence)
        )
        report.damage.append(
            Damage(file.path, offset, reason or "no block stands here", sequence, next_sequence - sequence)
        )
        offset, sequence = (limit, next_sequence) if behind is None else (behind.offset, next_sequence)
    file.close()


def _end_before(
    path: str, meta: Meta, name: int, following: int, report: Report
) -> tuple[int | None, int | None]:
    """Where the next segment's header says that this one ends; (None, None) where that header is damaged, or follows
    another segment, which is missing."""
    try:
        file = SegmentFile(path, following, meta.uuid)
    except CorruptJournal:
        return None, None
    file.close()
    if file.previous_segment == name:
        return file.previous_end_offset, file.previous_end_sequence
    missing = os.path.join(path, segment_name(file.previous_segment))
    lost = file.previous_end_sequence - file.previous_segment
    report.damage.append(Damage(missing, 0, "the segment file is missing", file.previous_segment, lost))
    return None, None


def _body_problem(file: SegmentFile, block) -> str | None:  # type: ignore[no-untyped-def]
    try:
        records = walk_body(file.raw_body(block.offset), block.base_time_us)[0]
    except CorruptJournal as error:
        return str(error.reason)
    except ValueError as error:
        return str(error)
    return (
        None
        if records == block.records
        else f"the block holds {records} records, its header says {block.records}"
    )


def _check_open_block(cursor: Cursor, report: Report) -> None:
    try:
        cursor.seek_end()
        report.records += int(cursor.position) - cursor.end_place[2]
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, cursor.end_place[2], 0))
