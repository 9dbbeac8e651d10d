"""Finds the segments that retention lets go, and removes them."""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from jlog._core.format import dual_slot
from jlog._core.read.cursor import Cursor
from jlog._core.read.iterate import RecordIterator
from jlog._core.recover.recovery import write_blocks
from jlog._core.segments.segment import (
    SegmentFile,
    first_block_offset,
    index_name,
    list_segments,
    segment_name,
)
from jlog._core.system.durable import sync_data, sync_directory
from jlog._core.system.lock import AT_ONCE, NEVER, Deadline
from jlog._core.write import attachment as core
from jlog._core.write.attachment import Attachment, detach
from jlog.errors import CorruptJournal, JournalError, JournalLocked, PositionLost
from jlog.options import Retention, option_numbers, retention_of
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER
from jlog.storage.copying import nobody_copies
from jlog.storage.meta import Meta, is_a_copy, read_meta, write_meta
from jlog.storage.segments import Segment, segments_of
from jlog.system.files import naming, naming_its_path, open_file

LOCK_SECONDS = 1.0  # how long an append that has met limit_bytes waits for a process that cleans or moves a position
NOBODY = 1 << 64  # behind every sequence, for a journal that nothing is held back in

READ, TOO_MUCH, TOO_OLD = "read", "max_bytes", "max_age"


# --- Positions that hold records back ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hold:
    """The sequences that subscribers and checkpoints hold back."""

    sequence: int  # the first sequence that is held back
    subscribed: bool  # whether there is a subscriber, also if it has expired


def hold(path: str, meta: Meta, retention: Retention) -> Hold:
    """Finds the lowest position. A position that cannot be read holds everything back, and an expired subscriber holds
    nothing."""
    subscribers = position_files.standing(path, meta, SUBSCRIBER)
    found = [at for _, at in position_files.standing(path, meta, CHECKPOINT)]
    found += [at for _, at in subscribers if at is None or not is_expired(path, meta, at, retention)]
    lowest = min((0 if at is None else at.sequence for at in found), default=NOBODY)
    return Hold(lowest, bool(subscribers))


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
    cursor = Cursor(path, meta.uuid)
    try:
        cursor.seek(sequence)
        cursor.refresh()
        if not cursor.can_go_on():
            return None
        segment, offset = cursor.place
        block, _ = SegmentFile(path, segment, meta.uuid, check_header=False).block_at(offset, with_body=False)
        return block.clock_us if block is not None else next(RecordIterator(cursor)).timestamp_us
    finally:
        cursor.close()


def now_us() -> int:
    return time.time_ns() // 1000


def held_bytes(segments: Iterable[Segment], sequences: Iterable[int]) -> list[int]:
    """Returns for each position the content of the sealed segments that it has not passed."""
    sealed = [segment for segment in segments if segment.sealed]
    ends = [segment.end_sequence for segment in sealed]
    passed = [0, *accumulate(segment.size_bytes for segment in sealed)]
    return [passed[-1] - passed[bisect_right(ends, sequence)] for sequence in sequences]


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
    wanted = hold(path, meta, retention)
    segments: Iterable[Segment] = segments_of(path, meta, names, written_place, buffered_bytes)
    surplus_bytes = 0
    if retention.max_bytes is not None:
        segments = list(segments)
        surplus_bytes = sum(segment.size_bytes for segment in segments) - retention.max_bytes
    found = []
    for segment in segments:
        reason = _reason(segment, retention, wanted, surplus_bytes) if segment.sealed else None
        if reason is None:
            break
        found.append(replace(segment, reason=reason))
        surplus_bytes -= segment.size_bytes
    return found


def _reason(segment: Segment, retention: Retention, wanted: Hold, surplus_bytes: int) -> str | None:
    """Returns why the segment goes; None where it stays."""
    passed = segment.end_sequence <= wanted.sequence
    if passed and wanted.subscribed and retention.delete_read:
        return READ
    if not passed and retention.keep_for_subscribers:
        return None
    if surplus_bytes > 0:
        return TOO_MUCH
    if retention.max_age is not None:
        written_us = segment.written_us
        if written_us is not None and now_us() - written_us > retention.max_age.total_seconds() * 1e6:
            return TOO_OLD
    return None


