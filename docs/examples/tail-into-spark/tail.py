"""Tails a journal into a table of Parquet files, each record exactly once: `python tail.py JOURNAL TABLE`."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = ["sequence", "timestamp", "cast(value AS string) AS value"]


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise Spark starts its workers with `python3`, which may lack jlog
    settings: dict[str, bool | float | int | str | None] = {
        "spark.master": "local[2]",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": True,
        "spark.sql.parquet.compression.codec": "zstd",  # smaller than the default, snappy
    }
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start(spark: SparkSession, journal: str, table: str, *, until_end: bool = False) -> StreamingQuery:
    """Starts the query, which follows the journal for ever, or ends at its present end."""
    # The subscriber keeps the journal from removing what the query has not read.
    records = spark.readStream.format("jlog").option("subscriber", "lake").load(journal).selectExpr(*COLUMNS)
    sink = records.writeStream.format("parquet").option("path", table).option("checkpointLocation", f"{table}.checkpoint")
    if until_end:
        return sink.trigger(availableNow=True).start()
    return sink.trigger(processingTime="500 milliseconds").start()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tail.py JOURNAL TABLE")
    start(session(), sys.argv[1], sys.argv[2]).awaitTermination()
