"""The source that a Reader takes its records from: a journal, an archive, or both one after the other.

A source is a position among records, with each way to hand them out from there. The Reader checks the arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from jlog._core.read.cursor import Cursor
from jlog._core.read.iterate import ArrowIterator
from jlog._core.records.arrow import ArrowBatch, Field
from jlog.errors import CorruptJournal, JournalClosed

if TYPE_CHECKING:
    from jlog.reading.archived_records import ArchivedRecords
    from jlog.reading.journal_records import JournalRecords

    RecordSource = JournalRecords | ArchivedRecords

Item = TypeVar("Item")


def in_columns(
    source: RecordSource,
    fields: Sequence[Field],
    end: int | None,
    max_records: int,
    max_bytes: int,
    *,
    needle: bytes | None = None,
    convert: Callable[[ArrowBatch], Item] | None = None,
    stand_in_us: int | None = None,
) -> Iterator[Item]:
    """Iterates over records in columns, up to the end as it is now or to the sequence `end`. With a needle, it may leave out
    any record whose value does not have these bytes. `convert` turns an ArrowBatch into what is handed out, and the position
    moves only after that; without it, ArrowBatches are handed out. `stand_in_us`: as of ArrowIterator."""

    def batches(cursor: Cursor) -> Iterator[Item]:
        return ArrowIterator(
            cursor, max_records, max_bytes, fields, end=end, needle=needle, convert=convert, stand_in_us=stand_in_us
        )

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
