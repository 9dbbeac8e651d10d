"""Reading a journal as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


def batch_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    return BatchReader(schema, options)


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        raise NotImplementedError
