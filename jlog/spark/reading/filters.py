"""Narrows the reading by Spark's filters. A filter that is not understood is left to Spark, which filters all rows anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from jlog.query.bounds import EVERYTHING, compared, one_of
from jlog.spark.reading.columns import JOURNAL
from jlog.spark.reading.plan import Range
from jlog.system.clock import time_of

if TYPE_CHECKING:
    import pyarrow

OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


class FilterBounds:
    """The bounds of all filters together: lowest and highest sequence, earliest and latest time, and names of journals."""

    def __init__(self) -> None:
        self._bounds = EVERYTHING
        self._time_column: str | None = None
        self._journals: frozenset[str] | None = None

    def add(self, given: Filter) -> None:
        if not isinstance(given, (In, *OPERATORS)):
            return
        known: Any = given  # has an attribute and a value, as each of these
        column = known.attribute[0].lower() if len(known.attribute) == 1 else ""
        if column == JOURNAL and isinstance(given, (EqualTo, In)):
            wanted = frozenset(known.value if isinstance(given, In) else [known.value])
            self._journals = wanted if self._journals is None else self._journals & wanted
        elif isinstance(given, In):
            self._bounds = self._bounds.both(one_of(column, list(known.value)))
        else:
            self._bounds = self._bounds.both(compared(column, OPERATORS[type(given)], known.value))
        if column == "timestamp":
            self._time_column = known.attribute[0]

    def narrowed(self, wanted: Range) -> Range:
        """Narrows the range. An earlier record may have a later timestamp where writers give the timestamps: only the records
        before the first one that is late enough can be left out."""
        if self._journals is not None and wanted.source.name not in self._journals:
            return replace(wanted, end=wanted.start)
        first, last = self._bounds.sequences
        start, end = max(wanted.start, first), min(wanted.end, last + 1)
        since = time_of(self._bounds.times_us[0]) if self._bounds.times_us[0] > 0 else None
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
        low, high = self._bounds.times_us
        if low <= first and last <= high:
            return batch
        return batch.filter(compute.and_(compute.greater_equal(times_us, low), compute.less_equal(times_us, high)))
