"""A driver of its own, to be killed: `driver.py FOLDER MASTER VERB ARGUMENTS...`. It prints what it has come to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession

from jlog.spark.parquet.lake import Files
from spark.sessions import session


def tell(*content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def lake(spark: SparkSession, journal: str, folder: str, *options: str) -> None:
    """A query from a journal to Parquet, until it is killed."""
    Files(spark).forget_first_batch(f"{folder}/checkpoint")
    given = dict(option.split("=") for option in options)
    frame = spark.readStream.format("jlog").options(**given).load(journal)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.start(f"{folder}/rows")
    tell("started")
    query.awaitTermination()


def count(spark: SparkSession, journal: str, folder: str) -> None:
    """Each task tells its executor's pid through one pipe, and goes on when somebody has opened the other."""

    def wait(rows: Iterable[Row]) -> Iterator[int]:
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        with open(f"{folder}/tasks", "w") as tasks:
            tasks.write(daemon.rpartition(")")[2].split()[1] + "\n")
        with open(f"{folder}/go"):
            yield from (row.sequence for row in rows)

    frame = spark.read.format("jlog").schema("sequence bigint").option("minPartitions", "8").load(journal)
    tell(sorted(frame.rdd.mapPartitions(wait).collect()))


if __name__ == "__main__":
    folder, master, verb, *arguments = sys.argv[1:]
    more = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.executor.memory": "512m"}
    made = session(Path(folder), master, **more)
    {"lake": lake, "count": count}[verb](made, *arguments)
    made.stop()
