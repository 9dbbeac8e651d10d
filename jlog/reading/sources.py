"""The source that a Reader takes its records from: a journal, an archive, or both one after the other."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from jlog._core.read.arrow import ArrowIterator
from jlog._core.read.cursor import Cursor
from jlog._core.records.arrow import ArrowBatch, Field
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import Deadline
from jlog.errors import CorruptJournal, JournalClosed
from jlog.positions.names import Start
from jlog.positions.start import Range
from jlog.storage.damage import Damage
from jlog.storage.gaps import Gaps

if TYPE_CHECKING:
    from jlog.archive.cursor import ArchiveCursor
    from jlog.reading.event_loops import Waiter
    from jlog.reading.pace import Pace

Item = TypeVar("Item")


class RecordSource(Protocol):
    """A position among records, and each way to hand them out from there. The Reader checks the arguments."""

    path: str
    no_position: str  # the reason why a reader without a name commits nothing here, and what to do instead

    @property
    def cursor(self) -> Cursor | ArchiveCursor: ...
    @property
    def gaps(self) -> Gaps: ...

    def go_to(self, start: Start, *, checkpoints: bool = True) -> None:
        """Moves the position. A checkpoint's name counts only with `checkpoints`."""

    def time_ranges(self, times_us: tuple[int, int]) -> list[Range]:
        """Returns ranges of sequences, ascending, outside of which no record has a time from the first to the last of
        `times_us`. Each reads no more than these."""

    def put_checkpoint(self, name: str, sequence: int, deadline: Deadline) -> None:
        """Creates the checkpoint, or moves it, durably."""

    def records(self) -> Iterator[Record]: ...
    def iterate(self, kind: Callable[[Cursor], Iterator[Item]], end: int | None = None) -> Iterator[Item]:
        """Iterates over what `kind` hands out of a cursor, such as ValueIterator, up to the end as it is now. For an archive
        `end` is the sequence before which `kind` ends, if it does."""

    def follow(self, timeout: float | None, pace: Pace | None) -> Iterator[Record]: ...
    def follow_async(self, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> AsyncIterator[Record]: ...
    def read(self, max_records: int, max_bytes: int, timeout: float | None) -> RecordBatch: ...
    def skip_damage(self) -> Damage: ...
    def close(self) -> None:
        """Lets go of what only the source holds, once its cursor is closed."""


def in_columns(
    source: RecordSource,
    fields: Sequence[Field],
    end: int | None,
    max_records: int,
    max_bytes: int,
    *,
    needle: bytes | None = None,
    convert: Callable[[ArrowBatch], Item] | None = None,
) -> Iterator[Item]:
    """Iterates over records in columns, up to the end as it is now or to the sequence `end`. With a needle, it may leave out
    any record whose value does not have these bytes. `convert` turns an ArrowBatch into what is handed out, and the position
    moves only after that; without it, ArrowBatches are handed out."""

    def batches(cursor: Cursor) -> Iterator[Item]:
        return ArrowIterator(cursor, max_records, max_bytes, fields, end=end, needle=needle, convert=convert)

    return source.iterate(batches, end)


def seek_before_the_end(source: RecordSource, sequence: int) -> None:
    """Goes to a sequence at which there is a record, or the end. Raises CorruptJournal where the blocks end before it."""
    try:
        source.cursor.seek(sequence)
    except JournalClosed:  # a ValueError too
        raise
    except ValueError as error:
        page = os.path.join(source.path, "precommit")
        raise CorruptJournal(page, 0, f"it states that records follow the last block: {error}") from None
