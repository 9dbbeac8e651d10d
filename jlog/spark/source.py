"""What Spark finds under the name "jlog". Each part is imported where Spark asks for it, in a process that does only that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SCHEMA = (
    "sequence bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, journal string"
)


class JournalSource(DataSource):
    """spark.read.format("jlog").load(path), readStream, write and writeStream; the options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "jlog"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from jlog.spark.batch import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from jlog.spark.stream import StreamReader

        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from jlog.spark.sink import BatchSink

        return BatchSink(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from jlog.spark.sink import StreamSink

        return StreamSink(schema, self.options, overwrite)
