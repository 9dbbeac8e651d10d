"""How far a stream lags behind in each journal, for the progress that Spark reports."""

from __future__ import annotations

import time
from typing import Any

from jlog.spark.reading.ends import End
from jlog.spark.reading.plan import Range
from jlog.spark.reading.sources import SparkSource
from jlog.spark.reading.spark_archive import SparkArchive


class Backlogs:
    """Remembers the ends of the planned batches. Counts the records after them only when these have changed."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._counted: dict[str, tuple[Range, dict[str, int]]] = {}

    def note(self, reached: dict[str, int]) -> None:
        self._reached.update(reached)

    def report(self, source: SparkSource, end: End) -> dict[str, Any]:
        """Returns the fields that the journal has in the progress, beside its position."""
        start = self._reached.get(source.name)
        found: dict[str, Any] = {}
        if start is not None:
            found.update(self._behind(Range(source, min(start, end.durable), end.durable)))
        if end.next_sequence > end.durable:
            found["recordsNotDurable"] = end.next_sequence - end.durable
        if isinstance(source, SparkArchive) and not source.is_empty:
            newest_us = source.newest.last_timestamp_us
            found["newestRecordAgeSeconds"] = None if newest_us is None else round(time.time() - newest_us / 1e6, 3)
        return found

    def _behind(self, wanted: Range) -> dict[str, int]:
        known = self._counted.get(wanted.source.name)
        if known is None or known[0] != wanted:
            records, size_bytes = size_of(wanted)
            counted = {"recordsBehindLatest": records, "bytesBehindLatest": size_bytes}
            known = self._counted[wanted.source.name] = (wanted, counted)
        return known[1]


def size_of(wanted: Range) -> tuple[int, int]:
    """Counts the records that are still there, and their share of the segments' bytes."""
    records, size_bytes = 0, 0.0
    if wanted.start < wanted.end:
        for segment in wanted.source.segments_between(wanted.start, wanted.end):
            count = min(wanted.end, segment.end_sequence) - max(wanted.start, segment.first_sequence)
            if count > 0:
                records += count
                size_bytes += segment.size_bytes * count / segment.records
    return records, round(size_bytes)
