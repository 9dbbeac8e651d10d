"""The sink: rows become records, each exactly once.

Tasks stage their rows as files; the driver's commit appends them in the order of the partitions. With the records goes what
of the query's batch is in, so that a commit that is repeated, or was cut short and is resumed, appends nothing twice.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType, TimestampType

import jlog
from jlog.errors import JournalExists
from jlog.filesystem import journal_path, path_of_file
from jlog.spark.beside import beside
from jlog.spark.ledger import BATCH, STREAM, Ledger, queries
from jlog.spark.staging import AT_ONCE_BYTES, Staged, Staging

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as Schema

APPEND_BYTES = 2 << 20  # what a larger one is appended in: more at once falls out of the processor's cache
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # how Spark calls them
TRANSACTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
OPTIONS = (
    "compression",
    "segmentBytes",
    "precommit",
    "roll",
    "sync",
    "create",
    "transaction",
    "stagingDirectory",
)
KNOWN = {
    name.lower() for name in (*OPTIONS, "path", "checkpointLocation", "queryName")
}  # some are Spark's own
TAKEN = ("key", "value", "headers", "timestamp")
LEFT_OUT = ("sequence", "journal")  # of a journal that was read: here the records get numbers of their own


class Sink:
    """What both have in common; it is pickled, and goes to the tasks. comes_back: under the same name, after a power loss."""

    def __init__(
        self, schema: Schema, options: Mapping[str, str], overwrite: bool, *, comes_back: bool
    ) -> None:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in options if name.lower() not in KNOWN)
        if unknown:
            raise ValueError(f"the sink jlog has no option {', '.join(unknown)}; it has {', '.join(OPTIONS)}")
        self.path = _path(given.get("path", ""))
        self.columns = columns_of(schema)
        if overwrite:
            raise ValueError(
                f"{self.path}: a journal is appended to, never overwritten: mode('append'), or outputMode('append') or "
                f"'update'. To begin anew, remove it first: jlog.Journal.delete({self.path!r})"
            )
        self.writer_options = _writer_options(given)
        self._directory = _absolute(given.get("stagingdirectory"))
        self._comes_back = comes_back
        self._uuid = _open(self.path, self.writer_options, given.get("create", "true"))

    def staging(self, query: str) -> Staging:
        return Staging(self.path, self._uuid, query, self._directory, durable=self._comes_back)

    def commit(self, kind: str, query: str, batch: int, staged: Sequence[Staged]) -> None:
        staging = self.staging(query)
        with staging.held(), jlog.Writer(self.path, **self.writer_options, create=False) as writer:
            ledger = Ledger(self.path, query, kind)
            entry = ledger.entry
            if entry is not None and entry.manifest is not None:
                # What was begun is ended with the same rows: staged anew they may come in another order.
                begun = staging.kept(entry.manifest, entry.records)
                _append(writer, ledger, staging, begun, entry.batch, entry.records, entry.manifest)
            if not ledger.has(batch):
                _begin(writer, ledger, staging, staged, batch)
            writer.sync()  # Spark forgets the batch now
            staging.remove()
            unfinished = {name for name, known in queries(self.path).items() if known.manifest is not None}
            staging.remove_stale(unfinished)

    def abort(self, query: str) -> None:
        """What is in the journal stays, and what a commit needs that is to be resumed."""
        staging = self.staging(query)
        with staging.held():
            entry = queries(self.path).get(query)
            if entry is None or entry.manifest is None:
                staging.remove()


class BatchSink(DataSourceArrowWriter):
    """frame.write.format("jlog").mode("append").save(path)"""

    def __init__(self, schema: Schema, options: Mapping[str, str], overwrite: bool) -> None:
        name = options.get("transaction")
        self._sink = Sink(schema, options, overwrite, comes_back=name is not None)
        if name is not None and not TRANSACTION.fullmatch(name):
            raise ValueError(
                f"a transaction's name has 1 to 100 letters, digits, dots, colons, hyphens and underscores, not {name!r}"
            )
        self._query = name or str(uuid.uuid4())

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        partition = _context().partitionId()
        return self._sink.staging(self._query).write(iterator, self._sink.columns, 0, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._sink.commit(BATCH, self._query, 0, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._sink.abort(self._query)


class StreamSink(DataSourceStreamArrowWriter):
    """frame.writeStream.format("jlog").option("checkpointLocation", ...).start(path)"""

    def __init__(self, schema: Schema, options: Mapping[str, str], overwrite: bool) -> None:
        if options.get("transaction") is not None:
            raise ValueError(
                "the option transaction is for batch writes; a streaming query is known by its checkpoint"
            )
        self._sink = Sink(schema, options, overwrite, comes_back=True)

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError(
                "Spark did not say which batch this is; the sink takes micro-batches, no continuous ones"
            )
        staging = self._sink.staging(query)
        return staging.write(iterator, self._sink.columns, int(batch), context.partitionId())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            self._sink.commit(STREAM, staged[0].query, batchId, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        for query in {part.query for part in _staged(messages)}:
            self._sink.abort(query)


# --- Options and columns --------------------------------------------------------------------------------------------


def columns_of(schema: Schema) -> list[str]:
    """Those of the frame that become part of a record. ValueError, with what to do, for a frame that cannot be records."""
    found: list[str] = []
    for field in schema.fields:
        if field.name in LEFT_OUT:
            continue
        if field.name not in TAKEN:
            raise ValueError(
                f"a record has no column {field.name!r}: it has value, and optionally key, headers and timestamp. Leave "
                f"others out with .select('value', ...), or put them into value: .selectExpr(\"to_json(struct(*)) AS value\")"
            )
        if not _fits(field.name, field.dataType):
            raise ValueError(
                f"the column {field.name} is {field.dataType.simpleString()} and must be {_WANTED[field.name]}; "
                f"cast it, for example .withColumn('{field.name}', ...)"
            )
        found.append(field.name)
    if "value" not in found:
        raise ValueError(
            f"the frame has no column value, which becomes the record; it has {', '.join(schema.fieldNames()) or 'none'}. "
            f'For whole rows as JSON: .selectExpr("to_json(struct(*)) AS value")'
        )
    return found


_WANTED = {
    "key": "binary or string",
    "value": "binary or string",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp",
}


def _fits(name: str, type_: DataType) -> bool:
    if name == "timestamp":
        return isinstance(type_, TimestampType)
    if name != "headers":
        return isinstance(type_, (BinaryType, StringType))
    if not isinstance(type_, ArrayType) or not isinstance(type_.elementType, StructType):
        return False
    header = {field.name: field.dataType for field in type_.elementType.fields}
    return (
        list(header) == ["key", "value"]
        and isinstance(header["key"], StringType)
        and isinstance(header["value"], BinaryType)
    )


def _path(path: str) -> str:
    if not path:
        raise ValueError(
            "the sink needs a journal's path: .save(path), .start(path) or .option('path', path)"
        )
    if path.lower().startswith("kafka:"):
        raise ValueError(f"{path} is a topic; this sink writes journals, and Spark's format('kafka') topics")
    if path.lower().startswith("file:"):
        path = path_of_file(path, path[len("file:") :])
    return journal_path(path)


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _writer_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Of jlog.Writer: for a journal that is made here, and changed where there is one, as everywhere."""
    found: dict[str, Any] = {name: given[name] for name in ("compression", "roll", "sync") if name in given}
    for name, option in (("segmentbytes", "segment_bytes"), ("precommit", "precommit")):
        if name in given:
            try:
                found[option] = int(given[name])
            except ValueError:
                raise ValueError(f"the option {name} is a number of bytes, not {given[name]!r}") from None
    return found


