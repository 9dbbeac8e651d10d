"""Runs a plan: begins or resumes its query, waits for the end, and counts what it has done."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from jlog.errors import JournalError
from jlog.pipeline.batches import Loading
from jlog.pipeline.checkpoint import RECORDS, Checkpoint
from jlog.pipeline.destination import Tables, tables_of
from jlog.pipeline.expected import expected, messages_between
from jlog.pipeline.inputs import Inputs, explained, is_file_missing
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.tables.table import RowsMissing
from jlog.pipeline.visibility import check_all_see
from jlog.spark.progress import JournalProgress, offset_in, progress
from jlog.spark.session import is_late_worker, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


logger: logging.Logger = logging.getLogger("jlog.spark")

PIPELINE = "pipeline"  # the settings that must not change
PARSING = "parsing"  # those that may change between two batches
POLL_SECONDS = 0.25
STARTS_MAX = 3  # of the query, where Python workers start too late
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
    query: list[dict[str, Any]] | None = None

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class PipelineStopped(Exception):
    """The pipeline was stopped, and begins no batch any more."""


class Pipeline:
    """Runs a plan in a session. stop() may be called from a signal handler or another thread."""

    _spark: SparkSession  # run() sets this and the next two
    _checkpoint: Checkpoint
    _tables: Tables

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
        self._reports = Reports(plan.topics, on_batch)
        self._stop = threading.Event()
        self._at_work = 0
        self._error: Exception | None = None
        self.summary: Summary = Summary(quarantine=plan.quarantine, dest=plan.dest, checkpoint=plan.checkpoint)

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
        began = time.monotonic()
        self._spark = spark
        self._be_quiet_at_the_end()
        try:
            self._checkpoint = Checkpoint(spark, self._plan.checkpoint)
            self._tables = tables_of(spark, self._plan, self._checkpoint)
            with self._checkpoint.held():
                self._begin()
                self._check_all_see()
                loading = self._load()
                if self._plan.retry_quarantine and not self.is_stopped:
                    self._checkpoint.check_owner()
                    self.summary.records_retried = loading.retry()
                if self._plan.query is not None:
                    self.summary.query = self._ask(self._plan.query)
        except (PySparkException, Py4JError, OSError) as error:
            if not self.is_stopped:
                raise (self._error or self._explained(error)) from error
        self.summary.seconds = round(time.monotonic() - began, 3)
        return self.summary

    def _be_quiet_at_the_end(self) -> None:
        """Silences the server that takes Spark's accumulators, which prints a traceback where its virtual machine has gone."""
        server = getattr(self._spark.sparkContext, "_accumulatorServer", None)
        if server is not None:
            handle = server.handle_error
            server.handle_error = lambda *request: None if self.is_stopped else handle(*request)

    # --- Beginning ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        plan, tables = self._plan, self._tables
        if plan.query is not None:  # a mistake in the query should show before hours of work
            self._spark._jsparkSession.sessionState().sqlParser().parsePlan(plan.query)
        known = self._checkpoint.settings(PIPELINE)
        if known not in (None, plan.identity):
            raise ValueError(
                f"the checkpoint {plan.checkpoint} belongs to a pipeline with other settings, {json.dumps(known)}; use those "
                "again, or begin anew with another destination and another checkpoint"
            )
        records = self._checkpoint.query()
        if plan.adopt:
            self._adopt()
        for table in (tables.records, tables.quarantine):
            table.compare(records)
        self._checkpoint.keep_settings(PIPELINE, plan.identity)
        self._check_parsing()

    def _check_parsing(self) -> None:
        """A batch that was cut off between the quarantine and the table has to be parsed in the same way again."""
        checkpoint, tables = self._checkpoint, self._tables
        now = {"schema": self._plan.schema, **self._plan.parser.settings}
        known = checkpoint.settings(PARSING)
        unfinished = checkpoint.query().unfinished() if known not in (None, now) else None
        if unfinished is not None and unfinished in (tables.records.last_batch(), tables.quarantine.last_batch()):
            raise ValueError(
                f"the last run ended in the middle of a batch that it parsed with other settings, {json.dumps(known)}; run "
                "once with those to complete the batch, then change them"
            )
        if known != now:
            checkpoint.keep_settings(PARSING, now)

    def _adopt(self) -> None:
        """Takes over tables of another pipeline, whose checkpoint is lost or does not fit them any more."""
        plan, checkpoint, tables = self._plan, self._checkpoint, self._tables
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
        if not checkpoint.query().is_new():
            raise ValueError(
                f"--adopt needs a new --checkpoint: {plan.checkpoint} has batches of another pipeline than {plan.dest}"
            )
        bad, last = tables.quarantine.last_batch(), tables.records.last_batch()
        if bad is not None and bad > (-1 if last is None else last):
            raise JournalError(
                f"{plan.quarantine} has bad records of batch {bad}, which {plan.dest} has not taken. They come again, and "
                "would be there twice: name another --quarantine"
            )
        Inputs(plan, checkpoint.query()).begin_after(state.end or [])
        tables.quarantine.adopt()
        tables.records.adopt()

    # --- The query ----------------------------------------------------------------------------------------------------

    def _load(self) -> Loading:
        """Runs the query to its end. A busy machine may start a Python worker later than Spark waits for it. Then the query
        begins again where it was, until that has happened STARTS_MAX times without a batch in between."""
        starts = 0
        while True:
            starts, batches = starts + 1, self.summary.batches
            loading, query = self._start()
            try:
                self._wait(query)
            except PySparkException as error:
                if self.summary.batches > batches:
                    starts = 0
                if starts == STARTS_MAX or self.is_stopped or self._error is not None or not is_late_worker(error):
                    raise
                logger.info("a Python worker of Spark did not start in time; the pipeline begins again where it was")
            else:
                return loading

    def _start(self) -> tuple[Loading, StreamingQuery]:
        plan, spark, checkpoint, tables = self._plan, self._spark, self._checkpoint, self._tables
        records = checkpoint.query()
        inputs = Inputs(plan, records)
        inputs.begin()
        loading = Loading(spark, plan, tables, checkpoint, partial(inputs.sample, spark))

        def load(frame: DataFrame, number: int) -> None:
            batch = records.batch(number)
            ends = batch.end or [None]
            journals = inputs.journals(ends[-1] or ())
            wanted = expected(records.begin_of(batch), ends, journals, fail_on_data_loss=plan.fail_on_data_loss)
            good, bad = loading.add(batch, frame, wanted)
            self._note(good, bad)
            self._reports.keep(number, records_in=good + bad, records_out=good, records_bad=bad)
            self._compact(number)

        return loading, self._begin_query(inputs.stream(spark), load)

    def _begin_query(self, frame: DataFrame, process: Callable[[DataFrame, int], None]) -> StreamingQuery:
        def call(batch: DataFrame, number: int) -> None:
            if self.is_stopped:
                raise PipelineStopped
            self._at_work += 1
            try:
                self._checkpoint.check_owner()
                process(batch, number)
            except (*OURS, PySparkException, Py4JError) as error:
                # Of an error of its own Spark would report only that a call of Python failed.
                self._error = self._explained(error)
                raise self._error from error
            finally:
                self._at_work -= 1

        kept = self._checkpoint.query()
        kept.forget_first_batch()
        writer = frame.writeStream.foreachBatch(call).outputMode("append").queryName(RECORDS)
        writer = writer.option("checkpointLocation", kept.path)
        if self._plan.interval is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{max(1, round(self._plan.interval * 1000))} milliseconds").start()

    def _check_all_see(self) -> None:
        check_all_see(self._spark, dict.fromkeys([*self._plan.directories, *self._tables.places()]))

    def _explained(self, error: Exception) -> Exception:
        """Returns the error with what to do; or one that names the hosts that do not see the others' files, where files or rows
        are missing."""
        reason = reason_of(error)
        if isinstance(error, RowsMissing) or is_file_missing(reason):
            try:
                with suppress(PySparkException, Py4JError):  # what has failed may prevent this, too
                    self._check_all_see()
            except JournalError as hosts:
                return hosts
        is_ours = isinstance(error, (ValueError, JournalError)) and not isinstance(error, PySparkException)
        return error if is_ours else JournalError(explained(reason, self._plan.topics))

    def _compact(self, number: int) -> None:
        """Joins small files after every so many batches, also where a batch comes again after a kill."""
        every = self._plan.compact_every
        if every is not None and (number + 1) % every == 0:
            for destination in (self._tables.records, self._tables.quarantine):
                destination.table.compact()

    def _note(self, good: int, bad: int) -> None:
        summary = self.summary
        summary.records_in += good + bad
        summary.records_out += good
        summary.records_bad += bad
        summary.batches += 1 if good + bad else 0
        self._on_records(good + bad)

    # --- Progress and end ---------------------------------------------------------------------------------------------

    def _wait(self, query: StreamingQuery) -> None:
        try:
            while not self.is_stopped:
                has_ended = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]  # raises the error that ends the query
                self._reports.report(query)
                if has_ended:
                    break
        finally:
            self._end(query)

    def _end(self, query: StreamingQuery) -> None:
        """Stops the query, if it still runs because the pipeline was stopped."""
        until = time.monotonic() + GRACE_SECONDS
        while self._at_work and time.monotonic() < until:
            time.sleep(POLL_SECONDS / 10)
        query.stop()

    def _ask(self, text: str) -> list[dict[str, Any]]:
        for name, one in self._tables.by_name.items():
            frame = one.table.frame()
            if frame is not None:
                frame.createOrReplaceTempView(name)
        rows = self._spark.sql(text).limit(ROWS_SHOWN_MAX).collect()
        return [row.asDict(recursive=True) for row in rows]


