"""A driver of its own, which tests may kill: `driver.py FOLDER MASTER`. Each line of its standard input is a call in JSON: the
verb and its arguments. It prints the result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from jlog.pipeline.checkpoint import Checkpoint
from spark.sessions import QUICK_JAVA, session

RECORDS, PARTITIONS = 40_000, 4
MIDDLE = RECORDS // PARTITIONS // 2
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}


def tell(*content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


# --- From a journal --------------------------------------------------------------------------------------------------


def lake(spark: SparkSession, journal: str, folder: str, options: dict[str, str]) -> None:
    """A query from a journal to Parquet, until it is killed."""
    query = lake_of(spark, journal, folder, options).start(f"{folder}/rows")
    tell("started")
    query.awaitTermination()


def rest(spark: SparkSession, journal: str, folder: str, options: dict[str, str]) -> None:
    """The same query up to the journal's end. Prints the number of rows, the number of sequences, and the last one."""
    lake_of(spark, journal, folder, options).trigger(availableNow=True).start(f"{folder}/rows").awaitTermination()
    frame = spark.read.parquet(f"{folder}/rows").selectExpr("count(*)", "count(distinct sequence)", "max(sequence)")
    tell("rows", *frame.head() or ())


def lake_of(spark: SparkSession, journal: str, folder: str, options: dict[str, str]) -> DataStreamWriter:
    Checkpoint(spark, folder).query("checkpoint").forget_first_batch()
    frame = spark.readStream.format("jlog").options(**options).load(journal)
    return frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")


def count(spark: SparkSession, journal: str, folder: str) -> None:
    """Each task waits before it reads."""

    def wait(rows: Iterable[Row]) -> Iterator[int]:
        wait_for_somebody(folder)
        yield from (row.sequence for row in rows)

    frame = spark.read.format("jlog").schema("sequence bigint, value binary").option("minPartitions", "8").load(journal)
    tell(sorted(frame.rdd.mapPartitions(wait).collect()))


def wait_for_somebody(folder: str) -> None:
    """A task writes its executor's pid into one pipe, and goes on once the test has opened the other."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    with open(f"{folder}/tasks", "w") as tasks:
        tasks.write(daemon.rpartition(")")[2].split()[1] + "\n")
    with open(f"{folder}/go"):
        pass


# --- To a journal ----------------------------------------------------------------------------------------------------


def follow(spark: SparkSession, lines: str, folder: str, journal: str, options: dict[str, str] | None = None) -> None:
    """A query from files, one a batch, to the journal, to the end."""
    Checkpoint(spark, folder).query("checkpoint").forget_first_batch()
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).schema("value string").load(lines)
    writer = frame.repartition(3).writeStream.format("jlog")
    writer = writer.options(**options or {}).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start(journal)
    tell("started")
    while not query.awaitTermination(5):
        tell("at work")
    tell("done")


def stage(spark: SparkSession, journal: str, staging: str) -> None:
    """A batch write without a name, larger than one append, with its rows staged in another directory."""
    frame = spark.range(RECORDS, numPartitions=PARTITIONS).selectExpr("rpad(cast(id AS string), 1000, '.') AS value")
    frame.write.format("jlog").option("stagingDirectory", staging).mode("append").save(journal)
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


def wait(spark: SparkSession, journal: str, folder: str, options: dict[str, str] | None = None) -> None:
    """Each task waits in its middle."""

    def pause(rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if number == MIDDLE:
                wait_for_somebody(folder)
            yield row

    save(spark, journal, pause, options)


def save(
    spark: SparkSession,
    journal: str,
    function: Callable[[Iterable[Row]], Iterator[Row]],
    options: dict[str, str] | None = None,
) -> None:
    rows = spark.range(RECORDS, numPartitions=PARTITIONS).rdd.mapPartitions(function)
    frame = spark.createDataFrame(rows.map(lambda row: (str(row.id).ljust(1000, "."),)), "value string")
    frame.write.format("jlog").options(**options or {}).mode("append").save(journal)
    tell("done")


def main(folder: str, master: str) -> None:
    more = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    spark = session(Path(folder), master, **SETTINGS, **more)
    verbs = {verb.__name__: verb for verb in (lake, rest, count, follow, stage, fail, wait)}
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        verbs[verb](spark, *arguments)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
