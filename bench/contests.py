"""The contests of `jlogtool bench` with their targets, and some more."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING

import arrow
import mirroring
import spark_sink
import spark_source
from lz4.block import compress

import jlog
from jlog.bench import suite
from jlog.bench.contest import Contest, ContestSettings, Way
from jlog.bench.load import CHUNK_RECORDS
from jlog.bench.writing import ours, ours_together, plain_loop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jlog.bench.contest import Run
    from jlog.bench.load import Load

BLOCK_BYTES = 128 << 10
THREADS = 8
DURABLE_RECORDS = 10_000

TARGETS = {"append": "≥ 2.0×", "extend": "≥ 1.5×", "processes": "≥ 1.2×", "values": "≥ 6×"}


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


CONTESTS = [
    *(replace(contest, target=TARGETS.get(contest.name, "")) for contest in suite.contests()),
    Contest("extend-100", extend_100),
    Contest("processes-extend-100", processes_extend_100, "> 1.0×"),
    Contest("extend-lz4", extend_lz4, "≥ 0.67×"),
    Contest("group-commit", group_commit, "≥ 5×"),
    *arrow.CONTESTS,
    *mirroring.CONTESTS,
    *spark_sink.CONTESTS,
    *spark_source.CONTESTS,
]
