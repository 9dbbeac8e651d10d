"""Looks at journals again and again, and computes their rates."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jlog
from jlog.cli.terminal.output import describe
from jlog.errors import JournalError
from jlog.storage.meta import journals_below

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTERS = ("appends", "bytes", "flushes", "syncs", "rolls", "waits")  # of jlog.Stats
SEARCH_EVERY = 10.0  # seconds between two searches of a directory for journals


@dataclass(frozen=True)
class Rates:
    """Rates per second between two looks. Counters that began anew in between, in a journal that was created anew, give 0."""

    counters: dict[str, float]  # by the names of COUNTERS
    read: dict[str, float]  # records that each subscriber committed
    lag: dict[str, float]  # growth of each subscriber's lag, negative where it shrinks


def rates(before: jlog.Stats, now: jlog.Stats, seconds: float) -> Rates:
    both = {name: (before.subscribers[name], at) for name, at in now.subscribers.items() if name in before.subscribers}
    return Rates(
        counters={name: max(0, getattr(now, name) - getattr(before, name)) / seconds for name in COUNTERS},
        read={name: max(0, at.sequence - was.sequence) / seconds for name, (was, at) in both.items()},
        lag={name: (at.lag - was.lag) / seconds for name, (was, at) in both.items()},
    )


@dataclass
class Sample:
    """The last look at a journal. `rates` are there from the second look on; `error` says why it could not be read."""

    path: str
    stats: jlog.Stats | None = None
    rates: Rates | None = None
    error: str = ""
    time: float = field(default=0.0, repr=False)


def alarm_of(at: jlog.SubscriberStats) -> str:
    """Says in a word what is wrong with a subscriber; an empty text where nothing is."""
    full = at.work is not None and at.work.full
    states = {"damaged": at.damaged, "expired": at.expired, "dead": at.dead, "full": full}
    return next((state for state, holds in states.items() if holds), "")


class Sampler:
    """Looks at journals, and at all journals below directories."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises OSError or JournalError for a path that is neither a journal nor a directory."""
        self._journals: dict[str, jlog.Journal] = {}
        self._samples: dict[str, Sample] = {}
        self._directories = [path for path in paths if _is_directory_of_journals(path)]
        self._given = [path for path in paths if path not in self._directories]
        for path in self._given:
            self._journals[path] = jlog.Journal(path)
        self._below: list[str] = []
        self._searched = -SEARCH_EVERY

    def look(self) -> list[Sample]:
        """Looks at all journals, in the order in which they were given or found."""
        paths = dict.fromkeys([*self._given, *self._search()])
        self._samples = {path: self._look_at(path) for path in paths}
        return list(self._samples.values())

    def _search(self) -> list[str]:
        if self._directories and time.monotonic() - self._searched >= SEARCH_EVERY:
            self._searched = time.monotonic()
            self._below = []
            for directory in self._directories:
                with suppress(OSError):  # it may be removed, and come again
                    self._below += journals_below(directory)
        return self._below

    def _look_at(self, path: str) -> Sample:
        before = self._samples.get(path)
        try:
            if path not in self._journals:
                self._journals[path] = jlog.Journal(path)
            now, stats = time.monotonic(), self._journals[path].stats()
        except (JournalError, OSError) as error:
            return Sample(path, error=describe(error))
        if before is None or before.stats is None or now <= before.time:
            return Sample(path, stats, time=now)
        return Sample(path, stats, rates(before.stats, stats, now - before.time), time=now)


def _is_directory_of_journals(path: str) -> bool:
    return os.path.isdir(path) and not os.path.exists(os.path.join(path, "journal.meta"))
