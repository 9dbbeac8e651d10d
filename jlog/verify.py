"""Checks every byte of a journal that is kept, and says what is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from jlog import positions
from jlog._core.copies import BoundsFile
from jlog._core.cursor import Cursor
from jlog._core.segment import BLOCK_HEADER_BYTES, SegmentFile, list_segments, segment_name
from jlog.damage import Damage, Gap, walk_segment
from jlog.errors import CorruptJournal
from jlog.holes import Holes
from jlog.meta import Meta, read_meta
from jlog.positions import CHECKPOINT, SUBSCRIBER, PositionFile

Progress = Callable[[int], object]  # called with each number of bytes that was looked at
NONE = 2**64 - 1


@dataclass
class Report:
    """What verify() found. `ok`: no damage."""

    records: int = 0
    blocks: int = 0
    segments: int = 0
    damage: list[Damage] = field(default_factory=list)
    skipped: list[tuple[int, int]] = field(default_factory=list)  # numbers that no record has

    @property
    def ok(self) -> bool:
        return not self.damage


def verify(path: str, progress: Progress = lambda _: None) -> Report:
    meta = read_meta(path)
    report = Report(damage=damage_of_small_files(path, meta))
    try:
        cursor = Cursor(path, meta.uuid)
        open_place = cursor.end_place
        first_kept = int(cursor.first_sequence)
    except FileNotFoundError:
        return report  # of `bounds`: nothing says where reading may begin
    except CorruptJournal as error:  # nor where it ends: then all is looked at that is there
        _check_segments(path, meta, None, 0, report, progress)
        if all(damage.path != error.path for damage in report.damage):
            report.damage.append(Damage(error.path, error.offset, error.reason, 0, 0))
        return report
    _check_segments(path, meta, open_place, first_kept, report, progress)
    _check_open_block(cursor, report)
    report.skipped = Holes(path, meta.uuid).all()
    return report


def damage_of_small_files(path: str, meta: Meta) -> list[Damage]:
    """Of positions and of `bounds`. One whole copy is enough."""
    found = []
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in positions.names(path, kind):
            try:
                file = PositionFile(path, meta, kind, name)
            except LookupError:
                continue  # removed in this moment
            try:
                file.read()
            except CorruptJournal as error:
                found.append(Damage(error.path, error.offset, error.reason, 0, 0))
            finally:
                file.close()
    return found + _damage_of_bounds(os.path.join(path, "bounds"), meta)


def _damage_of_bounds(path: str, meta: Meta) -> list[Damage]:
    try:
        BoundsFile(path, meta.uuid, None, writable=False).read()
    except FileNotFoundError:
        reason = "it is missing, so that numbers might be given out twice; `jlogtool repair` goes on under a new epoch"
        return [Damage(path, 0, reason, 0, 0)]
    except CorruptJournal as error:
        return [Damage(error.path, error.offset, error.reason, 0, 0)]
    return []


def _check_segments(
    path: str,
    meta: Meta,
    open_place: tuple[int, int, int] | None,
    first_kept: int,
    report: Report,
    progress: Progress,
) -> None:
    names = [name for name in list_segments(path) if open_place is None or name <= open_place[0]]
    names = [name for name, after in zip(names, [*names[1:], 1 << 64], strict=True) if after > first_kept]
    if names:
        _check_beginning(path, meta, names[0], first_kept, report)
    for name, following in zip(names, [*names[1:], None], strict=True):
        try:
            reached = _check_segment(path, meta, name, following, open_place, report, progress)
        except FileNotFoundError:
            continue  # cleaned meanwhile
        if following is not None:
            _check_link(path, meta, name, following, reached, report)
    if open_place is not None and (not names or names[-1] != open_place[0]):
        missing = os.path.join(path, segment_name(open_place[0]))
        first = reached if names else first_kept
        report.damage.append(
            Damage(missing, 0, "the segment file is missing", first, max(0, open_place[2] - first))
        )


def _check_beginning(path: str, meta: Meta, name: int, first_kept: int, report: Report) -> None:
    """Whether the segment before the first one was removed by retention, or is missing."""
    try:
        file = SegmentFile(path, name, meta.uuid)
    except (CorruptJournal, FileNotFoundError):
        return  # damaged, which is found when it is read; or cleaned meanwhile
    if file.previous_segment != NONE and file.previous_end_sequence > first_kept:
        _missing(path, file, first_kept, report)
    file.close()


def _missing(path: str, behind: SegmentFile, reached: int, report: Report) -> None:
    missing = os.path.join(path, segment_name(behind.previous_segment))
    lost = max(0, behind.previous_end_sequence - reached)
    report.damage.append(Damage(missing, 0, "the segment file is missing", reached, lost))


def _check_segment(
    path: str,
    meta: Meta,
    name: int,
    following: int | None,
    open_place: tuple[int, int, int] | None,
    report: Report,
    progress: Progress,
) -> int:
    """Returns the sequence behind its last record."""
    end: tuple[int, int] | None = None
    if open_place is not None and name == open_place[0]:
        end = open_place[1:]
    elif following is not None:
        end = _stated_end(path, meta, name, following)
    report.segments += 1
    try:
        file = SegmentFile(path, name, meta.uuid)
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, name, 0))
        file = SegmentFile(path, name, meta.uuid, check_header=False)
    sequence = name
    for piece in walk_segment(file, end):
        if isinstance(piece, Gap):
            report.damage.append(piece.damage(file.path))
            sequence = piece.next_sequence
            progress(piece.end - piece.offset)
        else:
            report.blocks += 1
            report.records += piece.records
            sequence = piece.first_sequence + piece.records
            progress(BLOCK_HEADER_BYTES + piece.stored_bytes)
    file.close()
    return sequence


def _stated_end(path: str, meta: Meta, name: int, following: int) -> tuple[int, int] | None:
    """Where the next segment's header says that this one ends; None where that header is damaged, or follows another
    segment."""
    try:
        file = SegmentFile(path, following, meta.uuid)
    except CorruptJournal:
        return None
    file.close()
    return (file.previous_end_offset, file.previous_end_sequence) if file.previous_segment == name else None


def _check_link(path: str, meta: Meta, name: int, following: int, reached: int, report: Report) -> None:
    try:
        file = SegmentFile(path, following, meta.uuid)
    except (CorruptJournal, FileNotFoundError):
        return  # which is found when it is read itself
    if file.previous_segment != name:
        _missing(path, file, reached, report)
    file.close()


def _check_open_block(cursor: Cursor, report: Report) -> None:
    try:
        cursor.seek_end()
        report.records += int(cursor.position) - cursor.end_place[2]
    except FileNotFoundError:
        return  # the open segment's, which has been told
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, cursor.end_place[2], 0))
