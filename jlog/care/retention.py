"""Decides which segments retention removes, and which subscribers have expired."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from jlog._core.format import dual_slot
from jlog._core.read.cursor import Cursor
from jlog._core.read.iterate import RecordIterator
from jlog._core.segments.segment import SegmentFile, list_segments
from jlog.care.clock import is_ahead
from jlog.errors import CorruptJournal, PositionLost
from jlog.options import Retention
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER
from jlog.storage.meta import Meta
from jlog.storage.segments import Segment, segments_of
from jlog.system.clock import now_us

NOBODY = 1 << 64  # beyond every sequence, for a journal that nothing is held back in

READ, TOO_MUCH, TOO_OLD = "read", "max_bytes", "max_age"


# --- Positions that hold records back ---------------------------------------------------------------------------------


def held_from(path: str, meta: Meta, retention: Retention) -> tuple[int, bool]:
    """Returns the first sequence that a subscriber or a checkpoint holds back, and whether there is a subscriber, also if it
    has expired. A position that cannot be read holds everything back, and an expired subscriber holds nothing."""
    subscribers = position_files.standing(path, meta, SUBSCRIBER)
    found = [at for _, at in position_files.standing(path, meta, CHECKPOINT)]
    found += [at for _, at in subscribers if at is None or not is_expired(path, meta, at, retention)]
    return min((0 if at is None else at.sequence for at in found), default=NOBODY), bool(subscribers)


def is_expired(path: str, meta: Meta, at: dual_slot.StoredPosition, retention: Retention) -> bool:
    """Says whether this subscriber has expired: it has not committed for subscriber_max_age, and its next record was written as
    long ago. A commit that lies ahead of the clock counts as one of this moment."""
    if retention.subscriber_max_age is None:
        return False
    limit_us = now_us() - round(retention.subscriber_max_age.total_seconds() * 1e6)
    if at.moved_us > limit_us:
        return False
    try:
        written_us = _written_us(path, meta, at.sequence)
    except PositionLost:
        return True
    except (CorruptJournal, FileNotFoundError, ValueError):
        return False  # an age that is not known removes nothing
    return written_us is not None and written_us <= limit_us


def _written_us(path: str, meta: Meta, sequence: int) -> int | None:
    """Returns the time of the clock when this record was written; None where it does not exist yet. The open block has no such
    time: there it is the record's own timestamp."""
    with closing(Cursor(path, meta.uuid)) as cursor:
        cursor.seek(sequence)
        cursor.refresh()
        if not cursor.can_go_on():
            return None
        segment, offset = cursor.place
        block, _ = SegmentFile(path, segment, meta.uuid, check_header=False).block_at(offset, with_body=False)
        return block.clock_us if block is not None else next(RecordIterator(cursor)).timestamp_us


# --- Segments to remove -----------------------------------------------------------------------------------------------


def removable(
    path: str, meta: Meta, retention: Retention, written_place: tuple[int, int, int], buffered_bytes: int
) -> list[Segment]:
    """Lists the sealed segments that may go, oldest first, each with its reason."""
    if not retention.delete_read and retention.max_bytes is None and retention.max_age is None:
        return []
    names = [name for name in list_segments(path) if name <= written_place[0]]
    if len(names) < 2 or names[-1] != written_place[0]:
        return []
    held, subscribed = held_from(path, meta, retention)
    segments: Iterable[Segment] = segments_of(path, meta, names, written_place, buffered_bytes)
    surplus_bytes = 0
    if retention.max_bytes is not None:
        segments = list(segments)
        surplus_bytes = sum(segment.size_bytes for segment in segments) - retention.max_bytes
    found = []
    for segment in segments:
        passed = segment.end_sequence <= held
        reason = _reason(segment, retention, surplus_bytes, passed, subscribed) if segment.sealed else None
        if reason is None:
            break
        found.append(replace(segment, reason=reason))
        surplus_bytes -= segment.size_bytes
    return found


def _written_us_of(segment: Segment) -> int | None:
    """Returns the time of the clock when the segment's newest record was written; None where that is not known. A time ahead of
    the clock was given by a wrong one: the segment then counts as written when the next one was begun."""
    written_us = segment.written_us
    return segment.next_created_us if written_us is not None and is_ahead(written_us) else written_us


def _reason(segment: Segment, retention: Retention, surplus_bytes: int, passed: bool, subscribed: bool) -> str | None:
    """Returns why the segment goes; None where it stays. passed: nothing holds it back."""
    if passed and subscribed and retention.delete_read:
        return READ
    if not passed and retention.keep_for_subscribers:
        return None
    if surplus_bytes > 0:
        return TOO_MUCH
    if retention.max_age is not None:
        written_us = _written_us_of(segment)
        if written_us is not None and now_us() - written_us > retention.max_age.total_seconds() * 1e6:
            return TOO_OLD
    return None
