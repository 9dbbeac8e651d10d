"""Measures the latency of a record: from append() in one process to follow() in another one that sleeps in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any

from crew import process

import jlog
from jlog.bench import Load, Spread, empty_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from jlog.bench import ContestSettings

RECORDS = 1000
PAUSE_SECONDS = 0.001  # after this time the reader sleeps again
PADDING = bytes(Load.value_bytes - 8)


@dataclass
class Latency:
    """Returns microseconds for each round: the time that half of the records did not exceed, and 99 of 100."""

    half: Spread = field(default_factory=Spread)
    most: Spread = field(default_factory=Spread)

    def add(self, times_ns: list[int]) -> None:
        ordered = sorted(times_ns)
        self.half.rounds.append(ordered[len(ordered) // 2] / 1000)
        self.most.rounds.append(ordered[len(ordered) * 99 // 100] / 1000)


def taken(value: bytes | None) -> int:
    assert value is not None
    return perf_counter_ns() - int.from_bytes(value[:8], "little")  # one clock for all processes


def follow(line: Connection, path: str) -> None:
    with jlog.Reader(path) as reader:
        line.send("ready")
        line.send([taken(record.value) for record in islice(reader.follow(), RECORDS)])


def receive(line: Connection) -> None:
    line.send("ready")
    line.send([taken(line.recv_bytes()) for _ in range(RECORDS)])


def send_all(send: Callable[[bytes], object]) -> None:
    for _ in range(RECORDS):
        sleep(PAUSE_SECONDS)
        send(perf_counter_ns().to_bytes(8, "little") + PADDING)


def through_journal(directory: Path) -> Any:
    path = directory / "journal"
    with jlog.Writer(path) as writer, process(follow, str(path)) as (line, _):
        line.recv()
        send_all(writer.append)
        return line.recv()


def through_pipe(_directory: Path) -> Any:
    with process(receive) as (line, _):
        line.recv()
        send_all(line.send_bytes)
        return line.recv()


WAYS = {"append to follow()": through_journal, "multiprocessing.Pipe, which keeps nothing": through_pipe}


def latency(settings: ContestSettings) -> dict[str, Latency]:
    found = {name: Latency() for name in WAYS}
    for _ in range(settings.rounds):
        for name, way in WAYS.items():
            with empty_directory(settings.directory) as directory:
                found[name].add(way(directory))
    return found
