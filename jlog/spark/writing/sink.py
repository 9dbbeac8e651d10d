"""The sink: turns rows into records, each exactly once.

Tasks stage their rows as files; the driver's commit appends them in the order of the partitions. The same append stores how
much of the query's batch is in the journal. So a commit that is repeated, or was cut short and is resumed, appends nothing
twice.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import jlog
from jlog.errors import JournalExists, JournalNotFound
from jlog.spark.checkpoint import content_of, note, noted
from jlog.spark.reading.options import parsed
from jlog.spark.writing.driver import has_local_master
from jlog.spark.writing.ledger import BATCH, NAMELESS, STREAM, Ledger, queries
from jlog.spark.writing.staging import AT_ONCE_BYTES, Staged, Staging
from jlog.system.filesystem import journal_path
from jlog.system.texts import parse_flag, parse_size
from jlog.urls import place_of
from jlog.writer import EncodedRecords, extend_body, ingest, read_piece

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # Spark's names
VERSION = re.compile(r"[0-9]{1,18}")
TRANSACTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
OPTIONS = (
    "compression",
    "segmentBytes",
    "precommit",
    "roll",
    "sync",
    "create",
    "transaction",
    "txnAppId",
    "txnVersion",
    "stagingDirectory",
    "adopt",
)
KNOWN = {name.lower() for name in (*OPTIONS, "path", "checkpointLocation", "queryName")}  # some belong to Spark
WANTED: dict[str, tuple[str, ...]] = {  # the columns that are taken, and their types
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
LEFT_OUT = ("sequence", "journal")  # columns of a journal that was read: the records get new sequences here


class StagingSink:
    """The parts that both sinks share. It is pickled, and goes to the tasks."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in options if name.lower() not in KNOWN)
        if unknown:
            raise ValueError(f"the sink jlog has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}")
        self.path: str = _path(given.get("path", ""))
        self.columns: list[str] = columns_of(schema)
        if overwrite:
            raise ValueError(
                f"{self.path}: a journal is appended to, never overwritten: mode('append'), or outputMode('append') or "
                f"'update'. To begin anew, remove it first: jlog.Journal.delete({self.path!r})"
            )
        self.writer_options: dict[str, Any] = _writer_options(given)
        directory = given.get("stagingdirectory")
        self._directory = None if directory is None else os.path.abspath(directory)
        self._adopts = parsed("adopt", given.get("adopt", "false"), parse_flag)
        journal = _open(self.path, self.writer_options, given.get("create"))
        self._uuid = journal.uuid
        self._compression = str(self.writer_options.get("compression", journal.options.compression))
        self._segment_bytes = int(self.writer_options.get("segment_bytes", journal.options.segment_bytes))

    def staging(self, query: str) -> Staging:
        return Staging(self.path, self._uuid, query, self._directory, self._compression, self._segment_bytes)

    def commit(self, kind: str, query: str, batch: int, staged: Sequence[Staged], checkpoint: str | None = None) -> None:
        """Appends the staged rows. checkpoint: the location of the query's. Raises JournalError where the journal knows other
        rows under the number of this batch."""
        content = content_of(sum(part.records for part in staged), checkpoint, batch)
        staging = self.staging(query)
        with staging.held(), jlog.Writer(self.path, **self.writer_options, create=False) as writer:
            ledger = Ledger(self.path, query, kind)
            entry = ledger.entry
            if entry is not None and entry.manifest is not None:
                # A commit that has begun is completed with the same rows: staged anew they may come in another order.
                begun = staging.kept(entry.manifest, entry.records)
                _append(writer, ledger, staging, begun, entry.records, entry.manifest)
                writer.sync()
            if kind == STREAM and not self._adopts:
                ledger.check_continues(batch, noted(checkpoint))
            if not ledger.has(batch, content):
                ledger.begin(batch, content)
                _begin(writer, ledger, staging, staged)
            writer.sync()  # Spark forgets the batch when this returns
            if kind == STREAM:
                note(checkpoint, batch)
            staging.remove()
            staging.remove_left_over()

    def abort(self, query: str) -> None:
        """Removes the staged rows. Records in the journal stay, and files that a commit needs to be resumed."""
        staging = self.staging(query)
        with staging.held():
            entry = queries(self.path).get(query)
            if staging.is_nameless or entry is None or entry.manifest is None:
                staging.remove()


