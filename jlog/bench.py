"""Measures jlog beside a plain file of length-prefixed values, for `jlogtool bench`; the contests of a checkout's `bench/` are
held by the same rules: two ways to do the same work take turns in one run, so that other work of the machine slows both."""

from __future__ import annotations

import gc
import importlib.util
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import jlog
from jlog.system.filesystem import type_of

CHUNK_RECORDS = 1000
CHUNK_BYTES = 16 << 20
DURABLE_PART, DURABLE_LEAST = 1 / 2000, 100  # a disk syncs a hundred to ten thousands of times a second

# Does the work in an empty directory. Returns the number of records, and the seconds that they took.
Run = Callable[[Path], tuple[int, float]]
Read = Callable[[jlog.Reader], int]


@dataclass(frozen=True)
class Load:
    """The records of one run: their number and their size. They are appended in chunks, the same chunk again and again."""

    records: int
    value_bytes: int = 100

    @property
    def chunk_records(self) -> int:
        return max(min(CHUNK_RECORDS, CHUNK_BYTES // max(self.value_bytes, 1), self.records), 1)

    @property
    def chunks(self) -> int:
        return max(self.records // self.chunk_records, 1)

    def chunk(self) -> list[bytes]:
        return [value_of(number, self.value_bytes) for number in range(self.chunk_records)]

    def whole(self, processes: int = 1) -> Load:
        """Rounds the number of records, so that each process has whole chunks."""
        step = self.chunk_records * processes
        return replace(self, records=max(self.records // step, 1) * step)

    def share(self, part: float, least: int = 1) -> Load:
        """Takes a part of the records, but at least `least`."""
        return replace(self, records=max(int(self.records * part), least)).whole()


def value_of(number: int, size: int) -> bytes:
    """Returns a line of JSON as services log it, cut or repeated to the size. LZ4 compresses it to about a half."""
    line = b'{"id":"%s","sequence":%d,"level":"info","path":"/orders/%d","ms":%d},' % (
        os.urandom(8).hex().encode(),
        number,
        number * 7919 % 10_007,
        number * 31 % 997,
    )
    return (line * (size // len(line) + 1))[:size]


# --- Contests -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ContestSettings:
    directory: Path
    load: Load
    rounds: int


@dataclass(frozen=True)
class Way:
    name: str
    run: Run


# Prepares both ways, and yields jlog's way and its rival.
Prepare = Callable[[ContestSettings], AbstractContextManager[tuple[Way, Way]]]


@dataclass(frozen=True)
class Contest:
    name: str
    prepare: Prepare
    target: str = ""  # the ratio to reach


@dataclass
class Spread:
    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def as_json(self) -> dict[str, object]:
        return {"median": self.median, "min": min(self.rounds), "max": max(self.rounds), "rounds": self.rounds}


@dataclass
class Result:
    """Rates in records a second. The ratio is taken in each round."""

    contest: Contest
    ours_name: str
    rival_name: str
    ours: Spread = field(default_factory=Spread)
    rival: Spread = field(default_factory=Spread)

    @property
    def ratio(self) -> Spread:
        return Spread([ours / rival for ours, rival in zip(self.ours.rounds, self.rival.rounds, strict=True)])


def hold(contest: Contest, settings: ContestSettings) -> Result:
    """Holds the contest. The first round only warms up, and the way that begins changes with each round."""
    with contest.prepare(settings) as (ours, rival):
        result = Result(contest, ours.name, rival.name)
        ways = [(ours, result.ours), (rival, result.rival)]
        for way, _ in ways:
            rate(way, settings.directory)
        for number in range(settings.rounds):
            for way, spread in ways if number % 2 == 0 else ways[::-1]:
                spread.rounds.append(rate(way, settings.directory))
        return result


def rate(way: Way, directory: Path) -> float:
    gc.collect()  # frees the garbage of the way before; the collector stays on, as in programs
    with empty_directory(directory) as work:
        records, seconds = way.run(work)
    return records / seconds


@contextmanager
def empty_directory(parent: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


# --- Ways ---------------------------------------------------------------------------------------------------


def prefix_of(load: Load) -> bytes:
    return load.value_bytes.to_bytes(4, "little")


def plain_loop(load: Load, buffering: int = -1, *, durable: bool = False) -> Run:
    """Writes to a plain file, value by value; if `durable`, it syncs each value before the next one is written."""
    values = load.chunk()

    def run(directory: Path) -> tuple[int, float]:
        prefix = prefix_of(load)
        begin = perf_counter()
        with open(directory / "plain", "ab", buffering=0 if durable else buffering) as file:

            def write_durably(value: bytes) -> None:
                file.write(value)
                os.fdatasync(file.fileno())

            write = write_durably if durable else file.write
            for _ in range(load.chunks):
                for value in values:
                    write(prefix + value)
        return load.chunks * len(values), perf_counter() - begin

    return run


def append_records(writer: jlog.Writer, load: Load, many: int) -> None:
    """Appends, and ends with a flush, as the plain file flushes its own buffer."""
    values = load.chunk()
    write: Callable[[Any], int] = writer.append if many == 1 else writer.extend
    pieces = values if many == 1 else [values[at : at + many] for at in range(0, len(values), many)]
    for _ in range(load.chunks):
        for piece in pieces:
            write(piece)
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
    yield Way("append, sync=append", ours(load, sync="append")), Way("write and fdatasync each", plain_loop(load, durable=True))


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


# --- The machine --------------------------------------------------------------------------------------------


def machine(directory: Path) -> dict[str, str]:
    """Describes the machine on which the numbers are measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "jlog": f"{jlog.__version__}{', built with fail points' if has_failpoints() else ''}",
        "file system": type_of(str(directory)) or "unknown",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def has_failpoints() -> bool:
    """Says whether this is a build for the tests, which is slower: only such a build contains the name of the variable that
    arms fail points."""
    found = importlib.util.find_spec("jlog._core.recover.recovery")
    return found is not None and b"JLOG_FAILPOINTS" in Path(str(found.origin)).read_bytes()
