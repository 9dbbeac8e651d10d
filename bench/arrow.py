"""Measures Arrow in and out, and records with keys, compared with a stream of pyarrow's IPC format that holds the same
columns."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow

import jlog
from jlog.bench import CHUNK_RECORDS, Contest, ContestSettings, Read, Way, empty_directory, ours, prefix_of, read_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jlog.bench import Load, Run

KEYS = [b"key-%06d" % number for number in range(CHUNK_RECORDS)]
KEY_PREFIX = len(KEYS[0]).to_bytes(4, "little")


# --- Writing ------------------------------------------------------------------------------------------------


def write_journal(load: Load, write: Callable[[jlog.Writer], object]) -> Run:
    """Writes all chunks; `write` appends one chunk."""

    def run(directory: Path) -> tuple[int, float]:
        with jlog.Writer(directory / "journal") as writer:
            begin = perf_counter()
            for _ in range(load.chunks):
                write(writer)
            writer.flush()
            return load.chunks * load.chunk_records, perf_counter() - begin

    return run


def write_stream(load: Load, batch_of: Callable[[], pyarrow.RecordBatch]) -> Run:
    schema = batch_of().schema

    def run(directory: Path) -> tuple[int, float]:
        begin = perf_counter()
        with (
            pyarrow.OSFile(str(directory / "stream"), "wb") as file,
            pyarrow.ipc.new_stream(file, schema) as stream,
        ):
            for _ in range(load.chunks):
                stream.write_batch(batch_of())
        return load.chunks * load.chunk_records, perf_counter() - begin

    return run


def plain_with_keys(load: Load) -> Run:
    values = load.chunk()

    def run(directory: Path) -> tuple[int, float]:
        prefix = prefix_of(load)
        begin = perf_counter()
        with open(directory / "plain", "ab") as file:
            for _ in range(load.chunks):
                file.writelines(KEY_PREFIX + key + prefix + value for key, value in zip(KEYS, values, strict=True))
        return load.chunks * load.chunk_records, perf_counter() - begin

    return run


@contextmanager
def extend_arrow(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    batch = pyarrow.RecordBatch.from_pydict({"value": settings.load.chunk()})
    yield (
        Way("extend_arrow(1,000)", write_journal(settings.load, lambda writer: writer.extend_arrow(batch))),
        Way("IPC stream, 1,000 a batch", write_stream(settings.load, lambda: batch)),
    )


@contextmanager
def extend_keys(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    values = settings.load.chunk()
    yield (
        Way(
            "extend(1,000) with keys",
            write_journal(settings.load, lambda writer: writer.extend(values, KEYS)),
        ),
        Way(
            "IPC stream, 1,000 a batch, from lists",
            write_stream(settings.load, lambda: pyarrow.RecordBatch.from_pydict({"value": values, "key": KEYS})),
        ),
    )


@contextmanager
def append_keys(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    values = settings.load.chunk()

    def write(writer: jlog.Writer) -> None:
        append = writer.append
        for key, value in zip(KEYS, values, strict=True):
            append(value, key=key)

    yield (
        Way("append with a key", write_journal(settings.load, write)),
        Way("plain loop with keys", plain_with_keys(settings.load)),
    )


# --- Reading ------------------------------------------------------------------------------------------------


def read_stream(path: Path, records: int, _directory: Path) -> tuple[int, float]:
    begin = perf_counter()
    with pyarrow.OSFile(str(path), "rb") as file, pyarrow.ipc.open_stream(file) as stream:
        done = sum(batch.num_rows for batch in stream)
    seconds = perf_counter() - begin
    assert done == records, (done, records)
    return done, seconds


def convert_batches(reader: jlog.Reader) -> int:
    done = 0
    while batch := reader.read():
        done += batch.to_arrow().num_rows
    return done


def read_batches(reader: jlog.Reader) -> int:
    return sum(batch.num_rows for batch in reader.record_batches())


def count(reader: jlog.Reader) -> int:
    return sum(batch.num_rows for batch in reader.record_batches(columns=["sequence"]))


@contextmanager
def reading(name: str, read: Read, settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load
    records = load.chunks * load.chunk_records
    with empty_directory(settings.directory) as directory:
        ours(load, CHUNK_RECORDS)(directory)
        with jlog.Reader(directory / "journal") as reader:
            write_stream_of(directory / "stream", pyarrow.schema(reader), reader.record_batches(max_records=CHUNK_RECORDS))
        yield (
            Way(name, partial(read_journal, directory / "journal", records, read)),
            Way("IPC stream, 1,000 a batch", partial(read_stream, directory / "stream", records)),
        )


def write_stream_of(path: Path, schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch]) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


CONTESTS = [
    Contest("append-keys", append_keys),
    Contest("extend-keys", extend_keys),
    Contest("extend-arrow", extend_arrow),
    Contest("record-batches", partial(reading, "reader.record_batches()", read_batches)),
    Contest("to-arrow", partial(reading, "reader.read(), to_arrow()", convert_batches)),
    Contest("count", partial(reading, "record_batches(columns=['sequence'])", count)),
]
