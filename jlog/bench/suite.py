"""The contests of `jlogtool bench`, by name."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import jlog
from jlog.bench.contest import Contest, ContestSettings, Prepare, Way
from jlog.bench.load import CHUNK_RECORDS
from jlog.bench.reading import read_batches, read_records, read_values, reading
from jlog.bench.writing import (
    ours,
    ours_together,
    plain_durable,
    plain_joined,
    plain_loop,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DURABLE_PART, DURABLE_LEAST = 1 / 2000, 100  # a disk syncs a hundred to ten thousands of times a second
UNBUFFERED_PART = 1 / 10


@contextmanager
def append(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    yield Way("append", ours(settings.load)), Way("write each", plain_loop(settings.load))


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
            Way(
                f"append, {settings.processes} processes",
                ours_together(stack, settings.processes, settings.load),
            ),
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
def durable(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load.share(DURABLE_PART, DURABLE_LEAST)
    yield (
        Way("append, sync=append", ours(load, sync="append")),
        Way("write and fdatasync each", plain_durable(load)),
    )


@contextmanager
def durable_processes(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load = settings.load.share(DURABLE_PART, DURABLE_LEAST)
    with ExitStack() as stack:
        yield (
            Way(
                f"append, sync=append, {settings.processes} processes",
                ours_together(stack, settings.processes, load, sync="append"),
            ),
            Way("write and fdatasync each, one process", plain_durable(load)),
        )


def read_arrow(reader: jlog.Reader) -> int:
    done = 0
    while batch := reader.read(100_000):
        done += batch.to_arrow().num_rows
    return done


def contests() -> list[Contest]:
    """Returns the contests that can be held with the libraries that are installed."""
    found: list[tuple[str, Prepare]] = [
        ("append", append),
        ("extend", extend),
        ("processes", processes),
        ("precommit-0", without_buffer),
        ("lz4", compressed),
        ("durable", durable),
        ("durable-processes", durable_processes),
        ("values", partial(reading, "reader.values()", read_values)),
        ("records", partial(reading, "for record in reader", read_records)),
        ("batches", partial(reading, "reader.read(), batch.values()", read_batches)),
    ]
    if importlib.util.find_spec("pyarrow") is not None:
        found.append(("arrow", partial(reading, "reader.read(), batch.to_arrow()", read_arrow)))
    return [Contest(name, prepare) for name, prepare in found]