def _removable_now(path: str, meta: Meta, retention: Retention) -> list[Segment]:
    """Lists the segments that may go, without any lock. They are looked at again under the lock of the table before they are
    removed."""
    cursor = Cursor(path, meta.uuid)
    try:
        while True:
            try:
                return removable(path, meta, retention, cursor.end_place, cursor.buffered_bytes)
            except FileNotFoundError:
                continue  # removed in the meantime
    finally:
        cursor.close()


# --- Removal ----------------------------------------------------------------------------------------------------------


@naming_its_path
def clean(
    path: str,
    *,
    dry_run: bool = False,
    deadline: Deadline = NEVER,
    progress: Callable[[int], None] | None = None,
) -> list[Segment]:
    """Removes the segments that may go, and returns them. A journal with an archive copies each of them there before. The
    positions that allow it, and the new first sequence, are made durable before: a segment that a power loss brings back is
    then known to be removed.

    progress: called with each number of bytes that the archive has taken.
    """
    meta = read_meta(path)
    retention = retention_of(meta.options)
    found = _removable_now(path, meta, retention)
    if dry_run or not found:
        return found
    attachment = attach(path, deadline)
    try:
        if retention.archive is not None:
            return _archive_and_remove(path, meta, attachment, retention, found, deadline, progress)
        with position_files.table_locked(path, deadline):
            found = removable(path, meta, retention, attachment.written_place, attachment.buffered_bytes)
            if found:
                remove(path, meta, attachment, found, deadline)
            return found
    finally:
        detach(attachment, deadline=deadline)


def _archive_and_remove(
    path: str,
    meta: Meta,
    attachment: Attachment,
    retention: Retention,
    found: list[Segment],
    deadline: Deadline,
    progress: Callable[[int], None] | None,
) -> list[Segment]:
    """Archives and removes one segment after the other, so that an interrupted call has freed what it copied. Nobody waits for
    the upload: the table is locked only once the segment is archived, and a segment that is needed again by then stays."""
    from jlog.archive.archive import Archive  # most journals archive nothing

    assert retention.archive is not None
    archive = Archive.of_journal(retention.archive, path)
    removed = []
    for segment in found:
        try:
            if os.path.getsize(segment.path) > segment.size_bytes:
                attachment.seal(segment.first_sequence, segment.size_bytes)
            archive.store(segment, progress)
        except FileNotFoundError:
            continue  # another process has archived and removed it
        with position_files.table_locked(path, deadline):
            oldest = removable(path, meta, retention, attachment.written_place, attachment.buffered_bytes)[:1]
            if oldest == [segment]:
                remove(path, meta, attachment, oldest, deadline)
                removed += oldest
        if not oldest:
            break
    return removed


def remove(path: str, meta: Meta, attachment: Attachment, segments: list[Segment], deadline: Deadline = NEVER) -> None:
    """Removes the segments, under the table's lock. Raises JournalLocked, and removes nothing, while a backup copies the
    journal, or where another process writes `bounds` until the deadline."""
    with nobody_copies(path):
        _remove(path, meta, attachment, segments, deadline)


