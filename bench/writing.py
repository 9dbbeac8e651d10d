"""Appending, beside a plain file of length-prefixed values."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from contest import Contest, Run, Settings, Way
from crew import process, run_together, serve

import jlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VALUE_BYTES = 100
PRECOMMIT_BYTES = 128 << 10
PREFIX = VALUE_BYTES.to_bytes(4, "little")
CHUNK = 1000


def chunk_of_values() -> list[bytes]:
    return [os.urandom(VALUE_BYTES) for _ in range(CHUNK)]


# --- The plain file -----------------------------------------------------------------------------------------


def plain_loop(records: int, buffering: int = -1) -> Run:
    values = chunk_of_values()

    def run(directory: Path) -> tuple[int, float]:
        prefix = PREFIX
        begin = perf_counter()
        with open(directory / "plain", "ab", buffering=buffering) as file:
            for _ in range(records // CHUNK):
                for value in values:  # noqa: FURB122 - the loop is what is measured
                    file.write(prefix + value)
        return records, perf_counter() - begin

    return run


def plain_joined(records: int) -> Run:
    values = chunk_of_values()

    def run(directory: Path) -> tuple[int, float]:
        prefix = PREFIX
        begin = perf_counter()
        with open(directory / "plain", "ab") as file:
            for _ in range(records // CHUNK):  # noqa: FURB122
                file.write(b"".join([prefix + value for value in values]))
        return records, perf_counter() - begin

    return run


# --- jlog ---------------------------------------------------------------------------------------------------


def open_writer(path: str, _records: int, _many: int, precommit: int) -> jlog.Writer:
    return jlog.Writer(path, precommit=precommit)


def append_records(writer: jlog.Writer, records: int, many: int, _precommit: int) -> None:
    """Ends with a flush, as the plain file does with the buffer of its own."""
    values = chunk_of_values()
    chunks = [values[at : at + many] for at in range(0, CHUNK, many)]
    for _ in range(records // CHUNK):
        if many == 1:
            append = writer.append
            for value in values:
                append(value)
        else:
            extend = writer.extend
            for chunk in chunks:
                extend(chunk)
    writer.flush()


def ours(records: int, many: int, precommit: int = PRECOMMIT_BYTES) -> Run:
    def run(directory: Path) -> tuple[int, float]:
        with open_writer(str(directory / "journal"), records, many, precommit) as writer:
            begin = perf_counter()
            append_records(writer, records, many, precommit)
            return records, perf_counter() - begin

    return run


def ours_together(processes: int, records: int, many: int) -> Callable[[ExitStack], Run]:
    """So many processes that share the journal, and the records."""
    share = records // processes

    def enter(stack: ExitStack) -> Run:
        arguments = open_writer, append_records, share, many, PRECOMMIT_BYTES
        lines = [stack.enter_context(process(serve, *arguments))[0] for _ in range(processes)]

        def run(directory: Path) -> tuple[int, float]:
            return processes * share, run_together(lines, directory / "journal")

        return run

    return enter


# --- Who against whom ---------------------------------------------------------------------------------------


@contextmanager
def one_by_one(settings: Settings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way("append", ours(settings.records, 1)),
        Way("plain loop", plain_loop(settings.records)),
    )


@contextmanager
def extend_100(settings: Settings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way("extend(100)", ours(settings.records, 100)),
        Way("plain loop", plain_loop(settings.records)),
    )


@contextmanager
def extend_1000(settings: Settings) -> Iterator[tuple[Way, Way]]:
    yield (
        Way("extend(1,000)", ours(settings.records, CHUNK)),
        Way("plain, joined by 1,000", plain_joined(settings.records)),
    )


@contextmanager
def two_processes(settings: Settings) -> Iterator[tuple[Way, Way]]:
    with ExitStack() as stack:
        yield (
            Way("2 processes, append", ours_together(2, settings.records, 1)(stack)),
            Way("one plain loop", plain_loop(settings.records)),
        )


@contextmanager
def two_processes_extend(settings: Settings) -> Iterator[tuple[Way, Way]]:
    with ExitStack() as stack:
        yield (
            Way("2 processes, extend(100)", ours_together(2, settings.records, 100)(stack)),
            Way("1 process, extend(100)", ours_together(1, settings.records, 100)(stack)),
        )


@contextmanager
def without_buffer(settings: Settings) -> Iterator[tuple[Way, Way]]:
    records = max(settings.records // 10 // CHUNK, 1) * CHUNK
    yield (
        Way("append, precommit=0", ours(records, 1, precommit=0)),
        Way("plain loop, buffering=0", plain_loop(records, buffering=0)),
    )


CONTESTS = [
    Contest("append", one_by_one, "≥ 2.0×"),
    Contest("extend-100", extend_100),
    Contest("extend-1000", extend_1000, "≥ 1.5×"),
    Contest("two-processes", two_processes, "≥ 1.2×"),
    Contest("two-processes-extend-100", two_processes_extend, "> 1.0×"),
    Contest("precommit-0", without_buffer),
]
