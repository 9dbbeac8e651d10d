"""Measures what `sync`, `precommit` and the size of segments cost: choosing.py FILE writes the figures of docs/choosing.md.

`python tools/charts.py` then draws them, and prints them as tables. The values of an option are measured in turns, so that
other work of the machine slows all of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter, perf_counter_ns, process_time
from typing import TYPE_CHECKING, Any

from crew import process
from rich.console import Console

import jlog
from jlog.bench import CHUNK_RECORDS, Load, Spread, empty_directory, has_failpoints, machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

Options = dict[str, Any]
Figures = dict[str, float]

STRETCH = 100  # records that are appended between two looks at the clock
# One append in so many is timed, since reading the clock takes as long as an append.
TIMED_EACH = 7
UNLIMITED = 1 << 62
WRITERS = {"one process": 1, "two processes": 2}
PERCENTILES = {"50 %": 0.5, "99 %": 0.99, "99.9 %": 0.999}


@dataclass(frozen=True)
class Choice:
    """An option, the values that are compared, and what is measured in an empty directory with each of them."""

    name: str
    values: dict[str, Options]
    measure: Callable[[Path, Options], Figures]


def append_records(line: Connection, path: str, seconds: float, records: int, options: Options) -> None:
    """Appends so many records, or for so long, one record a call. Reports their number and the CPU time that they took."""
    values = Load(CHUNK_RECORDS).chunk()[:STRETCH]
    with jlog.Writer(path, **options) as writer:
        append = writer.append
        line.send("ready")
        line.recv()
        end, before, done = perf_counter() + seconds, process_time(), 0
        while done < records and perf_counter() < end:
            for value in values:
                append(value)
            done += STRETCH
        writer.flush()
        line.send((done, process_time() - before))


def rate(processes: int, directory: Path, seconds: float, records: int, options: Options) -> float:
    """Returns the records for each second of CPU time, which other work of the machine changes least."""
    with ExitStack() as stack:
        work = append_records, str(directory / "journal"), seconds, records // processes, options
        lines = [stack.enter_context(process(*work))[0] for _ in range(processes)]
        for line in lines:
            line.recv()
        for line in lines:
            line.send("go")
        done, taken = map(sum, zip(*(line.recv() for line in lines), strict=True))
    return done / taken


def append_times(seconds: float, directory: Path, options: Options) -> Figures:
    """Returns the microseconds that an append takes at most, for each of PERCENTILES."""
    times = array("q")
    value, *others = Load(TIMED_EACH).chunk()
    with jlog.Writer(directory / "journal", **options) as writer:
        append = writer.append
        end = perf_counter_ns() + int(seconds * 1e9)
        before = 0
        while before < end:
            before = perf_counter_ns()
            append(value)
            times.append(perf_counter_ns() - before)
            for other in others:
                append(other)
    ordered = sorted(times)
    return {name: ordered[int(len(ordered) * part)] / 1000 for name, part in PERCENTILES.items()}


def writing(seconds: float, directory: Path, options: Options) -> Figures:
    found = {}
    for name, processes in WRITERS.items():
        with empty_directory(directory) as work:
            found[name] = rate(processes, work, seconds, UNLIMITED, options)
    return found | append_times(seconds, directory, options)


def segments(records: int, directory: Path, options: Options) -> Figures:
    """Also returns the number of files, and the milliseconds to read one record in the middle and to remove what is read."""
    found = {"one process": rate(1, directory, UNLIMITED, records, options)}
    journal = jlog.Journal(directory / "journal")
    found["files"] = len(journal.segments())
    begin = perf_counter()
    with jlog.Reader(journal.path, start=records // 2) as reader:
        assert sum(1 for _ in islice(reader, 1)) == 1
    found["open a reader"] = (perf_counter() - begin) * 1000
    journal.add_subscriber("all", start="end")
    begin = perf_counter()
    journal.clean()
    found["clean"] = (perf_counter() - begin) * 1000
    return found


def choices(records: int, seconds: float) -> list[Choice]:
    """Takes the records that are appended to measure segments, and the seconds of each run for the other options."""
    sync = {f"every {interval:g} s": {"sync": "interval", "sync_interval": interval} for interval in (1, 0.1, 0.01)}
    buffers = (0, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20)
    sizes = (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
    return [
        Choice("sync", {"none": {"sync": "none"}, **sync, "append": {"sync": "append"}}, partial(writing, 1.5 * seconds)),
        Choice("precommit", {size_name(size): {"precommit": size} for size in buffers}, partial(writing, seconds / 2)),
        Choice(
            "segment_bytes",
            {size_name(size): {"segment_bytes": size} for size in sizes},
            partial(segments, records),
        ),
    ]


def size_name(size: int) -> str:
    return "0" if size == 0 else f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def measure(choice: Choice, rounds: int, directory: Path, console: Console) -> dict[str, dict[str, Figures]]:
    """Returns the spread of each figure for each value. The first round only warms up; each round turns the order around."""
    found: dict[str, dict[str, Spread]] = {value: {} for value in choice.values}
    for number in range(rounds + 1):
        console.print(f"{choice.name}: {f'round {number} of {rounds}' if number else 'warming up'}")
        for value, options in list(choice.values.items())[:: 1 if number % 2 else -1]:
            gc.collect()
            with empty_directory(directory) as work:
                figures = choice.measure(work, options)
            for name, figure in figures.items() if number else ():
                found[value].setdefault(name, Spread()).rounds.append(figure)
    return {value: {name: summary(spread) for name, spread in figures.items()} for value, figures in found.items()}


def summary(spread: Spread) -> Figures:
    return {"median": spread.median, "min": min(spread.rounds), "max": max(spread.rounds)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what sync, precommit and the size of segments cost.")
    parser.add_argument("file", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=5, help="that count (default: 5)")
    parser.add_argument("--seconds", type=float, default=1, help="scale of the time of a run (default: 1)")
    parser.add_argument("--records", type=int, default=250_000, help="of a run with segments (default: 250,000)")
    parser.add_argument("--dir", type=Path, default=Path(), help="where the data goes for the time (default: here)")
    options = parser.parse_args()
    console = Console(highlight=False)
    if has_failpoints():
        console.print("built with fail points, for the tests: these numbers are not jlog's", style="red")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        about = machine(Path(directory))
        found = {
            choice.name: measure(choice, options.rounds, Path(directory), console)
            for choice in choices(options.records, options.seconds)
        }
    scale = {"rounds": options.rounds, "seconds": options.seconds, "records": options.records}
    options.file.write_text(json.dumps({"machine": about, "settings": scale, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
