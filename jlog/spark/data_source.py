"""The data source that Spark finds under the name "jlog". Each part is imported where Spark asks for it, in a process that
needs only that."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import MutableMapping
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
    "sequence bigint, timestamp timestamp_ltz, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, journal string"
)


class JournalDataSource(DataSource):
    """spark.read.format("jlog").load(path), readStream, write and writeStream; the options are in docs/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        _check_python()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "jlog"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from jlog.spark.reading.batch_reader import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from jlog.spark.reading.stream_reader import StreamReader

        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from jlog.spark.writing.sink import BatchSink

        return BatchSink(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from jlog.spark.writing.sink import StreamSink

        return StreamSink(schema, self.options, overwrite)


def _check_python() -> None:
    """Checks the Python of the workers, which by default Spark starts with another interpreter than the program's."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(
            f"{sys.executable}, which Spark has started for its Python workers, has no pyarrow. Set PYSPARK_PYTHON, or "
            "spark.pyspark.python, to an interpreter that has it, on all nodes: in a virtual environment to sys.executable, "
            "before the session is created. Or install it there: pip install 'pyjlog[spark]'",
            name="pyarrow",
        )
