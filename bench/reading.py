"""Reading a journal in the page cache, beside a loop over a plain file of the same values."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from contest import Contest, Settings, Way, empty_directory
from writing import CHUNK, ours, plain_joined

import jlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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


def read_journal(
    path: Path, records: int, read: Callable[[jlog.Reader], int], _directory: Path
) -> tuple[int, float]:
    begin = perf_counter()
    with jlog.Reader(path) as reader:
        done = read(reader)
    seconds = perf_counter() - begin
    assert done == records, (done, records)
    return done, seconds


@contextmanager
def reading(name: str, read: Callable[[jlog.Reader], int], settings: Settings) -> Iterator[tuple[Way, Way]]:
    with empty_directory(settings.directory) as directory:
        ours(settings.records, CHUNK)(directory)
        plain_joined(settings.records)(directory)
        yield (
            Way(name, partial(read_journal, directory / "journal", settings.records, read)),
            Way("read(4), read(n) loop", partial(read_plain, directory / "plain", settings.records)),
        )


CONTESTS = [
    Contest("values", partial(reading, "reader.values()", read_values), "≥ 6×"),
    Contest("records", partial(reading, "for record in reader", read_records)),
    Contest("batches", partial(reading, "reader.read(), values()", read_batches)),
]
