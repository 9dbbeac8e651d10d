"""Reads on after damage, forward and backward, for `dump`, `tail` and `read`."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

import jlog
from jlog.archive import Archive
from jlog.cli.arguments.parameters import PositionArgument
from jlog.cli.process import DAMAGED
from jlog.cli.terminal.output import complain
from jlog.errors import CorruptJournal, PositionLost
from jlog.storage.damage import past_damage
from jlog.urls import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jlog.cli.records.matching import Records

Item = TypeVar("Item")

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20
LOOK_EVERY = 1.0  # seconds between two looks at whether the reader of the output is still there
PIECE_BYTES = 64 << 20  # bytes that reading backward holds at once, unless one record is larger


class Reading:
    """Reads records and goes on after damage, with a line on stderr for each damaged place."""

    def __init__(self, reader: jlog.ReaderProtocol) -> None:
        self.reader = reader
        self._damage: set[tuple[str, int]] = set()

    def batch(self, max_records: int = BATCH_RECORDS, timeout: float | None = 0) -> jlog.RecordBatchProtocol:
        """Returns the next records; an empty batch where none came within `timeout` seconds."""
        return next(self._past_damage(lambda: self.reader.read(min(max_records, BATCH_RECORDS), BATCH_BYTES, timeout)))

    def _past_damage(self, read: Callable[[], Item | None]) -> Iterator[Item]:
        return past_damage(read, self.reader.skip_damage if isinstance(self.reader, jlog.Reader) else None, self._report)

    def _report(self, damage: jlog.Damage) -> None:
        if (damage.path, damage.offset) not in self._damage:
            self._damage.add((damage.path, damage.offset))
            report_damage(damage)

    def forward(self, end: int, limit: int = sys.maxsize, needle: bytes | None = None) -> Iterator[Records]:
        """Yields the records from the position to before `end`, in batches; `limit` keeps the first one small. With a needle,
        it may leave out any record whose value does not have these bytes."""
        if needle is not None and isinstance(self.reader, jlog.Reader):
            reader = self.reader
            yield from self._past_damage(lambda: next(reader.batches_with(needle, end, BATCH_RECORDS, BATCH_BYTES), None))
            return
        while self.reader.position < end:
            batch = self.batch(min(end - self.reader.position, limit))
            if not len(batch):
                return
            # After damage, or in a topic, sequences may be missing: then so many records reach beyond the end.
            yield batch if self.reader.position <= end else [record for record in batch if record.sequence < end]

    def backward(self, start: int, end: int, gaps: Sequence[tuple[int, int]]) -> Iterator[list[jlog.RecordProtocol]]:
        """Yields the records from `start` to before `end` in pieces, newest first. `gaps` are the gaps between them."""
        wanted = 16
        while start < end:
            begin = max(start, sequence_before(end, wanted, gaps))
            try:
                found = self._between(begin, end)
            except PositionLost:
                return  # retention has removed the older records
            if found is None:
                wanted = max((end - begin) // 2, 1)
                continue
            yield found[::-1]
            wanted = min(wanted * 2, BATCH_RECORDS)
            end = begin

    def _between(self, begin: int, end: int) -> list[jlog.RecordProtocol] | None:
        """Returns None where the records are too large to be held at once."""
        found: list[jlog.RecordProtocol] = []
        held = 0
        self.reader.seek(begin)
        while self.reader.position < end and len(batch := self.batch(end - self.reader.position)):
            found += [record for record in batch if begin <= record.sequence < end]
            held += sum(len(record.value or b"") for record in batch)
            if held > PIECE_BYTES and len(found) > 1:
                return None
        return found

    def finish(self) -> None:
        """Ends the command with exit code 3 if there was damage."""
        if self._damage:
            raise click.exceptions.Exit(DAMAGED)


def open_reader(journal: Place, start: PositionArgument) -> jlog.ReaderProtocol:
    """Opens an anonymous reader of a journal, a topic or an archive."""
    if journal.is_archive:
        return jlog.Reader(journal, start=start)
    return jlog.open_reader(journal, start=start)


def sequence_at(journal: Place, position: PositionArgument, near: jlog.ReaderProtocol | None = None) -> int:
    """Returns the sequence of --to, and the end as it is now for `end`, so that the output of a growing journal ends too.
    near: a reader of the journal, whose block is not read again for a time that lies in it."""
    if isinstance(position, int):
        return position
    if isinstance(position, datetime) and isinstance(near, jlog.Reader):
        before = near.position
        near.seek(position)
        found = near.position
        near.seek(before)
        return found
    try:
        with open_reader(journal, start=position) as reader:
            return reader.position
    except CorruptJournal:
        if position != "end":
            raise
        return sys.maxsize  # the damage is reported when reading comes there


def gaps_of(journal: Place) -> list[tuple[int, int]]:
    """Lists the gaps of a journal or an archive, which may be large after a power loss. The small ones of a topic do not matter
    when records are searched."""
    if journal.is_archive:
        return Archive(journal).gaps()
    return [] if journal.is_topic else jlog.Journal(journal).gaps()


def seek_kept(reader: jlog.ReaderProtocol, sequence: int) -> None:
    """Goes to the sequence, or to the first retained one where that is higher."""
    while True:
        reader.seek("begin")
        try:
            reader.seek(max(sequence, reader.position))
        except PositionLost:
            continue  # removed in the meantime
        return


def sequence_before(end: int, records: int, gaps: Sequence[tuple[int, int]]) -> int:
    """Returns the sequence so many records before `end`, which is negative where there are fewer."""
    start = end - records
    for first, following in reversed(gaps):
        if start < following <= end:
            start -= following - first
    return start


def report_damage(damage: jlog.Damage) -> None:
    complain(f"{damage.path}: damaged at byte {damage.offset}: {damage.reason}; {_lost(damage)}")


def _lost(damage: jlog.Damage) -> str:
    first, count = damage.first_sequence, damage.records_lost
    if count == 0:
        return "no record is lost"
    if count == 1:
        return f"record {first} is lost"
    return f"records {first} to {first + count - 1} are lost"
