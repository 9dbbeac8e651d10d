"""Measures Spark reading a journal, compared with Spark's own reading of Parquet with the same rows: local[2], in one
session."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jlog
from jlog.bench import Contest, ContestSettings, Spread, Way, empty_directory, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from jlog.bench import Load, Run

CHUNK_RECORDS = 10_000
PLANNING_TARGET = "< 2000 ms"
# Spark's defaults, except for the settings that docs/spark.md recommends.
SPARK = {
    "spark.driver.memory": "4g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}


def missing() -> str:
    """Returns the reason why Spark cannot be measured; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pip install 'pyjlog[spark]'"
    if shutil.which("java") is None:
        return "apt-get install --no-install-recommends default-jre-headless"
    return ""


@cache
def session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in SPARK.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def load_of(settings: ContestSettings) -> Load:
    """Returns five times the records of other measurements: planning a query alone takes some 0.1 s."""
    return settings.load.share(5)


def fill(path: Path, load: Load) -> None:
    """Appends values that all differ: otherwise Parquet would read only a dictionary."""
    with jlog.Writer(path) as writer:
        for first in range(0, load.records, CHUNK_RECORDS):
            last = min(first + CHUNK_RECORDS, load.records)
            writer.extend([value_of(number, load.value_bytes) for number in range(first, last)])


@contextmanager
def both(settings: ContestSettings) -> Iterator[tuple[Path, Path]]:
    """Creates a journal, and its rows in Parquet."""
    with empty_directory(settings.directory) as directory:
        journal, parquet = directory / "journal", directory / "parquet"
        fill(journal, load_of(settings))
        columns = "sequence bigint, timestamp timestamp, value binary"
        session().read.format("jlog").schema(columns).load(str(journal)).write.parquet(str(parquet))
        yield journal, parquet


def asked(frame: Callable[[], DataFrame], query: Callable[[DataFrame, Path], object], records: int) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        begin = perf_counter()
        query(frame(), directory)
        return records, perf_counter() - begin

    return run


def count(frame: DataFrame, _directory: Path) -> Any:
    return frame.count()


def sum_of_lengths(frame: DataFrame, _directory: Path) -> Any:
    return frame.selectExpr("sum(length(value))").first()


def to_parquet(frame: DataFrame, directory: Path) -> None:
    frame.write.parquet(str(directory / "parquet"))


@contextmanager
def reading(
    name: str, columns: str, query: Callable[[DataFrame, Path], object], rival: Any, settings: ContestSettings
) -> Iterator[tuple[Way, Way]]:
    records = load_of(settings).records
    with both(settings) as (journal, parquet):
        ours = partial(session().read.format("jlog").schema(columns).load, str(journal))
        yield (
            Way(f"Spark: {name} of a journal, {records:,} records", asked(ours, query, records)),
            Way(
                f"Spark: {rival[0]} of the same in Parquet",
                asked(partial(session().read.parquet, str(parquet)), rival[1], records),
            ),
        )


COUNT = ("count", count)
SUM = ("sum(length(value))", sum_of_lengths)
COPY = ("a copy to Parquet", to_parquet)
SEQUENCES, VALUES = "sequence bigint", "value binary"
ALL = "sequence bigint, timestamp timestamp, value binary"
CONTESTS = [
    Contest("spark-count", partial(reading, COUNT[0], SEQUENCES, count, COUNT), "≥ 0.4×"),
    Contest("spark-count-beside-sum", partial(reading, COUNT[0], SEQUENCES, count, SUM), "≥ 0.75×"),
    Contest("spark-sum", partial(reading, SUM[0], VALUES, SUM[1], SUM), "≥ 0.6×"),
    Contest("spark-to-parquet", partial(reading, COPY[0], ALL, COPY[1], COPY), "≥ 0.7×"),
]


# --- Planning -------------------------------------------------------------------------------------------------------


def segments_of(settings: ContestSettings) -> int:
    return settings.load.records // 100


def planning(settings: ContestSettings) -> Spread:
    """Measures the milliseconds in which the reader lists the segments and cuts them into partitions, as Spark's planner
    asks it to."""
    from pyspark.sql.types import LongType, StructField, StructType

    from jlog.spark.reading.batch_reader import batch_reader

    schema = StructType([StructField("sequence", LongType())])
    found = Spread()
    with empty_directory(settings.directory) as directory:
        with jlog.Writer(directory / "journal", precommit=4096, segment_bytes=4096) as writer:
            for _ in range(segments_of(settings)):
                writer.append(bytes(4096))  # each fills a segment
        for _ in range(settings.rounds):
            begin = perf_counter()
            batch_reader(schema, {"path": str(directory / "journal")}).partitions()
            found.rounds.append((perf_counter() - begin) * 1e3)
    return found