def _remove(path: str, meta: Meta, attachment: Attachment, segments: list[Segment], deadline: Deadline) -> None:
    position_files.sync_all(path, meta)
    # Each segment begins with the complete state: that of the first retained one must not be lost with the others. It is
    # written again before the sync. The kernel may have failed to write it, have told that to another descriptor, and take it
    # for clean now.
    first = segments[-1].next_segment
    name = os.path.join(path, segment_name(first))
    with naming(name):
        fd = open_file(name, os.O_RDWR)
        try:
            with closing(SegmentFile(path, first, attachment.uuid)) as file:
                offset = first_block_offset(file)
                # A writer that has given the name to another file in between has synced that file.
                if os.path.samestat(os.fstat(file.fileno()), os.fstat(fd)):
                    write_blocks(file, offset, fd)
            sync_data(fd, name)
        finally:
            os.close(fd)
    sync_directory(path)
    attachment.bounds_file.update(first_sequence=first, mark=(first, offset, first), durable=True, deadline=deadline)
    for segment in segments:
        for name in (index_name(segment.first_sequence), segment_name(segment.first_sequence)):
            try:
                os.unlink(os.path.join(path, name))
            except FileNotFoundError:
                continue


def clean_if_free(path: str) -> None:
    """Cleans after a commit or a roll. It leaves the work to the next one where another process is at it, or where it fails,
    and to clean() where the journal has an archive."""
    try:
        if retention_of(read_meta(path).options).archive is None:
            clean(path, deadline=AT_ONCE)
    except JournalLocked:
        return
    except (JournalError, OSError) as error:
        logging.getLogger("jlog").warning("%s: nothing was cleaned: %s", path, error)


def free_space(path: str, deadline: Deadline) -> bool:
    """Removes what may go, for an append that has met limit_bytes after the open segment was sealed. Returns whether a segment
    was removed. A journal with an archive leaves this to clean()."""
    try:
        if retention_of(read_meta(path).options).archive is not None:
            return False
        return bool(clean(path, deadline=deadline.at_most(LOCK_SECONDS)))
    except JournalLocked:
        return False
    except (JournalError, OSError) as error:
        logging.getLogger("jlog").warning("%s: nothing was cleaned: %s", path, error)
        return False


def roll_if_due(path: str, deadline: Deadline = NEVER) -> None:
    """Rolls where the journal rolls by time, and no append has come since the period of the open segment ended. Raises OSError
    where this process may not write, also where nothing is due."""
    attachment = attach(path, deadline)
    try:
        attachment.roll_if_due(deadline)
    finally:
        detach(attachment, deadline=deadline)


# --- Answers to the core ----------------------------------------------------------------------------------------------


class JournalPolicy:
    """Answers what the core asks of the package above it, for one journal: the content of `journal.meta`, and retention, when a
    segment has ended or the journal is full. Calls that change `journal.meta` are made under the open lock."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> tuple[bytes, int, tuple[int, ...]]:
        """Returns uuid, epoch and options of the journal, as `journal.meta` states them now."""
        meta = read_meta(self._path)
        return meta.uuid, meta.epoch, option_numbers(meta.options)

    def opened_alone(self, capacity: int, next_sequence: int) -> int:
        """Notes a larger buffer, and begins a new epoch where the journal is a copy, since it departs from its original here.
        Both go into one write, for any write makes the copy an original. Returns the epoch."""
        meta = read_meta(self._path)
        copied, grown = is_a_copy(self._path, meta), capacity > meta.options["precommit"]
        if copied:
            import secrets  # slow to import, and copies are rare

            meta.epochs.append((secrets.randbits(63), next_sequence))
        if grown:
            meta.options["precommit"] = capacity
        if copied or grown:
            write_meta(self._path, meta)
        return meta.epoch

    def change(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Notes these options where one differs. Returns all of the journal's options."""
        meta = read_meta(self._path)
        if any(meta.options[name] != value for name, value in options.items()):
            meta.options.update(options)
            write_meta(self._path, meta)
        return option_numbers(meta.options)

    def after_roll(self) -> None:
        """Removes the segments that the one which has just ended lets go. Waits for nothing."""
        clean_if_free(self._path)

    def free_space(self, deadline: Deadline) -> None:
        """Removes what may go, for an append that has met limit_bytes."""
        free_space(self._path, deadline)


def attach(path: str, deadline: Deadline = NEVER) -> Attachment:
    """Makes this process one that writes to the journal at the absolute `path`. Each attach() needs a detach()."""
    return core.attach(path, JournalPolicy(path), deadline=deadline)
