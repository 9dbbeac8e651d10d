"""Measures two ways to do the same work in turns, in one run, so that other work of the machine slows both."""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jlog.bench.load import Load

# Does the work in an empty directory. Returns the number of records, and the seconds that they took.
Run = Callable[[Path], tuple[int, float]]


@dataclass(frozen=True)
class ContestSettings:
    directory: Path
    load: Load
    rounds: int


@dataclass(frozen=True)
class Way:
    name: str
    run: Run


# Prepares both ways, and yields jlog's way and its rival; None where nothing compares.
Prepare = Callable[[ContestSettings], AbstractContextManager["tuple[Way, Way | None]"]]


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
        return {
            "median": self.median,
            "min": min(self.rounds),
            "max": max(self.rounds),
            "rounds": self.rounds,
        }


@dataclass
class Result:
    """Rates in records a second. The ratio is taken in each round."""

    contest: Contest
    ours_name: str
    rival_name: str
    ours: Spread = field(default_factory=Spread)
    rival: Spread = field(default_factory=Spread)

    @property
    def ratio(self) -> Spread | None:
        if not self.rival.rounds:
            return None
        return Spread([ours / rival for ours, rival in zip(self.ours.rounds, self.rival.rounds, strict=True)])

    def as_json(self) -> dict[str, object]:
        ratio = self.ratio
        return {
            "name": self.contest.name,
            "target": self.contest.target,
            "unit": "records/s",
            "ours": {"name": self.ours_name, **self.ours.as_json()},
            "rival": {"name": self.rival_name, **self.rival.as_json()} if ratio else None,
            "ratio": ratio.as_json() if ratio else None,
        }


def hold(contest: Contest, settings: ContestSettings) -> Result:
    """Holds the contest. The first round only warms up, and the way that begins changes with each round."""
    with contest.prepare(settings) as (ours, rival):
        result = Result(contest, ours.name, rival.name if rival else "")
        ways = [(ours, result.ours)] + ([(rival, result.rival)] if rival else [])
        for way, _ in ways:
            rate(way, settings.directory)
        for number in range(settings.rounds):
            for way, spread in ways if number % 2 == 0 else ways[::-1]:
                spread.rounds.append(rate(way, settings.directory))
        return result


def rate(way: Way, directory: Path) -> float:
    gc.collect()
    with empty_directory(directory) as work:
        gc.disable()
        try:
            records, seconds = way.run(work)
        finally:
            gc.enable()
    return records / seconds


@contextmanager
def empty_directory(parent: Path) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)
