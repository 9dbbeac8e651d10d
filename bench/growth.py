"""Measures what a journal costs as it grows: a commit, a roll and the reading of a segment, by the number of segments and of
subscribers. `python bench/growth.py --help`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import jlog

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENTS = (1, 10, 100, 1_000, 10_000)
SUBSCRIBERS = (1, 10, 100, 1_000, 10_000)
KEEP = jlog.Retention(delete_read=False)
SEGMENT_BYTES = 4096
VALUE = bytes(100)
COMMITS = 2_000
ROLLS = 20
READ_SEGMENTS = 200
READ_RECORDS = 8  # of each segment


def best(rounds: int, work: Callable[[], object], times: int) -> float:
    """Returns the seconds that one of so many calls takes, in the best of the rounds."""
    found = []
    for _ in range(rounds):
        began = perf_counter()
        for _ in range(times):
            work()
        found.append((perf_counter() - began) / times)
    return min(found)


def create(path: Path, segments: int, subscribers: int, retention: jlog.Retention = KEEP) -> None:
    """Creates a journal whose subscribers stand at its beginning, and hold everything back."""
    with jlog.Writer(path, segment_bytes=SEGMENT_BYTES, retention=retention) as writer:
        for number in range(segments):
            writer.extend([VALUE] * READ_RECORDS)
            if number < segments - 1:
                writer.roll()
        writer.sync()
    journal = jlog.Journal(path)
    for number in range(subscribers):
        journal.add_subscriber(f"s{number}")


def commit_us(path: Path, rounds: int) -> float:
    """A subscriber commits each record of the open segment. All other subscribers stay where they are."""
    with jlog.Writer(path) as writer, jlog.Reader(path, "fast", start="end") as reader:
        end = writer.extend([VALUE] * COMMITS)
        for _ in reader:
            pass
        reader.commit(end)
        commits = iter(range(end, end + rounds * COMMITS))
        writer.extend([VALUE] * rounds * COMMITS)
        for _ in reader:
            pass
        return best(rounds, lambda: reader.commit(next(commits)), COMMITS) * 1e6


def roll_ms(path: Path, rounds: int) -> float:
    with jlog.Writer(path, retention=jlog.Retention()) as writer:

        def roll() -> None:
            writer.append(VALUE)
            writer.roll()

        return best(rounds, roll, ROLLS) * 1e3


def read_us(path: Path, rounds: int) -> float:
    """Reads the first segments, one after the other. Opening the reader, which lists the directory once, is not counted."""
    segments = min(READ_SEGMENTS, len(jlog.Journal(path).segments()))
    found = []
    for _ in range(rounds):
        with jlog.Reader(path) as reader:
            values = reader.values()
            found.append(best(1, lambda: next(values), segments * READ_RECORDS))  # noqa: B023
    return min(found) * READ_RECORDS * 1e6


def measure(folder: Path, segments: int, subscribers: int, rounds: int) -> dict[str, float]:
    path = folder / f"{segments}-{subscribers}"
    create(path, segments, subscribers)
    read = read_us(path, rounds)
    roll = roll_ms(path, rounds)
    commit = commit_us(path, rounds)
    return {
        "segments": segments,
        "subscribers": subscribers,
        "read_segment_us": round(read, 1),
        "roll_ms": round(roll, 3),
        "commit_us": round(commit, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, nargs="*", default=SEGMENTS)
    parser.add_argument("--subscribers", type=int, nargs="*", default=SUBSCRIBERS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, help="where the journals are created; it should be on a fast disk")
    arguments = parser.parse_args()
    cases = [(segments, 1) for segments in arguments.segments]
    cases += [(1, subscribers) for subscribers in arguments.subscribers if (1, subscribers) not in cases]
    with tempfile.TemporaryDirectory(prefix="jlog-growth-", dir=arguments.dir) as folder:
        for segments, subscribers in cases:
            found = measure(Path(folder), segments, subscribers, arguments.rounds)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
