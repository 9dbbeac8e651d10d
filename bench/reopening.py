"""Measures how long the first append takes in a journal whose writer was killed."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import jlog
from jlog.bench.contest import Spread, empty_directory
from jlog.bench.crew import process
from jlog.bench.load import CHUNK_RECORDS, Load

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from sizes import Sizes

TARGET = "≤ 50 ms"
CHUNKS_MORE = 3  # so that the buffer is neither empty nor new when the writer is killed


def write(line: Connection, path: str, size_bytes: int, segment_bytes: int) -> None:
    """Writes this many bytes of values, and then waits to be killed."""
    values = Load(CHUNK_RECORDS).chunk()
    writer = jlog.Writer(path, segment_bytes=segment_bytes)
    for _ in range(size_bytes // (CHUNK_RECORDS * Load.value_bytes)):
        writer.extend(values)
    for _ in range(CHUNKS_MORE):
        for value in values:
            writer.append(value)
    line.send("written")
    line.recv()


def reopening(settings: Sizes, segment_bytes: int) -> Spread:
    """Returns, for each round, the milliseconds from jlog.Writer() to the return of its first append."""
    found = Spread()
    with empty_directory(settings.directory) as directory:
        path = str(directory / "journal")
        size_bytes = settings.reopen_bytes
        for _ in range(settings.rounds):
            with process(write, path, size_bytes, segment_bytes) as (line, kill):
                line.recv()
                kill()
            begin = perf_counter()
            writer = jlog.Writer(path)
            sequence = writer.append(b"first")
            found.rounds.append((perf_counter() - begin) * 1000)
            assert sequence >= settings.reopen_bytes // Load.value_bytes
            writer.close()
            size_bytes = 0  # it is large enough now
    return found
