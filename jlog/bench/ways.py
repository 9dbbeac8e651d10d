"""What `jlogtool bench` measures: a journal beside a plain file of length-prefixed values."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jlog
from jlog.bench.contest import Contest, ContestSettings, Way, empty_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jlog.bench.contest import Run
    from jlog.bench.load import Load

Read = Callable[[jlog.Reader], int]
DURABLE_PART, DURABLE_LEAST = 1 / 2000, 100  # a disk syncs a hundred to ten thousands of times a second


def prefix_of(load: Load) -> bytes:
    return load.value_bytes.to_bytes(4, "little")


def plain_loop(load: Load, buffering: int = -1) -> Run:
    values = load.chunk()

    def run(directory: Path) -> tuple[int, float]:
        prefix = prefix_of(load)
        begin = perf_counter()
        with open(directory / "plain", "ab", buffering=buffering) as file:
            for _ in range(load.chunks):
                for value in values:  # noqa: FURB122 - the loop is measured
                    file.write(prefix + value)
        return load.chunks * len(values), perf_counter() - begin

    return run


def plain_durable(load: Load) -> Run:
    """Writes to a plain file, and syncs each value before the next one is written."""
    values = load.chunk()

    def run(directory: Path) -> tuple[int, float]:
        prefix = prefix_of(load)
        begin = perf_counter()
        with open(directory / "plain", "ab", buffering=0) as file:
            for _ in range(load.chunks):
                for value in values:
                    file.write(prefix + value)
                    os.fdatasync(file.fileno())
        return load.chunks * len(values), perf_counter() - begin

    return run


def append_records(writer: jlog.Writer, load: Load, many: int) -> None:
    """Appends, and ends with a flush, as the plain file flushes its own buffer."""
    values = load.chunk()
    chunks = [values[at : at + many] for at in range(0, len(values), many)]
    for _ in range(load.chunks):
        if many == 1:
            append = writer.append
            for value in values:
                append(value)
        else:
            extend = writer.extend
            for chunk in chunks:
                extend(chunk)
    writer.flush()


def ours(load: Load, many: int = 1, **options: Any) -> Run:
    """Appends `many` records in one call: 1 uses append, more use extend."""

    def run(directory: Path) -> tuple[int, float]:
        with jlog.Writer(directory / "journal", **options) as writer:
            begin = perf_counter()
            append_records(writer, load, many)
            return load.chunks * load.chunk_records, perf_counter() - begin

    return run


def read_plain(path: Path, records: int, _directory: Path) -> tuple[int, float]:
    begin = perf_counter()
    done = 0
    with open(path, "rb") as file:
        while head := file.read(4):
            file.read(int.from_bytes(head, "little"))
            done += 1
    seconds = perf_counter() - begin
    assert done == records, (done, records)
    return done, seconds


def read_journal(path: Path, records: int, read: Read, _directory: Path) -> tuple[int, float]:
    begin = perf_counter()
    with jlog.Reader(path) as reader:
        done = read(reader)
    seconds = perf_counter() - begin
    assert done == records, (done, records)
    return done, seconds


def read_values(reader: jlog.Reader) -> int:
    done = 0
    for _value in reader.values():
        done += 1
    return done


@contextmanager
def append(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield Way("append", ours(settings.load)), Way("write each", plain_loop(settings.load))


@contextmanager
def durable(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load.share(DURABLE_PART, DURABLE_LEAST)
    yield Way("append, sync=append", ours(load, sync="append")), Way("write and fdatasync each", plain_durable(load))


@contextmanager
def reading(name: str, read: Read, settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    """Prepares the reading of a journal in the page cache, and of a plain file with the same values."""
    load = settings.load
    with empty_directory(settings.directory) as directory:
        records, _ = ours(load, load.chunk_records)(directory)
        plain_loop(load)(directory)
        yield (
            Way(name, partial(read_journal, directory / "journal", records, read)),
            Way("read(4), read(n) loop", partial(read_plain, directory / "plain", records)),
        )


CONTESTS = [
    Contest("append", append),
    Contest("durable", durable),
    Contest("values", partial(reading, "reader.values()", read_values)),
]