class BatchSink(DataSourceArrowWriter):
    """The sink of frame.write.format("jlog").mode("append").save(path)."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        self._sink = StagingSink(schema, options, overwrite)
        self.query: str
        self.query, self._version = _named(options)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        partition = _context().partitionId()
        return self._sink.staging(self.query).write(iterator, self._sink.columns, self._version, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.commit(BATCH, self.query, self._version, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._sink.abort(self.query)


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of frame.writeStream.format("jlog").option("checkpointLocation", ...).start(path)."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        for name in ("transaction", "txnAppId", "txnVersion"):
            if options.get(name) is not None:
                raise ValueError(f"the option {name} is for batch writes; a streaming query is known by its checkpoint")
        self._sink = StagingSink(schema, options, overwrite)
        self._checkpoint = options.get("checkpointLocation")

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError("Spark gave no batch number; the sink needs micro-batches, not continuous processing")
        staging = self._sink.staging(query)
        return staging.write(iterator, self._sink.columns, int(batch), context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            self._sink.commit(STREAM, staged[0].query, batchId, staged, self._checkpoint)
        elif noted(self._checkpoint) is None:  # a batch without a task does not even name its query
            note(self._checkpoint, -1)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        for query in {part.query for part in _staged(messages)}:
            self._sink.abort(query)


# --- Options and columns --------------------------------------------------------------------------------------------


def columns_of(schema: StructType) -> list[str]:
    """Returns the frame's columns that become part of a record. Raises ValueError, with what to do, for a frame that cannot be
    records."""
    found: list[str] = []
    for field in schema.fields:
        name = field.name.lower()  # as Spark compares them
        if name in LEFT_OUT:
            continue
        if name in found:
            raise ValueError(
                f"the DataFrame has the column {name} twice, once as {field.name}; leave one out with .select(...)"
            )
        if name not in WANTED:
            raise ValueError(
                f"a record has no column {field.name!r}: it has value, and optionally key, headers and timestamp. "
                "Leave others out with .select('value', ...), or put them into value: .selectExpr(\"to_json(struct(*)) AS "
                'value")'
            )
        if re.sub(r" collate \w+", "", field.dataType.simpleString()) not in WANTED[name]:
            raise ValueError(
                f"the column {field.name} is {field.dataType.simpleString()} and must be {' or '.join(WANTED[name])}; "
                f"cast it, for example .withColumn('{field.name}', ...)"
            )
        found.append(name)
    if "value" not in found:
        raise ValueError(
            f"the DataFrame has no column 'value', which holds the record; it has {', '.join(schema.fieldNames()) or 'none'}. "
            f'For whole rows as JSON: .selectExpr("to_json(struct(*)) AS value")'
        )
    return found


def _path(path: str) -> str:
    if not path:
        raise ValueError(
            "the sink needs a journal's path: .save(path), .start(path) or .option('path', path). Spark does not pass the path "
            "of a table, as of CREATE TABLE ... USING jlog or saveAsTable, to a Python source"
        )
    place = place_of(path, archives=False)
    if place.is_topic:
        raise ValueError(f"{path} is a topic; this sink writes journals, and Spark's format('kafka') topics")
    return journal_path(str(place))


def _writer_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the options of jlog.Writer, which hold for a new journal, and change an existing one."""
    options: dict[str, Any] = {name: given[name] for name in ("compression", "roll", "sync") if name in given}
    for name, option in (("segmentBytes", "segment_bytes"), ("precommit", "precommit")):
        if name.lower() in given:
            options[option] = parsed(name, given[name.lower()], parse_size)
    return options


