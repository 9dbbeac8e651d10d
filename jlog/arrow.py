"""A journal's records in Arrow: for Parquet, for pyarrow.dataset, and for every engine that takes Arrow.

Writer.extend_arrow appends records from Arrow. Needs pyarrow: pip install 'pyjlog[arrow]'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jlog._core.records.columns import check_columns, import_pyarrow, schema
from jlog.reading.reader import Reader

if TYPE_CHECKING:
    import pyarrow
else:
    pyarrow = import_pyarrow()

SCHEMA: pyarrow.Schema = schema()
"""sequence int64, timestamp timestamp[us, UTC], key binary, value binary, headers list<struct<key: string, value: binary>>"""


def table(reader: Reader, *, columns: Sequence[str] | None = None, end: int | None = None) -> pyarrow.Table:
    """Returns all records up to the end as it is now, or up to the record before `end`, in memory. The position moves past
    them."""
    batches = reader.record_batches(columns=columns, end=end)
    return pyarrow.Table.from_batches(batches, schema=_schema_of(columns))


def reader_of(
    reader: Reader,
    *,
    max_records: int = 32_768,
    max_bytes: int = 64 << 20,
    columns: Sequence[str] | None = None,
    end: int | None = None,
) -> pyarrow.RecordBatchReader:
    """Returns the same records batch by batch, as pyarrow.dataset.write_dataset and many engines take them: more records than
    fit into memory can be written or queried. The position moves with every batch that is taken; commit when the consumer has
    returned. The arguments are those of Reader.record_batches."""
    batches = reader.record_batches(max_records=max_records, max_bytes=max_bytes, columns=columns, end=end)
    return pyarrow.RecordBatchReader.from_batches(_schema_of(columns), batches)


def _schema_of(columns: Sequence[str] | None) -> pyarrow.Schema:
    return pyarrow.schema([SCHEMA.field(name) for name in check_columns(columns)])
