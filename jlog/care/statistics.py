"""What a journal does and holds at this moment, for a program that looks every second."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from jlog._core.buffer.precommit import read_counters
from jlog._core.read.cursor import Cursor
from jlog._core.read.end import JournalEnd
from jlog._core.segments.index import segment_end
from jlog._core.segments.segment import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES, list_segments
from jlog._core.system.lock import OWNERS, LockFile
from jlog.care.retention import is_expired
from jlog.errors import CorruptJournal, PositionLost
from jlog.options import retention_of
from jlog.positions import position_files
from jlog.positions.position_files import DEAD_AFTER, SUBSCRIBER, PositionFile
from jlog.storage.gaps import given_out
from jlog.storage.meta import Meta, read_meta

DEAD_AFTER_SECONDS = DEAD_AFTER.total_seconds()


@dataclass(frozen=True)
class SubscriberStats:
    """One subscriber at this moment."""

    sequence: int  # committed: the next record to read after a crash
    lag: int  # records
    busy: bool  # a Reader has its name
    idle_seconds: float  # since it last committed, or was moved
    held_bytes: int  # in sealed segments that cannot go while it has not committed them
    oldest_unread_seconds: float | None  # age of its next record by that record's timestamp; None without one
    expired: bool = False  # behind, and idle for Retention.subscriber_max_age: holds nothing back any more
    damaged: bool = False  # its file cannot be read

    @property
    def dead(self) -> bool:
        """Has records to read, and for a day nobody has read or moved it."""
        return self.lag > 0 and not self.busy and self.idle_seconds >= DEAD_AFTER_SECONDS


@dataclass(frozen=True)
class Stats:
    """What Journal.stats() gives. Counters are those of all processes together, since the journal was first opened after
    the last boot (or after its control page was lost); each only grows until then. The rest is as of this moment."""

    appends: int  # records
    bytes: int  # of records, before compression
    flushes: int  # that were asked for
    syncs: int  # an fdatasync each, however many callers shared it
    waits: int  # of a writer for another one's append
    rolls: int
    counters: Mapping[str, int] = field(repr=False)  # all there are, by the names of docs/statistics.md

    first_sequence: int
    next_sequence: int
    durable_end: int  # the records before it survive a power loss
    records: int
    size_bytes: int  # content of the segment files, once the pre-commit buffer is written there
    open_bytes: int  # records in the pre-commit buffer that are not in a segment file yet
    segments: int
    writers: int  # living processes that have it open for writing
    subscribers: Mapping[str, SubscriberStats]


BASE_BYTES = 8  # that an open block begins with: its base time


@dataclass(frozen=True)
class _Layout:
    """The segments from one first sequence kept to one open segment: between rolls and cleanings nothing of it changes."""

    names: list[int]
    ends: list[int]  # of each sealed one: where its numbers end
    sizes: list[int]  # bytes of the sealed ones before each, and of all
    holes: list[tuple[int, int]]

    def held_bytes(self, sequence: int) -> int:
        """In sealed segments with a record at or behind `sequence`."""
        at = max(0, bisect_right(self.names, sequence) - 1)
        if at < len(self.ends) and self.ends[at] <= sequence:
            at += 1
        return self.sizes[-1] - self.sizes[min(at, len(self.ends))]


class StatsSource:
    """Looks at a journal as often as it is asked to. What never changes is read once: a header of each segment, the time
    of the record at a position. One thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._uuid = b""
        self._forget()

    def _forget(self) -> None:
        self._key = (-1, -1)
        self._layout = _Layout([], [], [0], [])
        self._ends: dict[tuple[int, int], tuple[int, int, bool]] = {}
        self._times: dict[int, int | None] = {}
        self._written = self._shown = (0, 0)

    def look(self) -> Stats:
        """JournalNotFound, CorruptJournal or UnsupportedFormat where it cannot be opened."""
        meta = read_meta(self._path)
        if meta.uuid != self._uuid:  # made anew at the same path
            self._uuid = meta.uuid
            self._forget()
        cursor = Cursor(self._path, meta.uuid)
        try:
            return self._look(meta, cursor)
        finally:
            cursor.close()

    def _look(self, meta: Meta, cursor: Cursor) -> Stats:
        stop = JournalEnd(self._path, meta.uuid)
        while True:
            # Before the end: a block that is written out in between is missing until the next look, and not counted twice.
            counters = read_counters(self._path, meta.uuid)
            first = int(cursor.first_sequence)
            stop.refresh()
            live, _, segment, open_offset, open_sequence, used, _, durable_end = stop.state
            _, offset, _ = stop.written_place
            closing_bytes = open_offset - offset - BLOCK_HEADER_BYTES if open_offset != offset else 0
            open_bytes = max(0, used - BASE_BYTES)
            end = max(first, int(cursor.next_sequence))
            try:
                layout = self._layout_of(first, segment)
                break
            except FileNotFoundError:
                continue  # cleaned in this moment
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
            records=given_out(layout.holes, first, end),
            size_bytes=layout.sizes[-1] + max(offset, SEGMENT_HEADER_BYTES) + stop.buffered_bytes,
            open_bytes=closing_bytes + open_bytes,
            segments=len(layout.names),
            writers=count_writers(self._path),
            subscribers=self._subscribers(meta, cursor, layout, first, end),
        )

    def _appended(self, counters: Mapping[str, int], open_records: int, open_bytes: int) -> tuple[int, int]:
        """Records and bytes, those of the open block too. A block that is just written out may be taken for neither or for
        both: a counter never goes back for that, which would be taken for one that began anew."""
        written = counters["records"], counters["raw_bytes"]
        found = written[0] + open_records, written[1] + open_bytes
        if written >= self._written:
            found = max(found[0], self._shown[0]), max(found[1], self._shown[1])
        self._written, self._shown = written, found
        return found

    def _layout_of(self, first: int, open_segment: int) -> _Layout:
        if self._key == (first, open_segment):
            return self._layout
        names = [name for name in list_segments(self._path) if name <= open_segment]
        pairs = [pair for pair in pairwise(names) if pair[1] > first]
        self._ends = {pair: self._end_of(pair) for pair in pairs}
        found = self._ends.values()
        self._layout = _Layout(
            names=[*(name for name, _ in pairs), open_segment],
            ends=[end for _, end, _ in found],
            sizes=[0, *accumulate(max(size, SEGMENT_HEADER_BYTES) for size, _, _ in found)],
            holes=[(end, following) for (_, following), (_, end, stated) in self._ends.items() if stated and end < following],
        )
        self._key = (first, open_segment)
        return self._layout

    def _end_of(self, pair: tuple[int, int]) -> tuple[int, int, bool]:
        """(offset, sequence, whether the next one's header states it) at which a sealed segment ends."""
        known = self._ends.get(pair)
        return known if known and known[2] else segment_end(self._path, *pair, self._uuid)

    def _subscribers(self, meta: Meta, cursor: Cursor, layout: _Layout, first: int, end: int) -> dict[str, SubscriberStats]:
        retention = retention_of(meta.options)
        known, self._times = self._times, {}
        found = {}
        for name in position_files.names(self._path, SUBSCRIBER):
            try:
                file = PositionFile(self._path, meta, SUBSCRIBER, name)
            except LookupError:
                continue  # removed in this moment
            sequence, idle, damaged, expired = first, 0.0, False, False
            try:
                busy = file.is_held_elsewhere
                position = file.read_all()
                sequence, idle = position.sequence, max(0.0, time.time() - position.moved_us / 1e6)
                expired = is_expired(self._path, meta, position, retention)
            except CorruptJournal:
                damaged = True
            finally:
                file.close()
            unread = max(first, sequence)
            if unread < end and unread not in self._times:
                self._times[unread] = known[unread] if unread in known else _time_at(cursor, unread)
            timestamp_us = self._times.get(unread)
            found[name] = SubscriberStats(
                sequence=sequence,
                lag=given_out(layout.holes, unread, end),
                busy=busy,
                idle_seconds=idle,
                held_bytes=0 if expired else layout.held_bytes(sequence),
                oldest_unread_seconds=None if timestamp_us is None else max(0.0, time.time() - timestamp_us / 1e6),
                expired=expired,
                damaged=damaged,
            )
        return found


def _time_at(cursor: Cursor, sequence: int) -> int | None:
    """Timestamp of the first record at or behind it; None where that cannot be read: `verify` says why."""
    try:
        cursor.seek(sequence)
        batch = cursor.read(1, 1)
    except (CorruptJournal, PositionLost):
        return None
    return batch[0].timestamp_us if len(batch) else None


def count_writers(path: str) -> int:
    """How many living processes hold a writer's slot. The kernel is asked, in halves: few of the slots are taken."""
    lock_file = LockFile(os.path.join(path, "lock"), writable=False)
    try:
        return _count_held(lock_file, *OWNERS)
    finally:
        lock_file.close()


def _count_held(lock_file: LockFile, start: int, size: int) -> int:
    if not lock_file.is_held(start, size):
        return 0
    if size == 1:
        return 1
    half = size // 2
    return _count_held(lock_file, start, half) + _count_held(lock_file, start + half, size - half)
