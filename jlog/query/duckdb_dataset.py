"""A scan as a dataset of pyarrow: DuckDB's Python client hands the columns and the conditions of a query to datasets alone. It
does not check these conditions itself any more. `scan` is a jlog.query.scan.Scan everywhere here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pyarrow.dataset

from jlog.query.bounds import EVERYTHING, LEAST, MOST, Bounds

_NOTHING = Bounds(sequences=(1, 0))


class ScanDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """Creates a scanner of the scan for each query. Other methods of a dataset do not work."""

    def __init__(self, scan: Any) -> None:
        self._scan = scan

    @property
    def schema(self) -> pyarrow.Schema:
        return self._scan.pyarrow_schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **_options: Any) -> ScanScanner:  # noqa: A002
        return ScanScanner(self._scan, columns, filter)


class ScanScanner(pyarrow.dataset.Scanner):  # type: ignore[misc]
    """Reads the records of one query, in the thread that takes them, and never more than a batch ahead."""

    def __init__(self, scan: Any, columns: list[str] | None, condition: Any) -> None:
        names, text = scan.names(), "" if condition is None else str(condition)
        self._columns = names if columns is None else columns
        self._condition = condition
        # The text of a condition has the names of all its columns.
        needed = [name for name in names if name in self._columns or re.search(rf"\b{name}\b", text)]
        bounds = EVERYTHING if condition is None else bounds_of(condition, scan.pyarrow_schema)
        self._scan = scan.narrowed(needed or ["sequence"], bounds)

    def to_reader(self) -> pyarrow.RecordBatchReader:
        schema = self._scan.pyarrow_schema
        wanted = pyarrow.schema([schema.field(name) for name in self._columns])
        return pyarrow.RecordBatchReader.from_batches(wanted, self._batches())

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        for batch in self._scan.pyarrow_batches():
            if self._condition is None:
                yield batch.select(self._columns)
            else:
                found = pyarrow.Table.from_batches([batch]).filter(self._condition)
                yield from found.select(self._columns).to_batches()


def bounds_of(condition: Any, schema: pyarrow.Schema) -> Bounds:
    """Returns the ranges that the records of the condition lie in. Arrow itself says of a range whether it may hold one, as it
    does for the parts of a partitioned dataset; so the condition may have any form."""
    form = pyarrow.dataset.IpcFileFormat()

    def may_hold(name: str, least: int, most: int) -> bool:
        column, kind = pyarrow.dataset.field(name), schema.field(name).type
        within = (column >= pyarrow.scalar(least, kind)) & (column <= pyarrow.scalar(most, kind))
        part = form.make_fragment(pyarrow.py_buffer(b""), partition_expression=within)
        dataset = pyarrow.dataset.FileSystemDataset([part], schema, form)
        return any(True for _ in dataset.get_fragments(condition))

    sequences = _range(lambda least, most: may_hold("sequence", least, most), 0, MOST)
    times_us = _range(lambda least, most: may_hold("timestamp", least, most), LEAST, MOST)
    return _NOTHING if sequences is None or times_us is None else Bounds(sequences, times_us)


def _range(may_hold: Callable[[int, int], bool], least: int, most: int) -> tuple[int, int] | None:
    """Returns the range of the values that may be held. What is left out on the way was asked for as a whole."""
    if not may_hold(least, most):
        return None
    first, last = least, most
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if may_hold(first, middle) else (middle + 1, last)
    least, last = first, most
    while least < last:
        middle = (least + last + 1) // 2
        least, last = (middle, last) if may_hold(middle, last) else (least, middle - 1)
    return first, last
