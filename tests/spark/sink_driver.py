"""A driver of its own that writes to a journal, to be killed: `sink_driver.py FOLDER MASTER VERB ARGUMENTS...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

from jlog.spark.parquet.lake import Files
from spark.driver import tell
from spark.sessions import session

RECORDS, PARTITIONS = 40_000, 4
MIDDLE = RECORDS // PARTITIONS // 2


def follow(spark: SparkSession, lines: str, folder: str, journal: str) -> None:
    """A query from files, one a batch, to the journal, to the end."""
    Files(spark).forget_first_batch(f"{folder}/checkpoint")
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).schema("value string").load(lines)
    writer = frame.repartition(3).writeStream.format("jlog")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(journal)
    tell("started")
    while not query.awaitTermination(5):
        tell("at work")
    tell("done")


def fail(spark: SparkSession, journal: str) -> None:
    """Each task fails in its middle, and is tried again."""

    def break_off(rows: Iterable[Row]) -> Iterator[Row]:
        context = TaskContext.get()
        for number, row in enumerate(rows):
            if number == MIDDLE and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("once")
            yield row

    save(spark, journal, break_off)


def wait(spark: SparkSession, journal: str, folder: str) -> None:
    """Each task tells its executor's pid in its middle, through one pipe, and goes on when somebody has opened the other."""

    def pause(rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if number == MIDDLE:
                daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
                with open(f"{folder}/tasks", "w") as tasks:
                    tasks.write(daemon.rpartition(")")[2].split()[1] + "\n")
                with open(f"{folder}/go"):
                    pass
            yield row

    save(spark, journal, pause)


def save(spark: SparkSession, journal: str, function: Callable[[Iterable[Row]], Iterator[Row]]) -> None:
    rows = spark.range(RECORDS, numPartitions=PARTITIONS).rdd.mapPartitions(function)
    frame = spark.createDataFrame(rows.map(lambda row: (str(row.id).ljust(1000, "."),)), "value string")
    frame.write.format("jlog").mode("append").save(journal)
    tell("done")


if __name__ == "__main__":
    folder, master, verb, *arguments = sys.argv[1:]
    more = {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executor.memory": "512m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }
    made = session(Path(folder), master, **more)
    {"follow": follow, "fail": fail, "wait": wait}[verb](made, *arguments)
    made.stop()
