"""Narrows the reading by Spark's filters. A filter that is not understood is left to Spark, which filters all rows anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from jlog.query.bounds import EVERYTHING, compared, one_of
from jlog.spark.reading.columns import JOURNAL
from jlog.spark.reading.plan import Range

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

    def narrowed(self, wanted: Range) -> list[Range]:
        """Returns the parts of the range in which all records within the bounds are, in order."""
        if self._bounds.is_empty or (self._journals is not None and wanted.source.name not in self._journals):
            return []
        first, last = self._bounds.sequences
        start, end = max(wanted.start, first), min(wanted.end, last + 1)
        if start >= end or self._bounds.times_us == EVERYTHING.times_us:
            return [replace(wanted, start=start, end=max(start, end))]
        parts = wanted.source.time_ranges(self._bounds.times_us, start, end)
        cut = [(max(start, begin), end if until is None else min(end, until)) for begin, until in parts]
        return [replace(wanted, start=begin, end=until) for begin, until in cut if begin < until]

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
