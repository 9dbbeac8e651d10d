"""Frames to write, and rows that tasks have staged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import jlog
from jlog.spark.checkpoint import Content
from jlog.spark.writing.ledger import STREAM, Ledger
from jlog.spark.writing.sink import StagingSink
from jlog.spark.writing.staging import Staged

VALUE = StructType().add("value", "binary")


def save(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("jlog").options(**options).mode("append").save(str(path))


def numbers(spark: SparkSession, count: int, partitions: int = 3, size: int = 1) -> DataFrame:
    value = f"rpad(cast(id AS string), {size}, '.')" if size > 1 else "cast(id AS string)"
    return spark.range(count, numPartitions=partitions).selectExpr(f"{value} AS value")


def numbered(count: int, size: int = 1) -> list[bytes]:
    return [str(number).encode().ljust(size, b".") for number in range(count)]


def names_in(path: Path) -> set[str]:
    return {name.rpartition(".")[2] if name[0].isdigit() else name for name in os.listdir(path)}


def batches_of(values: list[bytes]) -> Iterator[pyarrow.RecordBatch]:
    for first in range(0, len(values), 1_000):
        yield pyarrow.record_batch({"value": pyarrow.array(values[first : first + 1_000], pyarrow.binary())})


def stage(sink: StagingSink, query: str, batch: int, parts: list[list[bytes]]) -> list[Staged]:
    return [
        sink.staging(query).write(
            batches_of(part),
            sink.columns,
            batch,
            partition,
        )
        for partition, part in enumerate(parts)
    ]


def run(frame: DataFrame, path: Path, checkpoint: Path | None, **options: str) -> None:
    writer = frame.writeStream.format("jlog").queryName("checkpoint").options(**options)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(path))
    query.awaitTermination()


LARGE = [numbered(10_000, 1_000), [b"%d-" % n + bytes(1_000) for n in range(10_000)]]
ALL = [*LARGE[0], *LARGE[1]]


def cut_short(sink: StagingSink, staged: list[Staged], appended: int, query: str = "q") -> None:
    """Leaves the files of a driver that is killed when so many records of batch 0 are in the journal."""
    staging = sink.staging(query)
    with jlog.Writer(sink.path) as writer:
        ledger = Ledger(sink.path, query, STREAM)
        ledger.begin(0, Content(sum(part.records for part in staged)))
        note = ledger.note(appended, staging.keep(staged))
        writer.extend(ALL[:appended], state=note)


def ends(staged: list[Staged]) -> list[int]:
    """Returns the numbers of records that may be in the journal when a commit is cut short."""
    pieces = [piece for part in staged for file in part.files for piece in file.pieces]
    return list(accumulate(piece.records for piece in pieces))
