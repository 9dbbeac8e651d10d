"""An archive that Spark reads by its URL. No process on the journal's host is needed for that."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import jlog
from jlog.archive import Archive, ArchivedSegment, indexes
from jlog.archive.manifest import gaps_between
from jlog.archive.store import ArchiveFolder
from jlog.errors import JournalNotFound
from jlog.reading.archived_records import ArchivedRecords
from jlog.reading.sources import in_columns
from jlog.record import fields_of
from jlog.spark.reading.options import EARLIEST, Bound
from jlog.spark.reading.spark_journal import lost, up_to

if TYPE_CHECKING:
    import pyarrow

# Between two listings, only the segment that would follow is asked for: a store charges for a listing by the number of files.
LISTING_SECONDS = 5.0
LISTING_PAUSE = 11  # the next listing comes no sooner than this many times the seconds that one took


class SparkArchive:
    """An archive alone, under its URL. Archived segments never change, and stand in order: what was listed stays true.

    planned: the segments that a task reads. They are pickled with it, so that no task lists the archive.
    """

    def __init__(self, name: str, path: str, planned: tuple[ArchivedSegment, ...] = ()) -> None:
        self.name = name
        self.path = path
        self._planned = planned
        self._archive: Archive | None = None
        self._numbers: list[int] = []  # the first sequences of the segments that were listed last
        self._listing_due = 0.0  # the time until which no listing is needed

    def __reduce__(self) -> tuple[type[SparkArchive], tuple[str, str, tuple[ArchivedSegment, ...]]]:
        return SparkArchive, (self.name, self.path, self._planned)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparkArchive) and (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def reader(self, sequence: int) -> TaskReader:
        """Opens a reader of the planned segments at this sequence."""
        return TaskReader(self._planned, sequence)

    def for_task(self, start: int, end: int) -> SparkArchive:
        """Returns the archive for a task that reads from `start` to before `end`."""
        # The segment before shows whether only a gap lies before the first one.
        return SparkArchive(self.name, self.path, tuple(self._around(start, end)))

    def _around(self, start: int, end: int, *, after: int = 0) -> list[ArchivedSegment]:
        """Returns the segments of this range, and so many after it. Names tell the sequences, so that the
        descriptions of the others are not read."""
        numbers = self._listed()
        first, last = bisect_right(numbers, start), bisect_left(numbers, end)
        return self._described(numbers[max(0, first - 1) : last + after])

    def _listed(self) -> list[int]:
        return self._numbers or self.look()

    def _described(self, numbers: list[int]) -> list[ArchivedSegment]:
        assert self._archive is not None
        return self._archive.described(numbers)

    def look(self) -> list[int]:
        """Looks for new segments, and returns the first sequences of all. Raises JournalNotFound where nothing is archived
        yet."""
        began = time.monotonic()
        if self._archive is not None and self._numbers and began < self._listing_due:
            self._numbers = self._archive.numbers_with_newer()
            return self._numbers
        if self._archive is None:
            self._archive = Archive(self.path)
            self._numbers = self._archive.listed()
        else:
            self._numbers = self._archive.numbers()
        took = time.monotonic() - began
        self._listing_due = began + max(LISTING_SECONDS, LISTING_PAUSE * took)
        if not self._numbers:
            raise JournalNotFound(f"{self.path} contains no archived segment", self.path)
        return self._numbers

    @property
    def newest(self) -> ArchivedSegment:
        """The newest of the segments that were listed last."""
        return self._described(self._listed()[-1:])[0]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was archived when the archive was listed last."""
        return not self._numbers

    def first_sequence(self) -> int:
        return self._listed()[0]

    def next_sequence(self) -> int:
        """Looks for new segments, and returns the archive's end."""
        self.look()
        return self.newest.end_sequence

    def retained_from(self, sequence: int, *, fail_on_data_loss: bool) -> int:
        """Returns this sequence, or the first one that is archived; or raises PositionLost then, with fail_on_data_loss."""
        if sequence >= self.first_sequence():
            return sequence
        (first,) = self._described(self._listed()[:1])
        if fail_on_data_loss and (first.previous_end_sequence is None or first.previous_end_sequence > sequence):
            raise lost(self.path, sequence, first.first_sequence)
        return first.first_sequence

    def find(self, bound: Bound, end: int) -> int:
        """Returns the sequence that a bound means. Raises ValueError for one beyond the end."""
        if isinstance(bound, datetime):
            assert self._archive is not None
            return min(end, self._archive.find(bound))
        return self.first_sequence() if bound == EARLIEST else up_to(self.path, bound, end)

    def time_ranges(self, times_us: tuple[int, int], start: int, end: int) -> list[tuple[int, int | None]]:
        """Returns ranges of sequences from `start` to `end` outside of which no record has a time within these."""
        assert self._archive is not None
        return indexes.time_ranges(self._archive.folder, self._around(start, end), times_us)

    def segments_between(self, sequence: int, end: int) -> list[ArchivedSegment]:
        """Returns the segments from this sequence up to `end`, oldest first."""
        if self.newest.end_sequence < end:
            self.look()
        found = self._around(sequence, end)
        return [segment for segment in found if segment.end_sequence > sequence and segment.first_sequence < end]

    def gaps(self, start: int, end: int) -> set[tuple[int, int]]:
        """Returns the gaps between archived segments that reach into this range: first sequence and next sequence of each."""
        return set(gaps_between(self._around(start, end, after=1)))

    # --- Offsets of streams -------------------------------------------------------------------------------------------

    def history(self, sequence: int) -> tuple[str, int | None]:
        """Returns the journal's uuid, and the epoch of the record before this position."""
        numbers = self._listed()
        at = max(0, bisect_left(numbers, sequence) - 1)
        (segment,) = self._described(numbers[at : at + 1])
        return segment.uuid, segment.epoch

    def kept(self, source_position: dict[str, Any], end: int) -> tuple[int, str]:
        """Returns the end of the records that the query has had and the archive, which ends at `end`, still has; and the reason
        why it has no more of them."""
        uuid, epoch = self.history(int(source_position["sequence"]))
        if source_position["uuid"] != uuid:
            return 0, "it is the archive of another journal now"
        is_inside = self.first_sequence() < source_position["sequence"] <= end
        if is_inside and source_position["epoch"] != epoch:
            return 0, "another copy of the journal is archived there now"
        return end, "its newest segments are gone"


