"""Checks every retained byte of a journal, and reports the damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from jlog._core.format.constants import NONE
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.read.cursor import Cursor
from jlog._core.segments.segment import list_segments, segment_name
from jlog.care.clock import ahead_seconds
from jlog.errors import CorruptJournal
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.storage.damage import Damage, DamagedRange, bad_sectors_are_damage, open_segment, walk_segment
from jlog.storage.gaps import Gaps
from jlog.storage.meta import Meta, read_meta
from jlog.system.files import is_there

Progress = Callable[[int], object]  # called with each number of bytes that were checked


@dataclass
class Report:
    """The result of verify(). `ok` says that there is no damage."""

    records: int = 0
    blocks: int = 0
    segments: int = 0
    damage: list[Damage] = field(default_factory=list)
    skipped: list[tuple[int, int]] = field(default_factory=list)  # gaps
    ahead_seconds: int = 0  # how far the newest time is ahead of the clock, if it is far ahead

    @property
    def ok(self) -> bool:
        return not self.damage


REPLACED_MAX = 10  # another file seldom takes the open segment's name, and each attempt reads the whole journal


def verify(path: str, progress: Progress = lambda _: None) -> Report:
    for _turn in range(REPLACED_MAX):
        report, place = _look(path, progress)
        # A segment that has state alone may be replaced while it is read, and then ends at another place.
        if place is None or not any(damage.path == _path_of(path, place) for damage in report.damage):
            break
        if Cursor(path, read_meta(path).uuid).end_place == place:
            break
    return report


def _path_of(path: str, place: tuple[int, int, int]) -> str:
    return os.path.join(path, segment_name(place[0]))


def _look(path: str, progress: Progress) -> tuple[Report, tuple[int, int, int] | None]:
    """Checks the journal once. Returns also the place where the blocks end in an open segment without a record."""
    meta = read_meta(path)
    report = Report(damage=damage_of_small_files(path, meta))
    try:
        with bad_sectors_are_damage():
            cursor = Cursor(path, meta.uuid)
            written_place = cursor.end_place
            first_retained = int(cursor.first_sequence)
    except FileNotFoundError:
        return report, None  # `bounds` is damaged: nothing states where reading may begin
    except CorruptJournal as error:  # nothing states where it ends either: everything is checked
        _check_segments(path, meta, None, 0, report, progress)
        if all(damage.path != error.path for damage in report.damage):
            report.damage.append(Damage(error.path, error.offset, error.reason, 0, 0))
        return report, None
    _check_segments(path, meta, written_place, first_retained, report, progress)
    _check_buffer(cursor, report)
    report.skipped = Gaps(path, meta.uuid).all()
    report.ahead_seconds = ahead_seconds(path, meta)
    return report, written_place if written_place[0] == written_place[2] else None


def damage_of_small_files(path: str, meta: Meta) -> list[Damage]:
    """Finds damage of positions and of `bounds`. One valid copy of a dual-slot record is enough."""
    found = []
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in position_files.names(path, kind):
            try:
                with closing(PositionFile(path, meta, kind, name)) as file, bad_sectors_are_damage():
                    file.read()
            except LookupError:
                continue  # removed in the meantime
            except CorruptJournal as error:
                found.append(Damage(error.path, error.offset, error.reason, 0, 0))
    if not is_there(os.path.join(path, "lock")):
        reason = "it is missing, and without it nobody can open the journal for writing; `jlogtool repair` creates it anew"
        found.append(Damage(os.path.join(path, "lock"), 0, reason, 0, 0))
    return found + _damage_of_bounds(path, os.path.join(path, "bounds"), meta)


def _damage_of_bounds(journal: str, path: str, meta: Meta) -> list[Damage]:
    try:
        with bad_sectors_are_damage():
            bounds = BoundsFile(path, meta.uuid, None, writable=False).read()
        buffer = os.path.join(journal, "precommit")
        if bounds.closed is None and not is_there(buffer):
            reason = "it is missing, although the journal was not closed: records that only the buffer held are lost"
            return [Damage(buffer, 0, reason, 0, 0)]
    except FileNotFoundError:
        reason = "it is missing, so that numbers might be given out twice; `jlogtool repair` goes on under a new epoch"
        return [Damage(path, 0, reason, 0, 0)]
    except CorruptJournal as error:
        return [Damage(error.path, error.offset, error.reason, 0, 0)]
    return []


def segment_ends(
    path: str, meta: Meta, written_place: tuple[int, int, int] | None, first_retained: int
) -> Iterator[tuple[int, tuple[int, int] | None]]:
    """Lists the retained segments, oldest first, each with the offset and sequence at which its blocks end, or None where
    nothing states them."""
    names = [name for name in list_segments(path) if written_place is None or name <= written_place[0]]
    for name, following in zip(names, [*names[1:], None], strict=False):
        if written_place is not None and name == written_place[0]:
            yield name, written_place[1:]
        elif following is None:
            yield name, None
        elif following > first_retained:
            yield name, _stated_end(path, meta, name, following)


def _check_segments(
    path: str, meta: Meta, written_place: tuple[int, int, int] | None, first_retained: int, report: Report, progress: Progress
) -> None:
    before, reached = None, first_retained
    for name, end in segment_ends(path, meta, written_place, first_retained):
        try:
            _check_link(path, meta, before, name, reached, report)
            before, reached = name, _check_segment(path, meta, name, end, report, progress)
        except FileNotFoundError:
            before = None  # removed in the meantime
    if written_place is not None and before != written_place[0] and written_place[0] >= _first_retained(path, meta):
        missing = os.path.join(path, segment_name(written_place[0]))
        lost = max(0, written_place[2] - reached)
        report.damage.append(Damage(missing, 0, "the segment file is missing", reached, lost))


def _first_retained(path: str, meta: Meta) -> int:
    """Returns the first sequence as it is now: another process may clean meanwhile."""
    try:
        return BoundsFile(os.path.join(path, "bounds"), meta.uuid, None, writable=False).read().first_sequence
    except CorruptJournal:
        return 0


def _check_link(path: str, meta: Meta, before: int | None, name: int, reached: int, report: Report) -> None:
    """Checks that the segment which this one's header names comes before it, or was removed by retention."""
    file, error = open_segment(path, name, meta.uuid)
    file.close()
    if error is not None:
        return  # damage that is found when the segment is read
    previous, end = file.previous_segment, file.previous_end_sequence
    if previous in (before, NONE):
        return
    if before is None:
        reached = max(reached, _first_retained(path, meta))
    if end > reached or before is not None:
        missing = os.path.join(path, segment_name(previous))
        lost = max(0, end - reached)
        report.damage.append(Damage(missing, 0, "the segment file is missing", reached, lost))


