"""A journal that Spark reads: where it begins and ends, and its segments."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import jlog
from jlog.archive import Archive, ArchivedSegment, archive_of
from jlog.errors import JournalNotFound, PositionLost
from jlog.spark.reading.options import EARLIEST, LATEST, Bound
from jlog.storage.epochs import ForeignPosition
from jlog.storage.gaps import Gaps
from jlog.storage.meta import MetaReader, read_meta
from jlog.storage.segments import Segment, end_now, segments_now
from jlog.system.filesystem import LOCAL, OVERRIDE, type_of


@dataclass(frozen=True)
class SparkJournal:
    """A journal under the name that the column `journal` and the offsets have: its path, or below a root the path from
    there."""

    name: str
    path: str
    archive: bool | str = False  # the argument `archive` of a Reader

    def __reduce__(self) -> tuple[type[SparkJournal], tuple[str, str, bool | str]]:
        return SparkJournal, (self.name, self.path, self.archive)

    @cached_property
    def _archived(self) -> Archive | None:
        """The journal's archive, if it has one. It remembers the descriptions of segments that it has read."""
        return archive_of(self.path, self.archive) if self.archive else None

    def reader(self, sequence: int) -> jlog.Reader:
        """Opens a reader at this sequence."""
        return jlog.Reader(self.path, start=sequence, archive=self.archive)

    def for_task(self, start: int, end: int) -> SparkJournal:  # noqa: ARG002
        """Returns the journal for a task that reads from `start` to before `end`."""
        return self

    def retained_from(self, sequence: int, *, fail_on_data_loss: bool) -> int:
        """Returns this sequence, or the oldest retained one where retention has removed it; or raises PositionLost then, with
        fail_on_data_loss."""
        if jlog.Journal(self.path).first_sequence <= sequence:
            return sequence  # without a look at the archive
        try:
            with self.reader(sequence) as reader:
                return reader.position
        except PositionLost as error:
            if fail_on_data_loss:
                raise lost(self.path, sequence, error.first_sequence) from None
            return error.first_sequence

    def first_sequence(self) -> int:
        # The living journal is asked first: a segment that is removed after this has been archived before.
        first = jlog.Journal(self.path).first_sequence
        try:
            return first if self._archived is None else self._archived.first_sequence
        except JournalNotFound:
            return first  # the archive is empty yet

    @cached_property
    def _meta(self) -> MetaReader:
        return MetaReader(self.path)

    def next_sequence(self) -> int:
        """Returns the end of all records."""
        return end_now(self.path, self._meta.read().uuid)

    def synced_end(self) -> int:
        """Returns the end, up to which the journal is synced now. Needs to write to the journal."""
        end = self.next_sequence()
        if self.durable_end() >= end:
            return end  # without becoming a process that writes to it
        with jlog.Reader(self.path, start="end") as reader:
            reader.sync()
            return reader.position

    def durable_end(self) -> int:
        """Returns the end of the records that are known to be synced. Only reads."""
        return end_now(self.path, self._meta.read().uuid, durable_only=True)

    @cached_property
    def reason_against_writing(self) -> str | None:
        """The reason why this process cannot write to the journal; None where it can."""
        host = socket.gethostname()
        kind = type_of(self.path)
        if kind and kind not in LOCAL and not os.environ.get(OVERRIDE):
            return f"on {host} it is on {kind}, and a journal is written on its own host only"
        names = ["", "bounds", "lock", "precommit", "subscribers"]
        paths = [path for name in names if os.path.exists(path := os.path.join(self.path, name))]
        if all(os.access(path, os.W_OK) for path in paths):
            return None
        if os.statvfs(self.path).f_flag & os.ST_RDONLY:
            return f"on {host} it is mounted read-only"
        return f"on {host} the user {os.geteuid()}, as whom Spark's driver runs, may not write to it"

    def find(self, bound: Bound, end: int) -> int:
        """Returns the sequence that a bound means. Raises PositionLost if retention has removed it, ValueError for one beyond
        the end."""
        if isinstance(bound, datetime):
            with jlog.Reader(self.path, archive=self.archive) as reader:
                reader.seek(bound)
                return min(end, reader.position)
        return self.first_sequence() if bound == EARLIEST else up_to(self.path, bound, end)

    def time_ranges(self, times_us: tuple[int, int], start: int, end: int) -> list[tuple[int, int | None]]:  # noqa: ARG002
        """Returns ranges of sequences outside of which no record has a time within these, as Reader.time_ranges() does."""
        with jlog.Reader(self.path, archive=self.archive) as reader:
            return reader.time_ranges(times_us)

    def segments_between(self, sequence: int, end: int) -> list[Segment | ArchivedSegment]:
        """Lists the segments from this sequence up to `end`, oldest first."""
        live = segments_now(self.path, read_meta(self.path), sequence, end)
        first = live[0].first_sequence
        if first <= sequence or self._archived is None:
            return [*live]
        # The living journal is asked first: a segment that is removed after this has been archived before.
        return [*self._archived.between(sequence, first), *live]

    def gaps(self, start: int, end: int) -> set[tuple[int, int]]:
        """Returns the gaps that reach into this range, also those of the archive: first sequence and next sequence of each."""
        # The living journal is asked first: a segment that is removed after this has been archived before.
        is_whole = self._archived is None or jlog.Journal(self.path).first_sequence <= start
        found = set(Gaps(self.path, read_meta(self.path).uuid).between(start, end))
        return found if is_whole or self._archived is None else found | set(self._archived.gaps())

    # --- Offsets of streams -------------------------------------------------------------------------------------------

    def history(self, sequence: int) -> tuple[str, int]:
        """Returns the journal's uuid, and the epoch that a position has."""
        position = ForeignPosition.of(self._meta.read(), sequence)
        return position.uuid, position.epoch

    def kept(self, source_position: dict[str, Any], end: int) -> tuple[int, str]:
        """Returns the end of the records that the query has had and the journal, which ends at `end`, still has; and the reason
        why it has no more of them."""
        shared = ForeignPosition.from_fields(source_position).shared_with(self._meta.read())
        return min(shared.end, end), shared.reason or "it has lost its tail, or is another copy"


def up_to(path: str, bound: Bound, end: int) -> int:
    """Returns the end, or a sequence that is not beyond it."""
    if bound == LATEST:
        return end
    assert isinstance(bound, int)
    if bound > end:
        raise ValueError(f"{path} ends at sequence {end}; {bound} is beyond it")
    return bound


def lost(path: str, start: int, there: int) -> PositionLost:
    return PositionLost(
        f"{path}: the records from {start} to {there - 1} are gone: retention has removed them, or they were never "
        f"archived. The option failOnDataLoss=false goes on at {there}; a subscriber keeps what it has not read",
        there,
    )