def _open(path: str, options: dict[str, Any], create: str) -> str:
    """Makes the journal where there is none; returns its uuid."""
    if create.lower() not in ("true", "false"):
        raise ValueError(f"the option create is true or false, not {create!r}")
    if create.lower() == "true":
        with suppress(JournalExists):
            jlog.Journal.create(path, **options)
    return jlog.Journal(path).uuid


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return sorted(
        (part for part in messages if isinstance(part, Staged)),
        key=lambda part: part.partition,
    )


# --- Appending ------------------------------------------------------------------------------------------------------


def _begin(
    writer: jlog.Writer, ledger: Ledger, staging: Staging, staged: Sequence[Staged], batch: int
) -> None:
    parts = [part for part in staged if part.records]
    if not parts:
        return
    if sum(part.bytes for part in parts) > AT_ONCE_BYTES:
        _append(writer, ledger, staging, parts, batch, 0, staging.keep(parts))
        return
    table = pyarrow.Table.from_batches(list(staging.read(parts)))
    writer.extend_arrow(table, state=ledger.note(batch, table.num_rows, None))


def _append(
    writer: jlog.Writer,
    ledger: Ledger,
    staging: Staging,
    staged: list[Staged],
    batch: int,
    done: int,
    manifest: str,
) -> None:
    """The records behind the first `done`, piece by piece. Each says how far it has come, the last that all are in. They are
    synced meanwhile: the disk need not wait for the last."""
    records = sum(part.records for part in staged)
    with beside(writer.sync) as sync:
        for piece in _pieces(staging.read(staged, done)):
            done += piece.num_rows
            writer.extend_arrow(piece, state=ledger.note(batch, done, manifest if done < records else None))
            sync()


def _pieces(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """Tables of about APPEND_BYTES."""
    found: list[pyarrow.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _cut(batch):
            if found and size + part.nbytes > APPEND_BYTES:
                yield pyarrow.Table.from_batches(found)
                found, size = [], 0
            found.append(part)
            size += part.nbytes
    if found:
        yield pyarrow.Table.from_batches(found)


def _cut(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    if batch.nbytes <= APPEND_BYTES or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))
