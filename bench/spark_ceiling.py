"""Measures how fast Spark takes rows from Python, and gives rows to Python, when Python has nothing to do: a source that yields
the same Arrow batch again and again, and a sink that drops its rows. No Python source or sink is faster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = "constant"
ROWS = 32_768
ARRAYS = {
    "sequence": lambda rows, _bytes: pa.array(range(rows), pa.int64()),
    "timestamp": lambda rows, _bytes: pa.array([1_795_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
    "value": lambda rows, value_bytes: pa.array([bytes(value_bytes)] * rows, pa.binary()),
}


class Part(InputPartition):
    def __init__(self, records: int) -> None:
        self.records = records


class ConstantReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._fields = [(field.name, field.nullable) for field in schema.fields]
        self._records, self._partitions = int(options["records"]), int(options["partitions"])
        self._rows, self._value_bytes = int(options.get("rows", ROWS)), int(options["valueBytes"])

    def partitions(self) -> list[InputPartition]:
        share, rest = divmod(self._records, self._partitions)
        return [Part(share + (number < rest)) for number in range(self._partitions)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        arrays = [ARRAYS[name](self._rows, self._value_bytes) for name, _ in self._fields]
        fields = zip(self._fields, arrays, strict=True)
        schema = pa.schema([pa.field(name, array.type, nullable) for (name, nullable), array in fields])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for first in range(0, partition.records, self._rows):
            yield batch.slice(0, min(self._rows, partition.records - first))


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Constant(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConstantReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        return DroppingWriter()


def register(session: SparkSession) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers do not find this file
    session.dataSource.register(Constant)


def constant(session: SparkSession, columns: str, records: int, partitions: int, value_bytes: int, **options: Any) -> DataFrame:
    reader = session.read.format(NAME).schema(columns).options(records=records, partitions=partitions, **options)
    return reader.option("valueBytes", value_bytes).load()
