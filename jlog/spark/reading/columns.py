"""The columns that Spark wants, and Arrow batches that have exactly those."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

JOURNAL = "journal"

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "sequence": LongType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "headers": ArrayType(_HEADER),
    JOURNAL: StringType(),
}
_ARROW = {
    "sequence": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    JOURNAL: pa.string(),
}


class OutputColumns:
    """The columns of the user's schema, or all. Raises ValueError for a column that a journal does not have."""

    def __init__(self, schema: StructType) -> None:
        self._names = [_known(field) for field in schema.fields]
        self._schema = pa.schema(
            [pa.field(field.name, _ARROW[name], field.nullable) for field, name in zip(schema.fields, self._names, strict=True)]
        )
        self._journals = pa.nulls(0, pa.string())

    @property
    def of_records(self) -> list[str]:
        """Returns the columns to ask the reader for; at least one, to count the records by."""
        found = [name for name in self._names if name != JOURNAL]
        return list(dict.fromkeys(found)) or ["sequence"]

    @property
    def are_known_without_reading(self) -> bool:
        """Whether the sequences are enough for these columns."""
        return set(self._names) <= {"sequence", JOURNAL}

    def exactly(self, batch: pa.RecordBatch, journal: str) -> pa.RecordBatch:
        if batch.schema.equals(self._schema):
            return batch
        if not self._names:  # Spark only counts the rows
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), batch.num_rows, [None]))
        arrays = [self._journal(journal, batch.num_rows) if name == JOURNAL else batch.column(name) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _journal(self, name: str, rows: int) -> pa.Array:
        """Builds the column `journal` only once, for it is the same in every batch but the last."""
        known = self._journals
        if len(known) < rows or known[0].as_py() != name:
            text = name.encode()
            buffers = [None, pa.py_buffer(array("i", [0, len(text)])), pa.py_buffer(text)]
            one = pa.Array.from_buffers(pa.string(), 1, buffers)
            self._journals = known = one.take(pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(bytes(rows))]))
        return known.slice(0, rows)


def integers(values: Iterable[int]) -> pa.Array:
    """Does what `pa.array` does, which would first import pandas in each of Spark's Python processes. That takes 0.3 s."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _known(field: StructField) -> str:
    name = field.name.lower()
    if name not in _TYPES:
        there = ", ".join(f"{known} {kind.simpleString()}" for known, kind in _TYPES.items())
        raise ValueError(f"a journal has no column {field.name}; it has {there}")
    if isinstance(field.dataType, TimestampNTZType) and name == "timestamp":
        raise ValueError(
            "column timestamp is timestamp_ltz: a schema names it so where spark.sql.timestampType is TIMESTAMP_NTZ, for there "
            "timestamp means one without a time zone"
        )
    if field.dataType != _TYPES[name]:
        raise ValueError(
            f"column {field.name} is {_TYPES[name].simpleString()}, not {field.dataType.simpleString()}; read it as it is, and "
            "cast it: frame.selectExpr('cast(value as string)')"
        )
    if not field.nullable and name in ("key", "value", "headers"):
        raise ValueError(f"column {field.name} may be null; leave NOT NULL out of the schema")
    return name
