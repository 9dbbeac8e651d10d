"""The sink: rows become records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


class BatchSink(DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        raise NotImplementedError

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        raise NotImplementedError


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        raise NotImplementedError

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        raise NotImplementedError
