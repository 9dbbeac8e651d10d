"""Runs a plan: begins or resumes its queries, waits for their ends, and counts what they have done."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.pipeline.plan import PipelinePlan, Windows, is_topic
from jlog.pipeline.reports import Reports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jlog.pipeline.batches import Loading
    from jlog.pipeline.checkpoint import Checkpoint
    from jlog.pipeline.destination import Destination
    from jlog.pipeline.outputs import Tables

logger = logging.getLogger("jlog.spark")

PIPELINE = "pipeline"  # the settings of all but the windows
PARSING = "parsing"  # those that may change between two batches
POLL_SECONDS = 0.25
STARTS_MAX = 3  # of the queries, where Python workers start too late
GRACE_SECONDS = 10.0  # seconds that a running batch has to end when the pipeline is asked to stop
OURS = (ValueError, OSError, JournalError)  # errors whose own text says what to do
ROWS_SHOWN_MAX = 1_000  # rows of the query's result


@dataclass
class Summary:
    """The counts of this run. records_retried: those that came out of the quarantine. query: the rows of the query's result."""

    records_in: int = 0
    records_out: int = 0
    records_bad: int = 0
    quarantine: str = ""
    dest: str = ""
    checkpoint: str = ""
    batches: int = 0
    seconds: float = 0.0
    stopped: bool = False
    records_retried: int | None = None
    windows: dict[str, Any] | None = None
    query: list[dict[str, Any]] | None = field(default=None)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class PipelineStopped(Exception):
    """The pipeline was stopped, and begins no batch any more."""


