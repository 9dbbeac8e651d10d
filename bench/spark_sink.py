"""Measures Spark writing rows of Parquet into a journal, compared with Spark writing them as Parquet again."""

from __future__ import annotations

import os
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from spark_source import both, load_of, session

import jlog
from jlog.bench import Contest, ContestSettings, Way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jlog.bench import Run


def to_journal(frame: DataFrame, records: int) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        os.sync()  # the disk then writes the data that Parquet has not synced, for which a commit into a journal would wait
        begin = perf_counter()
        frame.write.format("jlog").mode("append").save(str(directory / "journal"))
        seconds = perf_counter() - begin
        assert jlog.Journal(directory / "journal").next_sequence == records
        return records, seconds

    return run


def to_parquet(frame: DataFrame, records: int) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        os.sync()
        begin = perf_counter()
        frame.write.parquet(str(directory / "rows"))
        return records, perf_counter() - begin

    return run


@contextmanager
def sink(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    records = load_of(settings).records
    with both(settings) as (_, parquet):
        # A partition for each processor: with one more, one of them would be idle in the end.
        rows = parquet.with_name("rows")
        session().read.parquet(str(parquet)).select("value").repartition(2).write.parquet(str(rows))
        frame = session().read.parquet(str(rows))
        yield (
            Way("Spark, Parquet to a journal", to_journal(frame, records)),
            Way("Spark, Parquet to Parquet", to_parquet(frame, records)),
        )


CONTESTS = [Contest("spark-sink", sink)]  # to reach 2 million records a second
