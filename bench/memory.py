"""Measures whether memory stays flat while much is written and read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jlog
from jlog.bench.contest import empty_directory
from jlog.bench.crew import process
from jlog.bench.load import CHUNK_RECORDS, Load

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from sizes import Sizes

SAMPLES = 20


@dataclass(frozen=True)
class Memory:
    """Returns the resident bytes of the process after a twentieth of the work, at most from then on, and at the end; and
    those of its own memory, without files."""

    early: int
    most: int
    last: int
    early_own: int
    last_own: int


def resident() -> tuple[int, int]:
    """Returns (all resident memory, the part without files), in bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) << 10, int(fields["RssAnon"].split()[0]) << 10


def summary(samples: list[tuple[int, int]]) -> Memory:
    return Memory(samples[0][0], max(sample for sample, _ in samples), samples[-1][0], samples[0][1], samples[-1][1])


def write(line: Connection, path: str, records: int) -> None:
    values = Load(CHUNK_RECORDS).chunk()
    samples = []
    with jlog.Writer(path) as writer:
        for _ in range(SAMPLES):
            for _ in range(records // SAMPLES // CHUNK_RECORDS):
                writer.extend(values)
            samples.append(resident())
    line.send(summary(samples))


def read(line: Connection, path: str, records: int) -> None:
    samples = []
    done, mark = 0, records // SAMPLES
    with jlog.Reader(path) as reader:
        for _value in reader.values():
            done += 1
            if done == mark:
                samples.append(resident())
                mark += records // SAMPLES
    line.send(summary(samples))


def memory(settings: Sizes) -> dict[str, Memory]:
    step = SAMPLES * CHUNK_RECORDS
    records = max(settings.memory_bytes // Load.value_bytes // step, 1) * step
    found = {}
    with empty_directory(settings.directory) as directory:
        for name, work in (("writing", write), ("reading", read)):
            with process(work, str(directory / "journal"), records) as (line, _):
                found[name] = line.recv()
    return found