class Pipeline:
    """Runs a plan in a session. stop() may be called from a signal handler or another thread."""

    def __init__(
        self,
        plan: PipelinePlan,
        on_records: Callable[[int], object] = lambda _: None,
        on_batch: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        """on_records: is called with the number of records of each batch. on_batch: is called with the report of each batch,
        a few moments after it has ended; see docs/pipeline.md."""
        self._plan = plan
        self._on_records = on_records
        topics = [source for source in plan.sources if is_topic(source)]
        self._reports = None if on_batch is None else Reports(topics, on_batch)
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

        from jlog.pipeline.checkpoint import Checkpoint
        from jlog.pipeline.outputs import tables_of

        began = time.monotonic()
        self._be_quiet_at_the_end(spark)
        tables: Tables | None = None
        try:
            checkpoint = Checkpoint(spark, self._plan.checkpoint)
            with checkpoint.held():
                tables = tables_of(spark, self._plan, checkpoint)
                self._begin(spark, checkpoint, tables)
                self._check_all_see(spark, tables)
                loading = self._load(spark, checkpoint, tables)
                if self._plan.retry_quarantine and not self.is_stopped:
                    checkpoint.check_owner()
                    self.summary.records_retried = loading.retry()
                if self._plan.query is not None:
                    self.summary.query = self._ask(spark, tables, self._plan.query)
        except (PySparkException, Py4JError, OSError) as error:
            if not self.is_stopped:
                raise (self._error or self._explained(spark, tables, error)) from error
        self.summary.seconds = round(time.monotonic() - began, 3)
        return self.summary

    def _be_quiet_at_the_end(self, spark: SparkSession) -> None:
        """Silences the server that takes Spark's accumulators, which prints a traceback where its virtual machine has gone."""
        server = getattr(spark.sparkContext, "_accumulatorServer", None)
        if server is not None:
            handle = server.handle_error
            server.handle_error = lambda *request: None if self.is_stopped else handle(*request)

    # --- Beginning ----------------------------------------------------------------------------------------------------

    def _begin(self, spark: SparkSession, checkpoint: Checkpoint, tables: Tables) -> None:
        from jlog.pipeline.inputs import RECORDS, check_subscribers

        plan = self._plan
        if plan.query is not None:  # a mistake in the query should show before hours of work
            spark._jsparkSession.sessionState().sqlParser().parsePlan(plan.query)
        known = checkpoint.settings(PIPELINE)
        if known not in (None, plan.identity):
            raise ValueError(
                f"the checkpoint {plan.checkpoint} belongs to a pipeline with other settings, {json.dumps(known)}; use those "
                "again, or begin anew with another destination and another checkpoint"
            )
        records = checkpoint.query(RECORDS)
        if plan.adopt:
            self._adopt(checkpoint, tables)
        for table in (tables.records, tables.quarantine):
            table.compare(records)
        checkpoint.keep_settings(PIPELINE, plan.identity)
        self._check_parsing(checkpoint, tables.records, tables.quarantine)
        if plan.windows is not None and tables.windows is not None:
            self._begin_windows(checkpoint, plan.windows, tables.windows)
        check_subscribers(plan)

    def _begin_windows(self, checkpoint: Checkpoint, windows: Windows, table: Destination) -> None:
        """Spark would go on with windows of another length as if they were the same."""
        from jlog.pipeline.inputs import WINDOWS

        table.compare(checkpoint.query(WINDOWS))
        known = checkpoint.settings(WINDOWS)
        if known is None:
            checkpoint.keep_settings(WINDOWS, windows.identity)
        elif known != windows.identity:
            by = f" by {', '.join(known['by'])}" if known["by"] else ""
            raise ValueError(
                f"the checkpoint {checkpoint.path} counts in windows of {known['seconds']} seconds{by}; use those again, or "
                "begin anew with another destination and another checkpoint"
            )

    def _check_parsing(self, checkpoint: Checkpoint, *tables: Destination) -> None:
        """A batch that was cut off between the quarantine and the table has to be parsed in the same way again."""
        from jlog.pipeline.inputs import RECORDS

        now = {"schema": self._plan.schema, **self._plan.parser.settings}
        known = checkpoint.settings(PARSING)
        unfinished = checkpoint.query(RECORDS).unfinished() if known not in (None, now) else None
        if unfinished is not None and unfinished in (table.last_batch() for table in tables):
            raise ValueError(
                f"the last run ended in the middle of a batch that it parsed with other settings, {json.dumps(known)}; run "
                "once with those to complete the batch, then change them"
            )
        if known != now:
            checkpoint.keep_settings(PARSING, now)

    def _adopt(self, checkpoint: Checkpoint, tables: Tables) -> None:
        """Takes over tables of another pipeline, whose checkpoint is lost or does not fit them any more."""
        from jlog.pipeline.inputs import RECORDS, Inputs

        plan = self._plan
        state = tables.records.table.state()
        if state is None:
            raise ValueError(f"{plan.dest} belongs to no pipeline, so there is nothing to adopt; leave out --adopt")
        if state.pipeline == checkpoint.kept_id():
            return
        if state.is_partial:
            raise JournalError(
                f"{plan.dest} does not say any more up to where it has been loaded, since its history was cleaned, and cannot "
                "be adopted. Begin anew with another destination and another checkpoint"
            )
        if not checkpoint.query(RECORDS).is_new():
            raise ValueError(
                f"--adopt needs a new --checkpoint: {plan.checkpoint} has batches of another pipeline than {plan.dest}"
            )
        bad, last = tables.quarantine.last_batch(), tables.records.last_batch()
        if bad is not None and bad > (-1 if last is None else last):
            raise JournalError(
                f"{plan.quarantine} has bad records of batch {bad}, which {plan.dest} has not taken. They come again, and "
                "would be there twice: name another --quarantine"
            )
        Inputs(plan, RECORDS, checkpoint.query(RECORDS)).begin_after(state.end or [])
        tables.quarantine.adopt()
        tables.records.adopt()

    def _load(self, spark: SparkSession, checkpoint: Checkpoint, tables: Tables) -> Loading:
        """Runs the queries to their ends. A busy machine may start a Python worker later than Spark waits for it. Then the
        queries begin again where they were, until that has happened STARTS_MAX times without a batch in between."""
        from pyspark.errors import PySparkException

        from jlog.spark.session import is_late_worker

        starts = 0
        while True:
            starts, batches = starts + 1, self.summary.batches
            loading, queries = self._start(spark, checkpoint, tables)
            try:
                self._wait(queries)
            except PySparkException as error:
                if self.summary.batches > batches:
                    starts = 0
                if starts == STARTS_MAX or self.is_stopped or self._error is not None or not is_late_worker(error):
                    raise
                logger.info("a Python worker of Spark did not start in time; the pipeline begins again where it was")
            else:
                return loading

    def _start(self, spark: SparkSession, checkpoint: Checkpoint, tables: Tables) -> tuple[Loading, list[StreamingQuery]]:
        from jlog.pipeline.batches import Counting, Loading
        from jlog.pipeline.expected import expected
        from jlog.pipeline.inputs import RECORDS, WINDOWS, Inputs

        plan = self._plan
        records = checkpoint.query(RECORDS)
        inputs = Inputs(plan, RECORDS, records)
        inputs.begin()
        sample = partial(inputs.sample, spark)
        loading = Loading(spark, plan, tables.records, tables.quarantine, checkpoint, sample)

        def load(frame: DataFrame, number: int) -> None:
            batch = records.batch(number)
            ends = batch.end or [None]
            journals = inputs.journals(ends[-1] or ())
            wanted = expected(records.begin_of(batch), ends, journals, fail_on_data_loss=plan.fail_on_data_loss)
            good, bad = loading.add(batch, frame, wanted)
            self._note(good, bad)
            if self._reports is not None:
                self._reports.keep(RECORDS, number, records_in=good + bad, records_out=good, records_bad=bad)
            self._compact(number, tables.records, tables.quarantine)

        if plan.windows is None or tables.windows is None:
            return loading, [self._query(RECORDS, inputs.stream(spark), checkpoint, tables, load)]
        windows = checkpoint.query(WINDOWS)
        counted = Inputs(plan, WINDOWS, windows)
        counted.begin()
        counts = tables.windows
        counting = Counting(plan.windows, loading, counts)

        def count(frame: DataFrame, number: int) -> None:
            rows = counting.add(windows.batch(number), frame)
            self._note_windows(rows)
            if self._reports is not None:
                self._reports.keep(WINDOWS, number, counts=rows)
            self._compact(number, counts)

        return loading, [
            self._query(RECORDS, inputs.stream(spark), checkpoint, tables, load),
            self._query(WINDOWS, counting.counted(counted.stream(spark)), checkpoint, tables, count),
        ]

    def _query(
        self, name: str, frame: DataFrame, checkpoint: Checkpoint, tables: Tables, process: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        def call(batch: DataFrame, number: int) -> None:
            if self.is_stopped:
                raise PipelineStopped
            self._at_work += 1
            try:
                checkpoint.check_owner()
                process(batch, number)
            except (*OURS, PySparkException, Py4JError) as error:
                # Of an error of its own Spark would report only that a call of Python failed.
                self._error = self._explained(batch.sparkSession, tables, error)
                raise self._error from error
            finally:
                self._at_work -= 1

        kept = checkpoint.query(name)
        kept.forget_first_batch()
        writer = frame.writeStream.foreachBatch(call).outputMode("append").queryName(name)
        writer = writer.option("checkpointLocation", kept.path)
        if self._plan.interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{max(1, round(self._plan.interval * 1000))} milliseconds").start()

    def _check_all_see(self, spark: SparkSession, tables: Tables) -> None:
        from jlog.pipeline.visibility import check_all_see

        check_all_see(spark, dict.fromkeys([*self._plan.directories, *tables.places()]))

    def _explained(self, spark: SparkSession, tables: Tables | None, error: Exception) -> Exception:
        """Returns the error with what to do; or one that names the hosts that do not see the others' files, where files or rows
        are missing."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from jlog.pipeline.inputs import explained, is_file_missing
        from jlog.pipeline.tables.table import RowsMissing
        from jlog.spark.session import reason_of

        reason = reason_of(error)
        if tables is not None and (isinstance(error, RowsMissing) or is_file_missing(reason)):
            try:
                with suppress(PySparkException, Py4JError):  # what has failed may prevent this, too
                    self._check_all_see(spark, tables)
            except JournalError as hosts:
                return hosts
        is_ours = isinstance(error, (ValueError, JournalError)) and not isinstance(error, PySparkException)
        return error if is_ours else JournalError(explained(reason, self._plan.sources))

    def _compact(self, number: int, *tables: Destination) -> None:
        """Joins small files after every so many batches, also where a batch comes again after a kill."""
        every = self._plan.compact_every
        if every is not None and (number + 1) % every == 0:
            for table in tables:
                table.table.compact()

    def _note(self, good: int, bad: int) -> None:
        summary = self.summary
        summary.records_in += good + bad
        summary.records_out += good
        summary.records_bad += bad
        summary.batches += 1 if good + bad else 0
        self._on_records(good + bad)

    def _note_windows(self, counts: int) -> None:
        assert self._plan.windows is not None
        before = 0 if self.summary.windows is None else self.summary.windows["counts"]
        self.summary.windows = {"counts": before + counts, "directory": self._plan.windows.directory}

    # --- Progress and end ---------------------------------------------------------------------------------------------

    def _wait(self, queries: Sequence[StreamingQuery]) -> None:
        running = list(queries)
        try:
            while running and not self.is_stopped:
                for query in list(running):
                    if query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]  # raises the error that ends the query
                        running.remove(query)
                    if self._reports is not None:
                        self._reports.report(query)
        finally:
            self._end(queries)

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        """Stops the queries that still run, where the pipeline was stopped or another query has failed."""
        until = time.monotonic() + GRACE_SECONDS
        while self._at_work and time.monotonic() < until:
            time.sleep(POLL_SECONDS / 10)
        for query in queries:
            query.stop()

    def _ask(self, spark: SparkSession, tables: Tables, text: str) -> list[dict[str, Any]]:
        for name, one in tables.by_name.items():
            frame = one.table.frame()
            if frame is not None:
                frame.createOrReplaceTempView(name)
        rows = spark.sql(text).limit(ROWS_SHOWN_MAX).collect()
        return [row.asDict(recursive=True) for row in rows]