def _check_segment(path: str, meta: Meta, name: int, end: tuple[int, int] | None, report: Report, progress: Progress) -> int:
    """Checks one segment, and returns the sequence after its last record."""
    report.segments += 1
    file, error = open_segment(path, name, meta.uuid)
    if error is not None:
        report.damage.append(Damage(error.path, error.offset, error.reason, name, 0))
    sequence = name
    for piece in walk_segment(file, end):
        if isinstance(piece, DamagedRange):
            report.damage.append(piece.damage(file.path))
            sequence = piece.next_sequence
        else:
            report.blocks += 1
            report.records += piece.records
            sequence = piece.end_sequence
        progress(piece.end - piece.offset)
    file.close()
    return sequence


def _stated_end(path: str, meta: Meta, name: int, following: int) -> tuple[int, int] | None:
    """Returns the end that the next segment's header states; None where that header is damaged, or follows another segment."""
    try:
        file, error = open_segment(path, following, meta.uuid)
    except FileNotFoundError:
        return None
    file.close()
    if error is not None:
        return None
    return (file.previous_end_offset, file.previous_end_sequence) if file.previous_segment == name else None


def _check_buffer(cursor: Cursor, report: Report) -> None:
    try:
        with bad_sectors_are_damage():
            first = cursor.end_place[2]
            cursor.seek(first)
            cursor.can_go_on()  # reads the immutable block, where there is one
            cursor.seek_end()
        report.records += int(cursor.position) - first
    except FileNotFoundError:
        return  # the open segment's damage, which is reported already
    except CorruptJournal as error:
        report.damage.append(Damage(error.path, error.offset, error.reason, cursor.end_place[2], 0))
