"""The records of a journal, from a position on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import FollowIterator, wait
from jlog._core.read.iterate import RecordIterator
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import Deadline
from jlog.errors import PositionLost
from jlog.positions import position_files
from jlog.positions.names import Start, resolved
from jlog.positions.position_files import CHECKPOINT
from jlog.positions.start import Range, find_start, time_ranges
from jlog.storage.damage import Damage, skip_damage
from jlog.storage.gaps import Gaps
from jlog.storage.meta import Meta, hold_journal, unless_deleted
from jlog.system.files import HeldPath
from jlog.system.filesystem import journal_path

if TYPE_CHECKING:
    from jlog.reading.event_loops import Waiter
    from jlog.reading.pace import Pace

Item = TypeVar("Item")


class JournalRecords:
    """The source of a Reader that reads a journal alone."""

    # The reason why a reader without a name commits nothing here, and what to do instead.
    no_position = "an anonymous reader commits nothing; open it with a name, jlog.Reader(path, 'billing')"

    def __init__(self, path: str | os.PathLike[str], *, durable_only: bool) -> None:
        self.path: str
        self.meta: Meta
        self.path, self.meta = hold_journal(journal_path(path))
        with unless_deleted(self.path, self.meta):
            self.cursor: Cursor = Cursor(self.path, self.meta.uuid, durable_only=durable_only)
        self.gaps: Gaps = Gaps(self.path, self.meta.uuid)

    def close(self) -> None:
        """Lets go of the directory, once no call uses it any more."""
        self.path = self.gaps.path = str(self.path)

    def check_path(self) -> None:
        """Raises JournalMoved where the path does not lead to this journal any more."""
        path = self.path  # close() replaces it
        if isinstance(path, HeldPath):
            path.check()

    def go_to(self, start: Start, *, checkpoints: bool = True) -> None:
        """Moves the position. A checkpoint's name counts only with `checkpoints`."""
        start = resolved(start)
        while True:
            try:
                with unless_deleted(self.path, self.meta):
                    sequence = find_start(self.path, self.meta, self.cursor, start, checkpoints=checkpoints)
                    return self.cursor.seek(sequence)
            except PositionLost:
                if start != "begin" and not isinstance(start, datetime):
                    raise  # else retention has just removed what was found

    def put_checkpoint(self, name: str, sequence: int, deadline: Deadline) -> None:
        """Creates the checkpoint, or moves it, durably."""
        with position_files.table_locked(self.path, deadline):
            self.cursor.kept(sequence)
            position_files.put(self.path, self.meta, CHECKPOINT, name, sequence)

    def time_ranges(self, times_us: tuple[int, int]) -> list[Range]:
        """Returns what positions.start.time_ranges() does, and moves the position as it does."""
        return time_ranges(self.path, self.meta, times_us, self.cursor)

    def records(self) -> Iterator[Record]:
        return RecordIterator(self.cursor)

    def iterate(self, kind: Callable[[Cursor], Iterator[Item]], end: int | None = None) -> Iterator[Item]:  # noqa: ARG002
        """Iterates over what `kind` hands out of a cursor, such as ValueIterator, up to the end as it is now. For an archive
        `end` is the sequence before which `kind` ends, if it does."""
        return kind(self.cursor)

    def follow(self, timeout: float | None, pace: Pace | None) -> Iterator[Record]:
        return FollowIterator(self.cursor, timeout, pace)

    def follow_async(self, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> AsyncIterator[Record]:
        from jlog.reading.async_follow import AsyncFollowIterator  # imports asyncio, which most programs do not need

        return AsyncFollowIterator(self.cursor, timeout, pace, waiters)

    def read(self, max_records: int, max_bytes: int, timeout: float | None) -> RecordBatch:
        batch = self.cursor.read(max_records, max_bytes)
        if len(batch):
            return batch
        self.check_path()
        if timeout != 0:
            deadline = Deadline(timeout)
            while not len(batch) and wait(self.cursor, deadline):
                batch = self.cursor.read(max_records, max_bytes)
        return batch

    def skip_damage(self) -> Damage:
        return skip_damage(self.cursor)
