"""Looks at each journal and topic, some seconds apart, and keeps an hour of that: no page waits for a disk."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import jlog
from jlog.storage.meta import NAME as META
from jlog.storage.meta import journals_below
from jlog.system.files import has_more_entries
from jlog.urls import open_journal, path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jlog.interfaces import JournalProtocol

HOUR_SECONDS = 3600
LOOK_SECONDS = 5
WALK_SHARE = 20  # a walk through all directories takes at most 1 / WALK_SHARE of the time
LOOKERS = 4  # threads, so that one slow disk does not keep the others waiting
# To look at more subscribers takes seconds, and memory for each of them.
MANY_SUBSCRIBERS = 10_000


class Look(NamedTuple):
    at: float  # seconds of the monotonic clock
    end: int
    lag: int | None  # largest of all subscribers; None where they are too many


class Seen(NamedTuple):
    """The figures of a journal, or of a partition of a topic, of which the last three are not known."""

    records: int
    subscribers: int
    lag: int
    size_bytes: int | None = None
    writers: int | None = None
    oldest_unread_seconds: float | None = None


@dataclass
class Watched:
    """A journal, or the URL of a topic. `seen` is None until it was looked at, and where its subscribers are too many."""

    path: str
    seen: Seen | None = None
    error: str = ""
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=HOUR_SECONDS // LOOK_SECONDS))
    busy: bool = False
    journal: JournalProtocol | None = None

    @property
    def is_topic(self) -> bool:
        return path_of(self.path) is None

    def look(self) -> None:
        try:
            if self.journal is None:
                self.journal = open_journal(self.path)
            if not self.is_topic and has_more_entries(os.path.join(self.path, "subscribers"), MANY_SUBSCRIBERS):
                self.seen = None
            else:
                self.seen = seen(self.journal)
            end = self.journal.next_sequence
            self.looks.append(Look(time.monotonic(), end, self.seen.lag if self.seen else None))
            self.error = ""
        except (jlog.JournalError, OSError, ValueError) as error:  # ValueError: a topic that has several partitions now
            self.error, self.seen, self.journal = str(error), None, None

    def rates(self) -> list[tuple[float, float]]:
        """Returns records a second, each with the time of the look that ends its interval."""
        pairs = pairwise(list(self.looks))
        return [(new.at, max(0, new.end - old.end) / max(new.at - old.at, 1e-3)) for old, new in pairs]

    def lags(self) -> list[tuple[float, float]]:
        return [(look.at, look.lag) for look in list(self.looks) if look.lag is not None]


def seen(journal: JournalProtocol) -> Seen:
    if isinstance(journal, jlog.Journal):
        stats = journal.stats()
        of_each = stats.subscribers.values()
        oldest = max((at.oldest_unread_seconds or 0.0 for at in of_each), default=0.0)
        lag = max((at.lag for at in of_each), default=0)
        return Seen(stats.records, len(of_each), lag, stats.size_bytes, stats.writers, oldest)
    groups = journal.subscribers().values()
    return Seen(journal.next_sequence - journal.first_sequence, len(groups), max((at.lag for at in groups), default=0))


def is_below(place: str, path: str) -> bool:
    """Says whether the path is the directory, or lies below it."""
    return f"{path}/".startswith(os.path.join(place, ""))


def is_journal_below(place: str, path: str) -> bool:
    """Says whether journals_below(place) yields the path, and looks at nothing else."""
    if os.path.normpath(path) != path or not is_below(place, path):
        return False
    names = filter(None, path[len(os.path.join(place, "")) :].split("/"))
    way = list(accumulate(names, os.path.join, initial=place))
    if way[-1] != path or any(map(os.path.islink, way[1:])):
        return False
    *above, last = (os.path.lexists(os.path.join(at, META)) for at in way)
    return last and not any(above)


def journals_in(folder: str) -> Iterator[str]:
    """Yields the journals among the entries of a directory."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and os.path.lexists(os.path.join(entry.path, META)):
                yield entry.path


class Sampler:
    """Looks at topics, and at the journals below some directories, in threads of its own, so that a page only shows what is
    known."""

    def __init__(self, places: Sequence[str], topics: Sequence[str] = ()) -> None:
        self._places = places
        self._topics = topics
        self._walk_at = 0.0  # of the monotonic clock: when all directories are looked through again
        self._watched: dict[str, Watched] = {}
        self._due: SimpleQueue[Watched] = SimpleQueue()

    def start(self) -> None:
        # A daemon's thread does not keep the program when it hangs in a disk that does not answer.
        for run in (self._refresh_always, *[self._look_always] * LOOKERS):
            threading.Thread(target=run, daemon=True).start()

    def all(self) -> list[Watched]:
        return list(self._watched.values())

    def named(self, path: str) -> Watched | None:
        """Returns the journal, which may have been created just now; None for a path that is not one of those to look at."""
        if path not in self._watched and any(is_journal_below(place, path) for place in self._places):
            self._know([*self._watched, path])
        return self._watched.get(path)

    def _know(self, paths: Iterable[str]) -> None:
        known = self._watched
        self._watched = {path: known.get(path) or Watched(path) for path in paths}

    def _refresh(self) -> None:
        """Finds new journals: each time beside those that are known, and anywhere where that takes little of the time."""
        begin = time.monotonic()
        try:
            if begin >= self._walk_at:
                self._know([*self._topics, *(path for place in self._places for path in journals_below(place))])
                self._walk_at = time.monotonic() + WALK_SHARE * (time.monotonic() - begin)
            else:
                self._know(dict.fromkeys([*self._watched, *self._beside()]))
        except OSError:
            pass  # a directory that is not there now: what was known stays

    def _beside(self) -> Iterator[str]:
        for folder in {os.path.dirname(path) for path in self._watched if path not in self._topics}:
            if any(is_below(place, folder) for place in self._places):
                yield from journals_in(folder)

    def _refresh_always(self) -> None:
        while True:
            self._refresh()
            for watched in self.all():
                if not watched.busy:
                    watched.busy = True
                    self._due.put(watched)
            time.sleep(LOOK_SECONDS)

    def _look_always(self) -> None:
        while True:
            watched = self._due.get()
            try:
                watched.look()
            finally:
                watched.busy = False
