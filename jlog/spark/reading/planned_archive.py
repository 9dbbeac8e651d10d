"""Reads the archived segments that a task was given, without listing the archive again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

import jlog
from jlog.archive import Archive, ArchivedSegment
from jlog.archive.store import ArchiveFolder
from jlog.reading.archived_records import ArchivedRecords

if TYPE_CHECKING:
    import pyarrow


class PlannedArchive(Archive):
    """An archive that has these segments and no others."""

    def __init__(self, segments: Iterable[ArchivedSegment]) -> None:
        self._known = {segment.first_sequence: segment for segment in segments}
        first = next(iter(self._known.values()))
        self._names: dict[str, int | None] = {}
        self._folder = ArchiveFolder(first.path.rpartition("/")[0])
        self._uuid = bytes.fromhex(first.uuid)

    def _numbers(self) -> list[int]:
        return self._listed()

    def _listed(self) -> list[int]:
        return sorted(self._known)


class PlannedReader:
    """Reads the segments from this sequence on, with the methods of a Reader that a task needs."""

    def __init__(self, segments: Iterable[ArchivedSegment], start: int) -> None:
        archive = PlannedArchive(segments)
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
        return self._records.record_batches(max_records, max_bytes, columns, end)

    def skip_damage(self) -> jlog.Damage:
        return self._records.skip_damage()

    def __enter__(self) -> PlannedReader:  # noqa: PYI034
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._records.cursor.close()
