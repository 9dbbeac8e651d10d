"""Appends to a journal, and to a plain file of length-prefixed values."""

from __future__ import annotations

import os
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jlog
from jlog.bench.crew import process, run_together, serve

if TYPE_CHECKING:
    from pathlib import Path

    from jlog.bench.contest import Run
    from jlog.bench.load import Load


def prefix_of(load: Load) -> bytes:
    return load.value_bytes.to_bytes(4, "little")


# --- The plain file -----------------------------------------------------------------------------------------


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


# --- jlog ---------------------------------------------------------------------------------------------------


def open_writer(path: str, _load: Load, _many: int, options: dict[str, Any]) -> jlog.Writer:
    return jlog.Writer(path, **options)


def append_records(writer: jlog.Writer, load: Load, many: int, _options: dict[str, Any]) -> None:
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
        with open_writer(str(directory / "journal"), load, many, options) as writer:
            begin = perf_counter()
            append_records(writer, load, many, options)
            seconds = perf_counter() - begin
            return load.chunks * load.chunk_records, seconds

    return run


def ours_together(stack: ExitStack, processes: int, load: Load, many: int = 1, **options: Any) -> Run:
    """Appends with so many processes, which share the journal and the records."""
    share = load.share(1 / processes)
    arguments = open_writer, append_records, share, many, options
    lines = [stack.enter_context(process(serve, *arguments))[0] for _ in range(processes)]

    def run(directory: Path) -> tuple[int, float]:
        return processes * share.chunks * share.chunk_records, run_together(lines, directory / "journal")

    return run
