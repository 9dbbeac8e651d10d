"""Spark writing into a journal, beside Spark writing the same rows as Parquet."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from spark_source import session

import jlog
from jlog.bench.contest import Contest, Settings, Way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jlog.bench.contest import Run

TIMES = 5  # as many records as the others have: what a job costs by itself is a third of a second
PARTITIONS = 4


def to_journal(frame: DataFrame, records: int) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        begin = perf_counter()
        frame.write.format("jlog").mode("append").save(str(directory / "journal"))
        seconds = perf_counter() - begin
        assert jlog.Journal(directory / "journal").next_sequence == records
        return records, seconds

    return run


def to_parquet(frame: DataFrame, records: int) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        begin = perf_counter()
        frame.write.parquet(str(directory / "rows"))
        return records, perf_counter() - begin

    return run


@contextmanager
def sink(settings: Settings) -> Iterator[tuple[Way, Way]]:
    records = TIMES * settings.load.chunks * settings.load.chunk_records
    frame = (
        session()
        .range(records, numPartitions=PARTITIONS)
        .selectExpr("cast(rpad(cast(id AS string), 100, '.') AS binary) AS value")
    )
    yield (
        Way("Spark to a journal", to_journal(frame, records)),
        Way("Spark to Parquet", to_parquet(frame, records)),
    )


CONTESTS = [Contest("spark-sink", sink)]  # to reach 2 million records a second
