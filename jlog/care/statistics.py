"""The counters and the size of a journal at this moment, for a program that asks every second."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from jlog._core.buffer.precommit import read_counters
from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog._core.read.cursor import Cursor
from jlog._core.read.journal_end import JournalEnd
from jlog._core.system.lock import OWNERS, LockFile
from jlog.care.standing import standing_positions, with_held_bytes
from jlog.errors import CorruptJournal, PositionLost
from jlog.positions.position_files import SUBSCRIBER, SharedWork, is_dead
from jlog.storage.gaps import Gaps, count_assigned
from jlog.storage.meta import Meta, read_meta
from jlog.storage.segments import Segment, segments_now


@dataclass(frozen=True)
class SubscriberStats:
    """One subscriber at this moment."""

    sequence: int  # the committed position: the next record to read after a crash
    lag: int  # number of records
    busy: bool  # whether a Reader has its name
    idle_seconds: float  # seconds since it last committed, or was moved
    held_bytes: int  # bytes in sealed segments that are retained for it
    oldest_unread_seconds: float | None  # age of its next record by that record's timestamp; None where it has read all
    expired: bool = False  # whether it has been idle for Retention.subscriber_max_age, and holds nothing back any more
    damaged: bool = False  # whether its file cannot be read
    work: SharedWork | None = None  # of a subscriber that Workers share

    @property
    def dead(self) -> bool:
        """Whether it has records to read, and nobody has read it or moved it for a day."""
        return is_dead(self.busy, self.lag, self.idle_seconds)


@dataclass(frozen=True)
class Stats:
    """The statistics that Journal.stats() returns. Counters are those of all processes together, since the journal was first
    opened after the last boot, or after its control page was lost; until then each only grows. The other fields are as of this
    moment."""

    appends: int  # number of records
    bytes: int  # bytes of records, before compression
    flushes: int  # number of calls
    syncs: int  # number of fdatasync calls, each for any number of callers
    waits: int  # number of times that a writer waited for another one's append
    rolls: int
    counters: Mapping[str, int] = field(repr=False)  # every counter, by the names of docs/statistics.md

    first_sequence: int
    next_sequence: int
    durable_end: int  # the records before it survive a power loss
    records: int
    size_bytes: int  # content of the segment files, once the pre-commit buffer is written there
    open_bytes: int  # records in the pre-commit buffer that are not in a segment file yet
    segments: int
    writers: int  # living processes that have the journal open for writing
    subscribers: Mapping[str, SubscriberStats]


BASE_BYTES = 8  # base time at the beginning of an open block


class StatsSource:
    """Looks at a journal as often as it is asked to. It keeps the time of the record at a position, and between rolls and
    cleanings what the segments' headers state. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._uuid = b""
        self._forget()

    def _forget(self) -> None:
        self._key = (-1, -1)  # first sequence and open segment, for which the next two stay the same
        self._sealed: list[Segment] = []
        self._gaps: list[tuple[int, int]] = []
        self._times: dict[int, int | None] = {}
        self._written = self._shown = (0, 0)

    def look(self) -> Stats:
        """Returns the statistics. Raises JournalNotFound, CorruptJournal or UnsupportedFormat where the journal cannot be
        opened."""
        meta = read_meta(self._path)
        if meta.uuid != self._uuid:  # another journal has been created at the same path
            self._uuid = meta.uuid
            self._forget()
        with closing(Cursor(self._path, meta.uuid)) as cursor:
            return self._look(meta, cursor)

    def _look(self, meta: Meta, cursor: Cursor) -> Stats:
        stop = JournalEnd(self._path, meta.uuid)
        # The counters are read before the end. A block that is written back in between is then missing until the next look,
        # instead of counted twice.
        counters = read_counters(self._path, meta.uuid)
        first = int(cursor.first_sequence)
        stop.refresh()
        live, _, segment, open_offset, open_sequence, used, _, durable_end = stop.state
        _, offset, _ = stop.written_place
        immutable_bytes = open_offset - offset - BLOCK_HEADER_BYTES if open_offset != offset else 0
        open_bytes = max(0, used - BASE_BYTES)
        end = max(first, int(cursor.next_sequence))
        if self._key != (first, segment):
            # All of them: a repair may have cut and divided segments that were seen before.
            self._sealed = [one for one in segments_now(self._path, meta) if one.first_sequence < segment]
            self._gaps = Gaps(self._path, meta.uuid).all()
            self._key = (first, segment)
        appends, raw_bytes = self._appended(counters, end - open_sequence, open_bytes) if live else (0, 0)
        return Stats(
            appends=appends,
            bytes=raw_bytes,
            flushes=counters["flushes"],
            syncs=counters["syncs"],
            waits=counters["waits"],
            rolls=counters["rolls"],
            counters=counters,
            first_sequence=first,
            next_sequence=end,
            durable_end=min(durable_end, end),
            records=count_assigned(self._gaps, first, end),
            size_bytes=sum(one.size_bytes for one in self._sealed) + max(offset, SEGMENT_HEADER_BYTES) + stop.buffered_bytes,
            open_bytes=immutable_bytes + open_bytes,
            segments=len(self._sealed) + 1,
            writers=count_writers(self._path),
            subscribers=self._subscribers(meta, cursor, first, end),
        )

    def _appended(self, counters: Mapping[str, int], open_records: int, open_bytes: int) -> tuple[int, int]:
        """Counts records and bytes, with those of the open block. A block that is just being written back may be counted not at
        all or twice. The result never goes back for that, since a counter that goes back would be taken for one that began
        anew."""
        written = counters["records"], counters["raw_bytes"]
        found = written[0] + open_records, written[1] + open_bytes
        if written >= self._written:
            found = max(found[0], self._shown[0]), max(found[1], self._shown[1])
        self._written, self._shown = written, found
        return found

    def _subscribers(self, meta: Meta, cursor: Cursor, first: int, end: int) -> dict[str, SubscriberStats]:
        known, self._times = self._times, {}
        found = {}
        standing = standing_positions(self._path, meta, SUBSCRIBER, lambda: self._gaps, first, end)
        for name, at in with_held_bytes(standing, self._sealed).items():
            unread = max(first, at.sequence)
            if unread < end and unread not in self._times:
                self._times[unread] = known[unread] if unread in known else _time_at(cursor, unread)
            timestamp_us = self._times.get(unread)
            found[name] = SubscriberStats(
                sequence=at.sequence,
                lag=at.lag,
                busy=at.busy,
                idle_seconds=at.idle_seconds,
                held_bytes=at.held_bytes,
                oldest_unread_seconds=None if timestamp_us is None else max(0.0, time.time() - timestamp_us / 1e6),
                expired=at.expired,
                damaged=at.damaged,
                work=at.work,
            )
        return found


