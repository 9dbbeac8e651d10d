"""Reads and writes journals with Spark: spark.read.format("jlog"), readStream, and the same with write.

Needs PySpark 4.1 or newer and pyarrow: pip install 'pyjlog[spark]'. Nothing has to be registered; docs/spark.md is the guide.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jlog.spark.progress import JournalProgress, progress
from jlog.spark.writing.ledger import Entry, forget, queries
from jlog.spark.writing.left_over import clean

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Entry", "JournalProgress", "clean", "forget", "load", "progress", "queries"]


def load(
    spark: SparkSession, path: str | os.PathLike[str], schema: str | StructType | None = None, **options: object
) -> DataFrame:
    """Returns the rows of spark.read.format("jlog").schema(schema).options(**options).load(path), and reads them faster, in
    mapInArrow. The frame has the records that are there now, and no filter is pushed down. PySpark wants pandas for mapInArrow,
    and raises PySparkImportError without it, though nothing here uses it."""
    from pyspark.sql.types import StructType

    from jlog.spark.data_source import SCHEMA
    from jlog.spark.reading.batch_reader import batch_reader

    if schema is None:
        schema = SCHEMA
    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(wanted, StructType)
    given = {name.lower(): _text(value) for name, value in options.items()}
    if "pushdown" in given:
        raise ValueError("Spark pushes no filters down to this frame; use spark.read.format('jlog') for pushdown")
    reader = batch_reader(wanted, {**given, "path": os.fspath(path)})
    partitions = reader.partitions()

    def read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reader.read(partitions[number])

    return spark.range(len(partitions), numPartitions=max(1, len(partitions))).mapInArrow(read, wanted)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
