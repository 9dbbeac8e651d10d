"""The records of an archive, alone or followed by those of the journal that it was archived from."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from jlog._core.read.across import Across
from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import FollowIterator, wait
from jlog._core.read.iterate import RecordIterator
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import Deadline
from jlog.archive import Archive, archive_of, indexes
from jlog.archive.cursor import ArchiveCursor
from jlog.errors import JournalError
from jlog.positions.names import Start, resolved, timestamp_us_of
from jlog.positions.start import Range, find_sequence, find_time, joined, time_ranges
from jlog.storage.damage import Damage
from jlog.storage.gaps import Gaps
from jlog.storage.meta import Meta, read_meta
from jlog.system.files import HeldPath
from jlog.system.filesystem import is_url, journal_path

if TYPE_CHECKING:
    from jlog.reading.event_loops import Waiter
    from jlog.reading.journal_records import Item
    from jlog.reading.pace import Pace


class ArchivedRecords:
    """The source of `jlog.Reader(url)`, which reads an archive, and of `jlog.Reader(path, archive=True)`, which goes on in
    the journal at `path`. With an Archive as `archive`, that one is read, whatever `path` names."""

    no_position = "a reader of an archive commits nothing and sets no checkpoint; keep its position, and start there again"

    def __init__(self, path: str | os.PathLike[str], archive: bool | str | Archive, *, durable_only: bool) -> None:
        self._live: Cursor | None = None
        self.path: str
        if isinstance(archive, Archive):
            self.path, self._archive = archive.url, archive
            self._meta = Meta(bytes.fromhex(archive.uuid), [])
        elif is_url(path):
            self.path = os.fspath(path)
            self._archive = Archive(self.path)
            self._meta = Meta(bytes.fromhex(self._archive.uuid), [])
        else:
            self.path = journal_path(path)
            self._meta = read_meta(self.path)
            found = archive_of(self.path, archive)
            if found is None:
                raise JournalError(
                    f"{self.path} has no archive; give the URL of an earlier one, archive='file:///…', or leave archive out"
                )
            self._archive = found
            self._live = Cursor(HeldPath(self.path), self._meta.uuid, durable_only=durable_only)
        self.cursor: ArchiveCursor = ArchiveCursor(self._archive, self._live)
        self.gaps: ArchiveGaps = ArchiveGaps(self.path, self._meta.uuid, self._archive, self._live is not None)

    def go_to(self, start: Start, *, checkpoints: bool = True) -> None:
        self.cursor.seek(self._find(start, checkpoints))

    def _find(self, start: Start, checkpoints: bool) -> int:
        start = resolved(start)
        if isinstance(start, datetime):
            return self._find_time(start)
        checkpoints = checkpoints and self._live is not None
        return find_sequence(self.path, self._meta, self.cursor, start, checkpoints=checkpoints)

    def _find_time(self, time: datetime) -> int:
        if self._live is None:
            return self._archive.find(time)
        # The living journal is asked first: a segment that is removed after this has been archived before.
        with self._beside(self._live) as cursor:
            found = find_time(self.path, self._meta, timestamp_us_of(time), cursor)
        archived = self._archive.first_at(self._archive.segments(), time)
        return found if archived is None else archived

    def time_ranges(self, times_us: tuple[int, int]) -> list[Range]:
        if self._live is None:
            return indexes.time_ranges(self._archive.folder, self._archive.segments(), times_us)
        # The living journal is asked first, as above.
        first = int(self._live.first_sequence)
        with self._beside(self._live) as cursor:
            found = time_ranges(self.path, self._meta, times_us, cursor)
        before = [segment for segment in self._archive.segments() if segment.end_sequence <= first]
        return joined([*indexes.time_ranges(self._archive.folder, before, times_us), *found])

    def _beside(self, live: Cursor) -> closing[Cursor]:
        """Returns a cursor that may be moved while the living one stays."""
        return closing(Cursor(self.path, self._meta.uuid, durable_only=live.durable_only))

    def put_checkpoint(self, name: str, sequence: int, deadline: Deadline) -> NoReturn:  # noqa: ARG002
        raise JournalError(f"{self.path}: {self.no_position}")

    def records(self) -> Iterator[Record]:
        return self.iterate(RecordIterator)

    def iterate(self, kind: Callable[[Cursor], Iterator[Item]], end: int | None = None) -> Iterator[Item]:
        self.cursor.check_open()
        return Across(self.cursor, kind, end)

    def follow(self, timeout: float | None, pace: Pace | None) -> Iterator[Record]:
        self._check_grows()

        def following(cursor: Cursor) -> Iterator[Record]:
            return FollowIterator(cursor, timeout if cursor is self._live else 0, pace)

        return Across(self.cursor, following)

    def follow_async(self, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> AsyncIterator[Record]:
        from jlog.reading.async_follow import AsyncAcrossIterator, AsyncFollowIterator

        self._check_grows()

        def following(cursor: Cursor) -> AsyncIterator[Record]:
            return AsyncFollowIterator(cursor, timeout if cursor is self._live else 0, pace, waiters)

        return AsyncAcrossIterator(self.cursor, following)

    def _check_grows(self) -> None:
        self.cursor.check_open()
        if self._live is None:
            raise JournalError(
                f"{self.path} is an archive, which cannot be followed: read it up to its end, or follow its journal with "
                "jlog.Reader(path, archive=True)"
            )

    def read(self, max_records: int, max_bytes: int, timeout: float | None) -> RecordBatch:
        """Waits at the journal's end, and never at an archive's."""
        batch = self.cursor.read(max_records, max_bytes)
        if not len(batch) and timeout != 0 and self._live is not None and self.cursor.current is self._live:
            deadline = Deadline(timeout)
            while not len(batch) and wait(self._live, deadline):
                batch = self.cursor.read(max_records, max_bytes)
        return batch

    def skip_damage(self) -> Damage:
        return self.cursor.skip_damage()

    def close(self) -> None:
        """All that it holds is its cursor's."""


class ArchiveGaps(Gaps):
    """Gaps between archived segments and, where the journal is there too, between its own."""

    def __init__(self, path: str, uuid: bytes, archive: Archive, live: bool) -> None:
        super().__init__(path, uuid)
        self._archive = archive
        self._live = live

    def all(self) -> list[tuple[int, int]]:
        found = set(super().all()) if self._live else set()
        return sorted(found | set(self._archive.gaps()))