class TaskArchive(Archive):
    """An archive that has these segments and no others."""

    def __init__(self, segments: Iterable[ArchivedSegment]) -> None:
        self._known = {segment.first_sequence: segment for segment in segments}
        first = next(iter(self._known.values()))
        self._names: dict[str, int | None] = {}
        self.folder: ArchiveFolder = ArchiveFolder(first.path.rpartition("/")[0])
        self._uuid = bytes.fromhex(first.uuid)

    def numbers(self) -> list[int]:
        return self.listed()

    def listed(self) -> list[int]:
        return sorted(self._known)


class TaskReader:
    """Reads a task's segments from this sequence on, without listing the archive again. Has the methods of a Reader that a task
    needs."""

    def __init__(self, segments: Iterable[ArchivedSegment], start: int) -> None:
        archive = TaskArchive(segments)
        self._records = ArchivedRecords(archive.url, archive, durable_only=False)
        self.seek(start)

    @property
    def position(self) -> int:
        return self._records.cursor.position

    def seek(self, sequence: int) -> None:
        self._records.cursor.seek(sequence)

    def record_batches(
        self, *, max_records: int, max_bytes: int, columns: Iterable[str], end: int
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        return in_columns(self._records, fields_of(columns), end, max_records, max_bytes, convert=pyarrow.record_batch)

    def skip_damage(self) -> jlog.Damage:
        return self._records.skip_damage()

    def __enter__(self) -> TaskReader:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self._records.cursor.close()