BatchReport = dict[str, Any]


class Reports:
    """Reports each batch once Spark has reported its progress."""

    def __init__(self, topics: Sequence[str], on_batch: Callable[[BatchReport], object] | None) -> None:
        """topics: URLs of topics, in the order that they have among the query's sources; they are the first of these. on_batch:
        None where nobody wants reports."""
        self._topics = topics
        self._on_batch = on_batch
        self._rows: dict[int, dict[str, int]] = {}  # of batches that are not reported yet, by number

    def keep(self, number: int, **rows: int) -> None:
        """Keeps the counts of a batch until it is reported."""
        if self._on_batch is not None:
            self._rows[number] = rows

    def report(self, query: StreamingQuery) -> None:
        """Reports the batches whose progress Spark has reported since the last call."""
        if self._on_batch is None or not self._rows:
            return
        for at in query.recentProgress:
            if "addBatch" not in at["durationMs"]:
                continue  # an idle query reports the number of its next batch
            rows = self._rows.pop(at["batchId"], None)
            if rows is not None:
                seconds = at["batchDuration"] / 1000
                report = {"query": query.name, "batch": at["batchId"], "time": at["timestamp"], "seconds": seconds}
                self._on_batch({**report, **rows, "behind": self._behind(at)})

    def _behind(self, at: Mapping[str, Any]) -> dict[str, BatchReport]:
        """Returns the distance of a batch's end from the newest record of each source."""
        found: dict[str, BatchReport] = {}
        for url, source in zip(self._topics, at["sources"], strict=False):
            found[url] = {"records": messages_between(offset_in(source["endOffset"]), offset_in(source["latestOffset"]))}
        return {**found, **{name: _of_journal(journal) for name, journal in progress(at).items()}}


def _of_journal(at: JournalProgress) -> BatchReport:
    found: BatchReport = {"records": at.records_behind, "bytes": at.bytes_behind}
    if at.newest_record_age is not None:
        found["newest_record_age"] = at.newest_record_age
    return found