def _time_at(cursor: Cursor, sequence: int) -> int | None:
    """Returns the timestamp of the first record at or after this sequence; None where it cannot be read, which `verify`
    explains."""
    try:
        cursor.seek(sequence)
        batch = cursor.read(1, 1)
    except (CorruptJournal, PositionLost):
        return None
    return batch[0].timestamp_us if len(batch) else None


def count_writers(path: str) -> int:
    """Counts the living processes that hold a writer slot. It asks the kernel for ranges of slots and halves them, since few
    slots are taken."""
    with closing(LockFile(os.path.join(path, "lock"), writable=False)) as lock_file:
        return _count_held(lock_file, *OWNERS)


def writing_processes(path: str) -> list[int]:
    """Returns the ids of the processes that hold a writer slot, as far as this user may know them."""
    with closing(LockFile(os.path.join(path, "lock"), writable=False)) as lock_file:
        return [int(number) for number in re.findall(r"\d+", lock_file.holders(*OWNERS))]


def is_current(path: str, meta: Meta) -> bool:
    """Returns whether the journal's control page is of this boot and this file."""
    end = JournalEnd(path, meta.uuid)
    end.refresh()
    return end.live


def _count_held(lock_file: LockFile, start: int, size: int) -> int:
    if not lock_file.is_held(start, size):
        return 0
    if size == 1:
        return 1
    half = size // 2
    return _count_held(lock_file, start, half) + _count_held(lock_file, start + half, size - half)
