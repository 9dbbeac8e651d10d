"""Reads a journal in the page cache, and a plain file of the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

import jlog
from jlog.bench.contest import ContestSettings, Way, empty_directory
from jlog.bench.load import CHUNK_RECORDS, Load
from jlog.bench.writing import ours, plain_joined

Read = Callable[[jlog.Reader], int]


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


def read_values(reader: jlog.Reader) -> int:
    done = 0
    for _value in reader.values():
        done += 1
    return done


def read_records(reader: jlog.Reader) -> int:
    done = 0
    for record in reader:
        record.value  # noqa: B018
        done += 1
    return done


def read_batches(reader: jlog.Reader) -> int:
    done = 0
    while batch := reader.read():
        for _value in batch.values():
            done += 1
    return done


def read_journal(path: Path, records: int, read: Read, _directory: Path) -> tuple[int, float]:
    begin = perf_counter()
    with jlog.Reader(path) as reader:
        done = read(reader)
    seconds = perf_counter() - begin
    assert done == records, (done, records)
    return done, seconds


@contextmanager
def reading(name: str, read: Read, settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
    load: Load = settings.load
    records = load.chunks * load.chunk_records
    with empty_directory(settings.directory) as directory:
        ours(load, CHUNK_RECORDS)(directory)
        plain_joined(load)(directory)
        yield (
            Way(name, partial(read_journal, directory / "journal", records, read)),
            Way("read(4), read(n) loop", partial(read_plain, directory / "plain", records)),
        )