def _named(options: Mapping[str, str]) -> tuple[str, int]:
    """Returns the name of a batch write and its version. A write without a name gets an id that nobody else has."""
    name, application, version = (options.get(option) for option in ("transaction", "txnAppId", "txnVersion"))
    if name is not None and (application, version) != (None, None):
        raise ValueError("a batch write is named by its transaction, or by its txnAppId and txnVersion, not by both")
    if (application is None) != (version is None):
        raise ValueError(
            "txnAppId and txnVersion must be given together: the name of a repeated load, and the number of this run"
        )
    name = name or application
    if name is None:
        return f"{NAMELESS}{uuid.uuid4()}", 0
    if not TRANSACTION.fullmatch(name):
        raise ValueError(
            f"a transaction's name must have 1 to 100 letters, digits, dots, colons, hyphens and underscores, not {name!r}"
        )
    if version is None:
        return name, 0
    if not VERSION.fullmatch(version):
        raise ValueError(f"txnVersion must be a number of at most 18 digits, which grows from load to load, not {version!r}")
    return name, int(version)


def _open(path: str, options: dict[str, Any], create: str | None) -> jlog.Journal:
    """Opens the journal, and creates it if there is none."""
    # A driver somewhere in a cluster sees no journal of another host. It should not create a second one there.
    occupied: JournalExists | None = None
    may_create = create is None and os.path.isdir(os.path.dirname(path)) and has_local_master()
    if may_create or (create is not None and parsed("create", create, parse_flag)):
        try:
            return jlog.Journal.create(path, **options)
        except JournalExists as error:
            occupied = error
    try:
        return jlog.Journal(path)
    except JournalNotFound:
        if occupied is not None:
            raise occupied from None  # something else is there
        raise JournalNotFound(
            f"there is no journal at {path} on {socket.gethostname()}, where Spark's driver runs. If this is the host of the "
            f"journal, create it with the option create=true or with jlog.Journal.create({path!r}). By default only a driver "
            f"with a local master creates a journal, in a directory that exists"
        ) from None


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted((part for part in messages if isinstance(part, Staged)), key=lambda part: part.partition)


# --- Appending ------------------------------------------------------------------------------------------------------


def _begin(writer: jlog.Writer, ledger: Ledger, staging: Staging, staged: Sequence[Staged]) -> None:
    parts = [part for part in staged if part.files]
    if not parts:
        if ledger.is_stream:  # the next batch must find that this one was here
            writer.extend([], state=ledger.note(0, None))
        return
    if sum(piece.raw_bytes for part in parts for file in part.files for piece in file.pieces) > AT_ONCE_BYTES:
        _append(writer, ledger, staging, parts, 0, staging.keep(parts))
        return
    body = EncodedRecords()
    for part in parts:
        for file in part.files:
            for piece in file.pieces:
                read_piece(staging.path(part, file, 0), piece, body)
    extend_body(writer, body, ledger.note(sum(part.records for part in parts), None))


def _append(
    writer: jlog.Writer, ledger: Ledger, staging: Staging, staged: list[Staged], done: int, manifest: str | None
) -> None:
    """Appends the records after the first `done`: a large file becomes a segment, and others are appended piece by piece. Each
    append stores the progress; the last one says that all are in. They are synced meanwhile, so that the end need not wait for
    the whole."""
    records = sum(part.records for part in staged)

    def note(end: int) -> dict[bytes, bytes | None]:
        return ledger.note(end, manifest if end < records else None)

    files = [(part, file) for part in staged for file in part.files]
    end = 0
    with repeated_in_background(writer.sync) as sync:
        for part, file in files:
            begin, end = end, end + file.records
            if end <= done:
                continue
            path = staging.path(part, file, done)
            if done <= begin and staging.is_segment(file) and ingest(writer, path, file.pieces, note(end)) is not None:
                continue
            for piece in file.pieces:
                begin += piece.records
                if begin > done:
                    body = EncodedRecords()
                    read_piece(path, piece, body)
                    extend_body(writer, body, note(begin))
                    sync()


@contextmanager
def repeated_in_background(call: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """Yields a function that starts `call` in a thread, unless it still runs there: the end of the work need not wait for the
    disk alone. An error of the call is raised by the next start, or at the end."""
    running: Future[Any] | None = None
    with ThreadPoolExecutor(1) as thread:

        def again() -> None:
            nonlocal running
            if running is None or running.done():
                if running is not None:
                    running.result()
                running = thread.submit(call)

        yield again
        if running is not None:
            running.result()
