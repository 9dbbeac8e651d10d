"""The data pipeline: journals, or Kafka topics, through Spark into Parquet, each record exactly once.

jlogtool pipeline JOURNAL… DEST
python -m jlog.spark.pipeline JOURNAL… DEST
spark-submit --master spark://host:7077 .../jlog/spark/pipeline.py JOURNAL… DEST
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.spark.loading.plan import PipelinePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jlog.spark.tables.parquet import Output

POLL_SECONDS = 0.25
GRACE_SECONDS = 10.0  # seconds that a running batch has to end when the pipeline is asked to stop
ROWS_SHOWN_MAX = 1_000  # rows of the query's result


@dataclass
class Summary:
    """The counts of this run. query: the rows of the query's result."""

    records_in: int = 0
    records_out: int = 0
    records_bad: int = 0
    quarantine: str = ""
    dest: str = ""
    checkpoint: str = ""
    batches: int = 0
    seconds: float = 0.0
    stopped: bool = False
    windows: dict[str, Any] | None = None
    query: list[dict[str, Any]] | None = field(default=None)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None or name not in ("windows", "query")}


class PipelineStopped(Exception):
    """The pipeline was stopped, and begins no batch any more."""


class Pipeline:
    """Runs a plan in a session. stop() may be called from a signal handler or another thread."""

    def __init__(self, plan: PipelinePlan, on_records: Callable[[int], object] = lambda _: None) -> None:
        self._plan = plan
        self._on_records = on_records
        self._stop = threading.Event()
        self._at_work = 0
        self._error: Exception | None = None
        self.summary = Summary(quarantine=plan.quarantine, dest=plan.dest, checkpoint=plan.checkpoint)

    def stop(self) -> None:
        """Ends run() soon: a running batch has ten seconds to end. No record is lost where it does not."""
        self.summary.stopped = True
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Says whether stop() was called. From then on no error of Spark counts: its virtual machine may have been asked to end
        too."""
        return self._stop.is_set()

    def run(self, spark: SparkSession) -> Summary:
        """Runs to the end of the sources as they are now, or with an interval until it is stopped. Raises ValueError for a plan
        that does not fit its checkpoint or its columns, JournalError for an error of Spark or of a source."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from jlog.spark.loading.inputs import explained

        began = time.monotonic()
        self._be_quiet_at_the_end(spark)
        try:
            self._begin(spark)
            self._wait(self._start(spark))
            if self._plan.query is not None:
                self.summary.query = self._ask(spark, self._plan.query)
        except (PySparkException, Py4JError, OSError) as error:
            if not self.is_stopped:
                told = explained(reason_of(error), self._plan.sources)
                raise (self._error or JournalError(told)) from error
        self.summary.seconds = round(time.monotonic() - began, 3)
        return self.summary

    def _be_quiet_at_the_end(self, spark: SparkSession) -> None:
        """Silences the server that takes Spark's accumulators, which prints a traceback where its virtual machine has gone."""
        server = getattr(spark.sparkContext, "_accumulatorServer", None)
        if server is not None:
            tell = server.handle_error
            server.handle_error = lambda *request: None if self.is_stopped else tell(*request)

    # --- Beginning ----------------------------------------------------------------------------------------------------

    def _begin(self, spark: SparkSession) -> None:
        from jlog.spark.tables.parquet import Files

        plan = self._plan
        if plan.query is not None:  # a mistake in the query should not show after hours
            spark._jsparkSession.sessionState().sqlParser().parsePlan(plan.query)
        files = Files(spark)
        path = f"{plan.checkpoint}/pipeline.json"
        known = files.read(path)
        if known is None:
            for directory in (plan.dest, plan.quarantine):
                if not files.is_empty(directory):
                    raise ValueError(
                        f"{directory} has Parquet files already, and the checkpoint {plan.checkpoint}, which would say what "
                        f"is in them, is not there. Name theirs with --checkpoint, or write to another directory"
                    )
            files.write(path, json.dumps(plan.identity))
        elif json.loads(known) != plan.identity:
            raise ValueError(
                f"the checkpoint {plan.checkpoint} is of a pipeline with other settings, {known}; go on with those, or begin "
                f"anew with another destination and another checkpoint"
            )

    def _start(self, spark: SparkSession) -> list[StreamingQuery]:
        from jlog.spark.loading.batches import Counting, Loading
        from jlog.spark.loading.inputs import stream_of

        plan = self._plan
        stream = stream_of(spark, plan)
        loads = Loading(spark, plan)
        queries = [self._query(stream, "records", loads.outputs, loads.lake, self._note)]
        if plan.windows is not None:
            counting = Counting(spark, plan, loads)
            counts = counting.counted(stream_of(spark, plan))
            queries.append(self._query(counts, "windows", counting.outputs, counting.lake, self._note_windows))
        return queries

    def _query(
        self,
        frame: DataFrame,
        name: str,
        outputs: Callable[[DataFrame], Iterator[Output]],
        lake: Any,
        note: Callable[[dict[str, int]], None],
    ) -> StreamingQuery:
        def process(batch: DataFrame, number: int) -> None:
            if self.is_stopped:
                raise PipelineStopped
            self._at_work += 1
            try:
                note(lake.add(number, lambda: outputs(batch)).records)
            except (ValueError, OSError, JournalError) as error:
                self._error = error
                raise
            finally:
                self._at_work -= 1

        plan = self._plan
        writer = frame.writeStream.foreachBatch(process).outputMode("append").queryName(name)
        lake.files.forget_first_batch(f"{plan.checkpoint}/{name}")
        writer = writer.option("checkpointLocation", f"{plan.checkpoint}/{name}")
        if plan.interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{max(1, round(plan.interval * 1000))} milliseconds").start()

    def _note(self, records: dict[str, int]) -> None:
        good, bad = records.get(self._plan.dest, 0), records.get(self._plan.quarantine, 0)
        summary = self.summary
        summary.records_in += good + bad
        summary.records_out += good
        summary.records_bad += bad
        summary.batches += 1 if good + bad else 0
        self._on_records(good + bad)

    def _note_windows(self, records: dict[str, int]) -> None:
        assert self._plan.windows is not None
        before = 0 if self.summary.windows is None else self.summary.windows["counts"]
        directory = self._plan.windows.directory
        self.summary.windows = {"counts": before + sum(records.values()), "directory": directory}

    # --- Progress and end ---------------------------------------------------------------------------------------------

    def _wait(self, queries: Sequence[StreamingQuery]) -> None:
        running = list(queries)
        while running and not self.is_stopped:
            for query in list(running):
                if query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]  # raises the error that ends the query
                    running.remove(query)
        if self.is_stopped:
            self._end(queries)

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        until = time.monotonic() + GRACE_SECONDS
        while self._at_work and time.monotonic() < until:
            time.sleep(POLL_SECONDS / 10)
        for query in queries:
            query.stop()

    def _ask(self, spark: SparkSession, text: str) -> list[dict[str, Any]]:
        from jlog.spark.tables.parquet import Files

        plan, files = self._plan, Files(spark)
        tables = {"records": plan.dest, "quarantine": plan.quarantine}
        if plan.windows is not None:
            tables["windows"] = plan.windows.directory
        for name, directory in tables.items():
            if not files.is_empty(directory):
                spark.read.parquet(directory).createOrReplaceTempView(name)
        rows = spark.sql(text).limit(ROWS_SHOWN_MAX).collect()
        return [row.asDict(recursive=True) for row in rows]


def reason_of(error: Exception) -> str:
    """Returns the message without the stack: that of a Python worker, if there is one, else the first line of Spark's own."""
    lines = str(error).splitlines()
    told = [line for line in lines if line.startswith(("jlog.errors.", "ValueError: ", "OSError: ", "ImportError: ", ": "))]
    if told:
        return told[-1].partition(": ")[2]
    return next((line for line in lines if line.strip()), type(error).__name__)


if __name__ == "__main__":
    import runpy
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]  # where Python puts the directory of a script
    sys.argv[1:1] = ["pipeline"]
    runpy.run_module("jlog.cli", run_name="__main__")
