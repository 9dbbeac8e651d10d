"""Watches the brokers and topics of a flow, also while no records come.

A client reports neither a new partition, nor a topic that is deleted and created again, nor, while it is idle, brokers that are
gone.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from jlog.errors import JournalError
from jlog.flow.stop import SLICE_SECONDS, Stop, Stopped
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.client.errors import PassingBrokerError
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import is_topic_name

LOOK_EVERY = 3.0  # seconds between two looks


@dataclass(frozen=True)
class Topology:
    """An answer of the brokers. `asked_at` is the monotonic time of the question. `error` says why there was no answer: a
    Retry, or an error that stays. Where there was one, a topic that is not in `topics` did not exist at either of two looks.
    `table_end` is the end of the watched table, after all of its rows."""

    asked_at: float
    topics: dict[str, Topic] = field(default_factory=dict)
    error: JournalError | None = None
    table_end: int | None = None


class Watcher:
    """Asks for the topics of these names and patterns, and for `table`, every few seconds, in a thread of its own, from start()
    to close(). The newest answer is `latest`."""

    def __init__(
        self, settings: Settings, topics: Sequence[str], exclude: Collection[str] = (), table: str | None = None
    ) -> None:
        self.latest: Topology | None = None
        self._told: Topology | None = None
        self._before: dict[str, Topic] = {}  # the topics of the look before
        self._cluster = Cluster(copy.copy(settings), stop := Stop(grace_seconds=0))
        self._stop = stop
        self._wanted = topics if table is None else [*topics, table]
        self._table = table
        self._exclude = exclude
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to watch. Does nothing where it was started."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="jlog-topology", daemon=True)
            self._thread.start()

    def news(self) -> Topology | None:
        """Returns the newest answer, if this call has not returned it before. Starts to watch at the first call."""
        self.start()
        found = self.latest
        if found is self._told:
            return None
        self._told = found
        return found

    def close(self) -> None:
        """Ends it. Does not wait for long where an answer is under way."""
        self._stop.request()
        if self._thread is not None:
            self._thread.join(2 * SLICE_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stop.requested:
                self.latest = self._look()
                self._stop.wait(LOOK_EVERY)
        except Stopped:
            pass
        finally:
            self._cluster.close()

    def _look(self) -> Topology:
        asked_at = time.monotonic()
        try:
            self._cluster.check(self._wanted[0])  # finds out sooner than the questions below that no broker takes a connection
            topics = self._cluster.topics(matching_topics(self._cluster, self._wanted, self._exclude))
            tables = [(name, 0) for name in topics if name == self._table]
            ends = self._cluster.ends_of(tables, committed=False)
        except Stopped:
            raise
        except JournalError as error:
            return Topology(asked_at, error=error)
        except Exception as error:  # noqa: BLE001 - without this thread nobody would notice a change any more
            text = f"{self._cluster.settings.servers}: watching the topics: {type(error).__name__}: {error}"
            return Topology(asked_at, error=PassingBrokerError(text))
        before, self._before = self._before, topics
        table_end = next(iter(ends.values()), None)
        # A broker that has just started may not know all of them.
        return Topology(asked_at, {**before, **topics}, table_end=table_end)


def matching_topics(cluster: Cluster, wanted: Sequence[str], exclude: Collection[str] = ()) -> list[str]:
    """Returns the names, and the topics that match the patterns, without those that match one to exclude."""
    there = cluster.names() if not all(map(is_topic_name, wanted)) else []
    found: list[str] = []
    for name in wanted:
        if is_topic_name(name):
            found.append(name)
        else:
            found += [one for one in there if fnmatchcase(one, name) and not is_ours(one)]
    return [name for name in dict.fromkeys(found) if not matches(name, exclude)]


def matches(name: str, patterns: Collection[str]) -> bool:
    """Says whether a topic's name is one of these, or matches one of these patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
