"""A driver with Delta Lake and Iceberg, and the PySpark that they are made for: `driver.py FOLDER MASTER`.

Each line of its standard input is a call in JSON: the verb and its arguments. It answers each with a line that begins with `@`:
["done", result] or ["failed", kind of the error, its text].
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from jlog.errors import JournalError
from jlog.pipeline.checkpoint import Checkpoint
from jlog.pipeline.destination import Destination
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Pipeline
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.tables.connector import DELTA, ICEBERG
from jlog.pipeline.tables.delta import DeltaTable
from jlog.pipeline.tables.iceberg import IcebergTable
from jlog.pipeline.tables.table import BatchId, TableState
from jlog.spark.session import ALWAYS
from spark.sessions import session

TABLES: dict[str, Any] = {"delta": DeltaTable, "iceberg": IcebergTable}


class Verbs:
    def __init__(self, spark: SparkSession, folder: str) -> None:
        """folder: around the checkpoints of pipelines."""
        self._spark = spark
        self._folder = folder

    def sql(self, text: str) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self._spark.sql(text).collect()]

    def rows(self, kind: str, place: str) -> list[dict[str, Any]]:
        """Reads with the reader of the format, by path or by name."""
        if "/" not in place:
            self._spark.sql(f"REFRESH TABLE {place}")
        frame = self._spark.read.format(kind).load(place) if "/" in place else self._spark.table(place)
        return [row.asDict(recursive=True) for row in frame.collect()]

    def records(self, kind: str, place: str) -> list[int]:
        """Returns how many rows there are, how many sequences, and the last one."""
        frame = self._spark.read.format(kind).load(place)
        return [*frame.selectExpr("count(*)", "count(DISTINCT sequence)", "max(sequence)").collect()[0]]

    def files(self, kind: str, place: str) -> int:
        return int(self._spark.read.format(kind).load(place).select(f.input_file_name()).distinct().count())

    def load(self, sources: list[str], dest: str, checkpoint: str, parse: str = "none", **more: Any) -> dict[str, Any]:
        """Runs a pipeline."""
        quarantine = f"{dest}_quarantine"
        plan = PipelinePlan(tuple(sources), dest, checkpoint, quarantine, Parser(parse), is_table="/" not in dest, **more)
        return Pipeline(plan).run(self._spark).as_json()

    def write(self, kind: str, place: str, columns: list[str]) -> None:
        """Adds 20 rows as another writer does."""
        frame = self._spark.range(20).selectExpr(*columns)
        if "/" not in place:
            frame.writeTo(place).append()
        elif kind == "delta":
            frame.write.format("delta").mode("append").save(place)
        else:
            frame.writeTo(IcebergTable(self._spark, place)._sql_name).append()

    def checkpoint(self, place: str, pipeline: str) -> str:
        return f"{place if '/' in place else self._folder + '/' + place}.{pipeline}"

    def create(self, kind: str, place: str) -> None:
        """Creates a table without rows, as another writer does."""
        name = f"delta.`{place}`" if kind == "delta" else IcebergTable(self._spark, place)._sql_name
        self._spark.range(0).writeTo(name).using(kind).create()

    def expire(self, place: str) -> None:
        """Removes all old snapshots that no tag keeps."""
        table = IcebergTable(self._spark, place)._load()
        table.expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()

    def adopt(self, kind: str, place: str, pipeline: str) -> None:
        self._table(kind, place, pipeline).adopt()

    def go_back(self, kind: str, place: str) -> None:
        """Undoes the newest version, as a user does."""
        if kind == "delta":
            newest = max(int(path.stem) for path in Path(place, "_delta_log").glob("*.json"))
            self.sql(f"RESTORE TABLE delta.`{place}` TO VERSION AS OF {newest - 1}")
        else:
            table = IcebergTable(self._spark, place)._load()
            table.manageSnapshots().rollbackTo(table.currentSnapshot().parentId()).commit()

    def evolve(self, kind: str, place: str) -> None:
        """Adds a column, as a user does."""
        if kind == "delta":
            self.sql(f"ALTER TABLE delta.`{place}` ADD COLUMNS (note STRING)")
        else:
            text = self._spark.sparkContext._jvm.org.apache.iceberg.types.Types.StringType.get()  # type: ignore[union-attr]
            IcebergTable(self._spark, place)._load().updateSchema().addColumn("note", text).commit()

    def write_at_once(self, kind: str, place: str, pipelines: list[str]) -> list[str]:
        """Has pipelines that all have found the table free add a batch in the same moment. Returns the errors."""
        tables = [Verbs(self._spark.newSession(), self._folder)._table(kind, place, pipeline) for pipeline in pipelines]
        assert [table.compare() for table in tables] == [None] * len(tables)
        together, errors = threading.Barrier(len(tables)), []

        def write(table: Destination, pipeline: str) -> None:
            new = TableState(pipeline, pipeline).after(BatchId(0, "aa"))
            together.wait()
            try:
                spark: SparkSession = table.table._spark  # type: ignore[attr-defined]
                table.table.write(new, None, spark.range(20).toDF("id"), lambda _: None)
            except (JournalError, PySparkException, Py4JError) as error:
                errors.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=write, args=pair) for pair in zip(tables, pipelines, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    def last_batch(self, kind: str, place: str, pipeline: str) -> int | None:
        return self._table(kind, place, pipeline).last_batch()

    def count(self, kind: str, place: str, pipeline: str, **more: Any) -> int | None:
        frame = self._table(kind, place, pipeline, **more).table.frame()
        return None if frame is None else int(frame.count())

    def compact(self, kind: str, place: str, pipeline: str, **more: Any) -> None:
        self._table(kind, place, pipeline, **more).table.compact()

    def add(
        self, kind: str, place: str, pipeline: str, batch: tuple[int, str], columns: list[str], files: int = 2, **more: Any
    ) -> tuple[int, bool]:
        """Adds 20 rows with these columns, each an expression of `id`, in this number of tasks."""
        frame = self._spark.range(batch[0] * 20, batch[0] * 20 + 20, numPartitions=files).selectExpr(*columns)
        added = self._table(kind, place, pipeline, **more).add(BatchId(*batch), frame)
        return added.rows, added.is_new

    def add_refused(self, kind: str, place: str, pipeline: str, batch: tuple[int, str], columns: list[str]) -> None:
        """Adds 20 rows whose number the pipeline refuses."""

        def refuse(written: int) -> None:
            raise JournalError(f"not {written} rows")

        frame = self._spark.range(20).selectExpr(*columns)
        self._table(kind, place, pipeline).add(BatchId(*batch), frame, refuse)

    def add_unseen(self, *arguments: Any, unseen: str, **more: Any) -> tuple[int, bool]:
        """Adds rows whose files vanish before the driver looks: those with this in their path."""
        kind, place = arguments[:2]
        table = TABLES[kind]
        check = table._check
        before = set(Path(place).rglob("*.parquet"))

        def lose(self: Any, *given: Any) -> Any:
            for path in set(Path(place).rglob("*.parquet")) - before:
                if unseen in path.name:
                    path.unlink()
            return check(self, *given)

        table._check = lose
        try:
            return self.add(*arguments, **more)
        finally:
            table._check = check

    def add_unseen_beside_another(self, place: str, pipeline: str, batch: tuple[int, str]) -> None:
        """Adds rows that the driver does not see. Another writer commits between its look at the history and its RESTORE."""
        look = DeltaTable._version

        def look_and_lose_time(table: DeltaTable) -> int:
            version = look(table)
            if not table._files.exists(table._added_by(version)[0]):
                DeltaTable._version = look  # type: ignore[method-assign]
                self._spark.range(1).write.format("delta").mode("append").save(place)
            return version

        DeltaTable._version = look_and_lose_time  # type: ignore[method-assign]
        try:
            self.add_unseen("delta", place, pipeline, batch, ["id"], unseen="part-0000")
        finally:
            DeltaTable._version = look  # type: ignore[method-assign]

    def die_in(self, kind: str, method: str) -> None:
        """Has the next call of this method kill the driver, with Java and all workers."""
        setattr(TABLES[kind], method, lambda *_, **__: os.killpg(0, signal.SIGKILL))

    def retry(self, kind: str, place: str, pipeline: str, first: int) -> int:
        """Adds 20 rows after the last batch, as rows of the quarantine."""
        frame = self._spark.range(first, first + 20).toDF("id")
        return self._table(kind, place, pipeline).add_retried(frame, lambda _: None)

    def add_until(self, kind: str, place: str, pipeline: str, batch: tuple[int, str], point: str) -> None:
        """Adds 20 rows, and is cut off where it calls this method of the table or of its checkpoint."""
        owner = TABLES[kind] if hasattr(TABLES[kind], point) else Checkpoint
        method = getattr(owner, point)

        def cut(*_: object, **__: object) -> None:
            raise ValueError("cut off")

        setattr(owner, point, cut)
        try:
            self.add(kind, place, pipeline, batch, ["id"])
        finally:
            setattr(owner, point, method)

    def forget(self) -> None:
        """Has Delta forget what it knows of its tables, as a new driver does."""
        self._spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    def compact_and_die(self, kind: str, place: str, pipeline: str) -> None:
        """Is killed once the first file of compaction is there."""
        before = set(Path(place).rglob("*.parquet"))

        def look() -> None:
            while set(Path(place).rglob("*.parquet")) <= before:
                time.sleep(0.001)
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=look, daemon=True).start()
        self.compact(kind, place, pipeline)

    def add_and_die(self, kind: str, place: str, pipeline: str, batch: tuple[int, str], **more: Any) -> None:
        """Is killed while two tasks write."""
        own_group = os.getpgrp()  # Spark's Python processes have another one

        def kill(number: int) -> int:
            if number % 10 == 5:
                os.killpg(own_group, signal.SIGKILL)
            return number

        frame = self._spark.range(20, numPartitions=2).select(f.udf(kill, "long")("id").alias("id"))
        self._table(kind, place, pipeline, **more).add(BatchId(*batch), frame)

    def _table(self, kind: str, place: str, pipeline: str, **more: Any) -> Destination:
        """The table as a pipeline with this checkpoint has it: a path, or a name."""
        checkpoint = Checkpoint(self._spark, self.checkpoint(place, pipeline))
        return Destination(TABLES[kind](self._spark, place, is_path="/" in place, **more), checkpoint, "records")


def as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, (date, datetime)) else str(value)


def answer(*content: object) -> None:
    sys.stdout.write("@" + json.dumps(content, default=as_text) + "\n")
    sys.stdout.flush()


def main(folder: str, master: str) -> None:
    conf = {
        **ALWAYS,
        **DELTA.with_settings(ICEBERG.with_settings({})),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.shop": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.shop.type": "hadoop",
        "spark.sql.catalog.shop.warehouse": f"{folder}/shop",
        "spark.jars": os.environ["JARS"],
    }
    verbs = Verbs(session(Path(folder), master, **conf), folder)
    for line in sys.stdin:
        verb, arguments, named = json.loads(line)
        try:
            answer("done", getattr(verbs, verb)(*arguments, **named))
        except (JournalError, ValueError, PySparkException, Py4JError) as error:
            answer("failed", type(error).__name__, str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
