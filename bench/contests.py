"""All contests: those of `jlogtool bench`, and the ones that only a checkout holds."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

import arrow
import mirroring
import spark_sink
import spark_source
from crew import process, run_together, serve
from lz4.block import compress

import jlog
from jlog.bench import (
    CHUNK_RECORDS,
    DURABLE_LEAST,
    DURABLE_PART,
    Contest,
    ContestSettings,
    Way,
    append_records,
    ours,
    plain_loop,
    prefix_of,
    reading,
)
from jlog.bench import (
    CONTESTS as TOOL_CONTESTS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jlog.bench import Load, Run

BLOCK_BYTES = 128 << 10
PROCESSES = 2
THREADS = 8
DURABLE_RECORDS = 10_000
UNBUFFERED_PART = 1 / 10

TARGETS = {"append": "≥ 2.0×", "values": "≥ 6×"}


# --- Writing ------------------------------------------------------------------------------------------------


def plain_joined(load: Load) -> Run:
    values = load.chunk()

    def run(directory: Path) -> tuple[int, float]:
        prefix = prefix_of(load)
        begin = perf_counter()
        with open(directory / "plain", "ab") as file:
            for _ in range(load.chunks):  # noqa: FURB122
                file.write(b"".join([prefix + value for value in values]))
        return load.chunks * len(values), perf_counter() - begin

    return run


def open_writer(path: str, _load: Load, _many: int, options: dict[str, Any]) -> jlog.Writer:
    return jlog.Writer(path, **options)


def append_share(writer: jlog.Writer, load: Load, many: int, _options: dict[str, Any]) -> None:
    append_records(writer, load, many)


def ours_together(stack: ExitStack, processes: int, load: Load, many: int = 1, **options: Any) -> Run:
    """Appends with so many processes, which share the journal and the records."""
    share = load.share(1 / processes)
    arguments = open_writer, append_share, share, many, options
    lines = [stack.enter_context(process(serve, *arguments))[0] for _ in range(processes)]

    def run(directory: Path) -> tuple[int, float]:
        return processes * share.chunks * share.chunk_records, run_together(lines, directory / "journal")

    return run


@contextmanager
def extend(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way(f"extend, {CHUNK_RECORDS:,} at a time", ours(settings.load, CHUNK_RECORDS)),
        Way(f"write {CHUNK_RECORDS:,} joined", plain_joined(settings.load)),
    )


@contextmanager
def processes(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    with ExitStack() as stack:
        yield (
            Way(f"append, {PROCESSES} processes", ours_together(stack, PROCESSES, settings.load)),
            Way("write each, one process", plain_loop(settings.load)),
        )


@contextmanager
def without_buffer(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load.share(UNBUFFERED_PART)
    yield (
        Way("append, precommit=0", ours(load, precommit=0)),
        Way("write each, unbuffered", plain_loop(load, buffering=0)),
    )


@contextmanager
def compressed(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way("append, compression=lz4", ours(settings.load, compression="lz4")),
        Way("write each", plain_loop(settings.load)),
    )


@contextmanager
def durable_processes(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load.share(DURABLE_PART, DURABLE_LEAST)
    with ExitStack() as stack:
        yield (
            Way(f"append, sync=append, {PROCESSES} processes", ours_together(stack, PROCESSES, load, sync="append")),
            Way("write and fdatasync each, one process", plain_loop(load, durable=True)),
        )


@contextmanager
def extend_100(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield Way("extend, 100 at a time", ours(settings.load, 100)), Way("write each", plain_loop(settings.load))


@contextmanager
def processes_extend_100(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    with ExitStack() as stack:
        yield (
            Way("extend, 100 at a time, 2 processes", ours_together(stack, 2, settings.load, 100)),
            Way("the same, 1 process", ours_together(stack, 1, settings.load, 100)),
        )


def bare_lz4(load: Load) -> Run:
    """Compresses the same bytes in pieces of a block, and drops the result."""
    content = b"".join(load.chunk() * load.chunks)
    pieces = [content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES)]

    def run(_directory: Path) -> tuple[int, float]:
        begin = perf_counter()
        for piece in pieces:
            compress(piece, store_size=False)
        return load.chunks * load.chunk_records, perf_counter() - begin

    return run


@contextmanager
def extend_lz4(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way("extend(1,000), lz4", ours(settings.load, CHUNK_RECORDS, compression="lz4")),
        Way("lz4.block.compress alone", bare_lz4(settings.load)),
    )


def durable_threads(threads: int) -> Run:
    def append(writer: jlog.Writer) -> None:
        for _ in range(DURABLE_RECORDS // threads):
            writer.append(bytes(100))

    def run(directory: Path) -> tuple[int, float]:
        with jlog.Writer(directory / "journal", sync="append") as writer:
            crew = [Thread(target=append, args=(writer,)) for _ in range(threads)]
            begin = perf_counter()
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join()
            return DURABLE_RECORDS, perf_counter() - begin

    return run


@contextmanager
def group_commit(_settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way(f"append, sync=append, {THREADS} threads", durable_threads(THREADS)),
        Way("the same, 1 thread", durable_threads(1)),
    )


# --- Reading ------------------------------------------------------------------------------------------------


def read_records(reader: jlog.Reader) -> int:
    done = 0
    for record in reader:
        record.value  # noqa: B018
        done += 1
    return done


def keep_records(reader: jlog.Reader) -> int:
    return len(list(reader))


def read_batches(reader: jlog.Reader) -> int:
    done = 0
    while batch := reader.read():
        for _value in batch.values():
            done += 1
    return done


def read_arrow(reader: jlog.Reader) -> int:
    done = 0
    while batch := reader.read(100_000):
        done += batch.to_arrow().num_rows
    return done


CONTESTS = [
    *(replace(contest, target=TARGETS.get(contest.name, "")) for contest in TOOL_CONTESTS),
    Contest("extend", extend, "≥ 1.5×"),
    Contest("processes", processes, "≥ 1.2×"),
    Contest("precommit-0", without_buffer),
    Contest("lz4", compressed),
    Contest("durable-processes", durable_processes),
    Contest("records", partial(reading, "for record in reader", read_records)),
    Contest("kept-records", partial(reading, "list(reader)", keep_records)),
    Contest("batches", partial(reading, "reader.read(), batch.values()", read_batches)),
    Contest("arrow", partial(reading, "reader.read(), batch.to_arrow()", read_arrow)),
    Contest("extend-100", extend_100),
    Contest("processes-extend-100", processes_extend_100, "> 1.0×"),
    Contest("extend-lz4", extend_lz4, "≥ 0.67×"),
    Contest("group-commit", group_commit, "≥ 5×"),
    *arrow.CONTESTS,
    *mirroring.CONTESTS,
    *spark_sink.CONTESTS,
    *spark_source.CONTESTS,
]
