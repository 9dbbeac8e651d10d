"""Narrows the reading by Spark's filters. A filter that is not understood is left to Spark, which filters all rows anyway."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from jlog.positions.names import timestamp_us_of
from jlog.spark.reading.columns import JOURNAL
from jlog.spark.reading.plan import Range
from jlog.storage.segments import time_of

if TYPE_CHECKING:
    import pyarrow

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class FilterBounds:
    """The bounds of all filters together: lowest and highest sequence, earliest and latest time, and names of journals."""

    def __init__(self) -> None:
        self._sequences = (_LEAST, _MOST)
        self._times_us = (_LEAST, _MOST)
        self._time_column: str | None = None
        self._journals: frozenset[str] | None = None

    def add(self, given: Filter) -> None:
        name = getattr(given, "attribute", ("",))
        column = name[0].lower() if len(name) == 1 else ""
        values = _values(given)
        if column == JOURNAL and isinstance(given, (EqualTo, In)):
            wanted = frozenset(values)
            self._journals = wanted if self._journals is None else self._journals & wanted
        elif column == "sequence" and _are(values, int):
            self._sequences = _both(self._sequences, _between(given, values))
        elif column == "timestamp" and _are(values, datetime):
            self._time_column = name[0]
            self._times_us = _both(self._times_us, _between(given, [timestamp_us_of(one) for one in values]))

    def narrowed(self, wanted: Range) -> Range:
        """Narrows the range. An earlier record may have a later timestamp where writers give the timestamps: only the records
        before the first one that is late enough can be left out."""
        if self._journals is not None and wanted.source.name not in self._journals:
            return replace(wanted, end=wanted.start)
        start = max(wanted.start, self._sequences[0])
        end = min(wanted.end, self._sequences[1] + 1)
        since = time_of(self._times_us[0]) if self._times_us[0] > 0 else None
        if since is not None and start < end:
            start = max(start, wanted.source.find(since, end))
        return replace(wanted, start=start, end=max(start, end))

    def among(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Drops the records that are too early or too late, which need not go to Java."""
        if self._time_column is None or not batch.num_rows:
            return batch
        import pyarrow
        import pyarrow.compute as compute

        times_us = batch.column(self._time_column).cast(pyarrow.int64())
        first, last = compute.min_max(times_us).as_py().values()
        if self._times_us[0] <= first and last <= self._times_us[1]:
            return batch
        low, high = self._times_us
        return batch.filter(compute.and_(compute.greater_equal(times_us, low), compute.less_equal(times_us, high)))


def _values(given: Filter) -> list[Any]:
    if isinstance(given, In):
        return list(given.value)
    known = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    return [given.value] if isinstance(given, known) else []


def _are(values: list[Any], kind: type) -> bool:
    return bool(values) and all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _between(given: Filter, values: list[int]) -> tuple[int, int]:
    low, high = min(values), max(values)
    if isinstance(given, GreaterThan):
        return low + 1, _MOST
    if isinstance(given, GreaterThanOrEqual):
        return low, _MOST
    if isinstance(given, LessThan):
        return _LEAST, high - 1
    return (_LEAST, high) if isinstance(given, LessThanOrEqual) else (low, high)


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])
