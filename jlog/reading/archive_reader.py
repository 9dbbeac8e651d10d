"""The Reader of what is archived, alone or before the journal that it was archived from."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn, cast

from jlog._core.read.arrow import ArrowIterator
from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import Following, wait
from jlog._core.read.iterate import RecordIterator, ValueIterator
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import Deadline
from jlog.archive import Archive, archive_of
from jlog.archive.cursor import Across, ArchiveCursor, AsyncAcross
from jlog.errors import JournalError
from jlog.options import check_lock_timeout
from jlog.positions.names import Start, timestamp_us_of
from jlog.positions.start import find_start, find_time
from jlog.reading.pace import Pace
from jlog.reading.reader import Reader, check_limits
from jlog.storage.damage import Damage
from jlog.storage.gaps import Holes
from jlog.storage.meta import Meta, read_meta
from jlog.system.filesystem import is_url, journal_path

if TYPE_CHECKING:
    import pyarrow

    from jlog.reading.event_loops import Waiter


class ArchiveReader(Reader):
    """What `jlog.Reader(url)` and `jlog.Reader(path, archive=True)` are: a Reader without a name, that commits nothing.

    Segments are fetched one at a time below TMPDIR, and go when the next one is entered, or with close(). An archive that
    lies on this machine is read where it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        start: Start = "begin",
        create: bool = True,  # noqa: ARG002
        durable_only: bool = False,
        archive: bool | str = False,
        lock_timeout: float | None = None,
    ) -> None:
        if name is not None:
            raise JournalError(
                f"{os.fspath(path)}: what is archived has no subscribers; read it without a name, and keep reader.position"
            )
        self._lock_timeout = check_lock_timeout(lock_timeout)
        self._name = self._file = self._lost = None
        self._waiters: set[Waiter] = set()
        self._live: Cursor | None = None
        if is_url(path):
            self._path = os.fspath(path)
            self._archive = Archive(self._path)
            self._meta = Meta(bytes.fromhex(self._archive.uuid), [])
        else:
            self._path = journal_path(path)
            self._meta = read_meta(self._path)
            self._archive = _archive_of(self._path, archive)
            self._live = Cursor(self._path, self._meta.uuid, durable_only=durable_only)
        self._across = ArchiveCursor(self._archive, self._live)
        self._cursor = cast("Cursor", self._across)  # it has what a Reader asks of one
        self._holes = ArchiveHoles(self._path, self._meta.uuid, self._archive, self._live is not None)
        self._across.seek(self._find(start))

    def _find(self, start: Start, *, checkpoints: bool = True) -> int:
        if isinstance(start, datetime):
            return self._find_time(start)
        checkpoints = checkpoints and self._live is not None
        return find_start(self._path, self._meta, self._cursor, start, checkpoints=checkpoints)

    def _find_time(self, time: datetime) -> int:
        if self._live is None:
            return self._archive.find(time)
        # The living journal is asked first: what goes after this is archived before it goes.
        found = find_time(self._path, self._meta, timestamp_us_of(time), self._live.durable_only)
        archived = self._archive.first_at(self._archive.segments(), time)
        return found if archived is None else archived

    # --- Reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Records up to the end as it is when reading comes to it; iterate again to go on."""
        self._across.check_open()
        return Across(self._across, RecordIterator)

    def values(self) -> Iterator[bytes | None]:
        self._across.check_open()
        return Across(self._across, ValueIterator)

    def record_batches(
        self,
        *,
        max_records: int = 32_768,
        max_bytes: int = 64 << 20,
        columns: Iterable[str] | None = None,
        end: int | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        check_limits(max_records, max_bytes)
        self._across.check_open()
        names = None if columns is None else list(columns)

        def batches(cursor: Cursor) -> Iterator[pyarrow.RecordBatch]:
            return ArrowIterator(cursor, max_records, max_bytes, columns=names, end=end)

        return Across(self._across, batches, end)

    def follow(self, timeout: float | None = None, *, pace: float | None = None) -> Iterator[Record]:
        self._check_grows()
        replay = None if pace is None else Pace(pace)

        def following(cursor: Cursor) -> Iterator[Record]:
            return Following(cursor, timeout if cursor is self._live else 0, replay)

        return Across(self._across, following)

    def follow_async(self, timeout: float | None = None, *, pace: float | None = None) -> AsyncIterator[Record]:
        from jlog.reading.async_follow import AsyncFollowing

        self._check_grows()
        replay = None if pace is None else Pace(pace)

        def following(cursor: Cursor) -> AsyncIterator[Record]:
            return AsyncFollowing(cursor, timeout if cursor is self._live else 0, replay, self._waiters)

        return AsyncAcross(self._across, following)

    def _check_grows(self) -> None:
        self._across.check_open()
        if self._live is None:
            raise JournalError(
                f"{self._path} is an archive, which is not followed: read it up to its end; jlog.Reader(path, archive=True) "
                "follows the journal behind it"
            )

    def read(self, max_records: int = 10_000, max_bytes: int = 64 << 20, timeout: float | None = 0) -> RecordBatch:
        """An archive's end is not waited at."""
        check_limits(max_records, max_bytes)
        batch = self._across.read(max_records, max_bytes)
        if not len(batch) and timeout != 0 and self._across.current is self._live:
            deadline = Deadline(timeout)
            while not len(batch) and wait(self._live, deadline):
                batch = self._across.read(max_records, max_bytes)
        return batch

    def skip_damage(self) -> Damage:
        return self._across.skip_damage()

    def seek(self, to: Start) -> None:
        self._across.check_open()
        self._across.seek(self._find(to, checkpoints=False))

    # --- What it has not --------------------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> None:  # noqa: ARG002
        self._named_file()

    def _named_file(self) -> NoReturn:
        self._across.check_open()
        raise JournalError(
            f"{self._path}: a reader of what is archived commits nothing and sets no checkpoint; keep its position, and start "
            "there again"
        )


def _archive_of(path: str, archive: bool | str) -> Archive:
    found = archive_of(path, archive)
    if found is None:
        raise JournalError(f"{path} archives nothing; give the URL where it did, archive='file:///…', or read it without")
    return found


class ArchiveHoles(Holes):
    """Numbers that were never given out, between archived segments and, where it is there, in the living journal."""

    def __init__(self, path: str, uuid: bytes, archive: Archive, live: bool) -> None:
        super().__init__(path, uuid)
        self._archive = archive
        self._live = live

    def all(self) -> list[tuple[int, int]]:
        found = set(super().all()) if self._live else set()
        return sorted(found | set(self._archive.holes()))
